package store

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cabine-pix/cabine/libs/store/db"
)

// DB is a pool of connections to one database. It is safe for concurrent use.
type DB struct {
	cfg  Config
	pool *pgxpool.Pool
}

// Open connects and checks that the schema is at least as new as this program and that
// the server keeps what it commits. It fails with ErrUnavailable while the database
// cannot be reached, with ErrSchema while it was not migrated, and with ErrNotDurable as
// every later connection does whose settings do not hold. A server that is read-only counts
// as one that cannot be reached: a standby may not know yet what was committed. Where the
// URL names several servers the next one is tried.
func Open(ctx context.Context, cfg Config) (*DB, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("store config: %w", err)
	}
	pc, err := pgxpool.ParseConfig(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("store config: %w", err) // pgconn leaves the password out
	}
	pc.MaxConns = cfg.MaxConns
	pc.MaxConnLifetime = cfg.ConnMaxLifetime
	pc.MaxConnLifetimeJitter = cfg.ConnMaxLifetime / 10
	pc.ConnConfig.ConnectTimeout = cfg.AcquireTimeout
	pc.ConnConfig.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	pc.AfterConnect = prepare
	params := pc.ConnConfig.RuntimeParams
	params["application_name"] = cfg.Application
	params["statement_timeout"] = millis(cfg.StatementTimeout)
	params["idle_in_transaction_session_timeout"] = millis(cfg.IdleInTransaction)
	// Every statement is prepared once per connection and none profits from a plan of its own.
	params["plan_cache_mode"] = "force_generic_plan"
	// A plan outlives the size that its table had when it was made: each statement names the index that it relies on.
	params["enable_seqscan"] = "off"

	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, translate("open pool", err)
	}
	d := &DB{cfg: cfg, pool: pool}
	if err := d.checkSchema(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	return d, nil
}

// Close waits for the calls in progress and closes all connections.
func (d *DB) Close() { d.pool.Close() }

// Ping reports whether the database answers, within the limits of the configuration.
func (d *DB) Ping(ctx context.Context) error {
	return d.call(ctx, "ping", func(ctx context.Context, conn db.DBTX) error {
		_, err := conn.Exec(ctx, "-- ping")
		return err
	})
}

// Tx is a transaction of InTx. It is handed to the methods that take one and must not
// be kept.
type Tx struct{ tx pgx.Tx }

// InTx runs fn in one transaction: committed if fn returns nil, rolled back otherwise.
// An ErrUnavailable from the commit leaves the outcome unknown.
func (d *DB) InTx(ctx context.Context, fn func(ctx context.Context, tx *Tx) error) error {
	conn, err := d.acquire(ctx)
	if err != nil {
		return translate("transaction", err)
	}
	defer conn.Release()
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return fn(ctx, &Tx{tx: tx}) })
	return translate("transaction", err)
}

// call runs fn on one connection within the limits of the configuration and translates its error.
func (d *DB) call(ctx context.Context, op string, fn func(ctx context.Context, conn db.DBTX) error) error {
	return d.within(ctx, op, func(ctx context.Context, conn *pgxpool.Conn) error { return fn(ctx, conn) })
}

// callTx is call in a transaction.
func (d *DB) callTx(ctx context.Context, op string, fn func(ctx context.Context, tx db.DBTX) error) error {
	return d.within(ctx, op, func(ctx context.Context, conn *pgxpool.Conn) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return fn(ctx, tx) })
	})
}

func (d *DB) within(ctx context.Context, op string, fn func(ctx context.Context, conn *pgxpool.Conn) error) error {
	conn, err := d.acquire(ctx)
	if err != nil {
		return translate(op, err)
	}
	defer conn.Release()
	ctx, cancel := context.WithTimeout(ctx, d.cfg.CallTimeout)
	defer cancel()
	return translate(op, fn(ctx, conn))
}

// prepare makes a new connection fit for use.
func prepare(ctx context.Context, conn *pgx.Conn) error {
	registerPayloads(conn)
	return checkDurable(ctx, conn)
}

// checkDurable refuses a session whose commits a crash of the server, or of its primary where there is a
// synchronous standby, may take back: the bank forgets what we acknowledged. It looks and changes nothing, since
// what is stronger than "on" must stay. A setting may change under a service, so each connection looks.
func checkDurable(ctx context.Context, conn *pgx.Conn) error {
	var fsync, commit, standbys string
	err := conn.QueryRow(ctx, "SELECT current_setting('fsync'), current_setting('synchronous_commit'), "+
		"current_setting('synchronous_standby_names')").Scan(&fsync, &commit, &standbys)
	switch {
	case err != nil:
		return fmt.Errorf("durability of the session: %w", err)
	case fsync == "off":
		return fmt.Errorf("%w: fsync is off", ErrNotDurable)
	case commit == "off":
		return fmt.Errorf("%w: synchronous_commit is off", ErrNotDurable)
	case commit == "local" && standbys != "":
		return fmt.Errorf("%w: synchronous_commit is local although synchronous_standby_names is %q", ErrNotDurable, standbys)
	}
	return nil
}

// acquire bounds the wait for a connection: pgxpool would wait as long as ctx lives.
func (d *DB) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.AcquireTimeout)
	defer cancel()
	conn, err := d.pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("acquire connection: %w", err)
	}
	return conn, nil
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
