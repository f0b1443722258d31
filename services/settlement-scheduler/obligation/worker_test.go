package obligation_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/bus"
	"github.com/cabine-pix/cabine/libs/devstack"
	"github.com/cabine-pix/cabine/libs/devstack/devtest"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/services/settlement-scheduler/obligation"
)

func TestMain(m *testing.M) { os.Exit(devtest.Main(m, devtest.WithPostgres())) }

const long = 60 * time.Second

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// world is books, a bus of its own, and replicas of the worker.
type world struct {
	t           *testing.T
	nats        *devstack.NATS
	bus         *bus.Bus
	db          *store.DB
	payments    *store.Payments
	obligations *store.Obligations
	cycles      *store.Cycles
	reign       store.Reign
	settled     int
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dsn := devtest.Postgres(t)
	require.NoError(t, store.Migrate(t.Context(), dsn))
	db, err := store.Open(t.Context(), store.Config{URL: dsn, Application: "test"})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	w := &world{t: t, nats: devtest.OwnNATS(t), db: db, payments: store.NewPayments(db), cycles: store.NewCycles(db)}
	w.obligations, err = store.NewObligations(db, nil)
	require.NoError(t, err)
	w.bus = w.connect()
	w.provision()
	w.reign = store.Reign{Name: "settlement:12345678"}
	w.reign.Term, err = store.NewTerms(db).Mint(t.Context(), w.reign.Name, "test")
	require.NoError(t, err)
	return w
}

func (w *world) connect() *bus.Bus {
	w.t.Helper()
	b, err := bus.Connect(w.t.Context(), bus.Config{URL: w.nats.URL(), ReconnectWait: 50 * time.Millisecond}, quiet())
	require.NoError(w.t, err)
	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(w.t.Context()), 5*time.Second)
		defer cancel()
		_ = b.Close(ctx)
	})
	return b
}

func (w *world) provision() {
	w.t.Helper()
	w.eventually("the bus to be provisioned", func() bool {
		_, err := w.bus.Provision(w.t.Context(), bus.Declared(1), true)
		return err == nil
	})
}

func (w *world) eventually(what string, done func() bool) {
	w.t.Helper()
	require.Eventually(w.t, done, long, 10*time.Millisecond, what)
}

func (w *world) openCycles() {
	w.t.Helper()
	now := time.Now().UTC()
	_, err := w.cycles.Open(w.t.Context(), w.reign, []store.Window{
		{Date: now.Truncate(24 * time.Hour), Type: "a", OpensAt: now.Add(-time.Hour), ClosesAt: now.Add(time.Hour)},
		{Date: now.Truncate(24 * time.Hour), Type: "b", ClosesAt: now.Add(2 * time.Hour)},
	})
	require.NoError(w.t, err)
}

// settle returns payments that settled a moment ago.
func (w *world) settle(n int) (ids []string) {
	w.t.Helper()
	require.NoError(w.t, w.db.InTx(w.t.Context(), func(ctx context.Context, tx *store.Tx) error {
		var moves []store.Move
		for range n {
			w.settled++
			id := fmt.Sprintf("E12345678202612010000%011d", w.settled)
			if _, err := w.payments.Insert(ctx, tx, store.Payment{
				ID: id, Kind: pix.Payment, Direction: pix.In, State: pix.Accepted, Amount: 100, Channel: pix.CPM, Counterparty: "87654321",
				Document: json.RawMessage("{}"), AcceptedAt: time.Now(),
			}, "test"); err != nil {
				return err
			}
			ids = append(ids, id)
			moves = append(moves, store.Move{ID: id, To: pix.Settled, Who: "spi", SettledAt: time.Now().Add(-time.Second)})
		}
		_, err := w.payments.Move(ctx, tx, moves)
		return err
	}))
	return ids
}

func (w *world) announce(attempt int, ids ...string) {
	w.t.Helper()
	due := make([]bus.Obligation, len(ids))
	for i, id := range ids {
		due[i] = bus.Obligation{ID: id, Attempt: attempt}
	}
	w.eventually("the announcements to be taken", func() bool { return w.bus.PublishObligations(w.t.Context(), due).Err() == nil })
}

// work starts a replica, which ends with the returned function.
func (w *world) work(books obligation.Books) (reg *prometheus.Registry, stop func()) {
	w.t.Helper()
	reg = prometheus.NewRegistry()
	worker, err := obligation.New(obligation.Config{RetryDelay: 20 * time.Millisecond, MaxDeliveries: 20, Batch: 50}, obligation.Deps{
		Source: w.connect(), Books: books, Log: quiet(), Metrics: reg,
	})
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	var once sync.Once
	stop = func() { once.Do(func() { cancel(); require.NoError(w.t, <-ended) }) }
	w.t.Cleanup(stop)
	return reg, stop
}

