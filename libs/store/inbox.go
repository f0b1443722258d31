package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store/db"
)

// MaxBatch is the most messages, poison included, that Receive takes at once: ten times
// what one read of the ICOM brings, and the step of the sequence inbox_batch.
const MaxBatch = 100

// Session is the right of one owner to move the cursor of one slot.
type Session struct {
	Channel pix.Channel
	ISPB    pix.ISPB
	// Slot counts from 1 to 6.
	Slot int
	// Term grows with every owner of the slot.
	Term int64
	// Cursor is where the stream goes on; empty opens a new one at the bank.
	Cursor string
}

// Arrival is one message of a batch as it was on the wire.
type Arrival struct {
	// MessageID is the bank's identifier of the delivery; never empty.
	MessageID string
	// MsgType is e.g. "pacs.008", or "" when unknown.
	MsgType string
	Payload []byte
}

// Poison is a message of a batch that cannot be taken in, with the reason.
type Poison struct {
	// MessageID may be empty: that may be the very reason.
	MessageID string
	Payload   []byte
	Reason    string
}

// Batch is what one read brought, and where the stream goes on after it.
type Batch struct {
	Session    Session
	Arrivals   []Arrival
	Poison     []Poison
	NextCursor string
}

// Receipt says what became of a batch.
type Receipt struct {
	// Fresh are the messages that are new, in the order of the batch; their payloads are the caller's own slices.
	Fresh []Stored
	// Conflicts are the identifiers of arrivals that had been taken by other content. They went to the dead letters.
	Conflicts []string
}

// conflict is the reason of their dead letters.
const conflict = "same identifier, other content"

// Inbox is the aggregate of received messages and of the cursors that they came with.
type Inbox struct {
	db *DB
	q  *db.Queries
}

// NewInbox returns the inbox in d.
func NewInbox(d *DB) *Inbox { return &Inbox{db: d, q: db.New()} }

// Source names where messages come from: "icom:<channel>:<ispb>".
func Source(channel pix.Channel, ispb pix.ISPB) string {
	return "icom:" + string(channel) + ":" + string(ispb)
}

func parseSource(s string) (pix.Channel, pix.ISPB, error) {
	rest, icom := strings.CutPrefix(s, "icom:")
	channel, ispb, ok := strings.Cut(rest, ":")
	if !icom || !ok {
		return "", "", fmt.Errorf("source %q: want icom:<channel>:<ispb>", s)
	}
	return pix.Channel(channel), pix.ISPB(ispb), nil
}

// OpenSession takes a slot over: every earlier session of it is stale from now on. The
// session carries the cursor that the last owner saved, empty if it closed the stream.
func (b *Inbox) OpenSession(ctx context.Context, channel pix.Channel, ispb pix.ISPB, slot int, owner string) (Session, error) {
	s := Session{Channel: channel, ISPB: ispb, Slot: slot}
	err := b.db.call(ctx, "open session", func(ctx context.Context, conn db.DBTX) error {
		row, err := b.q.OpenSession(ctx, conn, db.OpenSessionParams{
			Channel: string(channel), Ispb: string(ispb), Slot: int16(slot), Owner: owner,
		})
		s.Term, s.Cursor = row.Term, row.Cursor
		return err
	})
	if err != nil {
		return Session{}, err
	}
	return s, nil
}

// CloseSession records that the stream was closed at the bank: its cursor is forgotten. ErrStaleTerm if the slot has
// a newer owner or was closed before.
func (b *Inbox) CloseSession(ctx context.Context, s Session) error {
	return b.db.call(ctx, "close session", func(ctx context.Context, conn db.DBTX) error {
		n, err := b.q.CloseSession(ctx, conn, db.CloseSessionParams{
			Channel: string(s.Channel), Ispb: string(s.ISPB), Slot: int16(s.Slot), Term: s.Term,
		})
		return movedOrStale(n, err)
	})
}

// ResetCursor records that the stream is gone at the bank (404, 410): the session goes on with a new one. ErrStaleTerm
// as in CloseSession.
func (b *Inbox) ResetCursor(ctx context.Context, s Session) error {
	return b.db.call(ctx, "reset cursor", func(ctx context.Context, conn db.DBTX) error {
		n, err := b.q.ResetCursor(ctx, conn, db.ResetCursorParams{
			Channel: string(s.Channel), Ispb: string(s.ISPB), Slot: int16(s.Slot), Term: s.Term,
		})
		return movedOrStale(n, err)
	})
}

func movedOrStale(n int64, err error) error {
	if err == nil && n == 0 {
		return ErrStaleTerm
	}
	return err
}

