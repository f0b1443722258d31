package store_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/devstack/devtest"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
)

// account is books with the bank's account beside them.
type account struct {
	clearing
	recon *store.Reconciliations
	files *store.Files
	side  *pgx.Conn
	n     int
}

const tolerance = 5 * time.Second

func setupAccount(t testing.TB) *account {
	t.Helper()
	c := setupClearing(t, nil)
	return &account{clearing: c, recon: store.NewReconciliations(c.db), files: store.NewFiles(c.db), side: side(t, c.url)}
}

// noon is the beginning of the first period, which lasts an hour.
func noon() time.Time { return yesterday().Add(12 * time.Hour) }

func questions() []store.Inquiry {
	return []store.Inquiry{
		{MsgType: "camt.060", Channel: pix.CPM, Body: json.RawMessage(`{}`)},
		{MsgType: "camt.060", Channel: pix.CPM, Body: json.RawMessage(`{}`), Balance: true},
	}
}

// start begins the reconciliation of the n-th hour after noon.
func (l *account) start(t testing.TB, cause store.Cause, n int) int64 {
	t.Helper()
	from := noon().Add(time.Duration(n) * time.Hour)
	id, err := l.recon.Start(t.Context(), l.by, store.Reconciliation{Cause: cause, Version: "v1", Active: true, From: from, To: from.Add(time.Hour)}, questions())
	require.NoError(t, err)
	return id
}

// sent puts the questions of a kind that are not sent yet into messages, as the sender does, and returns their MsgIds.
func (l *account) sent(t testing.TB, like string) (ids []pix.MsgID) {
	t.Helper()
	rows, err := l.side.Query(t.Context(), "SELECT id FROM outbox WHERE msg_type = 'camt.060' AND payment_id LIKE $1 AND msg_id IS NULL ORDER BY id", like)
	require.NoError(t, err)
	operations, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	require.NoError(t, err)
	for _, op := range operations {
		l.n++
		l.build(t, draft(msgID(l.n), 1, op))
		ids = append(ids, msgID(l.n))
	}
	return ids
}

// entry is a line of the bank's file.
type entry struct {
	id        string
	direction pix.Direction
	amount    pix.Amount
	at        time.Time
}

// file imports entries, as the importer does.
func (l *account) file(t testing.TB, n int, entries ...entry) store.File {
	t.Helper()
	from := noon().Add(time.Duration(n) * time.Hour)
	hash := fmt.Sprintf("%064x", n+1)
	var id int64
	require.NoError(t, l.side.QueryRow(t.Context(), `INSERT INTO imported_files (state, kind, sha256, name, size, ispb, period_from, period_to, records, term)
		VALUES ('imported', 'entries', $1, 'x', 1, '12345678', $2, $3, $4, 1) RETURNING id`, hash, from, from.Add(time.Hour), len(entries)).Scan(&id))
	for i, e := range entries {
		_, err := l.side.Exec(t.Context(), `INSERT INTO statement_entries (file_id, line, payment_id, kind, direction, amount, counterparty, settled_at)
			VALUES ($1, $2, $3, 'payment', $4, $5, '87654321', $6)`, id, i+2, e.id, string(e.direction), int64(e.amount), e.at)
		require.NoError(t, err)
	}
	f, err := l.files.Get(t.Context(), store.EntriesFile, hash)
	require.NoError(t, err)
	return f
}

// importing brings a reconciliation to where it waits for its file.
func (l *account) importing(t testing.TB, id int64, f store.File) {
	t.Helper()
	ids := l.sent(t, fmt.Sprintf("reconciliation/%d/entries/%%", id))
	require.NotEmpty(t, ids)
	l.tx(t, func(ctx context.Context, tx *store.Tx) error {
		asked, err := l.recon.AnswerFile(ctx, tx, ids[len(ids)-1], f.SHA256, f.Records)
		require.True(t, asked)
		return err
	})
	r := l.reconciliation(t, id)
	require.Equal(t, store.ReconciliationAnnounced, r.State)
	require.NoError(t, l.recon.Fetched(t.Context(), l.by, r))
}

// compare does it and returns whose balance is judged since.
func (l *account) compare(t testing.TB, id int64, f store.File) (judged int64) {
	t.Helper()
	judged, err := l.recon.Compare(t.Context(), l.by, id, f, tolerance)
	require.NoError(t, err)
	return judged
}

