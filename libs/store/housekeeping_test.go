package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
)

func TestOrdersThatNothingEverCarriedExpire(t *testing.T) {
	t.Parallel()
	b := setupBooks(t)
	ops := b.ordered(t, e2e(1), e2e(2), e2e(3), e2e(4))
	b.build(t, draft(msgID(1), 1, ops[1]))
	conn := side(t, b.url)
	_, err := conn.Exec(t.Context(), "UPDATE outbox SET created_at = now() - interval '1 hour' WHERE id = ANY($1)", ops[:3])
	require.NoError(t, err)
	held, err := conn.Begin(t.Context()) // somebody is building a message with the third
	require.NoError(t, err)
	_, err = held.Exec(t.Context(), "SELECT FROM outbox WHERE id = $1 FOR NO KEY UPDATE", ops[2])
	require.NoError(t, err)
	expire := func() (ids []string) {
		b.tx(t, func(ctx context.Context, tx *store.Tx) error {
			moved, err := b.outbox.Expire(ctx, tx, 30*time.Minute, "scheduler", "expired")
			for _, m := range moved {
				require.True(t, m.Changed)
				ids = append(ids, m.ID)
			}
			return err
		})
		return ids
	}
	require.Equal(t, []string{e2e(1)}, expire())
	require.NoError(t, held.Rollback(t.Context()))
	require.Equal(t, []string{e2e(3)}, expire())
	require.Empty(t, expire())
	require.Equal(t, []bool{false}, b.build(t, draft(msgID(2), 1, ops[0])), "it is not sent any more")
	for id, state := range map[string]pix.State{e2e(1): pix.Rejected, e2e(2): pix.Created, e2e(3): pix.Rejected, e2e(4): pix.Created} {
		p, err := b.payments.Get(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, state, p.State, id)
	}
}

func TestOldDeadLettersAndKeysAreForgotten(t *testing.T) {
	t.Parallel()
	b := setupBooks(t)
	conn := side(t, b.url)
	_, err := conn.Exec(t.Context(), `INSERT INTO dead_letters (buried_at, source, message_id, msg_type, reason, payload)
		SELECT now() - n * interval '1 day', 's', 'm' || n, '', 'r', 'x' FROM generate_series(10, 1, -1) AS n`)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), `INSERT INTO idempotency_keys (key, request, created_at)
		SELECT 'k' || n, sha256('x'), now() - n * interval '1 day' FROM generate_series(1, 10) AS n`)
	require.NoError(t, err)
	purge := func() (letters, keys int64) {
		b.tx(t, func(ctx context.Context, tx *store.Tx) (err error) {
			if letters, err = b.inbox.PurgeDeadLetters(ctx, tx, 7*24*time.Hour-time.Hour); err != nil {
				return err
			}
			keys, err = b.keys.PurgeTx(ctx, tx, 7*24*time.Hour-time.Hour)
			return err
		})
		return letters, keys
	}
	letters, keys := purge()
	require.Equal(t, []int64{4, 4}, []int64{letters, keys})
	letters, keys = purge()
	require.Equal(t, []int64{0, 0}, []int64{letters, keys})
	left, err := b.inbox.DeadLetters(t.Context(), 0, 100)
	require.NoError(t, err)
	require.Len(t, left, 6)
}
