package icomtest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWaitsArePercentilesToWithinFourPercent(t *testing.T) {
	t.Parallel()
	var w waits
	require.Zero(t, w.report())
	for i := range 1000 {
		w.add(time.Duration(i+1) * time.Millisecond)
	}
	got := w.report()
	require.Equal(t, uint64(1000), got.Count)
	require.Equal(t, uint64(200), got.Promptly)
	require.InEpsilon(t, 500, got.P50MS, .05)
	require.InEpsilon(t, 950, got.P95MS, .05)
	require.InEpsilon(t, 990, got.P99MS, .05)
	w.add(0)
	w.add(1000 * time.Hour)
	require.Equal(t, uint64(1002), w.report().Count)
}
