package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store/db"
)

// Payment is one payment or return in the books.
type Payment struct {
	// ID is the EndToEndId of a payment, the RtrId of a return.
	ID        string
	Kind      pix.Kind
	Direction pix.Direction
	State     pix.State
	Amount    pix.Amount
	// Returned is the sum of the returns of this payment that were not rejected.
	Returned pix.Amount
	Channel  pix.Channel
	// Counterparty is the other participant.
	Counterparty pix.ISPB
	// OriginalID is the payment that a return returns; empty for a payment.
	OriginalID string
	// ClientID is the name that a client gave a return, unique for its original; empty: none.
	ClientID string
	// Reason and Detail explain the state: a code of the SPI, and words. They carry nobody's personal data.
	Reason, Detail string
	// Document is the order as the SPI's message carries it.
	Document json.RawMessage
	// AcceptedAt is AccptncDtTm: from here the SPI counts its 40 s.
	AcceptedAt time.Time
	// CreatedAt and UpdatedAt are the database's; Insert does not read them.
	CreatedAt, UpdatedAt time.Time
	// SettledAt is the SPI's time of settlement; zero: not settled.
	SettledAt time.Time
}

// Event explains one move of a payment, or something noted that moved nothing (Was and Became are the same).
type Event struct {
	At time.Time
	// Was is empty for the first.
	Was, Became pix.State
	// Who is "api", "core", "spi", "icom", or the service whose rule decided.
	Who, Reason, Detail string
}

// Payments is the aggregate of payments and returns: their states, their events and what was given back.
type Payments struct {
	db *DB
	q  *db.Queries
}

// NewPayments returns the payments in d.
func NewPayments(d *DB) *Payments { return &Payments{db: d, q: db.New()} }

// Insert books a payment with its first event. fresh is false, and nothing is written, if its ID is booked already. A
// return is only taken here if it is rejected from the beginning, whether or not its original exists; every other one
// goes through InsertReturn.
func (p *Payments) Insert(ctx context.Context, tx *Tx, payment Payment, who string) (fresh bool, err error) {
	if payment.Kind == pix.Return && payment.State != pix.Rejected {
		return false, errors.New("insert payment: a return that is not rejected: want InsertReturn")
	}
	return p.insert(ctx, tx, payment, who)
}

func (p *Payments) insert(ctx context.Context, tx *Tx, payment Payment, who string) (bool, error) {
	n, err := p.q.InsertPayment(ctx, tx.tx, db.InsertPaymentParams{
		Who: who, ID: payment.ID, Kind: string(payment.Kind), Direction: string(payment.Direction),
		State: string(payment.State), Amount: int64(payment.Amount), Channel: string(payment.Channel),
		Counterparty: string(payment.Counterparty), OriginalID: payment.OriginalID, ClientID: payment.ClientID,
		Reason: payment.Reason, Detail: payment.Detail, Document: payment.Document,
		AcceptedAt: payment.AcceptedAt, SettledAt: payment.SettledAt,
	})
	return n == 1, translate("insert payment", err)
}

// InsertReturn books a return and takes its amount from what is left of its original, which it locks until the end of
// the transaction. fresh is false, and nothing is written, if its ID, or its ClientID for this original, is booked
// already. ErrNotFound: there is no settled payment of the other direction under OriginalID. ErrExceeds: less than the
// amount is left.
func (p *Payments) InsertReturn(ctx context.Context, tx *Tx, payment Payment, who string) (fresh bool, err error) {
	if payment.Kind != pix.Return || payment.State == pix.Rejected {
		return false, fmt.Errorf("insert return: %s %s: want a return that is not rejected", payment.State, payment.Kind)
	}
	original, err := p.q.HoldOriginal(ctx, tx.tx, payment.OriginalID)
	if err != nil {
		return false, translate("insert return", err)
	}
	if original.Kind != string(pix.Payment) || original.State != string(pix.Settled) || original.Direction == string(payment.Direction) {
		return false, fmt.Errorf("insert return: the original is a %s %s %s: %w",
			original.State, original.Direction, original.Kind, ErrNotFound)
	}
	if pix.Amount(original.Amount-original.Returned) < payment.Amount {
		known, err := p.q.ReturnExists(ctx, tx.tx, db.ReturnExistsParams{
			ID: payment.ID, OriginalID: payment.OriginalID, ClientID: payment.ClientID,
		})
		if err == nil && !known {
			err = ErrExceeds
		}
		return false, translate("insert return", err)
	}
	if fresh, err = p.insert(ctx, tx, payment, who); err != nil || !fresh {
		return false, err
	}
	_, err = p.q.AddReturned(ctx, tx.tx, db.AddReturnedParams{ID: payment.OriginalID, Amount: int64(payment.Amount)})
	return true, translate("insert return", err)
}

