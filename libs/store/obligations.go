package store

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store/db"
)

// Obligation is what a settled payment or return leaves between us and whom we settle with.
type Obligation struct {
	// PaymentID is the EndToEndId of a payment, the RtrId of a return.
	PaymentID string
	// CycleID is the cycle that nets it. LateFrom is the cycle to which it belongs by its time, which took nothing any
	// more when it came; zero: it is not late.
	CycleID, LateFrom int64
	Kind              pix.Kind
	// Direction out is a debit, in a credit.
	Direction pix.Direction
	Amount    pix.Amount
	// Party is whom it is settled with.
	Party pix.ISPB
	// SettledAt is the SPI's time, CreatedAt the database's.
	SettledAt, CreatedAt time.Time
}

// Parties says which branches of ours are an indirect participant's, by branch of up to four digits. What belongs to
// none is settled with the other participant.
type Parties map[string]pix.ISPB

// Validate names every entry that does not fit.
func (p Parties) Validate() error {
	seen := map[string]string{}
	for branch, party := range p {
		full := padded(branch)
		if len(full) != 4 || strings.Trim(full, "0123456789") != "" || branch == "" {
			return fmt.Errorf("branch %q: want 1 to 4 digits", branch)
		}
		if other, twice := seen[full]; twice {
			return fmt.Errorf("branches %q and %q are the same", branch, other)
		}
		seen[full] = branch
		if _, err := pix.ParseISPB(string(party)); err != nil {
			return fmt.Errorf("branch %q: %w", branch, err)
		}
	}
	return nil
}

func padded(branch string) string { return strings.Repeat("0", max(0, 4-len(branch))) + branch }

// Booking says what Book did with each of the payments that it was given.
type Booking struct {
	// Fresh have their obligation since now, and Known had it. Late counts the fresh ones whose own cycle took nothing more.
	Fresh, Known []string
	Late         int
	// Waiting settled at a time for which no cycle is open: try again later.
	Waiting []string
	// Strange are not booked, or not settled.
	Strange []string
}

// DueObligation is one that is not written yet.
type DueObligation struct {
	PaymentID string
	SettledAt time.Time
	// Attempts is how often it was announced.
	Attempts int
}

// ObligationsBacklog is what is due.
type ObligationsBacklog struct {
	Due int64
	// Attempts is how often the one was announced that was so most often.
	Attempts int64
	// Lag is the time since the oldest settled.
	Lag time.Duration
}

// Obligations is the aggregate of what settled and waits to be netted.
type Obligations struct {
	db       *DB
	q        *db.Queries
	branches []string
	parties  []string
}

// NewObligations returns the obligations in d. It fails for parties that do not fit.
func NewObligations(d *DB, parties Parties) (*Obligations, error) {
	if err := parties.Validate(); err != nil {
		return nil, fmt.Errorf("parties: %w", err)
	}
	o := &Obligations{db: d, q: db.New(), branches: []string{}, parties: []string{}}
	for branch, party := range parties {
		o.branches = append(o.branches, padded(branch))
		o.parties = append(o.parties, string(party))
	}
	return o, nil
}

// Book writes the obligations of payments that settled, each once, into the first open cycle that ends after it settled,
// and ends what is due of them. Repeating it changes nothing.
func (o *Obligations) Book(ctx context.Context, ids []string) (Booking, error) {
	var rows []db.BookObligationsRow
	err := o.db.callTx(ctx, "book obligations", func(ctx context.Context, tx db.DBTX) (err error) {
		if err = o.q.HoldCycles(ctx, tx); err != nil {
			return err
		}
		rows, err = o.q.BookObligations(ctx, tx, db.BookObligationsParams{Ids: ids, Branches: o.branches, Parties: o.parties})
		return err
	})
	if err != nil {
		return Booking{}, err
	}
	var b Booking
	found := make(map[string]bool, len(rows))
	for _, r := range rows {
		found[r.ID] = true
		switch {
		case r.Fresh:
			b.Fresh = append(b.Fresh, r.ID)
		case r.Placed:
			b.Known = append(b.Known, r.ID)
		default:
			b.Waiting = append(b.Waiting, r.ID)
		}
		if r.Late {
			b.Late++
		}
	}
	for _, id := range ids {
		if !found[id] {
			found[id] = true
			b.Strange = append(b.Strange, id)
		}
	}
	return b, nil
}

