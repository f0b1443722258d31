package reconciliation_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/devstack/devtest"
	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/services/settlement-scheduler/reconciliation"
)

// A program that was not seen before compares at once, asks for the right things, and goes on where the last one ended.
func TestEveryDeployReconcilesAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	at := time.Now().Add(-30 * time.Minute)
	w.here(1, at)
	w.there(1, pix.Out, at)
	stop := w.lead(nil)
	first := w.until(store.ReconciliationCompared)
	require.ErrorIs(t, stop(), context.Canceled)
	require.Equal(t, []any{store.CauseDeploy, "v1", int64(1), int64(0), ""}, []any{first.Cause, first.Version, first.Entries, first.Unresolved, first.Reason})
	require.Equal(t, time.Hour, first.To.Sub(first.From))
	require.WithinDuration(t, first.CreatedAt.Add(-time.Minute), first.To, time.Second)
	require.EqualValues(t, 100, first.Balance)
	w.with(func() {
		require.Len(t, w.asked, 2)
		require.Equal(t, iso20022.Entries(us, first.From, first.To), w.asked[0])
		require.Equal(t, iso20022.Balance(us), w.asked[1])
	})

	stop = w.lead(nil)
	require.Never(t, func() bool { return w.latest().ID != first.ID }, 200*time.Millisecond, 20*time.Millisecond, "the same version")
	require.ErrorIs(t, stop(), context.Canceled)
	stop = w.lead(func(c *reconciliation.Config) {
		c.Version, c.Grace, c.Tolerance = "v2", 10*time.Millisecond, 10*time.Millisecond
	})
	w.eventually("the next one", func() bool { a := w.latest(); return a.ID != first.ID && a.State == store.ReconciliationCompared })
	require.ErrorIs(t, stop(), context.Canceled)
	next := w.latest()
	require.Equal(t, []any{store.CauseDeploy, "v2"}, []any{next.Cause, next.Version})
	require.True(t, next.From.Equal(first.To), "no gap")
	require.Zero(t, next.Unresolved)
}

// In observe nothing is asked about a line; what settles by itself is resolved all the same.
func TestObserveListsAndAsksNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	at := time.Now().Add(-30 * time.Minute)
	w.here(1, time.Time{})
	w.there(1, pix.Out, at)
	w.there(2, pix.Out, at) // a debit that we never sent
	w.here(3, at)
	stop := w.lead(nil)
	a := w.until(store.ReconciliationCompared)
	require.Equal(t, []string{"1 missing_here", "2 missing_here", "3 missing_there"}, w.lines(a.ID))
	w.eventually("metrics", func() bool {
		return testutil.GatherAndCompare(w.reg, strings.NewReader(`
# HELP cabine_reconciliation_open_lines Lines of all comparisons that have no resolution. Zero where this replica does not lead.
# TYPE cabine_reconciliation_open_lines gauge
cabine_reconciliation_open_lines{finding="differing"} 0
cabine_reconciliation_open_lines{finding="doubled"} 0
cabine_reconciliation_open_lines{finding="missing_here"} 2
cabine_reconciliation_open_lines{finding="missing_there"} 1
`), "cabine_reconciliation_open_lines") == nil
	})
	require.NoError(t, w.db.InTx(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		_, err := w.payments.Move(ctx, tx, []store.Move{{ID: e2e(1), To: pix.Settled, Who: "spi", SettledAt: at}})
		return err
	}))
	w.eventually("it to be resolved", func() bool { return w.latest().Unresolved == 2 })
	require.ErrorIs(t, stop(), context.Canceled)
	require.Equal(t, []string{"1 missing_here settled", "2 missing_here", "3 missing_there"}, w.lines(a.ID))
	require.Zero(t, w.questions(iso20022.AnswerEntry))
}

// In active the SPI is asked about each line but the doubled ones, once, and its answers end what they can.
func TestActiveAsksAboutEachLine(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	at := time.Now().Add(-30 * time.Minute)
	w.here(1, time.Time{}) // sent, never confirmed
	w.there(1, pix.Out, at)
	w.here(2, at) // the bank says that it has it, outside of the file
	w.here(3, at) // the bank says nothing
	w.here(4, at)
	w.there(4, pix.Out, at)
	w.there(4, pix.Out, at)
	w.account[e2e(1)], w.account[e2e(2)] = true, true
	stop := w.lead(func(c *reconciliation.Config) { c.Active = true })
	a := w.until(store.ReconciliationCompared)
	w.eventually("lines to be resolved", func() bool { return w.latest().Unresolved == 2 })
	require.ErrorIs(t, stop(), context.Canceled)
	require.Equal(t, []string{"1 missing_here BOOK settled", "2 missing_there BOOK confirmed", "3 missing_there", "4 doubled"}, w.lines(a.ID))
	require.Equal(t, 3, w.questions(iso20022.AnswerEntry))
	p, err := w.payments.Get(t.Context(), e2e(1))
	require.NoError(t, err)
	require.Equal(t, pix.Settled, p.State)
}

