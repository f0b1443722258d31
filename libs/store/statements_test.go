package store_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
)

// archive is clearing with the files of the bank.
type archive struct {
	clearing
	files *store.Files
}

func setupArchive(t testing.TB) archive {
	t.Helper()
	c := setupClearing(t, nil)
	return archive{clearing: c, files: store.NewFiles(c.db)}
}

// entriesFile is a file of entries whose content is told by a letter.
func entriesFile(letter string, records int64) store.File {
	return store.File{
		Object: store.Object{Name: letter + ".zip", Version: "1", Size: 100}, SHA256: strings.Repeat(letter, 64), ISPB: "12345678",
		From: yesterday(), To: yesterday().Add(24 * time.Hour), Records: records, Debits: pix.Amount(records),
	}
}

func statementEntry(n int) store.StatementEntry {
	return store.StatementEntry{
		Line: int64(n + 2), PaymentID: e2e(n), Kind: pix.Payment, Direction: pix.Out, Amount: 1, Counterparty: "87654321",
		SettledAt: yesterday().Add(time.Millisecond),
	}
}

// listed yields entries 0 to n-1 and calls at before each.
func listed(n int, at func(i int) error) iter.Seq2[store.StatementEntry, error] {
	return func(yield func(store.StatementEntry, error) bool) {
		for i := range n {
			if at != nil {
				if err := at(i); err != nil {
					if !yield(store.StatementEntry{}, err) {
						return
					}
					continue
				}
			}
			if !yield(statementEntry(i), nil) {
				return
			}
		}
	}
}

// rows counts what a file left in the tables, whatever it is.
func (a archive) rows(t testing.TB) (files, entries, refused, objects int) {
	t.Helper()
	require.NoError(t, side(t, a.url).QueryRow(t.Context(), `SELECT (SELECT count(*) FROM imported_files),
		(SELECT count(*) FROM statement_entries), (SELECT count(*) FROM imported_rows_refused), (SELECT count(*) FROM imported_objects)`).
		Scan(&files, &entries, &refused, &objects))
	return files, entries, refused, objects
}

// A file is there whole, with the rows that were refused, and what was doubled is there twice; its object is seen in this
// version and in no other; the same content under another name writes nothing.
func TestAFileIsImportedOnce(t *testing.T) {
	t.Parallel()
	a := setupArchive(t)
	file := entriesFile("a", 4)
	unseen, err := a.files.Unseen(t.Context(), []store.Object{file.Object})
	require.NoError(t, err)
	require.Equal(t, []store.Object{file.Object}, unseen)
	back := store.StatementEntry{
		Line: 4, PaymentID: rtr(1), OriginalID: e2e(1), Kind: pix.Return, Direction: pix.In, Amount: 7, Counterparty: "87654321",
		SettledAt: yesterday(),
	}
	doubled := statementEntry(1)
	doubled.Line = 5
	entries := func(yield func(store.StatementEntry, error) bool) {
		_ = yield(statementEntry(1), nil) && yield(store.StatementEntry{}, &store.RowError{Line: 3, Reason: "why"}) &&
			yield(back, nil) && yield(doubled, nil)
	}
	got, fresh, err := a.files.ImportEntries(t.Context(), a.by, file, entries)
	require.NoError(t, err)
	require.True(t, fresh)
	stored, err := a.files.Get(t.Context(), store.EntriesFile, file.SHA256)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), stored.ImportedAt, time.Minute)
	require.True(t, stored.From.Equal(file.From))
	require.True(t, stored.To.Equal(file.To))
	require.Equal(t, []any{got.ID, store.FileImported, int64(4), int64(1), pix.Amount(4), a.by.Term}, []any{
		stored.ID, stored.State, stored.Records, stored.RowsRefused, stored.Debits, stored.Term,
	})
	refused, err := a.files.RefusedRows(t.Context(), got.ID)
	require.NoError(t, err)
	require.Equal(t, []store.RowError{{Line: 3, Reason: "why"}}, refused)
	var lines []int64
	require.NoError(t, side(t, a.url).QueryRow(t.Context(),
		"SELECT array_agg(line ORDER BY line) FROM statement_entries WHERE file_id = $1 AND payment_id = $2", got.ID, e2e(1)).Scan(&lines))
	require.Equal(t, []int64{3, 5}, lines)

	again := file
	again.Object = store.Object{Name: "another", Version: "1"}
	known, fresh, err := a.files.ImportEntries(t.Context(), a.by, again, listed(1, nil))
	require.NoError(t, err)
	require.False(t, fresh)
	require.Equal(t, stored, known)
	changed := file.Object
	changed.Version = "2"
	unseen, err = a.files.Unseen(t.Context(), []store.Object{file.Object, again.Object, changed})
	require.NoError(t, err)
	require.Equal(t, []store.Object{changed}, unseen)
	files, all, _, objects := a.rows(t)
	require.Equal(t, []int{1, 3, 2}, []int{files, all, objects})
	ages, err := a.files.Ages(t.Context())
	require.NoError(t, err)
	require.True(t, ages.To.Equal(file.To))
	require.True(t, ages.ImportedAt.Equal(stored.ImportedAt))
}

