package bus

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// What callers branch on.
var (
	// ErrUnavailable: not connected, no answer in time, or an answer about the server, the account or the
	// stream: full, sealed, without a leader. A publication may or may not have been stored; it may be
	// repeated under the same ID, and succeeds once somebody has cured the cause.
	ErrUnavailable = errors.New("bus unavailable")
	// ErrNotProvisioned: a declared stream or consumer does not exist; the deploy step did
	// not run, or the server lost its store.
	ErrNotProvisioned = errors.New("bus not provisioned")
	// ErrNotAttempted: an earlier message of the same batch failed, so this one was held back to keep the order.
	ErrNotAttempted = errors.New("not attempted")
	// ErrRefused: the message itself can never be stored, here and now or later: too large, or with a
	// subject or headers that are none. What it says is the message's own fault, so a caller may give the
	// message up for it; anything that is not certainly of this kind is ErrUnavailable.
	ErrRefused = errors.New("refused by the bus")
)

// headersTooLarge is the server's JSStreamHeaderExceedsMaximumErr, which nats.go does not name.
const headersTooLarge jetstream.ErrorCode = 10097

// faulty reports that err is about the message alone. It is a closed list: an error that is not known
// must not cost a payment.
func faulty(err error) bool {
	if isAny(err, nats.ErrMaxPayload, nats.ErrBadSubject, nats.ErrBadHeaderMsg, nats.ErrInvalidMsg) {
		return true
	}
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && (api.ErrorCode == jetstream.JSErrCodeStreamMessageExceedsMaximum || api.ErrorCode == headersTooLarge)
}

// translate turns an error of nats.go into the vocabulary above; op says what failed.
func translate(op string, err error) error {
	switch {
	case err == nil:
		return nil
	case isAny(err, ErrUnavailable, ErrNotProvisioned, ErrNotAttempted, ErrRefused, context.Canceled):
		return fmt.Errorf("%s: %w", op, err)
	case isAny(err, jetstream.ErrStreamNotFound, jetstream.ErrConsumerNotFound, jetstream.ErrConsumerDeleted,
		jetstream.ErrConsumerDoesNotExist, jetstream.ErrNoStreamResponse, nats.ErrNoResponders,
		jetstream.ErrJetStreamNotEnabled, jetstream.ErrJetStreamNotEnabledForAccount):
		return fmt.Errorf("%s: %w: %w", op, ErrNotProvisioned, err)
	case faulty(err):
		return fmt.Errorf("%s: %w: %w", op, ErrRefused, err)
	}
	// What is left is the connection, time, and the state of the server.
	return fmt.Errorf("%s: %w: %w", op, ErrUnavailable, err)
}

// The server's JSStreamInvalidConfigF and JSConsumerCreateErrF, which it counts among its own faults (500): a field that it
// does not change, for one. A server that is not ready or full says so with others.
const (
	invalidStream   jetstream.ErrorCode = 10052
	invalidConsumer jetstream.ErrorCode = 10012
)

// untenable translates an error of a declaration: what the server says about it is final, and of none of the kinds above.
func untenable(op string, err error) error {
	api, ok := errors.AsType[*jetstream.APIError](err)
	if ok && (api.Code >= 400 && api.Code < 500 || api.ErrorCode == invalidStream || api.ErrorCode == invalidConsumer) {
		return fmt.Errorf("%s: %w", op, err)
	}
	return translate(op, err)
}

func isAny(err error, targets ...error) bool {
	for _, target := range targets {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}