// So many lines are no orphans: nothing is asked about them. What people resolve is not counted as open.
func TestTooManyLinesAreOnlyListed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for n := range 3 {
		w.there(n, pix.In, time.Now().Add(-30*time.Minute))
	}
	stop := w.lead(func(c *reconciliation.Config) { c.Active, c.EntriesMost = true, 3 })
	a := w.until(store.ReconciliationCompared)
	require.Never(t, func() bool { w.send(); return w.questions(iso20022.AnswerEntry) > 0 }, 200*time.Millisecond, 20*time.Millisecond)
	require.NoError(t, devtest.PostgresServer(t).Exec(t.Context(), w.database,
		"UPDATE reconciliation_lines SET resolution = 'explained', resolved_at = now() WHERE payment_id LIKE '%0'"))
	w.eventually("the others to be asked about", func() bool { return w.questions(iso20022.AnswerEntry) == 2 })
	require.ErrorIs(t, stop(), context.Canceled)
	require.Equal(t, []string{"missing_here explained", "1 missing_here", "2 missing_here"}, w.lines(a.ID))
	require.EqualValues(t, 2, w.latest().Unresolved)
}

// A file that is not what was announced is not taken, and asked for again; the third time is the last.
func TestAFileWithAnotherHashIsRefused(t *testing.T) {
	t.Parallel()
	for lies, want := range map[int]store.ReconciliationState{1: store.ReconciliationCompared, 3: store.ReconciliationFailed} {
		t.Run(string(want), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.lies = lies
			stop := w.lead(nil)
			a := w.until(want)
			require.ErrorIs(t, stop(), context.Canceled)
			require.Equal(t, min(lies+1, 3), a.Asked)
			require.Equal(t, a.Asked, w.questions(iso20022.AnswerFile))
			if want == store.ReconciliationFailed {
				require.Equal(t, "the file has another hash than was announced", a.Reason)
				_, err := w.files.Latest(t.Context(), 1)
				require.NoError(t, err)
			}
			files, err := w.files.Latest(t.Context(), 10)
			require.NoError(t, err)
			require.Len(t, files, map[bool]int{true: 1}[want == store.ReconciliationCompared], "nothing else came into the bucket")
		})
	}
}

// While the file host is away it is tried again; when it has been away for too long the file is asked for again, and in the
// end given up. What it serves meanwhile is not believed.
func TestAFileHostThatIsAway(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusServiceUnavailable, http.StatusPartialContent, http.StatusFound} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.status = status
			stop := w.lead(nil)
			w.eventually("some tries", func() (some bool) { w.with(func() { some = w.gets > 3 }); return some })
			require.Equal(t, store.ReconciliationAnnounced, w.latest().State)
			w.with(func() { w.status = 0 })
			a := w.until(store.ReconciliationCompared)
			require.ErrorIs(t, stop(), context.Canceled)
			require.Equal(t, 1, a.Asked)
		})
	}
	w := newWorld(t)
	w.status = http.StatusServiceUnavailable
	stop := w.lead(func(c *reconciliation.Config) { c.FetchWithin = 20 * time.Millisecond })
	a := w.until(store.ReconciliationFailed)
	require.ErrorIs(t, stop(), context.Canceled)
	require.Equal(t, []any{3, "the file could not be fetched"}, []any{a.Asked, a.Reason})
}

// An answer that never comes is asked for by new questions, a bounded number of times. The period is taken up again by the
// next one.
func TestAnAnswerThatNeverComes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.mute = true
	stop := w.lead(func(c *reconciliation.Config) { c.AnswerWithin = 30 * time.Millisecond })
	failed := w.until(store.ReconciliationFailed)
	require.Equal(t, []any{3, "the SPI does not answer"}, []any{failed.Asked, failed.Reason})
	w.eventually("questions to be sent", func() bool { return w.questions(iso20022.AnswerFile) == 3 })
	require.ErrorIs(t, stop(), context.Canceled)
	w.with(func() { w.mute = false })
	stop = w.lead(func(c *reconciliation.Config) { c.Version = "v2" })
	next := w.until(store.ReconciliationCompared)
	require.ErrorIs(t, stop(), context.Canceled)
	require.WithinDuration(t, failed.From, next.From, time.Minute)
	require.NotEqual(t, failed.ID, next.ID)
}

// What the importer refuses, or does not import in time, is asked for again.
func TestAFileThatIsNotImported(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.refuses = true
	stop := w.lead(nil)
	a := w.until(store.ReconciliationFailed)
	require.ErrorIs(t, stop(), context.Canceled)
	require.Equal(t, []any{3, "it is refused"}, []any{a.Asked, a.Reason})
}