func (l *account) reconciliation(t testing.TB, id int64) store.Reconciliation {
	t.Helper()
	r, err := l.recon.Get(t.Context(), id)
	require.NoError(t, err)
	return r
}

// found returns the lines as "<n> <finding> <our state>", n being what e2e was given.
func (l *account) found(t testing.TB, id int64) (found []string) {
	t.Helper()
	lines, err := l.recon.Lines(t.Context(), id, "", 1000)
	require.NoError(t, err)
	for _, line := range lines {
		found = append(found, strings.TrimSpace(fmt.Sprintf("%s %s %s", strings.TrimLeft(line.PaymentID[21:], "0"), line.Finding, line.OurState)))
	}
	return found
}

// settled books a payment of 100.00 that settled at an instant.
func (l *account) settled(t testing.TB, n int, direction pix.Direction, at time.Time) {
	t.Helper()
	p := order(e2e(n))
	if direction == pix.In {
		p = incoming(e2e(n))
	}
	l.insert(t, p)
	l.move(t, store.Move{ID: p.ID, To: pix.Settled, Who: "spi", SettledAt: at})
}

// Every way in which a line can differ, each with its name, beside lines that agree.
func TestEveryDifferenceIsALine(t *testing.T) {
	t.Parallel()
	l := setupAccount(t)
	at := noon().Add(30 * time.Minute)
	l.settled(t, 1, pix.Out, at)
	l.settled(t, 2, pix.In, at)
	l.insert(t, order(e2e(5)), incoming(e2e(6)), order(e2e(7)))
	l.move(t, append(to(pix.Sent, e2e(5), e2e(7)), store.Move{ID: e2e(7), To: pix.Rejected, Who: "spi"})...)
	for n := 8; n <= 14; n++ {
		l.settled(t, n, pix.Out, at)
	}
	id := l.start(t, store.CauseSchedule, 0)
	f := l.file(
		t, 0, entry{e2e(1), pix.Out, 100_00, at}, entry{e2e(2), pix.In, 100_00, at.Add(tolerance)},
		entry{e2e(3), pix.In, 100_00, at}, entry{e2e(4), pix.Out, 100_00, at}, // of which we know nothing
		entry{e2e(5), pix.Out, 100_00, at}, entry{e2e(6), pix.In, 100_00, at}, entry{e2e(7), pix.Out, 100_00, at}, // which we have otherwise
		entry{e2e(9), pix.Out, 99_99, at}, entry{e2e(10), pix.In, 100_00, at}, entry{e2e(11), pix.Out, 100_00, at.Add(tolerance + time.Millisecond)},
		entry{e2e(12), pix.Out, 100_00, at}, entry{e2e(12), pix.Out, 100_00, at},
		entry{e2e(13), pix.Out, 100_00, at}, entry{e2e(13), pix.Out, 1, at}, // twice, once otherwise
		entry{e2e(14), pix.Out, 100_00, at}, entry{e2e(15), pix.In, 7, at}, entry{e2e(15), pix.In, 7, at},
	)
	l.importing(t, id, f)
	l.compare(t, id, f)
	require.Equal(t, []string{
		"3 missing_here", "4 missing_here", "5 missing_here sent", "6 missing_here accepted", "7 missing_here rejected",
		"8 missing_there settled", "9 differing settled", "10 differing settled", "11 differing settled", "12 doubled settled",
		"13 differing settled", "13 doubled settled", "15 doubled", "15 missing_here",
	}, l.found(t, id))
	r := l.reconciliation(t, id)
	require.Equal(t, store.ReconciliationCompared, r.State)
	require.Equal(t, map[store.Finding]int64{store.MissingHere: 6, store.MissingThere: 1, store.Differing: 4, store.Doubled: 3}, r.Found)
	require.Equal(t, []int64{14, 17}, []int64{r.Unresolved, r.Entries})
	_, err := l.recon.Compare(t.Context(), l.by, id, f, tolerance)
	require.ErrorIs(t, err, store.ErrNotFound, "once")
}

