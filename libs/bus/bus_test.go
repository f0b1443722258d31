package bus_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/bus"
	"github.com/cabine-pix/cabine/libs/devstack"
	"github.com/cabine-pix/cabine/libs/devstack/devtest"
	"github.com/cabine-pix/cabine/libs/pix"
)

const (
	ispb    = pix.ISPB("12345678")
	limit   = 20 * time.Second
	tick    = 10 * time.Millisecond
	durable = "test"
	hasty   = "hasty"
)

// bundle is a server of the test's own and a bus connected to it.
type bundle struct {
	server *devstack.NATS
	bus    *bus.Bus
}

func setup(t *testing.T) bundle {
	t.Helper()
	server := devtest.OwnNATS(t)
	b := bundle{server: server, bus: connect(t, server.URL())}
	require.Eventually(t, b.bus.Connected, limit, tick)
	return b
}

func provisioned(t *testing.T) bundle {
	t.Helper()
	b := setup(t)
	_, err := b.bus.Provision(t.Context(), topology(), false)
	require.NoError(t, err)
	return b
}

func connect(t *testing.T, url string) *bus.Bus {
	t.Helper()
	b, err := bus.Connect(t.Context(), bus.Config{
		URL: url, Name: t.Name(), ReconnectWait: 20 * time.Millisecond, AckTimeout: 2 * time.Second, MaxInFlight: 64,
	}, slog.New(slog.NewTextHandler(t.Output(), nil)))
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), limit)
		defer cancel()
		require.NoError(t, b.Close(ctx))
	})
	return b
}

// topology is the declared one, and two consumers for the tests, of which one waits only a second for a sign.
func topology() bus.Topology {
	return bus.Declared(1).With(
		bus.Consumer{Stream: bus.StreamInbound, Name: durable, AckWait: 30 * time.Second, MaxAckPending: 100},
		bus.Consumer{Stream: bus.StreamInbound, Name: hasty, AckWait: time.Second, MaxAckPending: 100},
	)
}

func batch(from, to int) []bus.Inbound {
	var all []bus.Inbound
	for i := from; i < to; i++ {
		id := fmt.Sprintf("m%03d", i)
		all = append(all, bus.Inbound{
			ISPB: ispb, MsgType: "pacs.008", MessageID: id, Source: "icom:cpm:12345678", Payload: []byte("<" + id + "/>"),
			Headers: map[string]string{"Traceparent": "00-" + id},
		})
	}
	return all
}

// collect consumes until the test ends and returns what was handed over so far.
func collect(t *testing.T, b *bus.Bus, cfg bus.ConsumeConfig, handle func(bus.Inbound) error) func() []bus.Inbound {
	t.Helper()
	var mu sync.Mutex
	var got []bus.Inbound
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	cfg.Durable = cmp.Or(cfg.Durable, durable)
	go func() {
		ended <- b.ConsumeInbound(ctx, cfg, func(_ context.Context, m bus.Inbound) error {
			mu.Lock()
			got = append(got, m)
			mu.Unlock()
			return handle(m)
		})
	}()
	t.Cleanup(func() { cancel(); require.NoError(t, <-ended) })
	return func() []bus.Inbound {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(got)
	}
}

func accept(bus.Inbound) error { return nil }

func TestPublishAndConsumeInOrder(t *testing.T) {
	t.Parallel()
	b := provisioned(t)
	results := b.bus.PublishInbound(t.Context(), batch(0, 50))
	require.NoError(t, results.Err())
	require.Len(t, results.Acked(), 50)

	got := collect(t, b.bus, bus.ConsumeConfig{}, accept)
	require.Eventually(t, func() bool { return len(got()) >= 50 }, limit, tick)
	require.Len(t, got(), 50)
	for i, m := range got() {
		want := batch(i, i+1)[0]
		require.Equal(t, want.MessageID, m.MessageID)
		require.Equal(t, want.Payload, m.Payload)
		require.Equal(t, want.Source, m.Source)
		require.Equal(t, ispb, m.ISPB)
		require.Equal(t, "pacs.008", m.MsgType)
		require.Equal(t, want.Headers["Traceparent"], m.Headers["Traceparent"])
	}
}

