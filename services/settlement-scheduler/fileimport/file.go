package fileimport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"

	"github.com/cabine-pix/cabine/libs/bucket"
	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/statement"
	"github.com/cabine-pix/cabine/libs/store"
)

// waits is the outcome of a file that is looked into again.
const waits = "waiting"

// file is an object on its way.
type file struct {
	*Importer
	object store.Object
	local  *bucket.Local
	known  store.File // as far as it is known
	spoke  clock.Reading
}

// bring reads an object and imports it. A reason is why it is refused, or waits.
func (w *walk) bring(ctx context.Context, f *file) (outcome, reason string, err error) {
	f.known.Object = f.object
	f.local, err = w.deps.Bucket.Fetch(ctx, bucket.Object(f.object), w.cfg.MaxSize)
	if errors.Is(err, bucket.ErrTooLarge) {
		return refused, fmt.Sprintf("the archive has %d bytes, allowed are %d", f.object.Size, w.cfg.MaxSize), nil
	}
	if err != nil {
		return "", "", fmt.Errorf("fetching: %w", err)
	}
	outcome, reason, err = f.judge(ctx)
	if err == nil && outcome == "" {
		outcome, reason, err = f.enter(ctx, w.by)
	}
	return outcome, reason, errors.Join(err, f.local.Close())
}

// judge reads a file to its end and says whether it may be imported: then no outcome.
func (f *file) judge(ctx context.Context) (outcome, reason string, err error) {
	r, err := f.open()
	if err != nil {
		return refusal(err)
	}
	outcome, reason, err = f.judgeHeader(ctx, r.Header())
	if err == nil && outcome == "" {
		outcome, reason, err = f.judgeContent(ctx, r)
	}
	return outcome, reason, errors.Join(err, r.Close())
}

func (f *file) judgeHeader(ctx context.Context, h statement.Header) (outcome, reason string, err error) {
	f.known.ISPB, f.known.From, f.known.To = h.ISPB, h.From, h.To
	f.known.Kind = store.EntriesFile
	if h.Kind == statement.Settlement {
		f.known.Kind = store.SettlementFile
	}
	if h.ISPB != f.cfg.ISPB {
		return refused, fmt.Sprintf("it is a file of participant %s", h.ISPB), nil
	}
	if h.Kind != statement.Settlement {
		return "", "", nil
	}
	f.known.CycleID, err = f.deps.Files.ClosedCycle(ctx, h.CycleDate, h.CycleType)
	if errors.Is(err, store.ErrNotFound) {
		return waits, fmt.Sprintf("no closed cycle of %s with type %s", h.CycleDate.Format("2006-01-02"), h.CycleType), nil
	}
	if err != nil {
		return "", "", fmt.Errorf("cycle of the settlement: %w", err)
	}
	return "", "", nil
}

func (f *file) judgeContent(ctx context.Context, r *statement.Reader) (outcome, reason string, err error) {
	var row *statement.RowError
	for err = r.Skip(); err == nil || errors.As(err, &row); err = r.Skip() {
		if err := f.going(ctx, "a file is being read", r); err != nil {
			return "", "", err
		}
	}
	if !errors.Is(err, io.EOF) {
		return refusal(err)
	}
	s := r.Summary()
	f.known.SHA256, f.known.Records, f.known.Debits, f.known.Credits = s.Hash, s.Records, s.Debits, s.Credits
	named, ok := statement.Hash(f.object.Name)
	switch {
	case ok && named != s.Hash:
		return refused, fmt.Sprintf("its name says another hash than its content has, %s", s.Hash), nil
	case s.Records > 0 && s.Refused == s.Records:
		return refused, fmt.Sprintf("none of its %d records can be read", s.Records), nil
	}
	return "", "", nil
}

// enter imports a file that was judged.
func (f *file) enter(ctx context.Context, by store.Reign) (outcome, reason string, err error) {
	r, err := f.open()
	if err != nil {
		return "", "", err // it could be read before
	}
	var fresh bool
	var got store.File
	if f.known.Kind == store.SettlementFile {
		got, fresh, err = f.deps.Files.ImportSettlement(ctx, by, f.known, f.confirmations(ctx, r))
	} else {
		got, fresh, err = f.deps.Files.ImportEntries(ctx, by, f.known, f.entries(ctx, r))
	}
	err = errors.Join(err, r.Close())
	switch {
	case errors.Is(err, store.ErrRefused):
		return refused, err.Error(), nil
	case err != nil:
		return "", "", fmt.Errorf("importing: %w", err)
	}
	f.known = got
	if fresh {
		return imported, "", nil
	}
	return known, "", nil
}

func (f *file) open() (*statement.Reader, error) {
	return statement.Open(f.local, f.local.Size(), statement.Limits{MaxText: f.cfg.MaxText})
}

// refusal tells a file that is refused from one that could not be read.
func refusal(err error) (outcome, reason string, _ error) {
	if fatal, ok := errors.AsType[*statement.FileError](err); ok {
		return refused, fatal.Error(), nil
	}
	return "", "", fmt.Errorf("reading: %w", err)
}

// going looks every few thousand records whether it is told to stop, and tells of what takes long.
func (f *file) going(ctx context.Context, what string, r *statement.Reader) error {
	const some = 4096
	if r.Records()%some != 0 {
		return nil
	}
	if now := f.deps.Clock.Now(); now.Elapsed(f.spoke) > patience {
		f.spoke = now
		f.deps.Log.InfoContext(ctx, "a file takes its time", slog.String("object", f.object.Name), slog.String("step", what),
			slog.Int64("records", r.Records()), slog.Int64("bytes", r.Read()))
	}
	return ctx.Err()
}

// entries reads the file again, for the tables.
func (f *file) entries(ctx context.Context, r *statement.Reader) iter.Seq2[store.StatementEntry, error] {
	return records(ctx, f, r, r.Next, func(e statement.Entry) store.StatementEntry {
		return store.StatementEntry{
			Line: e.Line, PaymentID: e.ID, OriginalID: e.Original, Kind: e.Kind, Direction: e.Direction, Amount: e.Amount,
			Counterparty: e.Counterparty, SettledAt: e.SettledAt,
		}
	})
}

func (f *file) confirmations(ctx context.Context, r *statement.Reader) iter.Seq2[store.Confirmation, error] {
	return records(ctx, f, r, r.NextConfirmation, func(c statement.Confirmation) store.Confirmation { return store.Confirmation(c) })
}

// records yields the records of a file, and in the place of one that cannot be read why.
func records[From, To any](
	ctx context.Context, f *file, r *statement.Reader, next func() (From, error), into func(From) To,
) iter.Seq2[To, error] {
	return func(yield func(To, error) bool) {
		var none To
		for {
			record, err := next()
			if errors.Is(err, io.EOF) {
				return
			}
			row, unreadable := errors.AsType[*statement.RowError](err)
			switch {
			case unreadable && !yield(none, &store.RowError{Line: row.Line, Reason: row.Reason}):
				return
			case unreadable:
			case err != nil:
				yield(none, err)
				return
			case !yield(into(record), nil):
				return
			}
			if err := f.going(ctx, "a file is being imported", r); err != nil {
				yield(none, err)
				return
			}
		}
	}
}
