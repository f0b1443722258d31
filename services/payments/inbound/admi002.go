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

// refusal records that the SPI refused a message of ours. What the admi.002 says in words may quote a payment, so only its
// reason and place are kept beside the books. That something which went out once was refused and has settled is a
// contradiction; of a refused copy it is none.
func (p *Processor) refusal(ctx context.Context, _ *arrival, doc *iso20022.Admi002) (effect, error) {
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
	return func(ctx context.Context, tx *store.Tx, out *outcome) (err error) {
		var contradicted []string
		if len(operations) > 1 {
			contradicted, err = p.deps.Books.Outbound.SplitTx(ctx, tx, message.MsgID, reason)
		} else {
			contradicted, err = p.deps.Books.Outbound.RefusedTx(ctx, tx, []pix.MsgID{message.MsgID}, reason)
		}
		for _, id := range contradicted {
			out.contradictions++
			out.dead = append(out.dead, dead{deadContradiction, id + " is settled and its only message is said to be refused (" + reason + ")"})
		}
		return err
	}, nil
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