func TestAMessageIsStoredOncePerAttempt(t *testing.T) {
	t.Parallel()
	b := provisioned(t)
	again := batch(0, 1)
	for range 3 {
		require.NoError(t, b.bus.PublishInbound(t.Context(), again).Err())
	}
	again[0].Attempt = 1
	require.NoError(t, b.bus.PublishInbound(t.Context(), again).Err())
	require.NoError(t, b.bus.PublishInbound(t.Context(), batch(1, 2)).Err())

	got := collect(t, b.bus, bus.ConsumeConfig{}, accept)
	require.Eventually(t, func() bool { return len(got()) == 3 }, limit, tick)
	require.Equal(t, []int{0, 1, 0}, []int{got()[0].Attempt, got()[1].Attempt, got()[2].Attempt})
	require.Equal(t, "m001", got()[2].MessageID)
}

func TestSubjects(t *testing.T) {
	t.Parallel()
	require.Equal(t, "pix.in.12345678.pacs008", bus.InboundSubject(ispb, "pacs.008"))
	require.Equal(t, "pix.in.12345678.other", bus.InboundSubject(ispb, ""))
	require.Equal(t, "pix.in.12345678.ab", bus.InboundSubject(ispb, "a.> *b"))
	require.Equal(t, "pix.out.12345678.csm", bus.OutboundSubject(ispb, pix.CSM))
	require.Equal(t, "pix.settlement.obligation", bus.SettlementSubject("obligation"))
}

func TestPublishFailsWhileTheServerIsAwayAndIsRepeatedByTheCaller(t *testing.T) {
	t.Parallel()
	b := provisioned(t)
	require.NoError(t, b.bus.PublishInbound(t.Context(), batch(0, 5)).Err())
	require.NoError(t, b.server.Stop())
	require.Eventually(t, func() bool { return !b.bus.Connected() }, limit, tick)

	results := b.bus.PublishInbound(t.Context(), batch(5, 10))
	require.Empty(t, results.Acked())
	require.ErrorIs(t, results[0], bus.ErrUnavailable)
	require.ErrorIs(t, results[4], bus.ErrNotAttempted)
	require.ErrorIs(t, b.bus.Ping(t.Context()), bus.ErrUnavailable)
	require.ErrorIs(t, b.bus.Bind(t.Context(), topology()), bus.ErrUnavailable)

	require.NoError(t, b.server.Start(t.Context()))
	require.Eventually(t, func() bool {
		return b.bus.PublishInbound(t.Context(), batch(5, 10)).Err() == nil
	}, limit, tick)
	require.NoError(t, b.bus.Ping(t.Context()))
	got := collect(t, b.bus, bus.ConsumeConfig{}, accept)
	require.Eventually(t, func() bool { return len(got()) == 10 }, limit, tick)
	require.Equal(t, "m009", got()[9].MessageID, "nothing of the outage came late or twice")
}

func TestConnectDoesNotNeedAServer(t *testing.T) {
	t.Parallel()
	server := devtest.OwnNATS(t)
	require.NoError(t, server.Stop())
	b := connect(t, server.URL())
	require.False(t, b.Connected())
	require.ErrorIs(t, b.Publish(t.Context(), []bus.Message{{Subject: "pix.in.a.b"}}).Err(), bus.ErrUnavailable)
	require.NoError(t, server.Start(t.Context()))
	require.Eventually(t, b.Connected, limit, tick)
}

func TestALostStoreIsSeenByBindAndCuredByProvision(t *testing.T) {
	t.Parallel()
	b := provisioned(t)
	require.NoError(t, b.bus.Bind(t.Context(), topology()))
	require.NoError(t, b.bus.PublishInbound(t.Context(), batch(0, 3)).Err())
	require.NoError(t, b.server.RestartEmpty(t.Context()))
	require.Eventually(t, func() bool { return b.bus.Ping(t.Context()) == nil }, limit, tick)

	require.ErrorIs(t, b.bus.Bind(t.Context(), topology()), bus.ErrNotProvisioned)
	require.ErrorIs(t, b.bus.PublishInbound(t.Context(), batch(3, 4)).Err(), bus.ErrNotProvisioned)
	err := b.bus.ConsumeInbound(t.Context(), bus.ConsumeConfig{Durable: durable}, nil)
	require.ErrorIs(t, err, bus.ErrNotProvisioned)

	changes, err := b.bus.Provision(t.Context(), topology(), false)
	require.NoError(t, err)
	require.Len(t, changes, len(topology().Streams)+len(topology().Consumers))
	for _, c := range changes {
		require.True(t, c.Created, c.Object)
	}
	require.NoError(t, b.bus.Bind(t.Context(), topology()))
	require.NoError(t, b.bus.PublishInbound(t.Context(), batch(3, 4)).Err())
}