// A leader that dies after asking, after downloading or before comparing leaves what its successor goes on with: nothing is
// asked twice.
func TestASuccessorGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	at := time.Now().Add(-30 * time.Minute)
	w.there(1, pix.In, at)
	die := func(state store.ReconciliationState, work func()) {
		stop := w.lead(nil)
		require.Eventually(t, func() bool { work(); return w.latest().State == state }, long, 5*time.Millisecond)
		require.ErrorIs(t, stop(), context.Canceled)
	}
	die(store.ReconciliationAsked, func() {})
	w.send() // the answer comes while nobody leads
	require.Equal(t, store.ReconciliationAnnounced, w.latest().State)
	die(store.ReconciliationImporting, func() {})
	w.bring()
	require.Equal(t, store.ReconciliationImporting, w.latest().State)
	die(store.ReconciliationCompared, func() {})
	require.Equal(t, 1, w.questions(iso20022.AnswerFile))
	require.Equal(t, []string{"1 missing_here"}, w.lines(w.latest().ID))
	w.with(func() { require.Equal(t, 1, w.gets) })
}

// A leader that died between putting the file into the bucket and saying so downloads it again, and it is one file.
func TestAFileIsBroughtTwiceAndImportedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stop := w.lead(nil)
	w.until(store.ReconciliationCompared)
	require.ErrorIs(t, stop(), context.Canceled)
	require.NoError(t, devtest.PostgresServer(t).Exec(t.Context(), w.database,
		"UPDATE reconciliations SET state = 'announced', compared_at = NULL, announced_at = now()"))
	stop = w.lead(nil)
	w.until(store.ReconciliationCompared)
	require.ErrorIs(t, stop(), context.Canceled)
	files, err := w.files.Latest(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, files, 1)
	w.with(func() { require.Equal(t, 1, w.gets, "it is in the tables") })
}

// A term that is over writes nothing and ends the leadership, also one that ends meanwhile.
func TestATermThatIsOverEndsTheLeadership(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	old := w.mint()
	w.mint()
	require.ErrorIs(t, w.reconciler(nil).Run(t.Context(), old), store.ErrStaleTerm)
	require.Zero(t, w.latest().ID)
	w.mute = true
	r := w.reconciler(func(c *reconciliation.Config) { c.AnswerWithin, c.Asks = 10*time.Millisecond, 100 })
	term := w.mint()
	ended := make(chan error, 1)
	go func() { ended <- r.Run(t.Context(), term) }()
	w.eventually("it to ask again", func() bool { return w.latest().Asked > 1 })
	w.mint()
	require.ErrorIs(t, <-ended, store.ErrStaleTerm)
	asked := w.latest().Asked
	stop := w.lead(func(c *reconciliation.Config) { c.AnswerWithin, c.Asks = 10*time.Millisecond, asked })
	w.until(store.ReconciliationFailed)
	require.ErrorIs(t, stop(), context.Canceled)
	require.Equal(t, asked, w.latest().Asked)
}

// A row that an operator inserts is asked for and compared, whatever its period.
func TestAnOperatorAsksForAPeriod(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.there(1, pix.In, time.Now().Add(-71*time.Hour))
	require.NoError(t, devtest.PostgresServer(t).Exec(t.Context(), w.database, `
		INSERT INTO reconciliations (cause, mode, period_from, period_to) VALUES ('manual', 'observe',
			date_trunc('second', now() - interval '3 days'), date_trunc('second', now() - interval '2 days'))`))
	stop := w.lead(nil)
	w.eventually("both to be compared", func() bool {
		all, err := w.books.Latest(t.Context(), 2)
		require.NoError(t, err)
		return len(all) == 2 && all[0].State == store.ReconciliationCompared && all[1].State == store.ReconciliationCompared
	})
	require.ErrorIs(t, stop(), context.Canceled)
	all, err := w.books.Latest(t.Context(), 2)
	require.NoError(t, err)
	require.Equal(t, store.CauseManual, all[1].Cause)
	require.Equal(t, []string{"1 missing_here"}, w.lines(all[1].ID))
}

func TestConfigIsJudged(t *testing.T) {
	t.Parallel()
	_, err := reconciliation.New(reconciliation.Config{
		Every: time.Second, Longest: 1, Look: 1, Asks: -1, EntryAsks: 101, EntriesAtOnce: 1001, EntriesMost: -1, Tolerance: time.Minute, MaxText: -1, Channel: "x",
	}, reconciliation.Deps{})
	for _, says := range []string{
		"leadership is empty", "version is empty", "ISPB", `channel "x"`, "Longest is 1ns", "Look is 1ns", "Asks is -1", "EntryAsks is 101",
		"EntriesAtOnce is 1001", "EntriesMost is -1", "tolerance is 1m0s", "MaxText is -1",
	} {
		require.ErrorContains(t, err, says)
	}
	_, err = reconciliation.NewHost(reconciliation.HostConfig{URL: "http://files", MaxBytes: -1, Timeout: 1}, nil)
	for _, says := range []string{"not https://", "certificate", "MaxBytes is -1", "timeout is 1ns"} {
		require.ErrorContains(t, err, says)
	}
}