// Receive stores what is new in the batch and moves the slot's cursor in one commit: both
// happen or neither. What was stored before is not stored again; other content under an
// identifier that is taken goes to the dead letters. ErrStaleTerm: the slot has a newer
// owner, nothing was stored. After ErrUnavailable the same batch may be given again.
func (b *Inbox) Receive(ctx context.Context, batch Batch) (Receipt, error) {
	if err := batch.validate(); err != nil {
		return Receipt{}, fmt.Errorf("receive: %w", err)
	}
	usual := batch.usual()
	if len(batch.Poison) == 0 {
		var number int64
		err := b.db.call(ctx, "receive", func(ctx context.Context, conn db.DBTX) (err error) {
			number, err = b.q.Receive(ctx, conn, usual)
			return movedOrStale(number, err)
		})
		if err == nil {
			return Receipt{Fresh: batch.stored(number, ids(number, usual.Positions))}, nil
		}
		if !storedBefore(err) {
			return Receipt{}, err
		}
	}
	return b.receiveUnusual(ctx, batch, usual)
}

// receiveUnusual is Receive for a batch with poison, or with messages that are here already.
func (b *Inbox) receiveUnusual(ctx context.Context, batch Batch, usual db.ReceiveParams) (Receipt, error) {
	var row db.ReceiveUnusualRow
	var conflicts []string
	err := b.db.callTx(ctx, "receive", func(ctx context.Context, tx db.DBTX) (err error) {
		row, err = b.q.ReceiveUnusual(ctx, tx, batch.unusual(usual))
		if err = movedOrStale(row.Batch, err); err != nil || len(row.Ids) == len(batch.Arrivals) {
			return err
		}
		conflicts, err = b.q.BuryConflicts(ctx, tx, db.BuryConflictsParams{
			Source: usual.Source, Reason: conflict,
			MessageIds: usual.MessageIds, MsgTypes: usual.MsgTypes, Payloads: usual.Payloads,
		})
		return err
	})
	if err != nil {
		return Receipt{}, err
	}
	return Receipt{Fresh: batch.stored(row.Batch, row.Ids), Conflicts: conflicts}, nil
}

func (t Batch) validate() error {
	if n := len(t.Arrivals) + len(t.Poison); n > MaxBatch {
		return fmt.Errorf("batch has %d messages, want at most %d", n, MaxBatch)
	}
	for i := range t.Arrivals {
		if t.Arrivals[i].MessageID == "" {
			return fmt.Errorf("arrival %d has no message id: it belongs to the poison", i)
		}
	}
	for i := range t.Poison {
		if t.Poison[i].Reason == "" {
			return errors.New("poison without a reason")
		}
	}
	return nil
}

// usual returns the parameters of the usual batch, its messages in the order of their keys.
func (t Batch) usual() db.ReceiveParams {
	n := len(t.Arrivals)
	p := db.ReceiveParams{
		Channel: string(t.Session.Channel), Ispb: string(t.Session.ISPB), Slot: int16(t.Session.Slot),
		Term: t.Session.Term, Cursor: t.NextCursor, Source: Source(t.Session.Channel, t.Session.ISPB),
		Positions: make([]int64, n), MessageIds: make([]string, n), MsgTypes: make([]string, n), Payloads: make([][]byte, n),
	}
	for i := range p.Positions {
		p.Positions[i] = int64(i)
	}
	slices.SortFunc(p.Positions, func(x, y int64) int {
		return cmp.Or(strings.Compare(t.Arrivals[x].MessageID, t.Arrivals[y].MessageID), cmp.Compare(x, y))
	})
	for i, position := range p.Positions {
		a := &t.Arrivals[position]
		p.MessageIds[i], p.MsgTypes[i], p.Payloads[i] = a.MessageID, a.MsgType, a.Payload
	}
	return p
}

// unusual adds the poison, in the order of its keys.
func (t Batch) unusual(p db.ReceiveParams) db.ReceiveUnusualParams {
	poison := slices.Clone(t.Poison)
	slices.SortStableFunc(poison, func(x, y Poison) int { return strings.Compare(x.MessageID, y.MessageID) })
	n := len(poison)
	u := db.ReceiveUnusualParams{
		Channel: p.Channel, Ispb: p.Ispb, Slot: p.Slot, Term: p.Term, Cursor: p.Cursor, Source: p.Source,
		Positions: p.Positions, MessageIds: p.MessageIds, MsgTypes: p.MsgTypes, Payloads: p.Payloads,
		PoisonIds: make([]string, n), PoisonReasons: make([]string, n), PoisonPayloads: make([][]byte, n),
	}
	for i := range poison {
		u.PoisonIds[i], u.PoisonReasons[i], u.PoisonPayloads[i] = poison[i].MessageID, poison[i].Reason, poison[i].Payload
	}
	return u
}

// ids returns what the statements give to the messages at the given positions of a batch.
func ids(number int64, positions []int64) []int64 {
	all := make([]int64, len(positions))
	for i, position := range positions {
		all[i] = number + position
	}
	return all
}

// stored returns the messages that were inserted, in the order of arrival.
func (t Batch) stored(number int64, ids []int64) []Stored {
	slices.Sort(ids)
	all := make([]Stored, len(ids))
	for i, id := range ids {
		a := &t.Arrivals[id-number]
		all[i] = Stored{
			ID: id, MessageID: a.MessageID, MsgType: a.MsgType, Payload: a.Payload,
			Channel: t.Session.Channel, ISPB: t.Session.ISPB,
		}
	}
	return all
}
