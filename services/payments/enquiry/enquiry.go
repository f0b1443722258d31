// Package enquiry asks the SPI how a payment ended: a camt.060 for one entry of the account,
// which a camt.054 answers. An enquiry changes nothing and may be repeated.
package enquiry

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
)

// Reason marks the event of an enquiry; pauses between enquiries are counted from it.
const Reason = "enquiry"

// who writes the event.
const who = "payments"

// Desk writes enquiries.
type Desk struct {
	// Owner is the participant whose account is asked about.
	Owner    pix.ISPB
	Payments *store.Payments
	Outbox   *store.Outbox
}

// Subject is the payment or return that is asked about.
type Subject struct {
	ID      string
	Channel pix.Channel
	// Why is for the event.
	Why string
}

// Ask notes enquiries and adds them to the outbox, in the transaction of their cause. What it
// returns is to be announced after the commit.
func (d Desk) Ask(ctx context.Context, tx *store.Tx, subjects []Subject) ([]store.Operation, error) {
	operations := make([]store.Operation, len(subjects))
	for i, s := range subjects {
		if err := d.Payments.Note(ctx, tx, s.ID, who, Reason, s.Why); err != nil {
			return nil, err
		}
		question := iso20022.Entry(d.Owner, s.ID)
		body, err := json.Marshal(question)
		if err != nil {
			return nil, fmt.Errorf("write enquiry: %w", err)
		}
		operations[i] = store.Operation{PaymentID: s.ID, MsgType: question.MsgType(), Channel: s.Channel, Body: body}
	}
	return d.Outbox.Add(ctx, tx, operations)
}
