package store_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
)

// An entry that the bank has twice is doubled also if a border of periods lies between both, however close they are; what is
// twice on one side of it is told once.
func TestAnEntryOnBothSidesOfABorderIsDoubled(t *testing.T) {
	t.Parallel()
	l := setupAccount(t)
	border := noon().Add(time.Hour)
	near := func(d time.Duration) time.Time { return border.Add(d) }
	l.settled(t, 1, pix.Out, border)
	l.settled(t, 2, pix.Out, near(-tolerance))
	l.settled(t, 3, pix.Out, near(-time.Second))
	l.settled(t, 4, pix.Out, near(-2*tolerance-time.Second))
	first := l.start(t, store.CauseSchedule, 0)
	f := l.file(t, 0, entry{e2e(1), pix.Out, 100_00, near(-time.Second)}, entry{e2e(2), pix.Out, 100_00, near(-2 * tolerance)},
		entry{e2e(3), pix.Out, 100_00, near(-time.Second)}, entry{e2e(3), pix.Out, 100_00, near(-time.Second)},
		entry{e2e(4), pix.Out, 100_00, near(-2*tolerance - time.Second)}, entry{e2e(5), pix.In, 7, near(-time.Second)})
	l.importing(t, first, f)
	l.compare(t, first, f)
	require.Equal(t, []string{"3 doubled settled", "5 missing_here"}, l.found(t, first))
	next := l.start(t, store.CauseSchedule, 1)
	f = l.file(t, 1, entry{e2e(1), pix.Out, 100_00, near(time.Second)}, entry{e2e(2), pix.Out, 100_00, border},
		entry{e2e(4), pix.Out, 100_00, border}, entry{e2e(5), pix.In, 7, border})
	l.importing(t, next, f)
	l.compare(t, next, f)
	// The fourth is too long ago to be near the border: it differs in its time.
	require.Equal(t, []string{"1 doubled settled", "2 doubled settled", "4 differing settled", "5 doubled", "5 missing_here"}, l.found(t, next))
	lines, err := l.recon.Lines(t.Context(), next, "", 1)
	require.NoError(t, err)
	require.Equal(t, 2, lines[0].Entries)
}

// The SPI's answer about an entry tells its amount and its side. It ends no line that differs in the participant or in the
// time, and no payment of another participant is the one that was missing here.
func TestAnAnswerEndsOnlyWhatItIsAbout(t *testing.T) {
	t.Parallel()
	l := setupAccount(t)
	at := noon().Add(time.Minute)
	for n := 1; n <= 3; n++ {
		l.settled(t, n, pix.Out, at)
	}
	l.insert(t, order(e2e(4)), order(e2e(5)))
	id := l.start(t, store.CauseSchedule, 0)
	f := l.file(t, 0, entry{e2e(1), pix.Out, 100_00, at}, entry{e2e(2), pix.Out, 100_00, at.Add(time.Minute)}, entry{e2e(3), pix.Out, 1, at},
		entry{e2e(4), pix.Out, 100_00, at}, entry{e2e(5), pix.Out, 100_00, at})
	_, err := l.side.Exec(t.Context(), "UPDATE statement_entries SET counterparty = '99999999' WHERE payment_id = ANY($1)", []string{e2e(1), e2e(4)})
	require.NoError(t, err)
	l.importing(t, id, f)
	l.compare(t, id, f)
	require.Equal(t, []string{"1 differing settled", "2 differing settled", "3 differing settled", "4 missing_here created", "5 missing_here created"}, l.found(t, id))
	l.move(t, to(pix.Settled, e2e(4), e2e(5))...)
	_, err = l.recon.AskLines(t.Context(), l.by, id, store.EntryQuestions{
		MsgType: "camt.060", Channel: pix.CPM, Most: 1, AtOnce: 10, Who: "settlement-scheduler", Reason: "enquiry",
		Body: func(id string) (json.RawMessage, error) { return json.Marshal(id) },
	})
	require.NoError(t, err)
	for n := 1; n <= 5; n++ {
		l.tx(t, func(ctx context.Context, tx *store.Tx) error {
			asked, err := l.recon.AnswerEntry(ctx, tx, l.sent(t, e2e(n))[0], e2e(n), store.AnswerBooked, store.Side{Direction: pix.Out, Amount: 100_00})
			require.True(t, asked)
			return err
		})
	}
	resolved, err := l.recon.Resolve(t.Context(), l.by, id)
	require.NoError(t, err)
	require.EqualValues(t, 2, resolved)
	lines, err := l.recon.Lines(t.Context(), id, "", 10)
	require.NoError(t, err)
	var ends []string
	for _, line := range lines {
		ends = append(ends, line.Resolution)
	}
	require.Equal(t, []string{"", "", "confirmed", "", "settled"}, ends)
	require.EqualValues(t, 3, l.reconciliation(t, id).Unresolved)
}

