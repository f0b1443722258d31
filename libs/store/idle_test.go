package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/store"
)

// The server ends a transaction whose process stood still. Nothing is wrong with what it wanted.
func TestATransactionThatStoodStillMayBeRepeated(t *testing.T) {
	t.Parallel()
	b := setupBooks(t)
	db, err := store.Open(t.Context(), store.Config{URL: b.url, Application: "still", IdleInTransaction: 50 * time.Millisecond})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	conn := side(t, b.url)
	err = db.InTx(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		require.Eventually(t, func() bool {
			var left int
			require.NoError(t, conn.QueryRow(t.Context(),
				"SELECT count(*) FROM pg_stat_activity WHERE application_name = 'still' AND state = 'idle in transaction'").Scan(&left))
			return left == 0
		}, 10*time.Second, 10*time.Millisecond)
		_, err := b.payments.Insert(ctx, tx, order(e2e(1)), "x")
		return err
	})
	require.ErrorIs(t, err, store.ErrUnavailable)
}
