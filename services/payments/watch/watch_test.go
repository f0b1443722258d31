package watch_test

import (
	"context"
	"crypto/rand"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/devstack/devtest"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/services/payments/enquiry"
	"github.com/cabine-pix/cabine/services/payments/watch"
)

func TestMain(m *testing.M) { os.Exit(devtest.Main(m, devtest.WithPostgres())) }

const (
	us, them = pix.ISPB("12345678"), pix.ISPB("87654321")
	long     = 60 * time.Second
)

type world struct {
	t        *testing.T
	db       *store.DB
	payments *store.Payments
	outbox   *store.Outbox

	mu    sync.Mutex
	asked map[string][]time.Time
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dsn := devtest.Postgres(t)
	require.NoError(t, store.Migrate(t.Context(), dsn))
	db, err := store.Open(t.Context(), store.Config{URL: dsn, Application: "test"})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	return &world{t: t, db: db, payments: store.NewPayments(db), outbox: store.NewOutbox(db), asked: map[string][]time.Time{}}
}

// Announce implements watch.Announcer.
func (w *world) Announce(_ context.Context, rows []store.Operation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range rows {
		if r.MsgType == "camt.060" {
			w.asked[r.PaymentID] = append(w.asked[r.PaymentID], time.Now())
		}
	}
}

func (w *world) times(id string) []time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]time.Time(nil), w.asked[id]...)
}

// start runs a watch until the test ends.
func (w *world) start(cfg watch.Config) *prometheus.Registry {
	w.t.Helper()
	cfg.ISPB = us
	reg := prometheus.NewRegistry()
	one, err := watch.New(cfg, watch.Deps{
		DB: w.db, Payments: w.payments, Outbox: w.outbox, Announcer: w, Clock: clock.System(), Log: slog.New(slog.DiscardHandler), Metrics: reg,
	})
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = one.Run(ctx) }()
	w.t.Cleanup(func() { cancel(); <-ended })
	return reg
}

func (w *world) book(direction pix.Direction, state pix.State) string {
	w.t.Helper()
	id, err := pix.NewEndToEndID(us, time.Now(), rand.Reader)
	require.NoError(w.t, err)
	require.NoError(w.t, w.db.InTx(w.t.Context(), func(ctx context.Context, tx *store.Tx) error {
		_, err := w.payments.Insert(ctx, tx, store.Payment{
			ID: string(id), Kind: pix.Payment, Direction: direction, State: state, Amount: 1, Channel: pix.CPM, Counterparty: them,
			Document: []byte("{}"), AcceptedAt: time.Now(),
		}, "test")
		return err
	}))
	return string(id)
}

// gauges returns a gauge by state.
func gauges(t *testing.T, reg *prometheus.Registry, name string) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	all := map[string]float64{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			all[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
		}
	}
	return all
}

func TestWhatDoesNotEndIsAskedAboutWithGrowingPauses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	accepted := w.book(pix.In, pix.Accepted)
	created, ended := w.book(pix.Out, pix.Created), w.book(pix.In, pix.Rejected)
	cfg := watch.Config{Every: 20 * time.Millisecond, EnquireAfter: 400 * time.Millisecond}
	w.start(cfg)
	w.start(cfg) // another replica
	require.Eventually(t, func() bool { return len(w.times(accepted)) >= 3 }, long, 5*time.Millisecond)
	at := w.times(accepted)
	require.Greater(t, at[2].Sub(at[0]), time.Second, "0.4 and 0.8 seconds after each other")
	require.Empty(t, w.times(created), "what was not sent is not asked about")
	require.Empty(t, w.times(ended))
	events, err := w.payments.Events(t.Context(), accepted)
	require.NoError(t, err)
	require.Equal(t, enquiry.Reason, events[1].Reason)
	require.Equal(t, pix.Accepted, events[1].Became)
}

func TestWhatIsOpenIsCounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for range 3 {
		w.book(pix.In, pix.Accepted)
	}
	w.book(pix.Out, pix.Created)
	reg := w.start(watch.Config{Every: 20 * time.Millisecond})
	require.Eventually(t, func() bool { return gauges(t, reg, "cabine_payments_open")["accepted"] == 3 }, long, 5*time.Millisecond)
	require.Equal(t, map[string]float64{"accepted": 3, "created": 1, "sent": 0, "unknown": 0}, gauges(t, reg, "cabine_payments_open"))
	require.Eventually(t, func() bool { return gauges(t, reg, "cabine_payments_open_oldest_seconds")["created"] > 0.1 }, long, 5*time.Millisecond)
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	require.NoError(t, watch.Config{ISPB: us}.WithDefaults().Validate())
	for says, bad := range map[string]watch.Config{
		"ISPB has 0":        {},
		"EnquireMost is 1s": {ISPB: us, EnquireMost: time.Second},
		"EnquireRows is -1": {ISPB: us, EnquireRows: -1},
		"Every is -1s":      {ISPB: us, Every: -time.Second},
	} {
		require.ErrorContains(t, bad.WithDefaults().Validate(), says)
	}
}
