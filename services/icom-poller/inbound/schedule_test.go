package inbound

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAlignedWait(t *testing.T) {
	t.Parallel()
	a := Aligned{Cycle: 4167 * time.Millisecond, Stagger: 694 * time.Millisecond, Floor: 100 * time.Millisecond}
	require.NoError(t, a.Validate())
	at := func(ms int64) time.Time { return time.UnixMilli(ms) }
	base := int64(4167 * 400_000_000)
	for name, tt := range map[string]struct {
		poll Poll
		want time.Duration
	}{
		"slot 1 on its tick":         {Poll{Slot: 1, Now: at(base), First: true}, 0},
		"slot 1 after its tick":      {Poll{Slot: 1, Now: at(base + 1000)}, 3167 * time.Millisecond},
		"slot 2":                     {Poll{Slot: 2, Now: at(base)}, 694 * time.Millisecond},
		"slot 6":                     {Poll{Slot: 6, Now: at(base)}, 3470 * time.Millisecond},
		"slot 6 of the cycle before": {Poll{Slot: 6, Now: at(base + 3471)}, 4166 * time.Millisecond},
		"near its tick: the floor":   {Poll{Slot: 1, Now: at(base - 30)}, 100 * time.Millisecond},
		"full read: at once":         {Poll{Slot: 1, Now: at(base + 1), Messages: 10}, 0},
		"part of a read: next tick":  {Poll{Slot: 1, Now: at(base + 1), Messages: 9}, 4166 * time.Millisecond},
		"never twice on one tick":    {Poll{Slot: 1, Now: at(base)}, 4167 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.want, a.Wait(tt.poll))
		})
	}
	require.ErrorContains(t, Aligned{Cycle: time.Second, Stagger: time.Second}.Validate(), "stagger 1s")
}
