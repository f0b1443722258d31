package store

import (
	"context"
	"crypto/sha256"
	"encoding/json"

	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store/db"
)

// CoreEvent names a payment request of the participant's core.
type CoreEvent struct {
	// ID is the core's name for it, or another one that no core can give.
	ID string
	// Request is the SHA-256 of the event, byte for byte.
	Request [sha256.Size]byte
}

// Verdict is what became of an event.
type Verdict struct {
	// PaymentID is the EndToEndId of the order that it became; empty: none.
	PaymentID string
	// Refusal says why it became none, as the core is told.
	Refusal json.RawMessage
}

// CoreEvents is the aggregate of the core's events: each has one verdict, which never changes, and is kept as long as
// the payments are.
type CoreEvents struct {
	db *DB
	q  *db.Queries
}

// NewCoreEvents returns the events in d.
func NewCoreEvents(d *DB) *CoreEvents { return &CoreEvents{db: d, q: db.New()} }

// Decide writes the verdict about an event, in the transaction of its effect. fresh is false, and nothing is written, if
// it has one, or if its ID belongs to another request; of two transactions with the same event the second waits for the
// first.
func (c *CoreEvents) Decide(ctx context.Context, tx *Tx, e CoreEvent, v Verdict) (fresh bool, err error) {
	n, err := c.q.DecideCoreEvent(ctx, tx.tx, db.DecideCoreEventParams{
		ID: e.ID, Request: e.Request[:], PaymentID: v.PaymentID, Refusal: v.Refusal,
	})
	return n == 1, translate("decide core event", err)
}

// Verdict returns what became of an event; same is false if its ID belongs to another request. ErrNotFound: there is no
// verdict.
func (c *CoreEvents) Verdict(ctx context.Context, e CoreEvent) (v Verdict, same bool, err error) {
	err = c.db.call(ctx, "core event", func(ctx context.Context, conn db.DBTX) error {
		row, err := c.q.CoreEvent(ctx, conn, db.CoreEventParams{ID: e.ID, Request: e.Request[:]})
		v, same = Verdict{PaymentID: row.PaymentID, Refusal: row.Refusal}, row.Same
		if err == nil && same && v.PaymentID == "" && v.Refusal == nil {
			err = ErrNotFound
		}
		return err
	})
	return v, same, err
}

// Failed counts that we failed with an event by a fault of our own, and returns how often that is now.
func (c *CoreEvents) Failed(ctx context.Context, e CoreEvent) (int, error) {
	var n int32
	err := c.db.call(ctx, "core event failed", func(ctx context.Context, conn db.DBTX) (err error) {
		n, err = c.q.FailCoreEvent(ctx, conn, db.FailCoreEventParams{ID: e.ID, Request: e.Request[:]})
		return err
	})
	return int(n), err
}

// Bury keeps an event that was refused in the dead letters, as it was received.
func (c *CoreEvents) Bury(ctx context.Context, tx *Tx, ispb pix.ISPB, e CoreEvent, reason string, payload []byte) error {
	_, err := c.q.BuryCoreEvent(ctx, tx.tx, db.BuryCoreEventParams{
		Source: "core:" + string(ispb), MessageID: e.ID, Reason: reason, Payload: payload,
	})
	return translate("bury core event", err)
}
