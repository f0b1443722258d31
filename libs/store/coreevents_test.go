package store_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/store"
)

func coreEvent(id, body string) store.CoreEvent {
	return store.CoreEvent{ID: id, Request: sha256.Sum256([]byte(body))}
}

// decide writes a verdict in a transaction of its own.
func decide(t *testing.T, b books, c *store.CoreEvents, e store.CoreEvent, v store.Verdict) (fresh bool) {
	t.Helper()
	require.NoError(t, b.db.InTx(t.Context(), func(ctx context.Context, tx *store.Tx) (err error) {
		fresh, err = c.Decide(ctx, tx, e, v)
		return err
	}))
	return fresh
}

// An event has one verdict, whatever is said later, and no other request under its ID gets one.
func TestACoreEventHasOneVerdict(t *testing.T) {
	t.Parallel()
	b := setupBooks(t)
	c := store.NewCoreEvents(b.db)
	accepted, refused := store.Verdict{PaymentID: e2e(1)}, store.Verdict{Refusal: json.RawMessage(`{"tipo": "x\u0000"}`)}
	e := coreEvent("a", "body")
	_, _, err := c.Verdict(t.Context(), e)
	require.ErrorIs(t, err, store.ErrNotFound)
	require.True(t, decide(t, b, c, e, accepted))
	require.False(t, decide(t, b, c, e, refused))
	require.False(t, decide(t, b, c, coreEvent("a", "other"), refused))
	v, same, err := c.Verdict(t.Context(), e)
	require.NoError(t, err)
	require.True(t, same)
	require.Equal(t, accepted, v)
	_, same, err = c.Verdict(t.Context(), coreEvent("a", "other"))
	require.NoError(t, err)
	require.False(t, same)

	require.True(t, decide(t, b, c, coreEvent("b", ""), refused))
	v, _, err = c.Verdict(t.Context(), coreEvent("b", ""))
	require.NoError(t, err)
	require.Equal(t, refused, v)
	_, err = side(t, b.url).Exec(t.Context(), "UPDATE core_events SET payment_id = $1", e2e(2))
	require.ErrorContains(t, err, "core_events_one_verdict")
}

// Failures are counted without a verdict, which may come afterwards.
func TestFailuresOfACoreEventAreNoVerdict(t *testing.T) {
	t.Parallel()
	b := setupBooks(t)
	c := store.NewCoreEvents(b.db)
	e := coreEvent("a", "body")
	for want := 1; want < 4; want++ {
		n, err := c.Failed(t.Context(), e)
		require.NoError(t, err)
		require.Equal(t, want, n)
		_, _, err = c.Verdict(t.Context(), e)
		require.ErrorIs(t, err, store.ErrNotFound)
	}
	require.False(t, decide(t, b, c, coreEvent("a", "other"), store.Verdict{PaymentID: e2e(2)}))
	require.True(t, decide(t, b, c, e, store.Verdict{PaymentID: e2e(1)}))
}

// Many transactions with the same event at once: one is fresh.
func TestACoreEventDecidedAtOnce(t *testing.T) {
	t.Parallel()
	b := setupBooks(t)
	c := store.NewCoreEvents(b.db)
	fresh := make([]bool, 8)
	failed := make([]error, len(fresh))
	var all sync.WaitGroup
	for i := range fresh {
		all.Go(func() {
			failed[i] = b.db.InTx(t.Context(), func(ctx context.Context, tx *store.Tx) (err error) {
				fresh[i], err = c.Decide(ctx, tx, coreEvent("a", "body"), store.Verdict{PaymentID: e2e(i)})
				return err
			})
		})
	}
	all.Wait()
	count := 0
	for i := range fresh {
		require.NoError(t, failed[i])
		if fresh[i] {
			count++
		}
	}
	require.Equal(t, 1, count)
}

// The same event is one dead letter, other bytes under its ID are another.
func TestARefusedCoreEventIsADeadLetter(t *testing.T) {
	t.Parallel()
	b := setupBooks(t)
	c := store.NewCoreEvents(b.db)
	for _, body := range []string{"body", "body", "\x00other"} {
		require.NoError(t, b.db.InTx(t.Context(), func(ctx context.Context, tx *store.Tx) error {
			return c.Bury(ctx, tx, "12345678", coreEvent("a", body), "why", []byte(body))
		}))
	}
	letters, err := store.NewInbox(b.db).DeadLetters(t.Context(), 0, 10)
	require.NoError(t, err)
	require.Len(t, letters, 2)
	require.Equal(t, "core:12345678", letters[0].Source)
	require.Equal(t, "payment_request", letters[0].MsgType)
}
