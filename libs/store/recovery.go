package store

import (
	"context"
	"math"
	"time"

	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store/db"
)

// Stored is a message in the inbox.
type Stored struct {
	// ID grows with arrival within one slot's stream.
	ID        int64
	MessageID string
	MsgType   string
	Channel   pix.Channel
	ISPB      pix.ISPB
	Payload   []byte
	// Attempts is how often it went out again after its first publication.
	Attempts int
	// ReceivedAt is the database's time of receipt; zero in what Receive returns.
	ReceivedAt time.Time
}

// Source returns where the message came from, as MarkDone wants it.
func (s Stored) Source() string { return Source(s.Channel, s.ISPB) }

// MarkPublished records that the messages were handed to the bus. It is not the end: a
// message stays open until its consumer says done. Repeating it changes nothing.
func (b *Inbox) MarkPublished(ctx context.Context, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	return b.db.call(ctx, "mark published", func(ctx context.Context, conn db.DBTX) error {
		_, err := b.q.MarkPublished(ctx, conn, ids)
		return err
	})
}

// Unpublished returns up to limit messages received longer ago than olderThan that were never handed to the bus, in the
// order of their arrival within each stream. Choose olderThan well above the time that a publication takes, or what is
// under way is published twice.
func (b *Inbox) Unpublished(ctx context.Context, olderThan time.Duration, limit int) ([]Stored, error) {
	var stored []Stored
	err := b.db.call(ctx, "unpublished", func(ctx context.Context, conn db.DBTX) error {
		rows, err := b.q.Unpublished(ctx, conn, db.UnpublishedParams{OlderThan: olderThan, AtMost: int32(limit)})
		if err != nil {
			return err
		}
		for _, r := range rows {
			if stored, err = appendStored(stored, db.StuckRow(r)); err != nil {
				return err
			}
		}
		return nil
	})
	return stored, err
}

// Stuck returns up to limit messages that were published and are not done, oldest first: the bus lost them, or their
// consumer is behind. The first time a message is stuck after the time first, then after twice as long each time, up to
// most. Publish them again and say Republished.
func (b *Inbox) Stuck(ctx context.Context, first, most time.Duration, limit int) ([]Stored, error) {
	var stored []Stored
	err := b.db.call(ctx, "stuck", func(ctx context.Context, conn db.DBTX) error {
		rows, err := b.q.Stuck(ctx, conn, db.StuckParams{First: first, Most: most, AtMost: int32(limit)})
		if err != nil {
			return err
		}
		for _, r := range rows {
			if stored, err = appendStored(stored, r); err != nil {
				return err
			}
		}
		return nil
	})
	return stored, err
}

func appendStored(stored []Stored, r db.StuckRow) ([]Stored, error) {
	channel, ispb, err := parseSource(r.Source)
	if err != nil {
		return nil, err
	}
	return append(stored, Stored{
		ID: r.ID, MessageID: r.MessageID, MsgType: r.MsgType, Channel: channel, ISPB: ispb,
		Payload: r.Payload, Attempts: int(r.Attempts), ReceivedAt: r.ReceivedAt,
	}), nil
}

// Republished records that stuck messages went out again: it counts the attempt and
// starts their time anew. Messages that became done or dead meanwhile stay so, and what
// another replica republished since they were read is not counted again.
func (b *Inbox) Republished(ctx context.Context, stuck []Stored) error {
	if len(stuck) == 0 {
		return nil
	}
	p := db.RepublishedParams{Ids: make([]int64, len(stuck)), Attempts: make([]int32, len(stuck))}
	for i, s := range stuck {
		p.Ids[i], p.Attempts[i] = s.ID, int32(min(s.Attempts, math.MaxInt32))
	}
	return b.db.call(ctx, "republished", func(ctx context.Context, conn db.DBTX) error {
		_, err := b.q.Republished(ctx, conn, p)
		return err
	})
}

// MarkDone closes messages of one source and returns how many this call closed. Fewer
// than were given means that the others were closed before (or are unknown): a consumer
// that sees this has been here already. A consumer calls MarkDoneTx in the transaction
// of its own effect instead.
func (b *Inbox) MarkDone(ctx context.Context, messageIDs []string, source string) (closed int64, err error) {
	err = b.db.call(ctx, "mark done", func(ctx context.Context, conn db.DBTX) error {
		closed, err = b.q.MarkDone(ctx, conn, db.MarkDoneParams{MessageIds: messageIDs, Source: source})
		return err
	})
	return closed, err
}

// MarkDoneTx is MarkDone as part of the caller's transaction. Return an error from InTx
// when it closes fewer messages than it was given, and an effect happens at most once.
func (b *Inbox) MarkDoneTx(ctx context.Context, tx *Tx, messageIDs []string, source string) (int64, error) {
	n, err := b.q.MarkDone(ctx, tx.tx, db.MarkDoneParams{MessageIds: messageIDs, Source: source})
	return n, translate("mark done", err)
}

// Bury closes a message as dead and copies it to the dead letters with its reason. Repeating it changes nothing.
// ErrNotFound: there is no such message, or it is done.
func (b *Inbox) Bury(ctx context.Context, id int64, reason string) error {
	return b.db.call(ctx, "bury", func(ctx context.Context, conn db.DBTX) error {
		n, err := b.q.Bury(ctx, conn, db.BuryParams{ID: id, Reason: reason})
		if err != nil || n == 1 {
			return err
		}
		buried, err := b.q.IsBuried(ctx, conn, id)
		if err == nil && !buried {
			return ErrNotFound
		}
		return err
	})
}

// Backlog is what is open in the inbox.
type Backlog struct {
	// Received counts the messages not yet handed to the bus, Published those handed over and not done.
	Received, Published int64
	// Attempts is how often the message went out again that did so most often.
	Attempts int64
	// Lag is the age of the oldest open message; zero when nothing is open.
	Lag time.Duration
}

// Counts is Backlog and what is closed.
type Counts struct {
	Backlog
	// Done counts the messages of the inbox that consumers closed, Dead the dead letters.
	Done, Dead int64
}

// Backlog reads only what is open: fit for a metric.
func (b *Inbox) Backlog(ctx context.Context) (Backlog, error) {
	var open Backlog
	err := b.db.call(ctx, "backlog", func(ctx context.Context, conn db.DBTX) (err error) {
		open, err = b.backlog(ctx, conn)
		return err
	})
	return open, err
}

// Counts reads the whole table: fit for a report, not for a metric.
func (b *Inbox) Counts(ctx context.Context) (Counts, error) {
	var c Counts
	err := b.db.call(ctx, "counts", func(ctx context.Context, conn db.DBTX) (err error) {
		if c.Backlog, err = b.backlog(ctx, conn); err != nil {
			return err
		}
		closed, err := b.q.Closed(ctx, conn)
		c.Done, c.Dead = closed.Done, closed.Dead
		return err
	})
	return c, err
}

func (b *Inbox) backlog(ctx context.Context, conn db.DBTX) (Backlog, error) {
	row, err := b.q.Backlog(ctx, conn)
	return Backlog{
		Received: row.Received, Published: row.Published, Attempts: row.Attempts,
		Lag: time.Duration(row.LagSeconds * float64(time.Second)),
	}, err
}
