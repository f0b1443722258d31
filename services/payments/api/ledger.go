package api

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cabine-pix/cabine/libs/edge"
	"github.com/cabine-pix/cabine/libs/store"
)

// keyLife is how long an answer is kept with its key, and purgePause how often older ones are looked for.
const (
	keyLife    = 24 * time.Hour
	purgePause = 10 * time.Minute
)

// abandonLimit bounds the freeing of a key whose request had no effect; it outlives the request.
const abandonLimit = 2 * time.Second

// ledger keeps answers by key, in the transaction of their effect.
type ledger struct {
	db   *store.DB
	keys *store.Idempotency
	log  *slog.Logger
}

// Once implements edge.Ledger. A key whose process died before its effect is free again after
// store.KeyAbandonedAfter; one whose effect failed is free at once.
func (l ledger) Once(ctx context.Context, key string, request [sha256.Size]byte, effect func(context.Context, *store.Tx) (edge.Answer, error)) (edge.Answer, bool, error) {
	found, err := l.keys.Begin(ctx, key, request)
	if err != nil {
		return edge.Answer{}, false, err
	}
	switch found.State {
	case store.KeyAnswered:
		return edge.Answer{Status: found.Status, Body: found.Body}, false, nil
	case store.KeyInProgress:
		return edge.Answer{}, false, edge.ErrInProgress
	case store.KeyMismatch:
		return edge.Answer{}, false, edge.ErrMismatch
	case store.KeyFresh:
	}
	var answer edge.Answer
	defer func() {
		if answer.Status == 0 { // also when effect panics
			l.abandon(ctx, key)
		}
	}()
	err = l.db.InTx(ctx, func(ctx context.Context, tx *store.Tx) error {
		a, err := effect(ctx, tx)
		if err != nil {
			return err
		}
		err = l.keys.Finish(ctx, tx, key, a.Status, a.Body)
		if errors.Is(err, store.ErrNotFound) {
			// It took longer than KeyAbandonedAfter, and another request has the key now.
			return fmt.Errorf("%w: %w", edge.ErrInProgress, err)
		}
		if err != nil {
			return err
		}
		answer = a
		return nil
	})
	if err != nil {
		answer = edge.Answer{}
		return answer, false, err
	}
	return answer, true, nil
}

// abandon frees a key. If the outcome of the transaction is not known, it waits for it and frees nothing that was kept.
func (l ledger) abandon(ctx context.Context, key string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonLimit)
	defer cancel()
	if err := l.keys.Abandon(ctx, key); err != nil {
		l.log.Warn("idempotency key stays taken for a while", "error", err, "correlation_id", edge.CorrelationID(ctx))
	}
}