// A balance that differs, and a file with a flaw, are told by the tables: whoever leads next knows of them.
func TestFlawsAreToldByTheTables(t *testing.T) {
	t.Parallel()
	l := setupAccount(t)
	agreement := func() (difference, flawed int64) {
		a, err := l.recon.Agreement(t.Context())
		require.NoError(t, err)
		return a.Difference, a.Flawed
	}
	for n := range 3 {
		id := l.start(t, store.CauseSchedule, n)
		if n == 0 {
			_, err := l.side.Exec(t.Context(), "UPDATE reconciliations SET created_at = now() - interval '1 day'")
			require.NoError(t, err)
			a, err := l.recon.Agreement(t.Context())
			require.NoError(t, err)
			require.Zero(t, a.Last.ID)
			require.InDelta(t, 24, a.Age.Hours(), 1, "somebody waits for the first one")
		}
		f := l.file(t, n)
		if n == 1 {
			f.RowsRefused = 1
		}
		l.importing(t, id, f)
		msg := l.sent(t, fmt.Sprintf("reconciliation/%d/balance/%%", id))[0]
		l.tx(t, func(ctx context.Context, tx *store.Tx) error {
			_, err := l.recon.AnswerBalance(ctx, tx, msg, pix.Amount(1000-10*n), noon().Add(time.Duration(n+1)*time.Hour+time.Minute))
			return err
		})
		s, err := l.recon.Standing(t.Context())
		require.NoError(t, err)
		require.True(t, s.BalanceAt.Equal(noon().Add(time.Duration(n+1)*time.Hour+time.Minute)))
		l.compare(t, id, f)
		difference, flawed := agreement()
		require.Equal(t, []int64{0, 0, -10}[n], difference)
		require.Equal(t, []int64{0, 1, 1}[n], flawed)
	}
	f := l.file(t, 9)
	for n := range 2 {
		hour := noon().Add(time.Duration(n) * time.Hour)
		id, err := l.recon.Start(t.Context(), l.by, store.Reconciliation{Cause: store.CauseManual, From: hour, To: hour.Add(time.Hour)}, questions()[:1])
		require.NoError(t, err)
		l.importing(t, id, f)
		l.compare(t, id, f)
		_, flawed := agreement()
		require.EqualValues(t, 1-n, flawed, "the same period compared again with a file that is whole ends it, no other one")
	}
}

// What we are told to have settled in a time that was compared already, and the bank has not, is missing there. What it has
// is none, nor what settled before anything was compared, and nothing is told twice.
func TestWhatIsToldLateIsComparedToo(t *testing.T) {
	t.Parallel()
	l := setupAccount(t)
	at := noon().Add(30 * time.Minute)
	border := noon().Add(2 * time.Hour)
	l.openWindows(t, 1, 48)
	entries := []entry{{e2e(2), pix.Out, 100_00, at}, {e2e(4), pix.Out, 100_00, border.Add(-time.Hour - time.Second)}, {e2e(6), pix.Out, 1, at}}
	told := map[int]time.Time{
		1: at, 2: at, // the bank has the second alone
		3: noon().Add(-time.Hour),     // before everything
		4: border.Add(-time.Hour),     // there in the file before
		5: border.Add(-time.Minute),   // in the period that is compared next
		6: at,                         // there with another amount, as its line says
		7: border.Add(-2 * time.Hour), // the first instant of all
	}
	for n := range 4 {
		id := l.start(t, store.CauseSchedule, n)
		f := l.file(t, n, entries...)
		entries = nil
		l.importing(t, id, f)
		l.compare(t, id, f)
		require.Equal(t, [][]string{
			{"2 missing_here", "4 missing_here", "6 missing_here"},
			{"1 missing_there settled", "5 missing_there settled", "7 missing_there settled"},
			nil,
			{"8 missing_there settled"},
		}[n], l.found(t, id))
		if n == 2 {
			told = map[int]time.Time{8: at}
		}
		for i, at := range told {
			l.settled(t, i, pix.Out, at)
			require.Len(t, l.book(t, e2e(i)).Fresh, 1)
		}
		_, err := l.side.Exec(t.Context(), "UPDATE obligations SET created_at = $1 WHERE created_at > now() - interval '1 hour'",
			noon().Add(time.Duration(n+1)*time.Hour+10*time.Minute))
		require.NoError(t, err)
		told = nil
	}
}

// A day leaves what is near its borders to the chain, which has the files on both sides: an entry that is just on the other side
// is not missing.
func TestADayLeavesItsBordersToTheChain(t *testing.T) {
	t.Parallel()
	l := setupAccount(t)
	from, to := noon(), noon().Add(time.Hour)
	l.settled(t, 1, pix.Out, from.Add(time.Second)) // there just before
	l.settled(t, 2, pix.Out, to.Add(-time.Second))  // there just after
	l.settled(t, 3, pix.Out, from.Add(tolerance))
	l.settled(t, 4, pix.Out, to.Add(-tolerance-time.Second))
	l.settled(t, 5, pix.Out, from.Add(-time.Second)) // there just after
	id := l.start(t, store.CauseDay, 0)
	f := l.file(t, 0, entry{e2e(5), pix.Out, 100_00, from}, entry{e2e(6), pix.In, 1, from})
	l.importing(t, id, f)
	l.compare(t, id, f)
	require.Equal(t, []string{"3 missing_there settled", "4 missing_there settled", "6 missing_here"}, l.found(t, id))
}
