package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store/db"
)

const (
	// keptRefusals is how many refused rows of a file are kept with their reasons; all are counted.
	keptRefusals = 1000
	// keptReason is how many bytes of a reason are kept.
	keptReason = 500
	// rowsPerCopy is how many entries go into the table by one statement: between two the term is looked at, and a process
	// that stands still in the middle is given up within copyTimeout.
	rowsPerCopy = 50_000
	copyTimeout = time.Minute
	// linesPerStatement is how many confirmations are written at once.
	linesPerStatement = 1000
)

// errKnown: the content was imported before.
var errKnown = errors.New("the content is imported")

// refusals are the rows of a file that are not taken.
type refusals struct {
	lines   []int64
	reasons []string
	count   int64
}

func (r *refusals) add(line int64, reason string) {
	r.count++
	if len(r.lines) < keptRefusals {
		if len(reason) > keptReason {
			reason = strings.ToValidUTF8(reason[:keptReason], "")
		}
		r.lines = append(r.lines, line)
		r.reasons = append(r.reasons, reason)
	}
}

// take tells a row that is refused from a row and from the end of everything.
func (r *refusals) take(err error) (refused bool, fatal error) {
	if row, ok := errors.AsType[*RowError](err); ok {
		r.add(row.Line, row.Reason)
		return true, nil
	}
	return false, err
}

// ImportEntries writes a file of entries whole, in one transaction, or nothing of it. entries are read once, in order, and
// are not kept: memory does not grow with them. A *RowError in the place of an entry is a row that is refused; any other
// error gives the import up, and is returned. It answers whether it wrote: if not, the content was imported before, by the
// file that is returned, and the object is only seen. ErrStaleTerm: nothing was written.
func (f *Files) ImportEntries(ctx context.Context, by Reign, file File, entries iter.Seq2[StatementEntry, error]) (File, bool, error) {
	file.Kind, file.Reason = EntriesFile, ""
	return f.importOnce(ctx, by, file, func(ctx context.Context, tx *Tx, file *File, refused *refusals) error {
		next, stop := iter.Pull2(entries)
		defer stop()
		c := &copying{next: next, file: file.ID, refused: refused}
		for c.more = true; c.more; {
			if err := f.terms.isNewest(ctx, tx, by); err != nil {
				return err
			}
			if err := c.some(ctx, tx.tx); err != nil {
				return err
			}
		}
		return nil
	})
}

// ImportSettlement writes which net lines of a closed cycle, file.CycleID, were paid, in one transaction. A confirmation that
// is not of a line, that is not what the line comes to, or of a line that is confirmed, is a row that is refused. Otherwise it
// is as ImportEntries.
func (f *Files) ImportSettlement(ctx context.Context, by Reign, file File, confirmations iter.Seq2[Confirmation, error]) (File, bool, error) {
	file.Kind, file.Reason = SettlementFile, ""
	return f.importOnce(ctx, by, file, func(ctx context.Context, tx *Tx, file *File, refused *refusals) error {
		var some []Confirmation
		for c, err := range confirmations {
			row, err := refused.take(err)
			if err != nil {
				return err
			}
			if !row {
				some = append(some, c)
			}
			if len(some) == linesPerStatement {
				if err := f.confirm(ctx, tx, file, some, refused); err != nil {
					return err
				}
				some = some[:0]
			}
		}
		return f.confirm(ctx, tx, file, some, refused)
	})
}

// importOnce imports what is not known, in one transaction.
func (f *Files) importOnce(
	ctx context.Context, by Reign, file File, write func(context.Context, *Tx, *File, *refusals) error,
) (File, bool, error) {
	known, err := f.Get(ctx, file.Kind, file.SHA256)
	if err == nil {
		return known, false, f.See(ctx, by, file.Object, known.ID)
	}
	if !errors.Is(err, ErrNotFound) {
		return File{}, false, err
	}
	err = f.db.InTx(ctx, func(ctx context.Context, tx *Tx) error {
		if err := f.terms.isNewest(ctx, tx, by); err != nil {
			return err
		}
		if _, err := f.q.LimitStatement(ctx, tx.tx, millis(copyTimeout)); err != nil {
			return translate("import file", err)
		}
		var err error
		if file.ID, err = f.q.NextFile(ctx, tx.tx); err != nil {
			return translate("import file", err)
		}
		var refused refusals
		if err := write(ctx, tx, &file, &refused); err != nil {
			return err
		}
		return f.add(ctx, tx, by, &file, &refused)
	})
	if errors.Is(err, errKnown) {
		if known, err = f.Get(ctx, file.Kind, file.SHA256); err == nil {
			err = f.See(ctx, by, file.Object, known.ID)
		}
		return known, false, err
	}
	if err != nil {
		return File{}, false, err
	}
	return file, true, nil
}