// What settles at a border is in one period and compared once, also if the bank has it on the other side of it.
func TestBordersAreComparedOnce(t *testing.T) {
	t.Parallel()
	l := setupAccount(t)
	border := noon().Add(time.Hour)
	second := time.Second
	l.settled(t, 1, pix.Out, noon())                 // the first instant
	l.settled(t, 2, pix.Out, border)                 // the first of the next
	l.settled(t, 3, pix.Out, border.Add(-second))    // there it is just after the border
	l.settled(t, 4, pix.Out, border.Add(second))     // there just before
	l.settled(t, 5, pix.Out, border.Add(-second))    // there nowhere
	l.settled(t, 6, pix.Out, border.Add(-tolerance)) // there in the first
	l.settled(t, 7, pix.Out, noon().Add(-second))    // before all
	first := l.start(t, store.CauseDeploy, 0)
	f := l.file(t, 0, entry{e2e(1), pix.Out, 100_00, noon()}, entry{e2e(4), pix.Out, 100_00, border.Add(-second)},
		entry{e2e(6), pix.Out, 100_00, border.Add(-tolerance)})
	l.importing(t, first, f)
	l.compare(t, first, f)
	require.Empty(t, l.found(t, first))
	next := l.start(t, store.CauseSchedule, 1)
	f = l.file(t, 1, entry{e2e(2), pix.Out, 100_00, border}, entry{e2e(3), pix.Out, 100_00, border.Add(second)})
	l.importing(t, next, f)
	l.compare(t, next, f)
	require.Equal(t, []string{"5 missing_there settled"}, l.found(t, next))
}

// Periods of the chain do not overlap, a day is compared once, and what failed may be done again.
func TestAPeriodIsReconciledOnce(t *testing.T) {
	t.Parallel()
	l := setupAccount(t)
	id := l.start(t, store.CauseSchedule, 0)
	again := func(cause store.Cause, from, to time.Time) error {
		_, err := l.recon.Start(t.Context(), l.by, store.Reconciliation{Cause: cause, Version: "v2", From: from, To: to}, questions())
		return err
	}
	require.ErrorIs(t, again(store.CauseDeploy, noon().Add(time.Minute), noon().Add(2*time.Hour)), store.ErrNotFound)
	require.NoError(t, again(store.CauseDay, noon(), noon().Add(24*time.Hour)))
	require.ErrorIs(t, again(store.CauseDay, noon(), noon().Add(24*time.Hour)), store.ErrNotFound)
	require.NoError(t, again(store.CauseManual, noon(), noon().Add(time.Hour)))
	require.NoError(t, l.recon.Fail(t.Context(), l.by, id, "no answer"))
	require.ErrorIs(t, l.recon.Fail(t.Context(), l.by, id, "no answer"), store.ErrNotFound)
	require.NoError(t, again(store.CauseDeploy, noon(), noon().Add(time.Hour)))
	s, err := l.recon.Standing(t.Context())
	require.NoError(t, err)
	require.True(t, s.Head.Equal(noon().Add(time.Hour)))
	require.True(t, s.LastDay.Equal(noon()))
	require.True(t, s.Began.Equal(noon()))
	require.Equal(t, []any{"v2", true}, []any{s.Version, s.ChainOpen})
	require.WithinDuration(t, s.Now, s.FailedAt, time.Minute)
	require.True(t, s.FailedDayAt.IsZero())
}

// An older term writes nothing, whatever it was about to do.
func TestAnOlderTermReconcilesNothing(t *testing.T) {
	t.Parallel()
	l := setupAccount(t)
	old, id := l.by, l.start(t, store.CauseSchedule, 0)
	f := l.file(t, 0, entry{e2e(1), pix.In, 1, noon()})
	l.importing(t, id, f)
	l.by = l.reign(t, "b")
	r := l.reconciliation(t, id)
	for _, err := range []error{
		func() error {
			_, err := l.recon.Start(t.Context(), old, store.Reconciliation{Cause: store.CauseManual, From: noon(), To: noon().Add(1)}, questions())
			return err
		}(),
		l.recon.Ask(t.Context(), old, r, "", questions()), l.recon.Fetched(t.Context(), old, r), l.recon.Fail(t.Context(), old, id, "x"),
		func() error { _, err := l.recon.Compare(t.Context(), old, id, f, tolerance); return err }(),
		func() error { _, err := l.recon.Resolve(t.Context(), old, id); return err }(),
		func() error {
			_, err := l.recon.AskLines(t.Context(), old, id, store.EntryQuestions{AtOnce: 1, Most: 1})
			return err
		}(),
	} {
		require.ErrorIs(t, err, store.ErrStaleTerm)
	}
	require.Equal(t, r.State, l.reconciliation(t, id).State)
	l.compare(t, id, f)
}

