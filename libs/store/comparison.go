package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store/db"
)

// ImportRefused returns why a file of entries, by its hash or the name under which it was put, was refused since an instant.
// ErrNotFound: it was not.
func (r *Reconciliations) ImportRefused(ctx context.Context, hash, name string, since time.Time) (string, error) {
	var reason string
	err := r.db.call(ctx, "refused entries", func(ctx context.Context, conn db.DBTX) (err error) {
		reason, err = r.q.RefusedEntries(ctx, conn, db.RefusedEntriesParams{Since: since, Sha256: hash, Name: name})
		return err
	})
	return reason, err
}

// Compare writes the lines in which a file and our books differ, and closes the reconciliation with their counts, in one
// transaction: the server compares, and nothing of it passes through here. Instants that are closer to each other than
// tolerance do not differ. It returns which reconciliation's balance is judged since; zero: none. ErrNotFound: it does not
// wait for that. ErrStaleTerm: nothing was written.
func (r *Reconciliations) Compare(ctx context.Context, by Reign, id int64, file File, tolerance time.Duration) (judged int64, err error) {
	err = r.db.InTx(ctx, func(ctx context.Context, tx *Tx) error {
		if err := r.terms.isNewest(ctx, tx, by); err != nil {
			return err
		}
		if _, err := r.q.LimitStatement(ctx, tx.tx, millis(closeTimeout)); err != nil {
			return translate("compare", err)
		}
		held, err := r.q.HoldReconciliation(ctx, tx.tx, id)
		if err != nil {
			return translate("compare", err)
		}
		if held.State != string(ReconciliationImporting) {
			return fmt.Errorf("compare: it is %s: %w", held.State, ErrNotFound)
		}
		p := db.CompareEntriesParams{
			ReconciliationID: id, FileID: file.ID, EarlierFrom: held.PeriodFrom.Add(-2 * tolerance),
			OurFrom: held.PeriodFrom, OurTo: held.PeriodTo.Add(-tolerance), Tolerance: tolerance,
			ToldFrom: held.PeriodTo.AddDate(100, 0, 0), // nothing is late for the first
		}
		if Cause(held.Cause) == CauseDay {
			p.OurFrom = held.PeriodFrom.Add(tolerance) // as at its end: what is near its borders is the chain's
		}
		before, err := r.before(ctx, tx, Cause(held.Cause), held.PeriodFrom)
		if err != nil {
			return err
		}
		if before != nil {
			p.EarlierFileID, p.OurFrom = before.FileID, held.PeriodFrom.Add(-tolerance)
			p.BeforeID, p.ToldFrom = before.ID, held.PeriodFrom
		}
		if _, err := r.q.CompareEntries(ctx, tx.tx, p); err != nil {
			return translate("compare", err)
		}
		if _, err := r.q.CloseComparison(ctx, tx.tx, db.CloseComparisonParams{
			FileID: file.ID, Term: by.Term, Entries: file.Records, ID: id, Reason: flaw(file, held.FileEntries),
		}); err != nil {
			return translate("close comparison", err)
		}
		judged = 0
		if before != nil {
			if judged, err = r.judgeBalance(ctx, tx, *before, file, held.PeriodTo); err != nil {
				return err
			}
		}
		// Last, as when a cycle is closed: who leads next is not held up meanwhile.
		return r.terms.GuardTx(ctx, tx, by.Name, by.Term)
	})
	return judged, err
}

// flaw says what is wrong with a file that was imported; empty: nothing.
func flaw(file File, announced int64) string {
	switch {
	case file.RowsRefused > 0:
		return fmt.Sprintf("%d records of the file could not be read", file.RowsRefused)
	case file.Records != announced:
		return fmt.Sprintf("the file has %d entries, %d were announced", file.Records, announced)
	default:
		return ""
	}
}

// before returns the reconciliation of the chain that ends where another begins; nil: there is none.
func (r *Reconciliations) before(ctx context.Context, tx *Tx, cause Cause, at time.Time) (*db.ReconciliationBeforeRow, error) {
	if !cause.Chained() {
		return nil, nil //nolint:nilnil // none, and no failure
	}
	row, err := r.q.ReconciliationBefore(ctx, tx.tx, at)
	if err = translate("reconciliation before", err); errors.Is(err, ErrNotFound) {
		return nil, nil //nolint:nilnil // as above
	}
	return &row, err
}

