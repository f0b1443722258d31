package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store/db"
)

// CycleState says how a cycle stands.
type CycleState string

// The states of a cycle, in their order.
const (
	// CycleOpen takes obligations.
	CycleOpen CycleState = "open"
	// CycleSealed takes none any more, and has no lines yet.
	CycleSealed CycleState = "sealed"
	// CycleClosed has its lines.
	CycleClosed CycleState = "closed"
)

// Window is the time whose settlements a cycle nets.
type Window struct {
	// Date is the banking day on which it ends, at midnight UTC, and Type tells the windows of a day apart: letters a to z,
	// digits, '_', '-'.
	Date time.Time
	Type string
	// OpensAt belongs to it, ClosesAt to the next.
	OpensAt, ClosesAt time.Time
}

// Cycle is a window and what became of it.
type Cycle struct {
	ID int64
	Window
	State CycleState
	// OpenedAt, SealedAt and ClosedAt are the database's; zero: not yet.
	OpenedAt, SealedAt, ClosedAt time.Time
	// Obligations is how many it netted.
	Obligations int64
}

// Patience says how long a cycle waits for what settled before its end.
type Patience struct {
	// Grace is the least time from the end until it is sealed.
	Grace time.Duration
	// Most is how long it waits, from its end or its opening, for what settled before its end and is not written.
	Most time.Duration
}

// closeTimeout bounds each statement of closing, whose time grows with the obligations.
const closeTimeout = 5 * time.Minute

// Cycles is the aggregate of cycles and their lines. What changes them is a leader's: an older term is refused.
type Cycles struct {
	db    *DB
	q     *db.Queries
	terms *Terms
}

// NewCycles returns the cycles in d.
func NewCycles(d *DB) *Cycles { return &Cycles{db: d, q: db.New(), terms: NewTerms(d)} }

