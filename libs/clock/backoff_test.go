package clock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/clock"
)

func TestBackoffGrowsToItsMost(t *testing.T) {
	t.Parallel()
	b := clock.Backoff{First: 200 * time.Millisecond, Most: 30 * time.Second}
	for i := range 100 {
		d := b.Next()
		require.LessOrEqual(t, d, 30*time.Second)
		if i > 10 {
			require.GreaterOrEqual(t, d, 15*time.Second)
		}
	}
	b.Reset()
	require.LessOrEqual(t, b.Next(), 200*time.Millisecond)
}
