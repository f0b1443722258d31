package inbound

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWorkerThatWaitsForASlotTakesNoneOnceTheTransportIsAway(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.leases = newLeases(b.clk, b.story, 0)
		b.start()
		b.after(time.Minute)
		require.NoError(b.t, b.poller.Ready(b.t.Context()), "the workers wait for a slot")
		b.bank.setReady(errors.New("silent"))
		b.after(time.Minute)
		b.leases.mu.Lock()
		b.leases.free = append(b.leases.free, 1)
		b.leases.mu.Unlock()
		b.leases.freed <- struct{}{}
		b.after(time.Minute)
		require.Empty(b.t, b.story.all())
		b.bank.setReady(nil)
		b.after(6 * time.Second)
		require.Equal(b.t, "grant 1", b.story.all()[0])
	})
}
