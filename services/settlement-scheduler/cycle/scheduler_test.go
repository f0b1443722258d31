package cycle_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/devstack/devtest"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/services/settlement-scheduler/cycle"
)

func TestMain(m *testing.M) { os.Exit(devtest.Main(m, devtest.WithPostgres())) }

const (
	long       = 60 * time.Second
	leadership = "settlement:12345678"
)

// world is books, and a scheduler that leads when it is told to.
type world struct {
	t           *testing.T
	database    string
	db          *store.DB
	payments    *store.Payments
	obligations *store.Obligations
	cycles      *store.Cycles
	terms       *store.Terms
	scheduler   *cycle.Scheduler
	reg         *prometheus.Registry
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dsn := devtest.Postgres(t)
	require.NoError(t, store.Migrate(t.Context(), dsn))
	db, err := store.Open(t.Context(), store.Config{URL: dsn, Application: "test"})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	w := &world{
		t: t, database: dsn[strings.LastIndex(dsn, "/")+1:], db: db, payments: store.NewPayments(db), cycles: store.NewCycles(db),
		terms: store.NewTerms(db), reg: prometheus.NewRegistry(),
	}
	w.database, _, _ = strings.Cut(w.database, "?")
	w.obligations, err = store.NewObligations(db, nil)
	require.NoError(t, err)
	w.scheduler, err = cycle.New(cycle.Config{
		Leadership: leadership, Every: 20 * time.Millisecond, Grace: time.Millisecond, Patience: time.Second,
	}, cycle.Deps{
		Plan: plan(t, nil, "dia=24:00"), Cycles: w.cycles, Clock: clock.System(), Log: slog.New(slog.DiscardHandler), Metrics: w.reg,
	})
	require.NoError(t, err)
	return w
}

func (w *world) mint() int64 {
	w.t.Helper()
	term, err := w.terms.Mint(w.t.Context(), leadership, "test")
	require.NoError(w.t, err)
	return term
}

// lead runs the scheduler under a term until the returned function is called, which returns why it ended.
func (w *world) lead(term int64) (stop func() error) {
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.scheduler.Run(ctx, term) }()
	w.t.Cleanup(cancel)
	return func() error { cancel(); return <-ended }
}

func (w *world) eventually(what string, done func() bool) {
	w.t.Helper()
	require.Eventually(w.t, done, long, 10*time.Millisecond, what)
}

func (w *world) settle(n int, settledAt time.Time) string {
	w.t.Helper()
	id := fmt.Sprintf("E12345678202612010000%011d", n)
	require.NoError(w.t, w.db.InTx(w.t.Context(), func(ctx context.Context, tx *store.Tx) error {
		_, err := w.payments.Insert(ctx, tx, store.Payment{
			ID: id, Kind: pix.Payment, Direction: pix.In, State: pix.Accepted, Amount: 100, Channel: pix.CPM, Counterparty: "87654321",
			Document: json.RawMessage("{}"), AcceptedAt: settledAt,
		}, "test")
		require.NoError(w.t, err)
		_, err = w.payments.Move(ctx, tx, []store.Move{{ID: id, To: pix.Settled, Who: "spi", SettledAt: settledAt}})
		return err
	}))
	return id
}

func (w *world) all() []store.Cycle {
	w.t.Helper()
	_, now, _, err := w.cycles.Unclosed(w.t.Context())
	require.NoError(w.t, err)
	cycles, err := w.cycles.Between(w.t.Context(), now.AddDate(0, 0, -40), now.AddDate(0, 0, 40))
	require.NoError(w.t, err)
	return cycles
}

func TestTheCurrentCycleAndTheNextAreOpen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stop := w.lead(w.mint())
	w.eventually("cycles to be opened", func() bool { return len(w.all()) == 2 })
	require.ErrorIs(t, stop(), context.Canceled)
	cycles := w.all()
	_, now, _, err := w.cycles.Unclosed(t.Context())
	require.NoError(t, err)
	require.False(t, cycles[0].OpensAt.After(now))
	require.True(t, cycles[0].ClosesAt.After(now))
	require.True(t, cycles[1].OpensAt.Equal(cycles[0].ClosesAt))
	booked, err := w.obligations.Book(t.Context(), []string{w.settle(1, now)})
	require.NoError(t, err)
	require.Len(t, booked.Fresh, 1)
}