func TestConsumeEndsWhenTheStoreIsLostUnderIt(t *testing.T) {
	t.Parallel()
	b := provisioned(t)
	ended := make(chan error, 1)
	started := make(chan struct{}, 1)
	require.NoError(t, b.bus.PublishInbound(t.Context(), batch(0, 1)).Err())
	go func() {
		ended <- b.bus.ConsumeInbound(t.Context(), bus.ConsumeConfig{Durable: durable, RetryDelay: tick},
			func(context.Context, bus.Inbound) error { started <- struct{}{}; return nil })
	}()
	<-started
	require.NoError(t, b.server.RestartEmpty(t.Context()))
	select {
	case err := <-ended:
		require.ErrorIs(t, err, bus.ErrNotProvisioned)
	case <-time.After(2 * limit):
		require.Fail(t, "the loss was not seen")
	}
}

func TestProvisionIsIdempotentAndChangesDriftOnlyWhenTold(t *testing.T) {
	t.Parallel()
	b := setup(t)
	changes, err := b.bus.Inspect(t.Context(), topology())
	require.NoError(t, err)
	for _, c := range changes {
		require.Equal(t, bus.Change{Object: c.Object, Missing: true}, c)
	}
	var both sync.WaitGroup
	errs := make([]error, 2)
	for i := range errs {
		both.Go(func() { _, errs[i] = b.bus.Provision(t.Context(), topology(), false) })
	}
	both.Wait()
	require.NoError(t, errors.Join(errs...))
	changes, err = b.bus.Provision(t.Context(), topology(), true)
	require.NoError(t, err)
	for _, c := range changes {
		require.Equal(t, bus.Change{Object: c.Object, Drift: []string{}}, c)
		require.True(t, c.Settled())
	}

	wanted := topology()
	wanted.Streams[0].MaxAge = time.Hour
	wanted.Streams[0].Duplicates = time.Minute
	wanted.Consumers[0].AckWait = time.Minute
	wanted.Consumers[0].Subjects = []string{"pix.in.*.pacs008"}
	changes, err = b.bus.Provision(t.Context(), wanted, false)
	require.NoError(t, err)
	require.Equal(t, []string{"max_age: 24h0m0s, declared 1h0m0s", "duplicate_window: 2m0s, declared 1m0s"}, changes[0].Drift)
	require.True(t, changes[0].Drifted())
	require.Equal(t, []string{"ack_wait: 30s, declared 1m0s", "filter_subjects: [], declared [pix.in.*.pacs008]"}, changes[len(wanted.Streams)].Drift)

	changes, err = b.bus.Provision(t.Context(), wanted, true)
	require.NoError(t, err)
	require.True(t, changes[0].Updated)
	require.False(t, changes[0].Drifted())
	changes, err = b.bus.Provision(t.Context(), wanted, false)
	require.NoError(t, err)
	for _, c := range changes {
		require.Empty(t, c.Drift, c.Object)
	}
}

func TestAFailedMessageComesAgainAndIsPoisonAtLast(t *testing.T) {
	t.Parallel()
	b := provisioned(t)
	require.NoError(t, b.bus.PublishInbound(t.Context(), batch(0, 2)).Err())
	broken := errors.New("core says no")
	var poisoned atomic.Int32
	got := collect(t, b.bus, bus.ConsumeConfig{
		MaxDeliveries: 3, RetryDelay: tick,
		Poison: func(_ context.Context, d bus.Delivery, cause error) error {
			m, err := d.Inbound()
			if err != nil || m.MessageID != "m000" || !errors.Is(cause, broken) || d.Deliveries < 3 {
				return errors.New("wrong poison")
			}
			if poisoned.Add(1) == 1 {
				return errors.New("the dead letters are not available")
			}
			return nil
		},
	}, func(m bus.Inbound) error {
		if m.MessageID == "m000" {
			return broken
		}
		return nil
	})
	count := func(id string) (n int) {
		for _, m := range got() {
			if m.MessageID == id {
				n++
			}
		}
		return n
	}
	require.Eventually(t, func() bool { return poisoned.Load() == 2 && count("m001") == 1 }, limit, tick)
	require.Equal(t, 4, count("m000"))
}