// Open opens the windows that are not open yet, in their order; a cycle begins where the last one ends, whatever OpensAt
// says, which counts for the first of all. It returns those that it opened. ErrStaleTerm: nothing was written.
func (c *Cycles) Open(ctx context.Context, by Reign, windows []Window) ([]Cycle, error) {
	var opened []Cycle
	err := c.terms.InTx(ctx, by, func(ctx context.Context, tx *Tx) error {
		for _, w := range windows {
			row, err := c.q.OpenCycle(ctx, tx.tx, db.OpenCycleParams{
				CycleDate: w.Date, CycleType: w.Type, OpensAt: w.OpensAt, ClosesAt: w.ClosesAt, Term: by.Term,
			})
			if err = translate("open cycle", err); errors.Is(err, ErrNotFound) {
				continue // it is there, or ends before the last one does
			}
			if err != nil {
				return err
			}
			w.OpensAt = row.OpensAt
			opened = append(opened, Cycle{ID: row.ID, Window: w, State: CycleOpen})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return opened, nil
}

// Seal ends the taking of obligations, which fall into the next cycle from then on. It answers whether it did: not before
// the end and grace, not while the next cycle is not open, and not while what settled before the end is still waited for.
// ErrStaleTerm: nothing was written.
func (c *Cycles) Seal(ctx context.Context, by Reign, id int64, patience Patience) (bool, error) {
	var sealed bool
	err := c.terms.InTx(ctx, by, func(ctx context.Context, tx *Tx) error {
		if err := c.q.HoldCyclesAlone(ctx, tx.tx); err != nil {
			return translate("seal cycle", err)
		}
		n, err := c.q.SealCycle(ctx, tx.tx, db.SealCycleParams{ID: id, Grace: patience.Grace, Patience: patience.Most})
		sealed = n == 1
		return translate("seal cycle", err)
	})
	return sealed && err == nil, err
}

// Close nets a sealed cycle in one transaction: its lines, and that it is closed. Of one that is closed it looks whether
// its obligations give the same lines, and changes nothing: a *DifferError if they do not. ErrNotFound: there is none, or
// it is open. ErrStaleTerm: nothing was written.
func (c *Cycles) Close(ctx context.Context, by Reign, id int64) (Cycle, error) {
	err := c.db.InTx(ctx, func(ctx context.Context, tx *Tx) error {
		if err := c.terms.isNewest(ctx, tx, by); err != nil {
			return err
		}
		if _, err := c.q.LimitStatement(ctx, tx.tx, millis(closeTimeout)); err != nil {
			return translate("close cycle", err)
		}
		state, err := c.q.HoldCycle(ctx, tx.tx, id)
		switch {
		case err != nil:
			return translate("close cycle", err)
		case state == string(CycleOpen):
			return fmt.Errorf("close cycle: it is open: %w", ErrNotFound)
		case state == string(CycleClosed):
			return c.compare(ctx, tx.tx, id)
		}
		if _, err := c.q.NetCycle(ctx, tx.tx, id); err != nil {
			return translate("net cycle", err)
		}
		if _, err := c.q.CloseCycle(ctx, tx.tx, db.CloseCycleParams{ID: id, Term: by.Term}); err != nil {
			return translate("close cycle", err)
		}
		// Last, because the next leader's term waits for it: who leads is not held up by a long transaction, and this one is
		// committed under the newest term or not at all.
		return c.terms.GuardTx(ctx, tx, by.Name, by.Term)
	})
	if err != nil {
		return Cycle{}, err
	}
	return c.Get(ctx, id)
}

// Check nets a closed cycle again and compares, as Close does of one that is closed.
func (c *Cycles) Check(ctx context.Context, id int64) error {
	return c.db.InTx(ctx, func(ctx context.Context, tx *Tx) error {
		if _, err := c.q.LimitStatement(ctx, tx.tx, millis(closeTimeout)); err != nil {
			return translate("check cycle", err)
		}
		return c.compare(ctx, tx.tx, id)
	})
}

func (c *Cycles) compare(ctx context.Context, tx db.DBTX, id int64) error {
	rows, err := c.q.CompareNetting(ctx, tx, id)
	if err != nil || len(rows) == 0 {
		return translate("compare cycle", err)
	}
	differ := &DifferError{CycleID: id}
	for _, r := range rows {
		differ.Lines = append(differ.Lines, Difference{
			Written: lineOf(db.NettingsRow{
				Party: r.Party, Debits: r.WrittenDebits, Credits: r.WrittenCredits,
				DebitCount: r.WrittenDebitCount, CreditCount: r.WrittenCreditCount,
			}),
			Again: lineOf(db.NettingsRow{
				Party: r.Party, Debits: r.Debits, Credits: r.Credits, DebitCount: r.DebitCount, CreditCount: r.CreditCount,
			}),
		})
	}
	return differ
}

func lineOf(r db.NettingsRow) Line {
	return Line{
		Party: pix.ISPB(r.Party), Debits: pix.Amount(r.Debits), Credits: pix.Amount(r.Credits),
		DebitCount: r.DebitCount, CreditCount: r.CreditCount,
	}
}

// Lines returns what a cycle was netted to, by party.
func (c *Cycles) Lines(ctx context.Context, id int64) ([]Line, error) {
	var lines []Line
	err := c.db.call(ctx, "lines", func(ctx context.Context, conn db.DBTX) error {
		rows, err := c.q.Nettings(ctx, conn, id)
		for _, r := range rows {
			lines = append(lines, lineOf(r))
		}
		return err
	})
	return lines, err
}

// Unclosed returns the cycles that have no lines yet, first to last, with the database's time and the end of the last
// cycle of all; zero: there is none.
func (c *Cycles) Unclosed(ctx context.Context) (unclosed []Cycle, now, last time.Time, err error) {
	err = c.db.call(ctx, "unclosed cycles", func(ctx context.Context, conn db.DBTX) error {
		ends, err := c.q.LastCycle(ctx, conn)
		if err != nil {
			return err
		}
		now, last = ends.Now, ends.EndsAt
		rows, err := c.q.UnclosedCycles(ctx, conn)
		for _, r := range rows {
			unclosed = append(unclosed, cycleOf(db.GetCycleRow(r)))
		}
		return err
	})
	return unclosed, now, last, err
}

// Get returns a cycle. ErrNotFound: there is none.
func (c *Cycles) Get(ctx context.Context, id int64) (Cycle, error) {
	var cycle Cycle
	err := c.db.call(ctx, "get cycle", func(ctx context.Context, conn db.DBTX) error {
		row, err := c.q.GetCycle(ctx, conn, id)
		cycle = cycleOf(row)
		return err
	})
	return cycle, err
}

// Between lists the cycles of banking days, both ends included, first to last.
func (c *Cycles) Between(ctx context.Context, from, to time.Time) ([]Cycle, error) {
	var cycles []Cycle
	err := c.db.call(ctx, "cycles", func(ctx context.Context, conn db.DBTX) error {
		rows, err := c.q.CyclesOf(ctx, conn, db.CyclesOfParams{FromDate: from, ToDate: to})
		for _, r := range rows {
			cycles = append(cycles, cycleOf(db.GetCycleRow(r)))
		}
		return err
	})
	return cycles, err
}

func cycleOf(r db.GetCycleRow) Cycle {
	return Cycle{
		ID: r.ID, Window: Window{Date: r.CycleDate, Type: r.CycleType, OpensAt: r.OpensAt, ClosesAt: r.ClosesAt},
		State: CycleState(r.State), OpenedAt: r.OpenedAt, SealedAt: r.SealedAt, ClosedAt: r.ClosedAt, Obligations: r.Obligations,
	}
}
