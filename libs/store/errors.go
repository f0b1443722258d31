package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"
)

// What callers branch on. Every other error is a fault of the program or of the schema.
var (
	// ErrStaleTerm: somebody with a newer term owns the slot or the leadership. Nothing was written.
	ErrStaleTerm = errors.New("stale term")
	// ErrNotFound: the row does not exist or is not in a state that the call moves.
	ErrNotFound = errors.New("not found")
	// ErrExceeds: a return would give back more than is left of its original. Nothing was written.
	ErrExceeds = errors.New("exceeds what is left of the original")
	// ErrCursor: a listing was asked to go on where none of its pages ended.
	ErrCursor = errors.New("not a cursor of this listing")
	// ErrUnavailable: no answer from the database, or one that says "not now". The
	// outcome is unknown; the call may be repeated.
	ErrUnavailable = errors.New("database unavailable")
	// ErrRefused: a constraint refused the row. Repeating does not help.
	ErrRefused = errors.New("refused by the database")
	// ErrSchema: the schema is older than this program; run "migrate up" first.
	ErrSchema = errors.New("schema is not up to date")
	// ErrNotDurable: the server's settings let it forget what it committed. It is a matter of configuration.
	ErrNotDurable = errors.New("commits are not durable")
)

// SQLSTATE codes and classes, from appendix A of the PostgreSQL manual.
const (
	classConnection   = "08"
	classIntegrity    = "23"
	classResources    = "53"
	classIntervention = "57" // cancelled by statement_timeout, shutdown, crash, starting up

	codeUnique        = "23505"
	codeReadOnly      = "25006" // a primary that became a replica under us
	codeStoodStill    = "25P03" // idle_in_transaction_session_timeout: this process, and not the statement, was late
	codeSerialization = "40001"
	codeDeadlock      = "40P01"
	codeLockTimeout   = "55P03"
)

// translate turns an error of pgx into the vocabulary above; op says what failed. It is
// the only place that knows SQLSTATE.
func translate(op string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrStaleTerm), errors.Is(err, ErrNotFound), errors.Is(err, ErrExceeds), errors.Is(err, ErrUnavailable),
		errors.Is(err, ErrRefused), errors.Is(err, ErrSchema), errors.Is(err, ErrNotDurable):
		return fmt.Errorf("%s: %w", op, err)
	case errors.Is(err, pgx.ErrNoRows):
		return fmt.Errorf("%s: %w", op, ErrNotFound)
	}
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		return fmt.Errorf("%s: %w", op, refused(pgErr))
	}
	if unreachable(err) {
		return fmt.Errorf("%s: %w: %w", op, ErrUnavailable, err)
	}
	return fmt.Errorf("%s: %w", op, err)
}

func refused(err *pgconn.PgError) error {
	switch err.Code {
	case codeReadOnly, codeStoodStill, codeSerialization, codeDeadlock, codeLockTimeout:
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	switch err.Code[:min(2, len(err.Code))] {
	case classConnection, classResources, classIntervention:
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	case classIntegrity:
		return fmt.Errorf("%w: constraint %s: %w", ErrRefused, err.ConstraintName, err)
	}
	return err
}

// unreachable reports that err is about the way to the database, or about the time it took. A caller who gave up
// (Canceled) is not told that the database is unavailable.
func unreachable(err error) bool {
	if errors.Is(err, context.Canceled) {
		return false
	}
	if _, ok := errors.AsType[net.Error](err); ok { // also context.DeadlineExceeded
		return true
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, pgconn.ErrConnClosed) ||
		errors.Is(err, puddle.ErrClosedPool) || pgconn.SafeToRetry(err)
}

// storedBefore reports that a message of the batch is in the inbox already.
func storedBefore(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pgErr.Code == codeUnique && pgErr.ConstraintName == "inbox_once"
}
