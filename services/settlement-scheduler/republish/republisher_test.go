package republish_test

import (
	"context"
	"encoding/json"
	"errors"
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
	"github.com/cabine-pix/cabine/libs/devstack/devtest"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/services/settlement-scheduler/republish"
)

func TestMain(m *testing.M) { os.Exit(devtest.Main(m, devtest.WithPostgres())) }

const (
	long       = 60 * time.Second
	leadership = "settlement:12345678"
)

// world is books with payments that settled, and a carrier that hears and may fail.
type world struct {
	t           *testing.T
	obligations *store.Obligations
	terms       *store.Terms
	settled     []string
	republisher *republish.Republisher

	mu      sync.Mutex
	heard   map[bus.Obligation]int
	refuses int // how many batches more it does not take
}

func newWorld(t *testing.T, payments int) *world {
	t.Helper()
	dsn := devtest.Postgres(t)
	require.NoError(t, store.Migrate(t.Context(), dsn))
	db, err := store.Open(t.Context(), store.Config{URL: dsn, Application: "test"})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	w := &world{t: t, terms: store.NewTerms(db), heard: map[bus.Obligation]int{}}
	w.obligations, err = store.NewObligations(db, nil)
	require.NoError(t, err)
	books := store.NewPayments(db)
	require.NoError(t, db.InTx(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		var moves []store.Move
		for n := range payments {
			id := fmt.Sprintf("E12345678202612010000%011d", n)
			if _, err := books.Insert(ctx, tx, store.Payment{
				ID: id, Kind: pix.Payment, Direction: pix.In, State: pix.Accepted, Amount: 100, Channel: pix.CPM, Counterparty: "87654321",
				Document: json.RawMessage("{}"), AcceptedAt: time.Now(),
			}, "test"); err != nil {
				return err
			}
			w.settled = append(w.settled, id)
			moves = append(moves, store.Move{ID: id, To: pix.Settled, Who: "spi"})
		}
		_, err := books.Move(ctx, tx, moves)
		return err
	}))
	w.republisher, err = republish.New(republish.Config{
		Leadership: leadership, Every: 10 * time.Millisecond, Batch: 7, Again: 300 * time.Millisecond, Most: time.Minute,
	}, republish.Deps{
		Carrier: w, Obligations: w.obligations, Terms: w.terms, Clock: clock.System(),
		Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
	})
	require.NoError(t, err)
	return w
}

func (w *world) PublishObligations(_ context.Context, due []bus.Obligation) bus.Results {
	w.mu.Lock()
	defer w.mu.Unlock()
	results := make(bus.Results, len(due))
	refused := w.refuses > 0
	w.refuses--
	for i, o := range due {
		if refused && i > 0 { // the first of a batch gets through
			results[i] = errors.New("the bus is away")
			continue
		}
		w.heard[o]++
	}
	return results
}

func (w *world) mint() int64 {
	w.t.Helper()
	term, err := w.terms.Mint(w.t.Context(), leadership, "test")
	require.NoError(w.t, err)
	return term
}

func (w *world) lead(term int64) (stop func() error) {
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.republisher.Run(ctx, term) }()
	w.t.Cleanup(cancel)
	return func() error { cancel(); return <-ended }
}

// times returns how often each payment was announced with an attempt.
func (w *world) times(attempt int) (announced, most int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range w.settled {
		n := w.heard[bus.Obligation{ID: id, Attempt: attempt}]
		if n > 0 {
			announced++
		}
		most = max(most, n)
	}
	return announced, most
}

func (w *world) announced(attempt int) {
	w.t.Helper()
	require.Eventually(w.t, func() bool { n, _ := w.times(attempt); return n == len(w.settled) }, long, time.Millisecond)
}

func TestWhatIsDueIsAnnouncedOnceAndAgainWhenNobodyWritesIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 40)
	began := time.Now()
	stop := w.lead(w.mint())
	for attempt := range 3 {
		w.announced(attempt) // at 0, 0.3 and 0.9 seconds
	}
	require.Greater(t, time.Since(began), 850*time.Millisecond)
	require.ErrorIs(t, stop(), context.Canceled)
	for attempt := range 3 {
		_, most := w.times(attempt)
		require.Equal(t, 1, most)
	}
}

func TestWhatTheBusDidNotTakeIsOfferedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 20)
	w.refuses = 5
	stop := w.lead(w.mint())
	w.announced(0)
	require.ErrorIs(t, stop(), context.Canceled)
	_, most := w.times(0)
	require.Equal(t, 1, most, "what got through was noted")
}

// A leader that was deposed has published once more than it noted, and is gone.
func TestATermThatIsOverNotesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 5)
	old := w.mint()
	next := w.mint()
	require.ErrorIs(t, w.republisher.Run(t.Context(), old), store.ErrStaleTerm)
	due, err := w.obligations.Due(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, due, 5)
	require.Zero(t, due[0].Attempts)
	stop := w.lead(next)
	w.announced(1)
	require.ErrorIs(t, stop(), context.Canceled)
	_, most := w.times(0)
	require.Equal(t, 2, most, "under the same identifier, of which the bus keeps one")
}

func TestConfigIsJudged(t *testing.T) {
	t.Parallel()
	_, err := republish.New(republish.Config{Batch: 9999, AlarmAttempts: -1, Every: 1, Again: time.Hour, Most: time.Minute}, republish.Deps{})
	for _, says := range []string{"leadership is empty", "batch is 9999", "AlarmAttempts is -1", "Every is 1ns", "want at least again 1h"} {
		require.ErrorContains(t, err, says)
	}
}
