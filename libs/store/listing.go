package store

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store/db"
)

// Filter chooses payments of a listing; a field that is zero chooses nothing out, but Limit.
type Filter struct {
	// From and To bound the time at which a payment was booked: from it on, and before it.
	From, To  time.Time
	Direction pix.Direction
	State     pix.State
	Kind      pix.Kind
	// After is where the page before ended, as List returned it.
	After string
	// Limit is the most payments of a page, 1 to 1000.
	Limit int
}

// List returns payments in the order in which they were booked, and where the next page begins, empty after the last.
// A payment that is booked while somebody pages comes on a later page, or is missed if its transaction took longer than
// the pages did. ErrCursor: After is not from here.
func (p *Payments) List(ctx context.Context, f Filter) (page []Payment, next string, err error) {
	if f.Limit < 1 || f.Limit > 1000 {
		return nil, "", fmt.Errorf("list payments: limit %d, want 1 to 1000", f.Limit)
	}
	params := db.ListPaymentsParams{
		FromAt: f.From, ToAt: f.To, Direction: string(f.Direction), State: string(f.State), Kind: string(f.Kind),
		AtMost: int32(f.Limit) + 1,
	}
	if f.To.IsZero() {
		params.ToAt = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	if params.AfterAt, params.AfterID, err = parseCursor(f.After); err != nil {
		return nil, "", fmt.Errorf("list payments: %w", err)
	}
	err = p.db.call(ctx, "list payments", func(ctx context.Context, conn db.DBTX) error {
		rows, err := p.q.ListPayments(ctx, conn, params)
		for _, r := range rows {
			page = append(page, paymentOf(db.GetPaymentRow(r)))
		}
		return err
	})
	if err == nil && len(page) > f.Limit {
		page = page[:f.Limit]
		last := page[f.Limit-1]
		next = cursor(last.CreatedAt, last.ID)
	}
	return page, next, err
}

// cursor holds the key of the last row of a page: microseconds, as the database counts them, and its ID.
func cursor(at time.Time, id string) string {
	key := binary.BigEndian.AppendUint64(nil, uint64(at.UnixMicro()))
	return base64.RawURLEncoding.EncodeToString(append(key, id...))
}

func parseCursor(s string) (time.Time, string, error) {
	if s == "" {
		return time.Time{}, "", nil
	}
	const longest = 64
	key, err := base64.RawURLEncoding.DecodeString(s[:min(len(s), longest)])
	if err != nil || len(s) > longest || len(key) != 8+32 {
		return time.Time{}, "", ErrCursor
	}
	id := string(key[8:])
	if _, err := pix.ParseEndToEndID("E" + id[1:]); err != nil || id[0] != 'E' && id[0] != 'D' {
		return time.Time{}, "", ErrCursor
	}
	at := time.UnixMicro(int64(binary.BigEndian.Uint64(key))).UTC()
	if at.Year() < 2000 || at.Year() > 9999 {
		return time.Time{}, "", ErrCursor
	}
	return at, id, nil
}

// OpenCount is what stands in one state that is not final.
type OpenCount struct {
	Count int64
	// Oldest is how long the one has stood there that has done so longest.
	Oldest time.Duration
}

// OpenCounts returns one entry for each state that is not final, also where it is nothing: fit for a metric.
func (p *Payments) OpenCounts(ctx context.Context) (map[pix.State]OpenCount, error) {
	counts := map[pix.State]OpenCount{}
	for _, s := range pix.States() {
		if !s.Final() {
			counts[s] = OpenCount{}
		}
	}
	err := p.db.call(ctx, "open counts", func(ctx context.Context, conn db.DBTX) error {
		rows, err := p.q.OpenCounts(ctx, conn)
		for _, r := range rows {
			counts[pix.State(r.State)] = OpenCount{
				Count: r.Count, Oldest: time.Duration(r.OldestSeconds * float64(time.Second)),
			}
		}
		return err
	})
	return counts, err
}

// Book is the sum of what settled of one kind in one direction.
type Book struct {
	Kind      pix.Kind
	Direction pix.Direction
	Count     int64
	Amount    pix.Amount
}

// Books sums what settled. It reads the whole table: fit for a report, not for a metric.
func (p *Payments) Books(ctx context.Context) ([]Book, error) {
	var books []Book
	err := p.db.call(ctx, "books", func(ctx context.Context, conn db.DBTX) error {
		rows, err := p.q.Books(ctx, conn)
		for _, r := range rows {
			books = append(books, Book{
				Kind: pix.Kind(r.Kind), Direction: pix.Direction(r.Direction), Count: r.Count, Amount: pix.Amount(r.Amount),
			})
		}
		return err
	})
	return books, err
}