// More entries than one statement takes are one transaction: what fails at the end leaves nothing of the beginning. Of
// refused rows the first are kept and all are counted.
func TestAnImportIsWholeOrNothing(t *testing.T) {
	t.Parallel()
	a := setupArchive(t)
	const many = 50_010
	broken := errors.New("broken")
	_, _, err := a.files.ImportEntries(t.Context(), a.by, entriesFile("a", many), listed(many, func(i int) error {
		if i == many-1 {
			return broken
		}
		return nil
	}))
	require.ErrorIs(t, err, broken)
	require.NotErrorIs(t, err, store.ErrUnavailable)
	files, entries, refused, objects := a.rows(t)
	require.Equal(t, []int{0, 0, 0, 0}, []int{files, entries, refused, objects})

	long := strings.Repeat("ç", 600)
	file, fresh, err := a.files.ImportEntries(t.Context(), a.by, entriesFile("a", many), listed(many, func(i int) error {
		if i%25 == 0 {
			return &store.RowError{Line: int64(i + 2), Reason: long}
		}
		return nil
	}))
	require.NoError(t, err)
	require.True(t, fresh)
	require.EqualValues(t, 2001, file.RowsRefused)
	_, entries, refused, _ = a.rows(t)
	require.Equal(t, []int{many - 2001, 1000}, []int{entries, refused})
}

// What a constraint refuses is told as that, and leaves nothing.
func TestAnEntryThatTheTablesRefuse(t *testing.T) {
	t.Parallel()
	a := setupArchive(t)
	_, _, err := a.files.ImportEntries(t.Context(), a.by, entriesFile("a", 1), func(yield func(store.StatementEntry, error) bool) {
		e := statementEntry(0)
		e.PaymentID = "x"
		yield(e, nil)
	})
	require.ErrorIs(t, err, store.ErrRefused)
	files, _, _, objects := a.rows(t)
	require.Equal(t, []int{0, 0}, []int{files, objects})
}

// A leader is deposed while it imports: the next one does not wait for it, imports the same file, and of the first nothing is
// there. It is refused at the latest when it would commit.
func TestATermThatEndsWhileImporting(t *testing.T) {
	t.Parallel()
	a := setupArchive(t)
	for _, at := range []int{0, 19} {
		file := entriesFile(fmt.Sprint(at%10), 20)
		old, next := a.by, store.Reign{}
		_, _, err := a.files.ImportEntries(t.Context(), old, file, listed(20, func(i int) error {
			if i == at {
				began := time.Now()
				next = a.reign(t, "b")
				_, fresh, err := a.files.ImportEntries(t.Context(), next, file, listed(20, nil))
				require.NoError(t, err)
				require.True(t, fresh)
				require.Less(t, time.Since(began), 3*time.Second, "nobody waits for the old one")
			}
			return nil
		}))
		require.ErrorIs(t, err, store.ErrStaleTerm)
		a.by = next
		_, _, err = a.files.ImportEntries(t.Context(), old, entriesFile("f", 20), listed(20, nil))
		require.ErrorIs(t, err, store.ErrStaleTerm)
		require.ErrorIs(t, a.files.See(t.Context(), old, file.Object, 1), store.ErrStaleTerm)
		file.Reason = "why"
		require.ErrorIs(t, a.files.Refuse(t.Context(), old, file), store.ErrStaleTerm)
	}
	// Nobody imports in its place: what it read is whole, and still not its to write.
	_, _, err := a.files.ImportEntries(t.Context(), a.by, entriesFile("c", 20), listed(20, func(i int) error {
		if i == 19 {
			a.reign(t, "c")
		}
		return nil
	}))
	require.ErrorIs(t, err, store.ErrStaleTerm)
	files, entries, _, objects := a.rows(t)
	require.Equal(t, []int{2, 40, 2}, []int{files, entries, objects})
}

