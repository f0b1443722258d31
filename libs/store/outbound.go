package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store/db"
)

// MessageState says how a message to the SPI stands.
type MessageState string

// The states of a message.
const (
	// MessageBuilt: not known to be sent.
	MessageBuilt MessageState = "built"
	// MessageSent: the bank has said that it stored it (201).
	MessageSent MessageState = "sent"
	// MessageUnknown: a send ended without an answer.
	MessageUnknown MessageState = "unknown"
	// MessageSpent: it was sent as often as may be, without an answer. It is not sent again; the SPI is asked about its orders.
	MessageSpent MessageState = "spent"
	// MessageRefused: the bank refused it (4xx), or the SPI did (admi.002). It is not sent again.
	MessageRefused MessageState = "refused"
	// MessageClosed: its payments ended before a 201 was seen. It is not sent again.
	MessageClosed MessageState = "closed"
)

// Message is one message to the SPI, as signed.
type Message struct {
	MsgID   pix.MsgID
	Channel pix.Channel
	// MsgType is e.g. "pacs.008".
	MsgType string
	State   MessageState
	// Attempts is how often its bytes were put on the wire, or were about to be.
	Attempts int
	// Reason says why it is unknown or refused.
	Reason             string
	BuiltAt, UpdatedAt time.Time
	// Payload is what goes on the wire; a resend is of these very bytes.
	Payload []byte
	// Operations are the IDs of what it carries, in their order. Build does not read them.
	Operations []int64
}

// Draft is a message to be stored, and what it carries.
type Draft struct {
	// Message is given with MsgID, Channel, MsgType, Payload and Attempts: 1 if its bytes go out right after Build, which
	// counts this first attempt; 0 if Attempt follows.
	Message      Message
	OperationIDs []int64
}

// Posted is a message that the bank has stored.
type Posted struct {
	MsgID pix.MsgID
	// ResourceID is the bank's name for this attempt (PI-ResourceId); empty if it gave none.
	ResourceID string
}

// Outbound is the aggregate of messages to the SPI and of what they carry.
type Outbound struct {
	db       *DB
	q        *db.Queries
	payments *Payments
}

// NewOutbound returns the messages in d.
func NewOutbound(d *DB) *Outbound { return &Outbound{db: d, q: db.New(), payments: NewPayments(d)} }

// MaxDrafts is the most messages, and MaxOperations the most operations, that one call takes.
const (
	MaxDrafts     = 100
	MaxOperations = 1000
)

// Claim looks operations up. free are those that no message carries, in the order of their IDs: Build decides who gets
// them. taken are the messages that carry others and are not known to be at the bank, with their payloads. What is in
// neither needs nothing more: it is at the bank, or will never go there.
func (o *Outbound) Claim(ctx context.Context, ids []int64) (free []Operation, taken []Message, err error) {
	err = o.db.call(ctx, "claim", func(ctx context.Context, conn db.DBTX) error {
		rows, err := o.q.ClaimOperations(ctx, conn, ids)
		if err != nil {
			return err
		}
		var carriers []string
		for _, r := range rows {
			if r.MsgID == "" {
				free = append(free, operation(db.OperationsOfRow(r)))
			} else {
				carriers = append(carriers, r.MsgID)
			}
		}
		if len(carriers) == 0 {
			return nil
		}
		messages, err := o.q.OpenMessages(ctx, conn, carriers)
		for _, m := range messages {
			taken = append(taken, messageOf(db.MessageByResourceRow(m)))
		}
		return err
	})
	return free, taken, err
}

// Build stores messages before anything of them goes on the wire, and gives them their operations: to each message all
// of its own or none, in which case it is not stored. It answers, in the order of the drafts, which are stored; only
// those may be sent. Repeating a call whose outcome is unknown changes nothing and answers the same. ErrRefused: a MsgID
// was used before.
func (o *Outbound) Build(ctx context.Context, drafts []Draft) ([]bool, error) {
	p, err := buildParams(drafts)
	if err != nil {
		return nil, fmt.Errorf("build: %w", err)
	}
	built := make([]bool, len(drafts))
	err = o.db.call(ctx, "build", func(ctx context.Context, conn db.DBTX) error {
		ids, err := o.q.BuildMessages(ctx, conn, p)
		for i := range drafts {
			built[i] = slices.Contains(ids, string(drafts[i].Message.MsgID))
		}
		return err
	})
	return built, err
}

