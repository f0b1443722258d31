package bus_test

import (
	"cmp"
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/bus"
	"github.com/cabine-pix/cabine/libs/pix"
)

// sending is provisioned with a consumer of the outbound stream that waits only a second for a sign.
func sending(t *testing.T, operations int) bundle {
	t.Helper()
	b := setup(t)
	_, err := b.bus.Provision(t.Context(), bus.Declared(1).With(
		bus.Consumer{Stream: bus.StreamOutbound, Name: hasty, AckWait: time.Second, MaxAckPending: 100}), false)
	require.NoError(t, err)
	require.NoError(t, b.bus.PublishOutbound(t.Context(), outbound(operations)).Err())
	return b
}

func outbound(n int) []bus.Outbound {
	all := make([]bus.Outbound, n)
	for i := range all {
		all[i] = bus.Outbound{ISPB: ispb, Channel: pix.CSM, ID: int64(i + 1), MsgType: "pacs.008"}
	}
	return all
}

// subscribe runs a subscription until stop is called, which returns what Run returned.
func subscribe(t *testing.T, b *bus.Bus, cfg bus.SubscriptionConfig) (deliveries <-chan *bus.Held, stop func() error) {
	t.Helper()
	cfg.Stream, cfg.Durable = bus.StreamOutbound, cmp.Or(cfg.Durable, bus.SenderConsumer(pix.CSM))
	cfg.PullWait = 200 * time.Millisecond
	s := b.Subscribe(cfg)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	var once bool
	stop = func() error {
		cancel()
		if once {
			return nil
		}
		once = true
		return <-ended
	}
	t.Cleanup(func() { _ = stop() })
	return s.Deliveries(), stop
}

// take takes exactly n deliveries, and returns the IDs that they carry, sorted.
func take(t *testing.T, deliveries <-chan *bus.Held, n int) (held []*bus.Held, ids []int64) {
	t.Helper()
	for len(held) < n {
		select {
		case h := <-deliveries:
			o, err := h.Outbound()
			require.NoError(t, err)
			held, ids = append(held, h), append(ids, o.ID)
		case <-time.After(limit):
			require.Fail(t, "too few deliveries", "%d of %d", len(held), n)
		}
	}
	slices.Sort(ids)
	return held, ids
}

func TestOutboundIsReadAsItWasPublished(t *testing.T) {
	t.Parallel()
	b := sending(t, 1)
	again := outbound(1)
	require.NoError(t, b.bus.PublishOutbound(t.Context(), again).Err(), "a duplicate")
	again[0].Attempt = 1
	require.NoError(t, b.bus.PublishOutbound(t.Context(), again).Err())

	got := make(chan bus.Outbound, 10)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() {
		ended <- b.bus.Consume(ctx, bus.ConsumeConfig{Stream: bus.StreamOutbound, Durable: bus.SenderConsumer(pix.CSM)},
			func(_ context.Context, d bus.Delivery) error {
				o, err := d.Outbound()
				got <- o
				return err
			})
	}()
	for range 2 {
		require.Equal(t, outbound(1)[0], <-got)
	}
	require.Never(t, func() bool { return len(got) > 0 }, 300*time.Millisecond, tick)
	stop()
	require.NoError(t, <-ended)
}

func TestWhatIsNoOutboundIsSaidToBeNone(t *testing.T) {
	t.Parallel()
	for subject, payload := range map[string]string{
		"pix.out.12345678.cpm": `{"id": 0}`, "pix.out.12345678.xyz": `{"id": 1}`, "pix.out.12345678": `{"id": 1}`,
		"pix.out.12345678.csm": `<Envelope/>`,
	} {
		_, err := bus.Delivery{Subject: subject, Payload: []byte(payload)}.Outbound()
		require.Error(t, err, subject)
	}
}

func TestASubscriptionHoldsNoMoreThanItMay(t *testing.T) {
	t.Parallel()
	b := sending(t, 10)
	deliveries, stop := subscribe(t, b.bus, bus.SubscriptionConfig{MaxHeld: 4})
	held, ids := take(t, deliveries, 4)
	require.Equal(t, []int64{1, 2, 3, 4}, ids)
	require.Never(t, func() bool { return len(deliveries) > 0 }, 300*time.Millisecond, tick)
	other, _ := subscribe(t, b.bus, bus.SubscriptionConfig{MaxHeld: 4})
	rest, _ := take(t, other, 4) // nothing that the first one may not have was kept from the others
	for _, h := range slices.Concat(held[:2], held[:2], rest) {
		h.Ack() // twice for some, of which the first counts
	}
	last := make(map[int64]bool)
	for len(last) < 2 {
		var h *bus.Held
		select {
		case h = <-deliveries:
		case h = <-other:
		case <-time.After(limit):
			require.Fail(t, "what was answered made no room")
		}
		o, err := h.Outbound()
		require.NoError(t, err)
		last[o.ID] = true
		h.Ack()
	}
	require.Equal(t, map[int64]bool{9: true, 10: true}, last)
	held[2].Ack()
	held[3].Ack()
	require.NoError(t, stop())
}

