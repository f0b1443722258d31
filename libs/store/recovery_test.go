package store_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/store"
)

func TestTheWaitOfAStuckMessageDoublesUpToItsMost(t *testing.T) {
	t.Parallel()
	b := setup(t)
	stored, err := fresh(b.inbox.Receive(t.Context(), store.Batch{
		Session: b.open(t, 1, "a"), Arrivals: arrivals("m1"), NextCursor: "c1",
	}))
	require.NoError(t, err)
	require.NoError(t, b.inbox.MarkPublished(t.Context(), rowIDs(stored)))
	conn := side(t, b.url)
	for attempts, wait := range map[int]time.Duration{
		0: 5 * time.Minute, 1: 10 * time.Minute, 3: 40 * time.Minute, 4: time.Hour, 20: time.Hour, 100_000: time.Hour,
	} {
		for _, late := range []bool{false, true} {
			age := wait - 30*time.Second
			if late {
				age = wait + 30*time.Second
			}
			_, err := conn.Exec(t.Context(), "UPDATE inbox_open SET attempts = $1, published_at = now() - $2::interval", attempts, age)
			require.NoError(t, err)
			stuck, err := b.inbox.Stuck(t.Context(), 5*time.Minute, time.Hour, 10)
			require.NoError(t, err)
			require.Equal(t, late, len(stuck) == 1, "%d attempts, published %v ago", attempts, age)
		}
	}
	_, err = conn.Exec(t.Context(), "UPDATE inbox_open SET attempts = -1")
	require.ErrorContains(t, err, "inbox_attempts")
}

// Replicas sweep the same messages at the same time, each seeing what it saw: one attempt is counted.
func TestReplicasThatSweepTogetherCountOneAttempt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var ids []string
	for i := range 20 {
		ids = append(ids, fmt.Sprintf("m%02d", i))
	}
	stored, err := fresh(b.inbox.Receive(t.Context(), store.Batch{
		Session: b.open(t, 1, "a"), Arrivals: arrivals(ids...), NextCursor: "c1",
	}))
	require.NoError(t, err)
	require.NoError(t, b.inbox.MarkPublished(t.Context(), rowIDs(stored)))
	for round := 1; round <= 3; round++ {
		seen, err := b.inbox.Stuck(t.Context(), 0, time.Hour, 100)
		require.NoError(t, err)
		require.Len(t, seen, len(ids))
		var sweeps sync.WaitGroup
		for range 4 {
			sweeps.Go(func() {
				if err := b.inbox.Republished(t.Context(), seen); err != nil {
					t.Error(err)
				}
			})
		}
		sweeps.Wait()
		after, err := b.inbox.Stuck(t.Context(), 0, time.Hour, 100)
		require.NoError(t, err)
		for _, s := range after {
			require.Equal(t, round, s.Attempts, s.MessageID)
		}
	}
}
