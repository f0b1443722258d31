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
	// ErrUnavailable: not connected, or no answer in time. A publication may or may not
	// have been stored; it may be repeated under the same ID.
	ErrUnavailable = errors.New("bus unavailable")
	// ErrNotProvisioned: a declared stream or consumer does not exist; the deploy step did
	// not run, or the server lost its store.
	ErrNotProvisioned = errors.New("bus not provisioned")
	// ErrNotAttempted: an earlier message of the same batch failed, so this one was held back to keep the order.
	ErrNotAttempted = errors.New("not attempted")
	// ErrRefused: the server refused the message; repeating does not help.
	ErrRefused = errors.New("refused by the bus")
)

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
	case isAny(err, nats.ErrMaxPayload, nats.ErrBadSubject, nats.ErrInvalidMsg):
		return fmt.Errorf("%s: %w: %w", op, ErrRefused, err)
	}
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		if api.Code >= 500 {
			return fmt.Errorf("%s: %w: %w", op, ErrUnavailable, err)
		}
		return fmt.Errorf("%s: %w: %w", op, ErrRefused, err)
	}
	// What is left is the connection and time.
	return fmt.Errorf("%s: %w: %w", op, ErrUnavailable, err)
}

func isAny(err error, targets ...error) bool {
	for _, target := range targets {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}
