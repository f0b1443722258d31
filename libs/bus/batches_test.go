package bus_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/bus"
	"github.com/cabine-pix/cabine/libs/pix"
)

// Every delivery is taken once, none of the batches has more than allowed, what waits meanwhile is taken together, and what
// is in hand when the context ends is finished with a context that did not.
func TestDeliveriesAreTakenInBatches(t *testing.T) {
	t.Parallel()
	b := sending(t, 7)
	s := b.bus.Subscribe(bus.SubscriptionConfig{
		Stream: bus.StreamOutbound, Durable: bus.SenderConsumer(pix.CSM), MaxHeld: 20, PullWait: 200 * time.Millisecond,
	})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	came, goOn, ended := make(chan []*bus.Held), make(chan struct{}), make(chan error, 1)
	var atTheEnd error
	go func() {
		ended <- s.RunBatches(ctx, 1, 3, func(ctx context.Context, batch []*bus.Held) {
			came <- batch
			<-goOn
			atTheEnd = ctx.Err()
			for _, h := range batch {
				h.Ack()
			}
		})
	}()
	seen := map[int64]bool{}
	for len(seen) < 7 {
		batch := <-came
		require.LessOrEqual(t, len(batch), 3)
		if len(seen) == 0 { // while the first is in hand the others come
			require.Eventually(t, func() bool { return len(s.Deliveries()) == 7-len(batch) }, limit, tick)
		} else {
			require.Len(t, batch, min(3, 7-len(seen)))
		}
		for _, h := range batch {
			o, err := h.Outbound()
			require.NoError(t, err)
			require.False(t, seen[o.ID])
			seen[o.ID] = true
		}
		if len(seen) == 7 {
			stop()
		}
		goOn <- struct{}{}
	}
	require.NoError(t, <-ended)
	require.NoError(t, atTheEnd)
}

// A delivery that is given back for later comes again after the pause that was named, and then after twice as long.
func TestADeliveryComesLaterEachTime(t *testing.T) {
	t.Parallel()
	b := sending(t, 1)
	const first = 200 * time.Millisecond
	deliveries, stop := subscribe(t, b.bus, bus.SubscriptionConfig{})
	var came []time.Time
	for range 3 {
		held, _ := take(t, deliveries, 1)
		came = append(came, time.Now())
		held[0].RetryLater(first)
	}
	require.GreaterOrEqual(t, came[1].Sub(came[0]), first)
	require.GreaterOrEqual(t, came[2].Sub(came[1]), 2*first)
	require.NoError(t, stop())
}