// A long import runs into its end soon after its term is over, and not only with its last entry.
func TestADeposedImportStopsBetweenStatements(t *testing.T) {
	t.Parallel()
	a := setupArchive(t)
	read := 0
	_, _, err := a.files.ImportEntries(t.Context(), a.by, entriesFile("a", 1), listed(60_000, func(i int) error {
		if read = i; i == 10 {
			a.reign(t, "b")
		}
		return nil
	}))
	require.ErrorIs(t, err, store.ErrStaleTerm)
	require.Less(t, read, 50_001)
}

// The same content is imported twice at the same instant, under one term: one writes, the other is told which file it is.
func TestTwoImportsOfTheSameFileAtOnce(t *testing.T) {
	t.Parallel()
	a := setupArchive(t)
	var met, done sync.WaitGroup
	met.Add(2)
	var mu sync.Mutex
	var fresh []bool
	var ids []int64
	for i := range 2 {
		done.Go(func() {
			file := entriesFile("a", 20)
			file.Name = fmt.Sprint(i)
			got, wrote, err := a.files.ImportEntries(t.Context(), a.by, file, listed(20, func(i int) error {
				if i == 10 {
					met.Done()
					met.Wait()
				}
				return nil
			}))
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			fresh, ids = append(fresh, wrote), append(ids, got.ID)
		})
	}
	done.Wait()
	require.ElementsMatch(t, []bool{true, false}, fresh)
	require.Equal(t, ids[0], ids[1])
	files, entries, _, objects := a.rows(t)
	require.Equal(t, []int{1, 20, 2}, []int{files, entries, objects})
}

// The way to the database is lost in the middle of an import, or the importer is told to stop: nothing is there, and the next
// leader imports the file whole.
func TestAnImportThatIsCutLeavesNothing(t *testing.T) {
	t.Parallel()
	a := setupArchive(t)
	conn := side(t, a.url)
	doomed, err := store.Open(t.Context(), store.Config{URL: a.url, Application: "doomed"})
	require.NoError(t, err)
	t.Cleanup(doomed.Close)
	ctx, cancel := context.WithCancel(t.Context())
	for _, cut := range []func(){
		func() {
			_, err := conn.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'doomed'")
			require.NoError(t, err)
		},
		cancel,
	} {
		_, _, err = store.NewFiles(doomed).ImportEntries(ctx, a.by, entriesFile("a", 60_000), listed(60_000, func(i int) error {
			if i == 30_000 {
				cut()
			}
			return nil
		}))
		require.Error(t, err)
	}
	files, entries, _, objects := a.rows(t)
	require.Equal(t, []int{0, 0, 0}, []int{files, entries, objects})
	a.by = a.reign(t, "b")
	_, fresh, err := a.files.ImportEntries(t.Context(), a.by, entriesFile("a", 60_000), listed(60_000, nil))
	require.NoError(t, err)
	require.True(t, fresh)
	_, entries, _, _ = a.rows(t)
	require.Equal(t, 60_000, entries)
}

// What is refused is kept with its reason and seen in its version; the content may still be imported under another.
func TestAFileIsRefusedOnce(t *testing.T) {
	t.Parallel()
	a := setupArchive(t)
	bare := store.File{Object: store.Object{Name: "x.zip", Version: "1", Size: 3}, Reason: "no archive"}
	require.NoError(t, a.files.Refuse(t.Context(), a.by, bare))
	whole := entriesFile("a", 1)
	whole.Kind, whole.Reason = store.EntriesFile, "of another participant"
	require.NoError(t, a.files.Refuse(t.Context(), a.by, whole))
	require.ErrorIs(t, a.files.Refuse(t.Context(), a.by, store.File{Object: bare.Object}), store.ErrRefused, "no reason")
	unseen, err := a.files.Unseen(t.Context(), []store.Object{bare.Object, whole.Object})
	require.NoError(t, err)
	require.Empty(t, unseen)
	_, err = a.files.Get(t.Context(), store.EntriesFile, whole.SHA256)
	require.ErrorIs(t, err, store.ErrNotFound)
	latest, err := a.files.Latest(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, latest, 2)
	require.Equal(t, []any{"of another participant", store.FileRefused, whole.SHA256, ""}, []any{
		latest[0].Reason, latest[0].State, latest[0].SHA256, latest[1].SHA256,
	})
	_, fresh, err := a.files.ImportEntries(t.Context(), a.by, whole, listed(1, nil))
	require.NoError(t, err)
	require.True(t, fresh)
}