// A term that ends while the server compares is refused at the end, and its lines with it.
func TestATermThatEndsWhileComparingLeavesNoLine(t *testing.T) {
	t.Parallel()
	l := setupAccount(t)
	id := l.start(t, store.CauseSchedule, 0)
	f := l.file(t, 0, entry{e2e(1), pix.In, 1, noon()})
	l.importing(t, id, f)
	name, _, _ := strings.Cut(l.url[strings.LastIndex(l.url, "/")+1:], "?")
	require.NoError(t, devtest.PostgresServer(t).Exec(t.Context(), name, `
		CREATE FUNCTION depose() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN UPDATE leader_terms SET term = term + 1; RETURN NULL; END $$;
		CREATE TRIGGER depose AFTER INSERT ON reconciliation_lines FOR EACH STATEMENT EXECUTE FUNCTION depose()`))
	_, err := l.recon.Compare(t.Context(), l.by, id, f, tolerance)
	require.ErrorIs(t, err, store.ErrStaleTerm)
	require.Empty(t, l.found(t, id))
	require.Equal(t, store.ReconciliationImporting, l.reconciliation(t, id).State)
}

// The first answer to any question for a file counts; what was not asked is nobody's; asking again is by a new question.
func TestAnswersFindTheirReconciliation(t *testing.T) {
	t.Parallel()
	l := setupAccount(t)
	id := l.start(t, store.CauseSchedule, 0)
	first := l.sent(t, "%entries%")[0]
	balance := l.sent(t, "%balance%")[0]
	r := l.reconciliation(t, id)
	require.NoError(t, l.recon.Ask(t.Context(), l.by, r, "no answer", questions()[:1]))
	require.ErrorIs(t, l.recon.Ask(t.Context(), l.by, r, "no answer", questions()[:1]), store.ErrNotFound, "as it was read")
	second := l.sent(t, "%entries%")[0]
	require.NotEqual(t, first, second)
	say := func(msg pix.MsgID, hash string) (asked bool) {
		l.tx(t, func(ctx context.Context, tx *store.Tx) (err error) {
			asked, err = l.recon.AnswerFile(ctx, tx, msg, hash, 3)
			return err
		})
		return asked
	}
	require.False(t, say(balance, "x"), "that is another question")
	require.False(t, say(msgID(999), "x"))
	require.True(t, say(first, "a"))
	require.True(t, say(second, "b"))
	require.True(t, say(first, "c"))
	r = l.reconciliation(t, id)
	require.Equal(t, []any{"a", int64(3), 2, store.ReconciliationAnnounced}, []any{r.FileHash, r.FileEntries, r.Asked, r.State})
	for _, amount := range []pix.Amount{5, 6} {
		l.tx(t, func(ctx context.Context, tx *store.Tx) error {
			asked, err := l.recon.AnswerBalance(ctx, tx, balance, amount, noon())
			require.True(t, asked)
			return err
		})
	}
	r = l.reconciliation(t, id)
	require.Equal(t, pix.Amount(5), r.Balance)
	require.True(t, r.BalanceAt.Equal(noon()))
}