func (w *world) due() int64 {
	w.t.Helper()
	b, err := w.obligations.Backlog(w.t.Context())
	require.NoError(w.t, err)
	return b.Due
}

func (w *world) each(ids []string) {
	w.t.Helper()
	for _, id := range ids {
		_, err := w.obligations.Get(w.t.Context(), id)
		require.NoError(w.t, err)
	}
}

func counted(t *testing.T, reg *prometheus.Registry, result string) float64 {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "cabine_obligations_total" && m.GetLabel()[0].GetValue() == result {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

func TestReplicasShareTheWork(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.openCycles()
	a, stopA := w.work(w.obligations)
	b, stopB := w.work(w.obligations)
	ids := w.settle(400)
	for i := 0; i < len(ids); i += 20 {
		w.announce(0, ids[i:i+20]...)
	}
	w.announce(1, ids[:50]...) // again
	w.eventually("all to be written", func() bool { return w.due() == 0 })
	w.each(ids)
	w.eventually("each to be counted", func() bool {
		return counted(t, a, "written")+counted(t, b, "written") == 400 && counted(t, a, "known")+counted(t, b, "known") == 50
	})
	stopA()
	stopB()
	require.Zero(t, counted(t, a, "strange")+counted(t, b, "strange"))
}

func TestJetStreamIsRestartedAndEmptied(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.openCycles()
	w.work(w.obligations)
	first := w.settle(20)
	w.announce(0, first...)
	require.NoError(t, w.nats.Restart(t.Context()))
	second := w.settle(20)
	w.announce(0, second...)
	w.eventually("all to be written", func() bool { return w.due() == 0 })
	require.NoError(t, w.nats.RestartEmpty(t.Context()))
	w.each(append(first, second...))
}

func TestWithoutACycleTheyWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	reg, _ := w.work(w.obligations)
	ids := w.settle(3)
	w.announce(0, ids...)
	w.eventually("them to wait", func() bool { return counted(t, reg, "waiting") >= 6 })
	w.openCycles()
	w.eventually("all to be written", func() bool { return w.due() == 0 })
	w.each(ids)
}

func TestWhatTheBooksDoNotKnowIsDropped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.openCycles()
	reg, _ := w.work(w.obligations)
	w.announce(0, "E12345678202612010000"+strings.Repeat("9", 11), "", "nonsense")
	require.NoError(t, w.bus.Publish(t.Context(), []bus.Message{
		{Subject: "pix.settlement.other", Payload: []byte("{}")}, {Subject: "pix.settlement.obligation", Payload: []byte("<no>")},
	}).Err())
	w.eventually("each to be dropped", func() bool { return counted(t, reg, "strange") == 5 })
	ids := w.settle(1)
	w.announce(0, ids...)
	w.eventually("the next to be written", func() bool { return w.due() == 0 })
	require.EqualValues(t, 5, counted(t, reg, "strange"), "none came again")
}

// faulty fails as often as it is told to, and then writes.
type faulty struct {
	*store.Obligations
	mu    sync.Mutex
	times int
}

func (f *faulty) Book(ctx context.Context, ids []string) (store.Booking, error) {
	f.mu.Lock()
	fail := f.times > 0
	f.times--
	f.mu.Unlock()
	if fail {
		return store.Booking{}, errors.New("the database is away")
	}
	return f.Obligations.Book(ctx, ids)
}

func TestTheDatabaseIsAwayNothingIsLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.openCycles()
	reg, stop := w.work(&faulty{Obligations: w.obligations, times: 8})
	ids := w.settle(30)
	w.announce(0, ids...)
	w.eventually("all to be written", func() bool { return w.due() == 0 })
	w.each(ids)
	require.Positive(t, counted(t, reg, "failing"))
	stop()
}

func TestConfigIsJudged(t *testing.T) {
	t.Parallel()
	_, err := obligation.New(obligation.Config{Workers: -1, Batch: 5000, TxTimeout: 1}, obligation.Deps{Metrics: prometheus.NewRegistry()})
	for _, says := range []string{"Workers is -1", "Batch is 5000", "TxTimeout is 1ns"} {
		require.ErrorContains(t, err, says)
	}
}
