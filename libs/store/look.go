package store

import (
	"context"
	"time"

	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store/db"
)

// Look is what a consumer sees before it works on a message.
type Look struct {
	// Open: nobody has closed it.
	Open bool
	// At is the database's time, which does not depend on the replica that asks.
	At time.Time
	// Payload is the message as received, if it is open.
	Payload []byte
}

// Look reports how a message of one source stands; one that is not there is not open.
func (b *Inbox) Look(ctx context.Context, messageID, source string) (Look, error) {
	var l Look
	err := b.db.call(ctx, "look", func(ctx context.Context, conn db.DBTX) error {
		row, err := b.q.Look(ctx, conn, db.LookParams{MessageID: messageID, Source: source})
		l = Look{Open: row.Payload != nil, At: row.At, Payload: row.Payload}
		return err
	})
	return l, err
}

// Failed counts that the consumer of a message failed with it by a fault of its own, and returns how often that is now:
// deliveries tell no such thing, as one that found the database away is one as well. ErrNotFound: it is not open.
func (b *Inbox) Failed(ctx context.Context, messageID, source string) (int, error) {
	var n int32
	err := b.db.call(ctx, "failed", func(ctx context.Context, conn db.DBTX) (err error) {
		n, err = b.q.Failed(ctx, conn, db.FailedParams{MessageID: messageID, Source: source})
		return err
	})
	return int(n), err
}

// DeadLetterTx copies a message to the dead letters, in the transaction that closes it with
// MarkDoneTx: it counts as dead then. ErrNotFound: there is no such message.
func (b *Inbox) DeadLetterTx(ctx context.Context, tx *Tx, messageID, source, reason string) error {
	n, err := b.q.DeadLetter(ctx, tx.tx, db.DeadLetterParams{MessageID: messageID, Source: source, Reason: reason})
	if err == nil && n == 0 {
		err = ErrNotFound
	}
	return translate("dead letter", err)
}

// Touched tells when the order of a payment was last worked on, by the database's clock: moved, taken apart, put on the
// wire, or answered. No copy of it began to go out later, if Sends says in the same transaction that none may go out
// yet. ErrNotFound: there is no such payment.
func (o *Outbound) Touched(ctx context.Context, tx *Tx, paymentID string) (time.Time, error) {
	at, err := o.q.OrderTouched(ctx, tx.tx, paymentID)
	return at, translate("touched", err)
}

// Due is a payment that the SPI should be asked about.
type Due struct {
	ID      string
	State   pix.State
	Channel pix.Channel
	// Times is how often it was asked before.
	Times int
}

// EnquiriesDue returns up to limit payments that are open, not merely created, and have not
// moved for longer than olderThan; of one that was asked about before, those whose last
// enquiry is first ago, then twice as long each time, up to most. An enquiry is an event with
// that reason: write one with Note in the same transaction. They stay locked until its end.
func (p *Payments) EnquiriesDue(ctx context.Context, tx *Tx, reason string, olderThan, first, most time.Duration, limit int) ([]Due, error) {
	rows, err := p.q.EnquiriesDue(ctx, tx.tx, db.EnquiriesDueParams{
		Reason: reason, OlderThan: olderThan, First: first, Most: most, AtMost: int32(limit),
	})
	due := make([]Due, len(rows))
	for i, r := range rows {
		due[i] = Due{ID: r.ID, State: pix.State(r.State), Channel: pix.Channel(r.Channel), Times: int(r.Times)}
	}
	return due, translate("enquiries due", err)
}
