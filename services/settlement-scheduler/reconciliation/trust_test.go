package reconciliation_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/devstack/devtest"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
)

// A file of another period is not compared, also if it is in the tables already and its hash is what the SPI says: a credit
// that only the bank has would be missing nowhere.
func TestAFileOfAnotherPeriodIsNotCompared(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stop := w.lead(nil)
	first := w.until(store.ReconciliationCompared)
	require.ErrorIs(t, stop(), context.Canceled)
	w.with(func() { w.mute = true }) // the test answers: with the hash of what we have
	w.there(1, pix.In, time.Now().Add(-47*time.Hour))
	require.NoError(t, devtest.PostgresServer(t).Exec(t.Context(), w.database, `
		INSERT INTO reconciliations (cause, mode, period_from, period_to) VALUES ('manual', 'observe',
			date_trunc('second', now() - interval '2 days'), date_trunc('second', now() - interval '1 day'))`))
	stop = w.lead(nil)
	var a store.Reconciliation
	over := func() bool {
		require.NoError(t, devtest.PostgresServer(t).Exec(t.Context(), w.database, fmt.Sprintf(
			"UPDATE reconciliations SET state = 'announced', announced_at = now(), file_hash = '%s' WHERE cause = 'manual' AND state = 'asked' AND asked > 0",
			first.FileHash)))
		all, err := w.books.Latest(t.Context(), 10)
		require.NoError(t, err)
		for _, a = range all {
			if a.Cause == store.CauseManual {
				return a.State == store.ReconciliationFailed || a.State == store.ReconciliationCompared
			}
		}
		return false
	}
	w.eventually("it to end", over)
	require.ErrorIs(t, stop(), context.Canceled)
	require.Equal(t, []any{store.ReconciliationFailed, "the file is not of the account and the period that were asked for", 3}, []any{a.State, a.Reason, a.Asked})

	// One that came so far under an older program is looked at as well.
	require.NoError(t, devtest.PostgresServer(t).Exec(t.Context(), w.database, fmt.Sprintf(
		"UPDATE reconciliations SET state = 'importing', asked = 3, file_hash = '%s', announced_at = now(), fetched_at = now() WHERE id = %d", first.FileHash, a.ID)))
	stop = w.lead(nil)
	w.eventually("it to end", over)
	require.ErrorIs(t, stop(), context.Canceled)
	require.Equal(t, store.ReconciliationFailed, a.State)
}

// A file with fewer entries than were announced, and a balance that does not come out, are seen by whoever leads, also if the one who
// compared is gone; nobody who does not lead tells of them.
func TestFlawsOutliveTheLeader(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stop := w.lead(nil)
	a := w.until(store.ReconciliationCompared)
	require.ErrorIs(t, stop(), context.Canceled)
	require.NoError(t, devtest.PostgresServer(t).Exec(t.Context(), w.database, fmt.Sprintf(
		"UPDATE reconciliations SET reason = 'the file has 0 entries, 1 were announced', balance = 100, balance_at = period_to, balance_expected = 107 WHERE id = %d", a.ID)))
	told := func(difference, flawed int) bool {
		return testutil.GatherAndCompare(w.reg, strings.NewReader(fmt.Sprintf(`
# HELP cabine_reconciliation_balance_difference_centavos The last balance that was judged, less what the one before and the entries since come to. Zero where this replica does not lead.
# TYPE cabine_reconciliation_balance_difference_centavos gauge
cabine_reconciliation_balance_difference_centavos %d
# HELP cabine_reconciliation_flawed How many of the last 24 comparisons were with a file that had a flaw: their reason says which. Zero where this replica does not lead.
# TYPE cabine_reconciliation_flawed gauge
cabine_reconciliation_flawed %d
`, difference, flawed)), "cabine_reconciliation_balance_difference_centavos", "cabine_reconciliation_flawed") == nil
	}
	stop = w.lead(nil)
	w.eventually("the successor to tell", func() bool { return told(-7, 1) })
	require.ErrorIs(t, stop(), context.Canceled)
	require.True(t, told(0, 0))
}