// Due returns up to limit obligations that are to be announced now, for the first time or again.
func (o *Obligations) Due(ctx context.Context, limit int) ([]DueObligation, error) {
	var due []DueObligation
	err := o.db.call(ctx, "due obligations", func(ctx context.Context, conn db.DBTX) error {
		rows, err := o.q.DueObligations(ctx, conn, int32(min(limit, math.MaxInt32)))
		for _, r := range rows {
			due = append(due, DueObligation{PaymentID: r.PaymentID, SettledAt: r.SettledAt, Attempts: int(r.Attempts)})
		}
		return err
	})
	return due, err
}

// Announced records, under a leader's term, that due obligations went to the bus. They are due again after the time
// first, then after twice as long each time, up to most.
func (o *Obligations) Announced(ctx context.Context, tx *Tx, due []DueObligation, first, most time.Duration) error {
	p := db.ObligationsAnnouncedParams{First: first, Most: most}
	for _, d := range due {
		p.Ids = append(p.Ids, d.PaymentID)
		p.Attempts = append(p.Attempts, int32(min(d.Attempts, math.MaxInt32)))
	}
	_, err := o.q.ObligationsAnnounced(ctx, tx.tx, p)
	return translate("obligations announced", err)
}

// Backlog reads only what is due: fit for a metric.
func (o *Obligations) Backlog(ctx context.Context) (ObligationsBacklog, error) {
	var b ObligationsBacklog
	err := o.db.call(ctx, "obligations backlog", func(ctx context.Context, conn db.DBTX) error {
		row, err := o.q.ObligationsBacklog(ctx, conn)
		b = ObligationsBacklog{Due: row.Due, Attempts: row.Attempts, Lag: time.Duration(row.LagSeconds * float64(time.Second))}
		return err
	})
	return b, err
}

// Get returns the obligation of a payment or a return. ErrNotFound: it has none, or not yet.
func (o *Obligations) Get(ctx context.Context, paymentID string) (Obligation, error) {
	var found Obligation
	err := o.db.call(ctx, "get obligation", func(ctx context.Context, conn db.DBTX) error {
		r, err := o.q.GetObligation(ctx, conn, paymentID)
		found = Obligation{
			PaymentID: r.PaymentID, CycleID: r.CycleID, LateFrom: r.LateFrom, Kind: pix.Kind(r.Kind),
			Direction: pix.Direction(r.Direction), Amount: pix.Amount(r.Amount), Party: pix.ISPB(r.Party),
			SettledAt: r.SettledAt, CreatedAt: r.CreatedAt,
		}
		return err
	})
	return found, err
}

// Missing counts what settled and has no obligation: due is on its way, lost must be none. It reads whole tables: fit for
// a report, not for a metric.
func (o *Obligations) Missing(ctx context.Context) (due, lost int64, err error) {
	err = o.db.call(ctx, "obligations missing", func(ctx context.Context, conn db.DBTX) error {
		row, err := o.q.ObligationsMissing(ctx, conn)
		due, lost = row.Due, row.Lost
		return err
	})
	return due, lost, err
}

// Line is what a cycle comes to with one party.
type Line struct {
	Party pix.ISPB
	// Debits is what we paid and Credits what we were paid.
	Debits, Credits         pix.Amount
	DebitCount, CreditCount int64
}

// Net is what the party owes us, in centavos; negative: what we owe.
func (l Line) Net() int64 { return int64(l.Credits) - int64(l.Debits) }

// Difference is a line of a closed cycle that its obligations do not give again.
type Difference struct{ Written, Again Line }

// DifferError says that the obligations of a closed cycle do not give its lines. Nothing was changed.
type DifferError struct {
	CycleID int64
	// Lines are in the order of their parties. A line that is on one side only has no counts on the other.
	Lines []Difference
}

// Error names the cycle and the first line.
func (e *DifferError) Error() string {
	return fmt.Sprintf("cycle %d: %d lines differ from what its obligations give, the first is that of %s",
		e.CycleID, len(e.Lines), slices.MinFunc(e.Lines, func(a, b Difference) int {
			return strings.Compare(string(a.Written.Party), string(b.Written.Party))
		}).Written.Party)
}
