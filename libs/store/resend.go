package store

import (
	"context"
	"time"

	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store/db"
)

// Try is an attempt of a message as a sender wants it counted.
type Try struct {
	MsgID pix.MsgID
	// Attempts is the count that the sender knows.
	Attempts int
}

func attemptParams(tries []Try) (ids []string, attempts []int32) {
	for _, t := range tries {
		ids = append(ids, string(t.MsgID))
		attempts = append(attempts, int32(t.Attempts))
	}
	return ids, attempts
}

// Attempt counts an attempt of each message that still has the attempts that the caller knows, and answers for which it
// did; only the bytes of those may go out. Another sender had the others, or they are not to be sent any more. After
// ErrUnavailable nobody knows what was counted, and what was counts as sent.
func (o *Outbound) Attempt(ctx context.Context, tries []Try) ([]bool, error) {
	ours := make([]bool, len(tries))
	ids, attempts := attemptParams(tries)
	err := o.db.call(ctx, "attempt", func(ctx context.Context, conn db.DBTX) error {
		counted, err := o.q.AttemptMessages(ctx, conn, db.AttemptMessagesParams{MsgIds: ids, Attempts: attempts})
		is := make(map[string]bool, len(counted))
		for _, id := range counted {
			is[id] = true
		}
		for i, t := range tries {
			ours[i] = is[string(t.MsgID)]
		}
		return err
	})
	return ours, err
}

// Withdraw takes back attempts of which it is certain that the bank stored nothing, given the count that they made. With
// release any sender may have the messages at once. Repeating it changes nothing.
func (o *Outbound) Withdraw(ctx context.Context, tries []Try, release bool) error {
	ids, attempts := attemptParams(tries)
	return o.db.call(ctx, "withdraw", func(ctx context.Context, conn db.DBTX) error {
		return o.q.WithdrawMessages(ctx, conn, db.WithdrawMessagesParams{MsgIds: ids, Attempts: attempts, Release: release})
	})
}

// Release makes messages that are built or unknown due at once, for any sender.
func (o *Outbound) Release(ctx context.Context, msgIDs []pix.MsgID) error {
	return o.db.call(ctx, "release", func(ctx context.Context, conn db.DBTX) error {
		return o.q.ReleaseMessages(ctx, conn, sortedStrings(msgIDs))
	})
}

// Resend says when a message is due again.
type Resend struct {
	// First is the pause after the first attempt without an outcome; it doubles with each, up to Most.
	First, Most time.Duration
	// Attempts is how many there may be.
	Attempts int
	// LostAfter is how long a message may be built without an outcome before its sender is taken for dead.
	LostAfter time.Duration
}

// Due returns up to limit messages of a channel that are to be sent again, those left alone longest first, with their
// payloads. What it returns it returns to nobody else before the same time has passed again. Messages whose orders have
// all ended are not among them.
func (o *Outbound) Due(ctx context.Context, channel pix.Channel, r Resend, limit int) ([]Message, error) {
	var messages []Message
	err := o.db.call(ctx, "due", func(ctx context.Context, conn db.DBTX) error {
		rows, err := o.q.DueMessages(ctx, conn, db.DueMessagesParams{
			Channel: string(channel), Attempts: int32(r.Attempts),
			First: r.First, Most: r.Most, LostAfter: r.LostAfter, AtMost: int32(limit),
		})
		for _, row := range rows {
			messages = append(messages, messageOf(db.MessageByResourceRow(row)))
		}
		return err
	})
	return messages, err
}

// Discard gives up an operation that no message can carry, unless one does. If nothing of it ever went out, a payment
// whose order it is becomes rejected; otherwise that is noted. Repeating it changes nothing.
func (o *Outbound) Discard(ctx context.Context, id int64, reason string) error {
	return o.db.callTx(ctx, "discard", func(ctx context.Context, tx db.DBTX) error {
		rows, err := o.q.DiscardOperations(ctx, tx, []int64{id})
		if err != nil {
			return err
		}
		for _, r := range rows {
			if !r.Undone {
				if _, err := o.q.NotePayment(ctx, tx, db.NotePaymentParams{ID: r.PaymentID, Who: whoICOM, Reason: reason}); err != nil {
					return err
				}
				continue
			}
			if _, err := o.payments.move(ctx, tx, []Move{{ID: r.PaymentID, To: pix.Rejected, Who: whoICOM, Reason: reason}}); err != nil {
				return err
			}
		}
		return nil
	})
}

// Tidy ends messages that are not sent again and that were not touched for longer than olderThan, which is longer than an
// attempt and its record take. Those whose orders have all ended are closed, and so are questions, echoes and answers that
// were sent as often as may be; an order that was becomes spent.
func (o *Outbound) Tidy(ctx context.Context, attempts int, olderThan time.Duration) error {
	return o.db.call(ctx, "tidy", func(ctx context.Context, conn db.DBTX) error {
		if _, err := o.q.CloseAnsweredMessages(ctx, conn, olderThan); err != nil {
			return err
		}
		_, err := o.q.EndExhausted(ctx, conn, db.EndExhaustedParams{
			Attempts: int32(attempts), OlderThan: olderThan,
		})
		return err
	})
}

// Doubts are the messages of a channel without a known outcome.
type Doubts struct {
	// Built are not known to be sent, Unknown were sent without an answer, Exhausted are those of Unknown that are not sent
	// again: the spent, and those that are about to be.
	Built, Unknown, Exhausted int64
	// Oldest is the age of the oldest.
	Oldest time.Duration
}

// Doubts counts the messages without a known outcome, given after how many attempts they are not sent again.
func (o *Outbound) Doubts(ctx context.Context, attempts int) (map[pix.Channel]Doubts, error) {
	all := make(map[pix.Channel]Doubts)
	err := o.db.call(ctx, "doubts", func(ctx context.Context, conn db.DBTX) error {
		rows, err := o.q.OutboundDoubts(ctx, conn, int32(attempts))
		for _, r := range rows {
			all[pix.Channel(r.Channel)] = Doubts{
				Built: r.Built, Unknown: r.Unknown, Exhausted: r.Exhausted,
				Oldest: time.Duration(r.OldestSeconds * float64(time.Second)),
			}
		}
		return err
	})
	return all, err
}
