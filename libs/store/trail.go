package store

import (
	"context"
	"time"

	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store/db"
)

// DeadLetter is a message that could not be processed.
type DeadLetter struct {
	ID       int64
	BuriedAt time.Time
	// Source names the stream, "icom:cpm:12345678".
	Source, MessageID string
	// MsgType is empty if it could not be read.
	MsgType string
	Reason  string
}

// DeadLetters returns up to limit dead letters after an ID, oldest first.
func (b *Inbox) DeadLetters(ctx context.Context, after int64, limit int) ([]DeadLetter, error) {
	var letters []DeadLetter
	err := b.db.call(ctx, "dead letters", func(ctx context.Context, conn db.DBTX) error {
		rows, err := b.q.DeadLetters(ctx, conn, db.DeadLettersParams{After: after, AtMost: int32(limit)})
		for _, r := range rows {
			letters = append(letters, DeadLetter{
				ID: r.ID, BuriedAt: r.BuriedAt, Source: r.Source, MessageID: r.MessageID, MsgType: r.MsgType, Reason: r.Reason,
			})
		}
		return err
	})
	return letters, err
}

// Carrier is an order or an answer of a payment, and the message that carries it now.
type Carrier struct {
	OperationID int64
	MsgType     string
	// Closed: it will not be sent. Alone: it goes by itself, after a group with it was refused.
	Closed, Alone bool
	// Doubts are attempts of earlier messages, of which it is not known how they ended.
	Doubts int
	// Published is how often it went to the bus again.
	Published int
	CreatedAt time.Time
	// Message has no MsgID if nothing carries it. Its payload is not read.
	Message Message
}

// Carriers explains what was said to the SPI about a payment, oldest first.
func (o *Outbound) Carriers(ctx context.Context, paymentID string) ([]Carrier, error) {
	var carriers []Carrier
	err := o.db.call(ctx, "carriers", func(ctx context.Context, conn db.DBTX) error {
		rows, err := o.q.Carriers(ctx, conn, paymentID)
		for _, r := range rows {
			carriers = append(carriers, Carrier{
				OperationID: r.ID, MsgType: r.MsgType, Closed: r.Closed, Alone: r.Alone, Doubts: int(r.Doubts),
				Published: int(r.Published), CreatedAt: r.CreatedAt,
				Message: Message{
					MsgID: pix.MsgID(r.MsgID), MsgType: r.MsgType, State: MessageState(r.State), Attempts: int(r.Attempts),
					Reason: r.Reason, UpdatedAt: r.UpdatedAt,
				},
			})
		}
		return err
	})
	return carriers, err
}

// EndedTwice returns the payments whose events have more than one end, which must be none. It reads the whole table:
// fit for a report, not for a metric.
func (p *Payments) EndedTwice(ctx context.Context) ([]string, error) {
	var ids []string
	err := p.db.call(ctx, "ended twice", func(ctx context.Context, conn db.DBTX) (err error) {
		ids, err = p.q.EndedTwice(ctx, conn)
		return err
	})
	return ids, err
}
