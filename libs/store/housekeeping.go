package store

import (
	"context"
	"time"

	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store/db"
)

// PurgeDeadLetters forgets some of the dead letters older than olderThan, the oldest first, and returns how many; call it
// again until there are none.
func (b *Inbox) PurgeDeadLetters(ctx context.Context, tx *Tx, olderThan time.Duration) (int64, error) {
	n, err := b.q.PurgeDeadLetters(ctx, tx.tx, olderThan)
	return n, translate("purge dead letters", err)
}

// PurgeTx is Purge as part of a transaction.
func (i *Idempotency) PurgeTx(ctx context.Context, tx *Tx, olderThan time.Duration) (int64, error) {
	n, err := i.q.PurgeKeys(ctx, tx.tx, olderThan)
	return n, translate("purge keys", err)
}

// Expire gives up orders and returns that were created longer ago than olderThan and that no message ever carried: they
// will not be sent, and become rejected with the given reason. It answers some of them; call it again until there are
// none.
func (o *Outbox) Expire(ctx context.Context, tx *Tx, olderThan time.Duration, who, reason string) ([]Moved, error) {
	ids, err := o.q.ExpireOrders(ctx, tx.tx, olderThan)
	if err != nil || len(ids) == 0 {
		return nil, translate("expire orders", err)
	}
	moves := make([]Move, len(ids))
	for i, id := range ids {
		moves[i] = Move{ID: id, To: pix.Rejected, Who: who, Reason: reason}
	}
	payments := &Payments{db: o.db, q: db.New()}
	return payments.Move(ctx, tx, moves)
}