func buildParams(drafts []Draft) (db.BuildMessagesParams, error) {
	var p db.BuildMessagesParams
	seen := map[int64]bool{}
	for _, d := range drafts {
		m := d.Message
		if len(d.OperationIDs) == 0 || len(m.Payload) == 0 || m.Attempts < 0 || m.Attempts > 1 {
			return p, fmt.Errorf("message %s: want operations, a payload and 0 or 1 attempts", m.MsgID)
		}
		if slices.Contains(p.MsgIds, string(m.MsgID)) {
			return p, fmt.Errorf("message %s comes twice", m.MsgID)
		}
		p.MsgIds = append(p.MsgIds, string(m.MsgID))
		p.Channels = append(p.Channels, string(m.Channel))
		p.MsgTypes = append(p.MsgTypes, m.MsgType)
		p.Attempts = append(p.Attempts, int32(m.Attempts))
		p.Payloads = append(p.Payloads, m.Payload)
		for _, id := range d.OperationIDs {
			if seen[id] {
				return p, fmt.Errorf("operation %d comes twice", id)
			}
			seen[id] = true
			p.OperationIds = append(p.OperationIds, id)
			p.Carriers = append(p.Carriers, string(m.MsgID))
		}
	}
	if len(drafts) > MaxDrafts || len(seen) > MaxOperations {
		return p, fmt.Errorf("%d messages with %d operations, want at most %d with %d", len(drafts), len(seen), MaxDrafts, MaxOperations)
	}
	return p, nil
}

// Sent records that the bank stored messages. Payments whose orders they carry become sent, unless the SPI's answer was
// faster; also those of a message that was refused at another attempt, which it stays. Repeating it changes nothing.
func (o *Outbound) Sent(ctx context.Context, posted []Posted) error {
	if len(posted) == 0 {
		return nil
	}
	var p db.MarkSentParams
	for _, m := range posted {
		p.MsgIds = append(p.MsgIds, string(m.MsgID))
		p.ResourceIds = append(p.ResourceIds, m.ResourceID)
	}
	return o.db.call(ctx, "sent", func(ctx context.Context, conn db.DBTX) error { return o.q.MarkSent(ctx, conn, p) })
}

// Unknown records that an attempt of messages ended without an answer. Payments whose orders they carry become unknown
// if they were created. Messages that are known to be at the bank, or refused, stay so.
func (o *Outbound) Unknown(ctx context.Context, msgIDs []pix.MsgID, reason string) error {
	return o.db.callTx(ctx, "unknown", func(ctx context.Context, tx db.DBTX) error {
		rows, err := o.q.MarkUnknown(ctx, tx, db.MarkUnknownParams{MsgIds: sortedStrings(msgIDs), Reason: reason})
		if err != nil {
			return err
		}
		moves := make([]Move, len(rows))
		for i, r := range rows {
			moves[i] = Move{ID: r.PaymentID, To: pix.Unknown, Who: whoICOM, Reason: reason, Detail: r.MsgID}
		}
		_, err = o.payments.move(ctx, tx, moves)
		return err
	})
}

// who wrote the events of this aggregate.
const whoICOM = "icom"

// Refused records that messages were refused for good: nothing of this attempt is at the bank. They are not sent again.
// Payments whose orders they carry become rejected if this was the only attempt there ever was. After any other attempt
// a refusal proves nothing about that one: they become unknown, or stay what they are with the refusal noted, and are to
// be asked about. It answers which payments had settled although this was the only attempt: that contradicts it. Repeating
// it changes nothing, and answers none.
func (o *Outbound) Refused(ctx context.Context, msgIDs []pix.MsgID, reason string) (contradicted []string, err error) {
	err = o.db.callTx(ctx, "refused", func(ctx context.Context, tx db.DBTX) (err error) {
		contradicted, err = o.refused(ctx, tx, msgIDs, reason)
		return err
	})
	return contradicted, err
}

// RefusedTx is Refused as part of a transaction.
func (o *Outbound) RefusedTx(ctx context.Context, tx *Tx, msgIDs []pix.MsgID, reason string) (contradicted []string, err error) {
	contradicted, err = o.refused(ctx, tx.tx, msgIDs, reason)
	return contradicted, translate("refused", err)
}

func (o *Outbound) refused(ctx context.Context, tx db.DBTX, msgIDs []pix.MsgID, reason string) (contradicted []string, err error) {
	rows, err := o.q.MarkRefused(ctx, tx, db.MarkRefusedParams{MsgIds: sortedStrings(msgIDs), Reason: reason})
	if err != nil {
		return nil, err
	}
	// An incoming payment does not become unknown: the refusal of its answer is noted, and the SPI says how it ends.
	moves := make([]Move, len(rows))
	for i, r := range rows {
		moves[i] = Move{ID: r.PaymentID, To: pix.Unknown, Who: whoICOM, Reason: reason, Detail: r.MsgID}
		if r.Only && r.MsgType != answerType {
			moves[i].To = pix.Rejected
		}
	}
	moved, err := o.payments.move(ctx, tx, moves)
	if err != nil {
		return nil, err
	}
	for _, m := range moved {
		if m.Changed {
			continue
		}
		i := slices.IndexFunc(moves, func(one Move) bool { return one.ID == m.ID })
		if m.Was == pix.Settled && rows[i].Only {
			contradicted = append(contradicted, m.ID)
		}
		note := db.NotePaymentParams{ID: m.ID, Who: whoICOM, Reason: reason, Detail: moves[i].Detail}
		if _, err := o.q.NotePayment(ctx, tx, note); err != nil {
			return nil, err
		}
	}
	return contradicted, nil
}

