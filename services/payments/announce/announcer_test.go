package announce_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/bus"
	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/devstack"
	"github.com/cabine-pix/cabine/libs/devstack/devtest"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/services/payments/announce"
)

func TestMain(m *testing.M) { os.Exit(devtest.Main(m, devtest.WithPostgres())) }

const (
	us   = pix.ISPB("12345678")
	long = 60 * time.Second
)

// world is an outbox, a bus of its own, and a sender's ears.
type world struct {
	t         *testing.T
	db        *store.DB
	outbox    *store.Outbox
	nats      *devstack.NATS
	bus       *bus.Bus
	announcer *announce.Announcer
	end       func()

	mu    sync.Mutex
	heard map[int64]int
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func newWorld(t *testing.T, change func(*announce.Config)) *world {
	t.Helper()
	dsn := devtest.Postgres(t)
	require.NoError(t, store.Migrate(t.Context(), dsn))
	db, err := store.Open(t.Context(), store.Config{URL: dsn, Application: "test"})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	w := &world{t: t, db: db, outbox: store.NewOutbox(db), nats: devtest.OwnNATS(t), heard: map[int64]int{}}
	w.bus, err = bus.Connect(t.Context(), bus.Config{URL: w.nats.URL()}, quiet())
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Second)
		defer cancel()
		_ = w.bus.Close(ctx) // the server may be gone
	})
	w.provision()
	w.background(func(ctx context.Context) {
		for ctx.Err() == nil {
			_ = w.bus.Consume(ctx, bus.ConsumeConfig{Stream: bus.StreamOutbound, Durable: bus.SenderConsumer(pix.CPM), Prefetch: 100}, w.hear)
		}
	})
	cfg := announce.Config{
		ISPB: us, RepublishEvery: 50 * time.Millisecond, RepublishAge: 100 * time.Millisecond,
		SweepEvery: 50 * time.Millisecond, StuckAge: time.Hour, StuckMost: time.Hour,
	}
	if change != nil {
		change(&cfg)
	}
	w.announcer, err = announce.New(cfg, announce.Deps{
		Carrier: w.bus, Outbox: w.outbox, Clock: clock.System(), Log: quiet(), Metrics: prometheus.NewRegistry(),
	})
	require.NoError(t, err)
	w.end = w.background(func(ctx context.Context) { _ = w.announcer.Run(ctx) })
	return w
}

// background runs f until the returned function is called, or the test ends.
func (w *world) background(f func(context.Context)) (end func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); f(ctx) }()
	end = func() { cancel(); <-ended }
	w.t.Cleanup(end)
	return end
}

func (w *world) provision() {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		_, err := w.bus.Provision(w.t.Context(), bus.Declared(1), true)
		return err == nil
	}, long, 10*time.Millisecond)
}

func (w *world) hear(_ context.Context, d bus.Delivery) error {
	var n struct {
		ID  int64  `json:"id"`
		Msg string `json:"msg"`
	}
	if err := json.Unmarshal(d.Payload, &n); err != nil || n.Msg != "pacs.002" || d.Subject != "pix.out.12345678.cpm" {
		return fmt.Errorf("strange notice %s on %s", d.Payload, d.Subject)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heard[n.ID]++
	return nil
}

// times returns how often the sender heard of each of the rows.
func (w *world) times(rows []store.Operation) []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	var n []int
	for _, r := range rows {
		n = append(n, w.heard[r.ID])
	}
	return n
}

func (w *world) eventually(rows []store.Operation, least int) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		for _, n := range w.times(rows) {
			if n < least {
				return false
			}
		}
		return true
	}, long, time.Millisecond)
}

func (w *world) add(n int) (rows []store.Operation) {
	w.t.Helper()
	var all []store.Operation
	for i := range n {
		all = append(all, store.Operation{
			PaymentID: fmt.Sprintf("E876543212026%08d%011d", i, time.Now().UnixNano()%1e11), MsgType: "pacs.002", Channel: pix.CPM, Body: []byte("{}"),
		})
	}
	require.NoError(w.t, w.db.InTx(w.t.Context(), func(ctx context.Context, tx *store.Tx) (err error) {
		rows, err = w.outbox.Add(ctx, tx, all)
		return err
	}))
	return rows
}

func (w *world) backlog() store.OutboxBacklog {
	w.t.Helper()
	b, err := w.outbox.Backlog(w.t.Context())
	require.NoError(w.t, err)
	return b
}

func TestWhatIsAnnouncedIsHeardAtOnceAndOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *announce.Config) { c.RepublishAge = time.Hour })
	rows := w.add(300)
	began := time.Now()
	w.announcer.Announce(t.Context(), rows)
	w.eventually(rows, 1)
	t.Logf("300 rows heard after %v", time.Since(began))
	require.Eventually(t, func() bool { return w.backlog().Created == 0 }, long, time.Millisecond)
	for _, n := range w.times(rows) {
		require.Equal(t, 1, n)
	}
}

func TestWhatNobodyAnnouncedIsFoundInTheTable(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *announce.Config) { c.BatchRows = 7; c.QueueRows = 10 })
	forgotten := w.add(20)
	full := w.add(20)
	w.announcer.Announce(t.Context(), full) // more than fits
	w.eventually(forgotten, 1)
	w.eventually(full, 1)
	require.Eventually(t, func() bool { return w.backlog().Created == 0 }, long, time.Millisecond)
}

func TestTheBusIsAwayAndComesBackEmpty(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *announce.Config) { c.StuckAge = 500 * time.Millisecond })
	require.NoError(t, w.nats.Stop())
	rows := w.add(10)
	w.announcer.Announce(t.Context(), rows)
	require.NoError(t, w.nats.Start(t.Context()))
	w.eventually(rows, 1)
	require.Eventually(t, func() bool { return w.backlog().Created == 0 }, long, time.Millisecond)
	require.NoError(t, w.nats.RestartEmpty(t.Context()))
	w.provision()
	w.eventually(rows, 2)
	require.Eventually(t, func() bool { return w.backlog().Attempts >= 1 }, long, time.Millisecond)
}

func TestPausesBetweenRepetitionsGrow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *announce.Config) { c.StuckAge = 200 * time.Millisecond })
	rows := w.add(1)
	began := time.Now()
	w.announcer.Announce(t.Context(), rows)
	w.eventually(rows, 4) // at 0, 0.2, 0.6 and 1.4 seconds
	require.Greater(t, time.Since(began), 1300*time.Millisecond)
}

func TestWhatIsInMemoryIsPublishedBeforeTheEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *announce.Config) { c.RepublishAge = time.Hour })
	rows := w.add(100)
	w.announcer.Announce(t.Context(), rows)
	w.end()
	require.Zero(t, w.backlog().Created)
	w.eventually(rows, 1)
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	require.NoError(t, announce.Config{ISPB: us}.WithDefaults().Validate())
	for says, bad := range map[string]announce.Config{
		"ISPB has 0":          {},
		"StuckMost is 1s":     {ISPB: us, StuckMost: time.Second},
		"QueueRows is -1":     {ISPB: us, QueueRows: -1},
		"RepublishAge is -1s": {ISPB: us, RepublishAge: -time.Second},
	} {
		require.ErrorContains(t, bad.WithDefaults().Validate(), says)
	}
}
