package inbound

import (
	"context"
	"errors"
	"regexp"

	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/libs/telemetry"
)

// refusal records that the SPI refused a message of ours. That is a transaction of its own,
// which repeats without harm; the message is closed after it. What the admi.002 says in
// words may quote a payment, so only its reason and place are kept beside the books.
func (p *Processor) refusal(ctx context.Context, a *arrival, doc *iso20022.Admi002) (effect, error) {
	message, operations, err := p.refused(ctx, doc)
	if errors.Is(err, store.ErrNotFound) {
		return nil, dead{deadUnknown, "admi.002 is about a message that we never sent"}
	}
	if err != nil {
		return nil, err
	}
	reason := "admi.002: " + doc.Reason
	if doc.Location != "" {
		reason += " at " + doc.Location
	}
	reason = shortened(telemetry.Redact(reason))
	if len(operations) > 1 {
		err = p.deps.Books.Outbound.Split(ctx, message.MsgID, reason)
	} else {
		err = p.deps.Books.Outbound.Refused(ctx, []pix.MsgID{message.MsgID}, reason)
	}
	if err != nil {
		return nil, err
	}
	return p.kept("a message of ours was refused: "+reason, a), nil
}

// refused finds the message that an admi.002 is about: by the resource that the bank named or by the MsgId, which sources
// contradict each other about (icom.md 2.3).
func (p *Processor) refused(ctx context.Context, doc *iso20022.Admi002) (store.Message, []store.Operation, error) {
	message, operations, err := p.deps.Books.Outbound.ByResource(ctx, doc.Ref)
	if !errors.Is(err, store.ErrNotFound) {
		return message, operations, err
	}
	id := regexp.MustCompile(`\bM[0-9A-Z]{8}[0-9A-Za-z]{23}\b`).FindString(doc.Data)
	if id == "" {
		return message, nil, err
	}
	return p.deps.Books.Outbound.ByResource(ctx, id)
}