// A settlement confirms the lines of a closed cycle, each once and as it is; what does not fit is listed with the reason.
func TestASettlementConfirmsNetLines(t *testing.T) {
	t.Parallel()
	a := setupArchive(t)
	ids := a.openWindows(t, 0, 1)
	for i, party := range []pix.ISPB{"00000001", "00000002", "00000003"} {
		p := order(e2e(i))
		if i == 1 {
			p = incoming(e2e(i))
		}
		p.Counterparty = party
		a.settle(t, p, 1)
		a.book(t, p.ID)
	}
	_, err := a.files.ClosedCycle(t.Context(), window(0).Date, window(0).Type)
	require.ErrorIs(t, err, store.ErrNotFound, "it is open")
	a.seal(t, ids[0])
	a.close(t, ids[0])
	id, err := a.files.ClosedCycle(t.Context(), window(0).Date, window(0).Type)
	require.NoError(t, err)
	require.Equal(t, ids[0], id)

	file := store.File{Object: store.Object{Name: "l.zip", Version: "1"}, SHA256: strings.Repeat("a", 64), ISPB: "12345678", CycleID: id, Records: 6}
	paid := func(line int64, party pix.ISPB, d pix.Direction, amount pix.Amount) store.Confirmation {
		return store.Confirmation{Line: line, Party: party, Direction: d, Amount: amount, PaidAt: yesterday()}
	}
	confirmations := func(all ...store.Confirmation) iter.Seq2[store.Confirmation, error] {
		return func(yield func(store.Confirmation, error) bool) {
			for _, c := range all {
				if !yield(c, nil) {
					return
				}
			}
			yield(store.Confirmation{}, &store.RowError{Line: 9, Reason: "cannot be read"})
		}
	}
	got, fresh, err := a.files.ImportSettlement(t.Context(), a.by, file, confirmations(
		paid(2, "00000001", pix.Out, 100_00), paid(3, "00000001", pix.Out, 100_00), paid(4, "00000002", pix.Out, 100_00),
		paid(5, "00000003", pix.Out, 99_99), paid(6, "00000009", pix.In, 1),
	))
	require.NoError(t, err)
	require.True(t, fresh)
	require.EqualValues(t, 5, got.RowsRefused)
	refused, err := a.files.RefusedRows(t.Context(), got.ID)
	require.NoError(t, err)
	reasons := map[int64]string{}
	for _, r := range refused {
		reasons[r.Line] = r.Reason
	}
	require.Equal(t, map[int64]string{
		3: "the line of 00000001 stands twice in this file",
		4: "paid 100.00 (out), the line of 00000002 comes to 100.00 (in)",
		5: "paid 99.99 (out), the line of 00000003 comes to 100.00 (out)",
		6: "the cycle has no line of 00000009",
		9: "cannot be read",
	}, reasons)

	second := file
	second.SHA256, second.Name = strings.Repeat("b", 64), "m.zip"
	got, _, err = a.files.ImportSettlement(t.Context(), a.by, second, confirmations(
		paid(2, "00000001", pix.Out, 100_00), paid(3, "00000002", pix.In, 100_00)))
	require.NoError(t, err)
	refused, err = a.files.RefusedRows(t.Context(), got.ID)
	require.NoError(t, err)
	require.Contains(t, refused[0].Reason, "was confirmed by file")
	open, err := a.files.OpenLines(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, []store.Line{{Party: "00000003", Debits: 100_00, DebitCount: 1}}, open)
	third := file
	third.SHA256, third.CycleID = strings.Repeat("c", 64), 99
	_, _, err = a.files.ImportSettlement(t.Context(), a.by, third, confirmations())
	require.ErrorIs(t, err, store.ErrRefused, "there is no such cycle")
	require.True(t, slices.ContainsFunc(refused, func(r store.RowError) bool { return r.Line == 9 }))
}
