package store

import (
	"context"
	"encoding/json"
	"math"
	"time"

	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store/db"
)

// Operation is one thing to be said to the SPI: a transaction of a pacs.008, a status of a pacs.002, an enquiry.
type Operation struct {
	// ID is the outbox', and grows.
	ID int64
	// PaymentID is the EndToEndId or RtrId that it is about; of an echo or a question about the account, its own name.
	PaymentID string
	// MsgType is e.g. "pacs.008".
	MsgType string
	Channel pix.Channel
	// Alone: in a message of its own, because a group with it was refused.
	Alone bool
	// Body is the operation as package iso20022 reads it. Unpublished and Stuck leave it out.
	Body json.RawMessage
	// MsgID is the message that carries it; empty: none.
	MsgID     pix.MsgID
	CreatedAt time.Time
	// Attempts is how often it went to the bus again. It belongs to the bus's identifier of the publication.
	Attempts int
}

// Outbox is the aggregate of what waits to be sent.
type Outbox struct {
	db *DB
	q  *db.Queries
}

// NewOutbox returns the outbox in d.
func NewOutbox(d *DB) *Outbox { return &Outbox{db: d, q: db.New()} }

// Add writes operations in the transaction of the effect that wants them sent, and returns them with their IDs. It reads
// PaymentID, MsgType, Channel, Alone and Body. ErrRefused: an order or answer of that type exists for that payment; an
// order goes out once.
func (o *Outbox) Add(ctx context.Context, tx *Tx, operations []Operation) ([]Operation, error) {
	if len(operations) == 0 {
		return nil, nil
	}
	var p db.AddOperationsParams
	for _, op := range operations {
		p.PaymentIds = append(p.PaymentIds, op.PaymentID)
		p.MsgTypes = append(p.MsgTypes, op.MsgType)
		p.Channels = append(p.Channels, string(op.Channel))
		p.Alone = append(p.Alone, op.Alone)
		p.Bodies = append(p.Bodies, op.Body)
	}
	ids, err := o.q.AddOperations(ctx, tx.tx, p)
	if err != nil {
		return nil, translate("add to outbox", err)
	}
	added := make([]Operation, len(operations))
	for i, op := range operations {
		op.ID = ids[i]
		added[i] = op
	}
	return added, nil
}

// MarkPublished records that operations were handed to the bus. It is not the end: an operation waits until a message
// carries it. Repeating it changes nothing.
func (o *Outbox) MarkPublished(ctx context.Context, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	return o.db.call(ctx, "mark operations published", func(ctx context.Context, conn db.DBTX) error {
		_, err := o.q.MarkOperationsPublished(ctx, conn, ids)
		return err
	})
}

// Unpublished returns up to limit operations added longer ago than olderThan that were not handed to the bus, those of a
// group that was refused among them, first to last. Choose olderThan well above the time that a publication takes.
func (o *Outbox) Unpublished(ctx context.Context, olderThan time.Duration, limit int) ([]Operation, error) {
	var operations []Operation
	err := o.db.call(ctx, "unpublished operations", func(ctx context.Context, conn db.DBTX) error {
		rows, err := o.q.UnpublishedOperations(ctx, conn, db.UnpublishedOperationsParams{
			OlderThan: olderThan, AtMost: int32(limit),
		})
		for _, r := range rows {
			operations = append(operations, waiting(db.StuckOperationsRow(r)))
		}
		return err
	})
	return operations, err
}

// Stuck returns up to limit operations that were published and that no message carries, first to last: the bus lost
// them, or the senders are behind. An operation is stuck after the time first, then after twice as long each time, up to
// most. Publish them again, with one attempt more, and say Republished. Orders whose payments have ended are closed and
// not returned.
func (o *Outbox) Stuck(ctx context.Context, first, most time.Duration, limit int) ([]Operation, error) {
	var operations []Operation
	err := o.db.call(ctx, "stuck operations", func(ctx context.Context, conn db.DBTX) error {
		if _, err := o.q.CloseAnsweredOperations(ctx, conn); err != nil {
			return err
		}
		rows, err := o.q.StuckOperations(ctx, conn, db.StuckOperationsParams{First: first, Most: most, AtMost: int32(limit)})
		for _, r := range rows {
			operations = append(operations, waiting(r))
		}
		return err
	})
	return operations, err
}

func waiting(r db.StuckOperationsRow) Operation {
	return Operation{
		ID: r.ID, PaymentID: r.PaymentID, MsgType: r.MsgType, Channel: pix.Channel(r.Channel), Alone: r.Alone,
		CreatedAt: r.CreatedAt, Attempts: int(r.Attempts),
	}
}

// Republished records that stuck operations, as Stuck returned them, went out again: it counts the attempt and starts
// their time anew. What another replica republished since they were read is not counted again.
func (o *Outbox) Republished(ctx context.Context, stuck []Operation) error {
	if len(stuck) == 0 {
		return nil
	}
	p := db.OperationsRepublishedParams{Ids: make([]int64, len(stuck)), Attempts: make([]int32, len(stuck))}
	for i, op := range stuck {
		p.Ids[i], p.Attempts[i] = op.ID, int32(min(op.Attempts, math.MaxInt32))
	}
	return o.db.call(ctx, "operations republished", func(ctx context.Context, conn db.DBTX) error {
		_, err := o.q.OperationsRepublished(ctx, conn, p)
		return err
	})
}

// OutboxBacklog is what has not reached the bank.
type OutboxBacklog struct {
	// Created counts the operations not yet handed to the bus, Published those handed over that no message carries.
	Created, Published int64
	// Attempts is how often the operation went to the bus again that did so most often.
	Attempts int64
	// Lag is the age of the oldest of them; zero when there is none.
	Lag time.Duration
	// Doubtful counts the messages that are built and not known to be at the bank, DoubtfulLag is the age of the oldest.
	Doubtful    int64
	DoubtfulLag time.Duration
}

// Backlog reads only what is open: fit for a metric.
func (o *Outbox) Backlog(ctx context.Context) (OutboxBacklog, error) {
	var b OutboxBacklog
	err := o.db.call(ctx, "outbox backlog", func(ctx context.Context, conn db.DBTX) error {
		row, err := o.q.OutboxBacklog(ctx, conn)
		b = OutboxBacklog{
			Created: row.Created, Published: row.Published, Attempts: row.Attempts, Doubtful: row.Doubtful,
			Lag:         time.Duration(row.LagSeconds * float64(time.Second)),
			DoubtfulLag: time.Duration(row.DoubtfulSeconds * float64(time.Second)),
		}
		return err
	})
	return b, err
}