// Lines are asked about a few at a time, again when there is no answer, and end by what the books and the SPI say.
func TestLinesAreAskedAboutAndResolved(t *testing.T) {
	t.Parallel()
	l := setupAccount(t)
	at := noon().Add(time.Minute)
	l.insert(t, order(e2e(1)))
	l.move(t, to(pix.Sent, e2e(1))...)
	l.settled(t, 2, pix.Out, at)
	l.settled(t, 3, pix.Out, at)
	id := l.start(t, store.CauseSchedule, 0)
	f := l.file(t, 0, entry{e2e(1), pix.Out, 100_00, at}, entry{e2e(4), pix.In, 5, at}, entry{e2e(3), pix.Out, 1, at}, entry{e2e(3), pix.Out, 1, at})
	l.importing(t, id, f)
	l.compare(t, id, f)
	how := store.EntryQuestions{
		MsgType: "camt.060", Channel: pix.CPM, Most: 2, AtOnce: 3, Again: 0, Who: "settlement-scheduler", Reason: "enquiry",
		Body: func(id string) (json.RawMessage, error) { return json.Marshal(id) },
	}
	ask := func() int {
		n, err := l.recon.AskLines(t.Context(), l.by, id, how)
		require.NoError(t, err)
		return n
	}
	require.Equal(t, 3, ask())
	how.Again, how.AtOnce = time.Hour, 10
	require.Equal(t, 1, ask(), "the others were asked about just now")
	how.Again = 0
	require.Equal(t, 4, ask())
	require.Equal(t, 0, ask(), "twice at most")
	require.Equal(t, []pix.State{pix.Created, pix.Sent, pix.Sent, pix.Sent}, l.history(t, e2e(1)), "noted each time")

	resolve := func() int64 {
		n, err := l.recon.Resolve(t.Context(), l.by, id)
		require.NoError(t, err)
		return n
	}
	require.Zero(t, resolve())
	asked := map[int][]pix.MsgID{2: l.sent(t, e2e(2)), 3: l.sent(t, e2e(3))}
	answer := func(n int, what string, amount pix.Amount) {
		msg := asked[n][0]
		asked[n] = asked[n][1:]
		l.tx(t, func(ctx context.Context, tx *store.Tx) error {
			asked, err := l.recon.AnswerEntry(ctx, tx, msg, e2e(n), what, store.Side{Direction: pix.Out, Amount: amount})
			require.True(t, asked)
			return err
		})
	}
	answer(2, "INFO", 100_00)
	require.Zero(t, resolve(), "the SPI says that it is not settled")
	answer(2, store.AnswerBooked, 100_00)
	answer(3, store.AnswerBooked, 1)
	require.EqualValues(t, 1, resolve(), "they say what the file says, and not what our books do")
	answer(3, store.AnswerBooked, 100_00)
	l.move(t, to(pix.Settled, e2e(1))...)
	require.EqualValues(t, 2, resolve())
	require.EqualValues(t, 2, l.reconciliation(t, id).Unresolved, "the credit that we do not know, and what they have twice")
	lines, err := l.recon.Lines(t.Context(), id, "", 10)
	require.NoError(t, err)
	var said []string
	for _, line := range lines {
		said = append(said, fmt.Sprintf("%s:%s", line.Finding, line.Resolution))
	}
	require.Equal(t, []string{"missing_here:settled", "missing_there:confirmed", "differing:confirmed", "doubled:", "missing_here:"}, said)
	a, err := l.recon.Agreement(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[store.Finding]int64{store.Doubled: 1, store.MissingHere: 1}, a.Open)
	require.Equal(t, id, a.Last.ID)
	unresolved, err := l.recon.Unresolved(t.Context(), time.Hour)
	require.NoError(t, err)
	require.Len(t, unresolved, 1)
}

// A balance is what the one before and the entries between both instants come to, or the difference has a name.
func TestBalancesFollowFromEntries(t *testing.T) {
	t.Parallel()
	l := setupAccount(t)
	hour := func(n int, after time.Duration) time.Time { return noon().Add(time.Duration(n)*time.Hour + after) }
	told := []pix.Amount{1000, 1000 + 70 - 20, 1}
	entries := [][]entry{
		{{e2e(1), pix.In, 500, hour(0, time.Minute)}}, // before the first balance
		{{e2e(2), pix.In, 900, hour(1, time.Minute)}, {e2e(3), pix.In, 70, hour(1, 10*time.Minute)}},
		{{e2e(4), pix.Out, 20, hour(2, 5*time.Minute)}, {e2e(5), pix.Out, 3, hour(2, 6*time.Minute)}},
		{{e2e(6), pix.In, 9, hour(3, time.Minute)}},
	}
	var ids []int64
	for n := range 4 {
		id := l.start(t, store.CauseSchedule, n)
		ids = append(ids, id)
		f := l.file(t, n, entries[n]...)
		l.importing(t, id, f)
		if n < 3 {
			msg := l.sent(t, fmt.Sprintf("reconciliation/%d/balance/%%", id))[0]
			l.tx(t, func(ctx context.Context, tx *store.Tx) error {
				_, err := l.recon.AnswerBalance(ctx, tx, msg, told[n], hour(n+1, 5*time.Minute))
				return err
			})
		}
		l.compare(t, id, f)
	}
	first, second, third := l.reconciliation(t, ids[0]), l.reconciliation(t, ids[1]), l.reconciliation(t, ids[2])
	require.False(t, first.Judged, "nothing was before it")
	require.True(t, second.Judged)
	require.EqualValues(t, 1050, second.Expected)
	require.True(t, third.Judged)
	require.EqualValues(t, 1050-3+9, third.Expected, "and it said 1")
}