// judgeBalance computes what the balance of a reconciliation should have been by the balance before it. A balance is told
// for the instant of its question, which is after the period: the entries until then are in its file and the next.
func (r *Reconciliations) judgeBalance(ctx context.Context, tx *Tx, last db.ReconciliationBeforeRow, next File, to time.Time) (judged int64, err error) {
	first, err := r.before(ctx, tx, CauseSchedule, last.PeriodFrom)
	if err != nil || first == nil {
		return 0, err
	}
	covered := first.Balance >= 0 && last.Balance >= 0 && !first.BalanceAt.Before(last.PeriodFrom) && last.BalanceAt.Before(to)
	if !covered {
		return 0, nil
	}
	sum, err := r.q.EntriesBetween(ctx, tx.tx, db.EntriesBetweenParams{
		FileIds: []int64{last.FileID, next.ID}, After: first.BalanceAt, Until: last.BalanceAt,
	})
	if err != nil {
		return 0, translate("entries between", err)
	}
	_, err = r.q.ExpectBalance(ctx, tx.tx, db.ExpectBalanceParams{Expected: first.Balance + sum, ID: last.ID})
	return last.ID, translate("expect balance", err)
}

// Resolve looks which open lines of a reconciliation our books and the SPI's answers have settled, and returns how many.
// ErrStaleTerm: nothing was written.
func (r *Reconciliations) Resolve(ctx context.Context, by Reign, id int64) (int64, error) {
	var n int64
	err := r.db.InTx(ctx, func(ctx context.Context, tx *Tx) (err error) {
		if err = r.terms.isNewest(ctx, tx, by); err != nil {
			return err
		}
		if n, err = r.q.ResolveLines(ctx, tx.tx, id); err != nil {
			return translate("resolve", err)
		}
		// Also those that people resolved.
		if _, err = r.q.CountUnresolved(ctx, tx.tx, id); err != nil {
			return translate("resolve", err)
		}
		// Last, as in Compare: its time grows with the lines.
		return r.terms.GuardTx(ctx, tx, by.Name, by.Term)
	})
	return n, err
}

// Get returns a reconciliation. ErrNotFound: there is none.
func (r *Reconciliations) Get(ctx context.Context, id int64) (Reconciliation, error) {
	var found Reconciliation
	err := r.db.call(ctx, "get reconciliation", func(ctx context.Context, conn db.DBTX) error {
		row, err := r.q.GetReconciliation(ctx, conn, id)
		found = reconciliationOf(row)
		return err
	})
	return found, err
}

// maxListed bounds what is read at once.
const maxListed = 100

// Open returns those that are neither compared nor failed, oldest first, at most 100.
func (r *Reconciliations) Open(ctx context.Context) ([]Reconciliation, error) {
	return r.list(ctx, func(ctx context.Context, conn db.DBTX) ([]int64, error) {
		return r.q.OpenReconciliations(ctx, conn, maxListed)
	})
}

// Unresolved returns those with open lines that were compared within a time, oldest first, at most 100.
func (r *Reconciliations) Unresolved(ctx context.Context, within time.Duration) ([]Reconciliation, error) {
	return r.list(ctx, func(ctx context.Context, conn db.DBTX) ([]int64, error) {
		return r.q.UnresolvedReconciliations(ctx, conn, db.UnresolvedReconciliationsParams{Within: within, AtMost: maxListed})
	})
}

// Latest returns the last of them, newest first, at most 100.
func (r *Reconciliations) Latest(ctx context.Context, limit int) ([]Reconciliation, error) {
	return r.list(ctx, func(ctx context.Context, conn db.DBTX) ([]int64, error) {
		return r.q.LastReconciliations(ctx, conn, int32(min(limit, maxListed)))
	})
}

func (r *Reconciliations) list(ctx context.Context, which func(context.Context, db.DBTX) ([]int64, error)) ([]Reconciliation, error) {
	var all []Reconciliation
	err := r.db.call(ctx, "reconciliations", func(ctx context.Context, conn db.DBTX) error {
		ids, err := which(ctx, conn)
		if err != nil {
			return err
		}
		for _, id := range ids {
			row, err := r.q.GetReconciliation(ctx, conn, id)
			if err != nil {
				return err
			}
			all = append(all, reconciliationOf(row))
		}
		return nil
	})
	return all, err
}