// copying is entries on their way into the table. It is the source of one COPY after the other.
type copying struct {
	next    func() (StatementEntry, error, bool)
	file    int64
	refused *refusals
	more    bool  // there may be more entries
	left    int   // of this statement
	failed  error // of the entries: the database is told only that the copying ended
	row     []any
}

// some writes the next entries by one statement.
func (c *copying) some(ctx context.Context, tx pgx.Tx) error {
	c.left = rowsPerCopy
	columns := []string{"file_id", "line", "payment_id", "original_id", "kind", "direction", "amount", "counterparty", "settled_at"}
	_, err := tx.CopyFrom(ctx, pgx.Identifier{"statement_entries"}, columns, c)
	if c.failed != nil {
		return c.failed
	}
	return translate("copy entries", err)
}

// Next implements pgx.CopyFromSource.
func (c *copying) Next() bool {
	if c.left == 0 {
		return false
	}
	for {
		e, err, ok := c.next()
		if !ok {
			c.more = false
			return false
		}
		refused, fatal := c.refused.take(err)
		if fatal != nil {
			c.more, c.failed = false, fatal
			return false
		}
		if refused {
			continue
		}
		c.left--
		var original any
		if e.OriginalID != "" {
			original = e.OriginalID
		}
		c.row = append(c.row[:0], c.file, e.Line, e.PaymentID, original, string(e.Kind), string(e.Direction), int64(e.Amount),
			string(e.Counterparty), e.SettledAt)
		return true
	}
}

// Values implements pgx.CopyFromSource.
func (c *copying) Values() ([]any, error) { return c.row, nil }

// Err implements pgx.CopyFromSource.
func (c *copying) Err() error { return c.failed }

// confirm writes confirmations of lines, and refuses those that fit none.
func (f *Files) confirm(ctx context.Context, tx *Tx, file *File, some []Confirmation, refused *refusals) error {
	if len(some) == 0 {
		return nil
	}
	parties := make([]string, len(some))
	for i, c := range some {
		parties[i] = string(c.Party)
	}
	rows, err := f.q.UnconfirmedLines(ctx, tx.tx, db.UnconfirmedLinesParams{CycleID: file.CycleID, Parties: parties})
	if err != nil {
		return translate("confirm lines", err)
	}
	lines := make(map[pix.ISPB]db.UnconfirmedLinesRow, len(rows))
	for _, r := range rows {
		lines[pix.ISPB(r.Party)] = r
	}
	p := db.ConfirmLinesParams{CycleID: file.CycleID, FileID: file.ID}
	for _, c := range some {
		line, ok := lines[c.Party]
		if why := unfit(c, line, ok, file.ID); why != "" {
			refused.add(c.Line, why)
			continue
		}
		line.FileID = file.ID
		lines[c.Party] = line
		p.Parties = append(p.Parties, string(c.Party))
		p.Lines = append(p.Lines, c.Line)
		p.Directions = append(p.Directions, string(c.Direction))
		p.Amounts = append(p.Amounts, int64(c.Amount))
		p.PaidAt = append(p.PaidAt, c.PaidAt)
	}
	wrote, err := f.q.ConfirmLines(ctx, tx.tx, p)
	if err != nil {
		return translate("confirm lines", err)
	}
	written := make(map[int64]bool, len(wrote))
	for _, line := range wrote {
		written[line] = true
	}
	for _, line := range p.Lines {
		if !written[line] {
			refused.add(line, "the line was confirmed meanwhile")
		}
	}
	return nil
}

// unfit says why a confirmation is not one of a line; "": it is.
func unfit(c Confirmation, line db.UnconfirmedLinesRow, there bool, file int64) string {
	want := Confirmation{Direction: pix.In, Amount: pix.Amount(line.Net)}
	if line.Net < 0 {
		want = Confirmation{Direction: pix.Out, Amount: pix.Amount(-line.Net)}
	}
	switch {
	case !there:
		return fmt.Sprintf("the cycle has no line of %s", c.Party)
	case line.FileID == file:
		return fmt.Sprintf("the line of %s stands twice in this file", c.Party)
	case line.FileID != 0:
		return fmt.Sprintf("the line of %s was confirmed by file %d", c.Party, line.FileID)
	case c.Direction != want.Direction || c.Amount != want.Amount:
		return fmt.Sprintf("paid %s (%s), the line of %s comes to %s (%s)", c.Amount, c.Direction, c.Party, want.Amount, want.Direction)
	}
	return ""
}