// The last cycle was opened nine days ago, and nobody led since.
func TestALeaderAfterDaysClosesWhatIsMissing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	old := w.mint()
	_, now, _, err := w.cycles.Unclosed(t.Context())
	require.NoError(t, err)
	first := plan(t, nil, "dia=24:00").After(now.AddDate(0, 0, -9))
	_, err = w.cycles.Open(t.Context(), store.Reign{Name: leadership, Term: old}, []store.Window{first})
	require.NoError(t, err)
	var ids []string
	for n := range 9 {
		ids = append(ids, w.settle(n, now.AddDate(0, 0, -n)))
	}
	stop := w.lead(w.mint())
	w.eventually("cycles to be opened", func() bool { return len(w.all()) > 5 })
	booked, err := w.obligations.Book(t.Context(), ids)
	require.NoError(t, err)
	require.Len(t, booked.Fresh, len(ids))
	w.eventually("what is over to be closed", func() bool {
		unclosed, _, _, err := w.cycles.Unclosed(t.Context())
		return err == nil && len(unclosed) == 2
	})
	require.ErrorIs(t, stop(), context.Canceled)
	last := first.OpensAt
	var netted int64
	for _, c := range w.all() {
		require.True(t, c.OpensAt.Equal(last), "no gap")
		last = c.ClosesAt
		netted += c.Obligations
		require.Equal(t, !c.ClosesAt.After(now), c.State == store.CycleClosed, c)
	}
	var current int64
	for _, id := range ids {
		o, err := w.obligations.Get(t.Context(), id)
		require.NoError(t, err)
		c, err := w.cycles.Get(t.Context(), o.CycleID)
		require.NoError(t, err)
		if c.State != store.CycleClosed {
			current++
		}
	}
	require.EqualValues(t, len(ids), netted+current)
}

func TestATermThatIsOverEndsTheLeadership(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	old := w.mint()
	w.mint()
	ended := make(chan error, 1)
	go func() { ended <- w.scheduler.Run(t.Context(), old) }()
	require.ErrorIs(t, <-ended, store.ErrStaleTerm)
	require.Empty(t, w.all())
}

func TestLinesThatDifferAreSaidAndLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := store.Reign{Name: leadership, Term: w.mint()}
	_, now, _, err := w.cycles.Unclosed(t.Context())
	require.NoError(t, err)
	day := now.UTC().Truncate(24 * time.Hour)
	opened, err := w.cycles.Open(t.Context(), by, []store.Window{
		{Date: day, Type: "a", OpensAt: now.Add(-2 * time.Hour), ClosesAt: now.Add(-time.Hour)},
		{Date: day, Type: "b", ClosesAt: now.Add(time.Hour)},
	})
	require.NoError(t, err)
	_, err = w.obligations.Book(t.Context(), []string{w.settle(1, now.Add(-90*time.Minute))})
	require.NoError(t, err)
	stop := w.lead(by.Term)
	w.eventually("the cycle to be closed", func() bool {
		c, err := w.cycles.Get(t.Context(), opened[0].ID)
		return err == nil && c.State == store.CycleClosed
	})
	require.ErrorIs(t, stop(), context.Canceled)
	before, err := w.cycles.Lines(t.Context(), opened[0].ID)
	require.NoError(t, err)

	require.NoError(t, devtest.PostgresServer(t).Exec(t.Context(), w.database, "UPDATE obligations SET amount = 101"))
	stop = w.lead(w.mint())
	w.eventually("the difference to be counted", func() bool {
		return testutil.GatherAndCompare(w.reg, strings.NewReader(`
# HELP cabine_cycles_differing_total Closed cycles whose obligations do not come to their lines. Must stay zero.
# TYPE cabine_cycles_differing_total counter
cabine_cycles_differing_total 1
`), "cabine_cycles_differing_total") == nil
	})
	require.ErrorIs(t, stop(), context.Canceled)
	after, err := w.cycles.Lines(t.Context(), opened[0].ID)
	require.NoError(t, err)
	require.Equal(t, before, after)
}

func TestConfigIsJudged(t *testing.T) {
	t.Parallel()
	_, err := cycle.New(cycle.Config{Grace: time.Hour, Patience: time.Minute, Recheck: 99, Every: time.Microsecond}, cycle.Deps{})
	for _, says := range []string{"leadership is empty", "Every is 1µs", "want at least grace 1h", "recheck is 99"} {
		require.ErrorContains(t, err, says)
	}
}