// Lines returns lines of a reconciliation in the order of their payments, those after a given one.
func (r *Reconciliations) Lines(ctx context.Context, id int64, after string, limit int) ([]ReconciliationLine, error) {
	var lines []ReconciliationLine
	err := r.db.call(ctx, "lines of a reconciliation", func(ctx context.Context, conn db.DBTX) error {
		rows, err := r.q.ReconciliationLines(ctx, conn, db.ReconciliationLinesParams{ReconciliationID: id, AfterID: after, AtMost: int32(limit)})
		for _, l := range rows {
			lines = append(lines, ReconciliationLine{
				PaymentID: l.PaymentID, Finding: Finding(l.Finding), OurState: pix.State(l.OurState),
				Ours: Side{
					Direction: pix.Direction(l.OurDirection), Amount: pix.Amount(l.OurAmount), Counterparty: pix.ISPB(l.OurCounterparty),
					SettledAt: l.OurSettledAt,
				},
				Entries: int(l.TheirEntries),
				Theirs: Side{
					Direction: pix.Direction(l.TheirDirection), Amount: pix.Amount(l.TheirAmount), Counterparty: pix.ISPB(l.TheirCounterparty),
					SettledAt: l.TheirSettledAt,
				},
				Asked: int(l.Asked), Answer: l.Answer, Resolution: l.Resolution,
			})
		}
		return err
	})
	return lines, err
}

// Agreement is how our books and the bank's account stand.
type Agreement struct {
	// Last is the newest one that was compared, Age the time since. While there is none Age counts from when the first began.
	Last Reconciliation
	Age  time.Duration
	// Open counts the lines of all that have no resolution.
	Open map[Finding]int64
	// Difference is the last balance that was judged, less what it should be, in centavos.
	Difference int64
	// Flawed is how many of the last 24 comparisons were with a file that had a flaw, which their Reason tells, and were not
	// made again with one that had none.
	Flawed int64
}

// lookedBack is how many comparisons are looked at for flaws: a day of the default.
const lookedBack = 24

// Agreement reads only what is open, and the newest: fit for a metric.
func (r *Reconciliations) Agreement(ctx context.Context) (Agreement, error) {
	a := Agreement{Open: map[Finding]int64{}}
	err := r.db.call(ctx, "agreement", func(ctx context.Context, conn db.DBTX) error {
		counts, err := r.q.UnresolvedCounts(ctx, conn)
		if err != nil {
			return err
		}
		for _, c := range counts {
			a.Open[Finding(c.Finding)] = c.Count
		}
		flaws, err := r.q.AccountFlaws(ctx, conn, lookedBack)
		if err != nil {
			return err
		}
		a.Difference, a.Flawed, a.Age = flaws.Difference, flaws.Flawed, time.Duration(flaws.AgeSeconds*float64(time.Second))
		last, err := r.q.LastComparison(ctx, conn)
		if err = translate("last comparison", err); errors.Is(err, ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		row, err := r.q.GetReconciliation(ctx, conn, last.ID)
		a.Last, a.Age = reconciliationOf(row), time.Duration(last.AgeSeconds*float64(time.Second))
		return err
	})
	return a, err
}

func reconciliationOf(r db.GetReconciliationRow) Reconciliation {
	return Reconciliation{
		ID: r.ID, Cause: Cause(r.Cause), Version: r.Version, Active: r.Mode == "active", From: r.PeriodFrom, To: r.PeriodTo,
		State: ReconciliationState(r.State), Reason: r.Reason, Asked: int(r.Asked),
		AskedAt: r.AskedAt, AnnouncedAt: r.AnnouncedAt, FetchedAt: r.FetchedAt, ComparedAt: r.ComparedAt, Now: r.Now,
		FileHash: r.FileHash, FileEntries: r.FileEntries, FileID: r.FileID, Entries: r.Entries,
		Found: map[Finding]int64{
			MissingHere: r.MissingHere, MissingThere: r.MissingThere, Differing: r.Differing, Doubled: r.Doubled,
		},
		Unresolved: r.Unresolved, Balance: pix.Amount(r.Balance), BalanceAt: r.BalanceAt, Expected: r.BalanceExpected, Judged: r.BalanceJudged,
		CreatedAt: r.CreatedAt,
	}
}