func TestAMessageInHandIsNotGivenToAnother(t *testing.T) {
	t.Parallel()
	b := provisioned(t)
	require.NoError(t, b.bus.PublishInbound(t.Context(), batch(0, 1)).Err())
	got := collect(t, b.bus, bus.ConsumeConfig{Durable: hasty, Concurrency: 2, InProgress: 100 * time.Millisecond}, func(bus.Inbound) error {
		ctx, cancel := context.WithTimeout(context.Background(), 2500*time.Millisecond)
		defer cancel()
		<-ctx.Done() // work that takes longer than AckWait
		return nil
	})
	require.Eventually(t, func() bool { return len(got()) == 1 }, limit, tick)
	require.Never(t, func() bool { return len(got()) > 1 }, 3*time.Second, 100*time.Millisecond)
}

func TestConsumeFinishesWhatIsInHandAndGivesTheRestBack(t *testing.T) {
	t.Parallel()
	b := provisioned(t)
	require.NoError(t, b.bus.PublishInbound(t.Context(), batch(0, 6)).Err())
	ctx, stop := context.WithCancel(t.Context())
	taken, goOn := make(chan struct{}, 10), make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- b.bus.ConsumeInbound(ctx, bus.ConsumeConfig{Durable: durable, Prefetch: 5},
			func(ctx context.Context, _ bus.Inbound) error {
				taken <- struct{}{}
				<-goOn
				return ctx.Err()
			})
	}()
	<-taken
	stop()
	select {
	case err := <-ended:
		require.Fail(t, "ended with a message in hand", err)
	case <-time.After(100 * time.Millisecond):
	}
	close(goOn)
	require.NoError(t, <-ended)

	got := collect(t, b.bus, bus.ConsumeConfig{}, accept)
	require.Eventually(t, func() bool { return len(got()) == 5 }, limit, tick)
	ids := map[string]bool{}
	for _, m := range got() {
		ids[m.MessageID] = true
	}
	require.NotContains(t, ids, "m000", "it was acknowledged")
	require.Len(t, ids, 5)
}

func TestWorkThatOutlivesTheDrainIsCancelled(t *testing.T) {
	t.Parallel()
	b := provisioned(t)
	require.NoError(t, b.bus.PublishInbound(t.Context(), batch(0, 1)).Err())
	ctx, stop := context.WithCancel(t.Context())
	err := b.bus.ConsumeInbound(ctx, bus.ConsumeConfig{Durable: durable, DrainTimeout: tick},
		func(ctx context.Context, _ bus.Inbound) error {
			stop()
			<-ctx.Done()
			return ctx.Err()
		})
	require.NoError(t, err)
}

func TestABatchBeyondTheBoundIsRefused(t *testing.T) {
	t.Parallel()
	b := provisioned(t)
	err := b.bus.PublishInbound(t.Context(), batch(0, 65)).Err()
	require.ErrorContains(t, err, "want at most 64")
	require.NotErrorIs(t, err, bus.ErrRefused, "it is not the messages' fault")
	big := bus.Message{Subject: "pix.in.a.b", Payload: make([]byte, 2<<20)}
	require.ErrorIs(t, b.bus.Publish(t.Context(), []bus.Message{big}).Err(), bus.ErrRefused)
	require.NoError(t, b.bus.Publish(t.Context(), nil).Err())
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, b.bus.PublishInbound(gone, batch(0, 1)).Err(), context.Canceled)
}

func TestConfigNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	_, err := bus.Connect(t.Context(), bus.Config{CertFile: "c", MaxInFlight: -1, AckTimeout: -1}, slog.New(slog.DiscardHandler))
	require.Error(t, err)
	for _, name := range []string{"URL", "CertFile", "MaxInFlight", "AckTimeout"} {
		require.ErrorContains(t, err, name)
	}
	_, err = bus.Connect(t.Context(), bus.Config{URL: "nats://user:hun ter2@host:4222"}, slog.New(slog.DiscardHandler))
	require.Error(t, err)
	require.NotContains(t, err.Error(), "ter2")
	bad := topology()
	bad.Streams[0].Replicas = 2
	bad.Consumers[0].Stream = "NOPE"
	require.ErrorContains(t, bad.Validate(), "2 replicas")
	require.ErrorContains(t, bad.Validate(), "NOPE")
}
