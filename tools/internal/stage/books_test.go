package stage

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/icom/spitest"
	"github.com/cabine-pix/cabine/libs/pix"
)

func TestPercentilesAreOfTheSortedTimes(t *testing.T) {
	t.Parallel()
	require.Equal(t, Percentiles{}, PercentilesOf(nil))
	var all []time.Duration
	for i := range 100 {
		all = append(all, time.Duration(100-i)*time.Millisecond)
	}
	require.Equal(t, Percentiles{P50: 51, P95: 96, P99: 100}, PercentilesOf(all))
}

func TestLatenciesLeaveOutReturnsAndSilence(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	after := func(ms int) time.Time { return at.Add(time.Duration(ms) * time.Millisecond) }
	payer, receiver := Latencies([]spitest.Order{
		{Kind: pix.Payment, Accepted: at, Received: after(5), Answered: after(12)},
		{Kind: pix.Payment, Accepted: at, Received: after(5)},
		{Kind: pix.Return, Received: after(500), Answered: after(900)},
	})
	require.Equal(t, Percentiles{5, 5, 5}, payer)
	require.Equal(t, Percentiles{7, 7, 7}, receiver)
}