func TestWhatIsHeldIsNotGivenToAnotherAndWhatIsRetriedIs(t *testing.T) {
	t.Parallel()
	b := sending(t, 3)
	cfg := bus.SubscriptionConfig{Durable: hasty, InProgress: 100 * time.Millisecond}
	deliveries, _ := subscribe(t, b.bus, cfg)
	held, _ := take(t, deliveries, 3)
	other, stop := subscribe(t, b.bus, cfg)
	require.Never(t, func() bool { return len(other)+len(deliveries) > 0 }, 2500*time.Millisecond, 50*time.Millisecond)
	require.NoError(t, stop())
	held[0].Drop("nobody knows it")
	held[1].Ack()
	held[1].Retry(0) // too late
	start := time.Now()
	held[2].Retry(300 * time.Millisecond)
	again, _ := take(t, deliveries, 1)
	require.Equal(t, held[2].Payload, again[0].Payload)
	require.Equal(t, 2, again[0].Deliveries)
	require.GreaterOrEqual(t, time.Since(start), 250*time.Millisecond)
	again[0].Ack()
	require.Never(t, func() bool { return len(deliveries) > 0 }, 1500*time.Millisecond, 50*time.Millisecond)
}

func TestASubscriptionThatEndsGivesBackWhatNobodyTook(t *testing.T) {
	t.Parallel()
	b := sending(t, 8)
	deliveries, stop := subscribe(t, b.bus, bus.SubscriptionConfig{})
	held, _ := take(t, deliveries, 2)
	require.Eventually(t, func() bool { return len(deliveries) == 6 }, limit, tick)
	ended := make(chan error, 1)
	go func() { ended <- stop() }()
	other, _ := subscribe(t, b.bus, bus.SubscriptionConfig{})
	_, ids := take(t, other, 6) // at once, long before AckWait
	require.Len(t, slices.Compact(ids), 6)
	select {
	case err := <-ended:
		require.Fail(t, "ended with deliveries in hand", err)
	default:
	}
	_, open := <-deliveries
	require.False(t, open)
	held[0].Ack()
	held[1].Retry(0)
	require.NoError(t, <-ended)
	last, _ := take(t, other, 1)
	require.Equal(t, held[1].Payload, last[0].Payload)
}

func TestASubscriptionDoesNotWaitForEverForItsHands(t *testing.T) {
	t.Parallel()
	b := sending(t, 1)
	deliveries, stop := subscribe(t, b.bus, bus.SubscriptionConfig{DrainTimeout: 50 * time.Millisecond})
	held, _ := take(t, deliveries, 1)
	require.NoError(t, stop())
	held[0].Ack() // and still it may be answered
}

func TestASubscriptionOutlivesTheServerButNotItsConsumer(t *testing.T) {
	t.Parallel()
	b := sending(t, 1)
	s := b.bus.Subscribe(bus.SubscriptionConfig{
		Stream: bus.StreamOutbound, Durable: bus.SenderConsumer(pix.CSM), PullWait: 200 * time.Millisecond, RetryDelay: tick,
	})
	ended := make(chan error, 1)
	go func() { ended <- s.Run(t.Context()) }()
	held, _ := take(t, s.Deliveries(), 1)
	held[0].Ack()
	require.NoError(t, b.server.Stop())
	require.NoError(t, b.server.Start(t.Context()))
	require.Eventually(t, func() bool { return b.bus.PublishOutbound(t.Context(), outbound(2)[1:]).Err() == nil }, limit, tick)
	held, ids := take(t, s.Deliveries(), 1)
	require.Equal(t, []int64{2}, ids)
	held[0].Ack()

	require.NoError(t, b.server.RestartEmpty(t.Context()))
	select {
	case err := <-ended:
		require.ErrorIs(t, err, bus.ErrNotProvisioned)
	case <-time.After(2 * limit):
		require.Fail(t, "the loss was not seen")
	}
	_, open := <-s.Deliveries()
	require.False(t, open)
}

func TestASubscriptionNeedsItsConsumer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.bus.Subscribe(bus.SubscriptionConfig{Stream: bus.StreamOutbound, Durable: bus.SenderConsumer(pix.CSM)})
	require.ErrorIs(t, s.Run(t.Context()), bus.ErrNotProvisioned)
}

// Each channel has its own consumer: what nobody takes on one holds nothing up on the other.
func TestChannelsAreConsumedApart(t *testing.T) {
	t.Parallel()
	b := sending(t, 20) // on the secondary channel, and nobody takes them
	require.NoError(t, b.bus.PublishOutbound(t.Context(), []bus.Outbound{{ISPB: ispb, Channel: pix.CPM, ID: 99, MsgType: "pacs.008"}}).Err())
	deliveries, stop := subscribe(t, b.bus, bus.SubscriptionConfig{Durable: bus.SenderConsumer(pix.CPM), MaxHeld: 1})
	h := <-deliveries
	o, err := h.Outbound()
	require.NoError(t, err)
	require.EqualValues(t, 99, o.ID)
	h.Ack()
	require.NoError(t, stop())
}