// Note writes an event that moves nothing. ErrNotFound: there is no such payment.
func (p *Payments) Note(ctx context.Context, tx *Tx, id, who, reason, detail string) error {
	n, err := p.q.NotePayment(ctx, tx.tx, db.NotePaymentParams{ID: id, Who: who, Reason: reason, Detail: detail})
	if err == nil && n == 0 {
		err = ErrNotFound
	}
	return translate("note", err)
}

// Get returns a payment or a return. ErrNotFound: there is none under this ID.
func (p *Payments) Get(ctx context.Context, id string) (Payment, error) {
	var payment Payment
	err := p.db.call(ctx, "get payment", func(ctx context.Context, conn db.DBTX) error {
		row, err := p.q.GetPayment(ctx, conn, id)
		payment = paymentOf(row)
		return err
	})
	return payment, err
}

// Events returns what happened to a payment, first to last.
func (p *Payments) Events(ctx context.Context, id string) ([]Event, error) {
	var events []Event
	err := p.db.call(ctx, "payment events", func(ctx context.Context, conn db.DBTX) error {
		rows, err := p.q.PaymentEvents(ctx, conn, id)
		for _, r := range rows {
			events = append(events, Event{
				At: r.At, Was: pix.State(r.Was), Became: pix.State(r.Became), Who: r.Who, Reason: r.Reason, Detail: r.Detail,
			})
		}
		return err
	})
	return events, err
}

// maxReturns bounds the returns of one payment that are read at once.
const maxReturns = 1000

// Returns lists the returns of a payment, oldest first, at most 1000 of them.
func (p *Payments) Returns(ctx context.Context, originalID string) ([]Payment, error) {
	return p.returns(ctx, db.ReturnsOfParams{OriginalID: originalID, AtMost: maxReturns})
}

// ReturnByClient returns the return to which a client gave this name. ErrNotFound: there is none.
func (p *Payments) ReturnByClient(ctx context.Context, originalID, clientID string) (Payment, error) {
	if clientID == "" {
		return Payment{}, fmt.Errorf("return by client: %w", ErrNotFound)
	}
	found, err := p.returns(ctx, db.ReturnsOfParams{OriginalID: originalID, ClientID: clientID, AtMost: 1})
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("return by client: %w", ErrNotFound)
	}
	if err != nil {
		return Payment{}, err
	}
	return found[0], nil
}

func (p *Payments) returns(ctx context.Context, params db.ReturnsOfParams) ([]Payment, error) {
	var payments []Payment
	err := p.db.call(ctx, "returns", func(ctx context.Context, conn db.DBTX) error {
		rows, err := p.q.ReturnsOf(ctx, conn, params)
		for _, r := range rows {
			payments = append(payments, paymentOf(db.GetPaymentRow(r)))
		}
		return err
	})
	return payments, err
}

func paymentOf(r db.GetPaymentRow) Payment {
	return Payment{
		ID: r.ID, Kind: pix.Kind(r.Kind), Direction: pix.Direction(r.Direction), State: pix.State(r.State),
		Amount: pix.Amount(r.Amount), Returned: pix.Amount(r.Returned), Channel: pix.Channel(r.Channel),
		Counterparty: pix.ISPB(r.Counterparty), OriginalID: r.OriginalID, ClientID: r.ClientID,
		Reason: r.Reason, Detail: r.Detail, Document: r.Document,
		AcceptedAt: r.AcceptedAt, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt, SettledAt: r.SettledAt,
	}
}