// answerType is the message that answers a payment; it moves none when it is sent or refused.
const answerType = "pacs.002"

// Split takes a group apart that the SPI refused as a whole (admi.002): its operations wait again, each to go in a
// message of its own, and come back from Unpublished. Orders whose payments have ended do not; those that had settled
// although the refused attempt was the only one are answered, as they contradict it. Repeating it changes nothing, and
// answers none. ErrNotFound: there is no such message, or it is no group.
func (o *Outbound) Split(ctx context.Context, msgID pix.MsgID, reason string) (contradicted []string, err error) {
	err = o.db.call(ctx, "split", func(ctx context.Context, conn db.DBTX) (err error) {
		contradicted, err = o.split(ctx, conn, msgID, reason)
		return err
	})
	return contradicted, err
}

// SplitTx is Split as part of a transaction.
func (o *Outbound) SplitTx(ctx context.Context, tx *Tx, msgID pix.MsgID, reason string) (contradicted []string, err error) {
	contradicted, err = o.split(ctx, tx.tx, msgID, reason)
	return contradicted, translate("split", err)
}

func (o *Outbound) split(ctx context.Context, conn db.DBTX, msgID pix.MsgID, reason string) (contradicted []string, err error) {
	rows, err := o.q.SplitMessage(ctx, conn, db.SplitMessageParams{MsgID: string(msgID), Reason: reason})
	for _, r := range rows {
		if r.Contradicted {
			contradicted = append(contradicted, r.PaymentID)
		}
	}
	if err != nil || len(rows) > 0 {
		return contradicted, err
	}
	state, err := o.q.MessageState(ctx, conn, string(msgID))
	if err == nil && MessageState(state) != MessageRefused {
		err = ErrNotFound
	}
	return nil, err
}

// ByResource returns the message of which an attempt was answered with this PI-ResourceId, or that has this MsgId, and
// what it carries; an admi.002 names either. ErrNotFound: there is none.
func (o *Outbound) ByResource(ctx context.Context, id string) (Message, []Operation, error) {
	var message Message
	var operations []Operation
	err := o.db.call(ctx, "by resource", func(ctx context.Context, conn db.DBTX) error {
		row, err := o.q.MessageByResource(ctx, conn, id)
		if err != nil {
			return err
		}
		message = messageOf(row)
		rows, err := o.q.OperationsOf(ctx, conn, row.MsgID)
		for _, r := range rows {
			operations = append(operations, operation(r))
		}
		return err
	})
	return message, operations, err
}

// Sends says what went out of an order.
type Sends struct {
	// Attempts counts those of which it is not known that they were refused.
	Attempts int
	// Open: it waits, or its message is built or unknown: it may go out yet.
	Open bool
}

// Sends tells how often the order of a payment went out. It locks the payment until the end of the transaction, so that
// what it says stays true for a Move in it: a payment is not to be rejected on somebody's word while its order may go
// out yet, nor for being a duplicate (DUPL) when it went out more than once.
func (o *Outbound) Sends(ctx context.Context, tx *Tx, paymentID string) (Sends, error) {
	if err := o.q.HoldPayment(ctx, tx.tx, paymentID); err != nil {
		return Sends{}, translate("sends", err)
	}
	row, err := o.q.OrderSends(ctx, tx.tx, paymentID)
	return Sends{Attempts: int(row.Sends), Open: row.Open}, translate("sends", err)
}

func operation(r db.OperationsOfRow) Operation {
	return Operation{
		ID: r.ID, PaymentID: r.PaymentID, MsgType: r.MsgType, Channel: pix.Channel(r.Channel), Alone: r.Alone,
		Body: r.Body, MsgID: pix.MsgID(r.MsgID), CreatedAt: r.CreatedAt, Attempts: int(r.Attempts),
	}
}

func messageOf(r db.MessageByResourceRow) Message {
	return Message{
		MsgID: pix.MsgID(r.MsgID), Channel: pix.Channel(r.Channel), MsgType: r.MsgType, State: MessageState(r.State),
		Attempts: int(r.Attempts), Reason: r.Reason, BuiltAt: r.BuiltAt, UpdatedAt: r.UpdatedAt,
		Payload: r.Payload, Operations: r.Operations,
	}
}

func sortedStrings(ids []pix.MsgID) []string {
	all := make([]string, len(ids))
	for i, id := range ids {
		all[i] = string(id)
	}
	slices.Sort(all)
	return all
}
