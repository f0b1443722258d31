package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// subjectObligation is where settled payments and returns are announced whose obligation is due.
const subjectObligation = "obligation"

// Obligation says that a payment or a return settled and that its obligation is to be written. All else of it stays in
// Postgres.
type Obligation struct {
	// ID is the EndToEndId of a payment, the RtrId of a return.
	ID string
	// Attempt is zero the first time and counts deliberate repetitions: each passes the duplicate window.
	Attempt int
}

// obligationBody is the message on the wire.
type obligationBody struct {
	ID string `json:"id"`
}

// PublishObligations is Publish for obligations that are due.
func (b *Bus) PublishObligations(ctx context.Context, due []Obligation) Results {
	all := make([]Message, len(due))
	for i, o := range due {
		body, err := json.Marshal(obligationBody{ID: o.ID})
		if err != nil {
			return failed(len(due), fmt.Errorf("obligation: %w", err))
		}
		id := "obligation/" + o.ID
		if o.Attempt > 0 {
			id += "/" + strconv.Itoa(o.Attempt)
		}
		all[i] = Message{Subject: SettlementSubject(subjectObligation), ID: id, Payload: body}
	}
	return b.Publish(ctx, all)
}

// Obligation reads the delivery as one of an obligation on PIX_SETTLEMENT. The Attempt is not part of it.
func (d Delivery) Obligation() (Obligation, error) {
	if d.Subject != SettlementSubject(subjectObligation) {
		return Obligation{}, fmt.Errorf("subject %q: want %s", d.Subject, SettlementSubject(subjectObligation))
	}
	var body obligationBody
	if err := json.Unmarshal(d.Payload, &body); err != nil {
		return Obligation{}, fmt.Errorf("obligation: %w", err)
	}
	if body.ID == "" {
		return Obligation{}, errors.New("obligation: no id")
	}
	return Obligation{ID: body.ID}, nil
}
