package inbound

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/services/payments/decision"
)

// errNotYet: the SPI has not told us yet what the message builds on. It comes again.
var errNotYet = errors.New("the original is not known to be settled yet")

// exceeds is the code for a return of more than is left of its payment.
const exceeds = "AM09"

// judged is a return with the verdict that our books allow.
type judged struct {
	ret     iso20022.PaymentReturn
	verdict decision.Verdict
	known   bool
	// refused is why, for the metric.
	refused string
	dead    *dead
}

// returns decides about every return of the message from our own books.
func (p *Processor) returns(ctx context.Context, a *arrival, doc *iso20022.Pacs004) (effect, error) {
	all := make([]judged, len(doc.Returns))
	for i, r := range doc.Returns {
		var err error
		if all[i], err = p.judge(ctx, a, r); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(all, func(x, y judged) int {
		return cmp.Or(cmp.Compare(x.ret.OriginalEndToEndID, y.ret.OriginalEndToEndID), cmp.Compare(x.ret.ReturnID, y.ret.ReturnID))
	})
	return func(ctx context.Context, tx *store.Tx, out *outcome) error {
		var answers []store.Operation
		for _, j := range all {
			if j.dead != nil {
				out.dead = append(out.dead, *j.dead)
			}
			if j.known {
				continue
			}
			answer, err := p.bookReturn(ctx, tx, a, j, out)
			if err != nil {
				return err
			}
			answers = append(answers, answer...)
		}
		var err error
		out.offer, err = p.deps.Books.Outbox.Add(ctx, tx, answers)
		return err
	}, nil
}

func (p *Processor) judge(ctx context.Context, a *arrival, r iso20022.PaymentReturn) (judged, error) {
	j := judged{ret: r, verdict: decision.Verdict{Accepted: true, Who: decision.ByRules}}
	have, err := p.deps.Books.Payments.Get(ctx, string(r.ReturnID))
	switch {
	case err == nil:
		j.known = true
		if have.Direction != pix.In || have.Amount != r.Amount || have.OriginalID != string(r.OriginalEndToEndID) {
			j.dead = &dead{deadContradiction, fmt.Sprintf("%s is booked as another return", r.ReturnID)}
		}
		return j, nil
	case !errors.Is(err, store.ErrNotFound):
		return j, err
	case r.Amount <= 0 || r.DebtorAgent != p.cfg.ISPB:
		j.known = true // no answer: who is not credited must not give one, and zero is no money
		j.dead = &dead{deadAddressee, fmt.Sprintf("%s of %v goes to %s", r.ReturnID, r.Amount, r.DebtorAgent)}
		return j, nil
	}
	original, err := p.deps.Books.Payments.Get(ctx, string(r.OriginalEndToEndID))
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return j, err
	}
	j.verdict, j.dead, err = p.againstOriginal(a, r, original, err == nil)
	if !j.verdict.Accepted {
		j.refused = refusedOriginal
	}
	return j, err
}

// againstOriginal decides about a return by the payment that it returns.
func (p *Processor) againstOriginal(a *arrival, r iso20022.PaymentReturn, original store.Payment, known bool) (decision.Verdict, *dead, error) {
	refuse := func(why string) decision.Verdict {
		return decision.Verdict{Reason: decision.SilentReason, Detail: why, Who: decision.ByRules}
	}
	switch {
	case !known:
		return refuse("we never sent the original"), &dead{deadUnknown, fmt.Sprintf("%s returns %s, which we never sent", r.ReturnID, r.OriginalEndToEndID)}, nil
	case original.Kind != pix.Payment || original.Direction != pix.Out:
		return refuse("the original is no payment of ours"), nil, nil
	case r.CreditorAgent != original.Counterparty || r.ReturnID.ISPB() != original.Counterparty:
		return refuse("the original went to another participant"), nil, nil
	}
	switch original.State {
	case pix.Settled:
		return decision.Verdict{Accepted: true, Who: decision.ByRules}, nil, nil
	case pix.Rejected:
		return refuse("the original was rejected"), &dead{
			deadContradiction,
			fmt.Sprintf("%s returns %s, which our books have as rejected", r.ReturnID, r.OriginalEndToEndID),
		}, nil
	case pix.Created, pix.Sent, pix.Unknown, pix.Accepted:
	}
	if p.left(a, iso20022.PAGPRI, a.head.Created) > 0 {
		return decision.Verdict{}, nil, fmt.Errorf("return %s: %w", r.ReturnID, errNotYet)
	}
	return refuse("the original is not known to be settled"), nil, nil
}

// bookReturn writes a return and its answer. The books have the last word on what is left of the original.
func (p *Processor) bookReturn(ctx context.Context, tx *store.Tx, a *arrival, j judged, out *outcome) ([]store.Operation, error) {
	document, err := json.Marshal(j.ret)
	if err != nil {
		return nil, fmt.Errorf("write document: %w", err)
	}
	v := j.verdict
	row := func() store.Payment {
		return store.Payment{
			ID: string(j.ret.ReturnID), Kind: pix.Return, Direction: pix.In, State: stateOf(v), Amount: j.ret.Amount,
			Channel: a.channel, Counterparty: j.ret.CreditorAgent, OriginalID: string(j.ret.OriginalEndToEndID),
			Reason: v.Reason, Detail: v.Detail, Document: document, AcceptedAt: a.head.Created,
		}
	}
	var fresh bool
	if v.Accepted {
		fresh, err = p.deps.Books.Payments.InsertReturn(ctx, tx, row(), v.Who)
		if errors.Is(err, store.ErrExceeds) {
			j.refused = refusedExceeds
			v = decision.Verdict{Reason: exceeds, Detail: "more than is left of the original", Who: decision.ByRules}
			err = nil
		}
	}
	if err == nil && !v.Accepted {
		fresh, err = p.deps.Books.Payments.Insert(ctx, tx, row(), v.Who)
	}
	if err != nil || !fresh {
		return nil, err
	}
	out.booked(stateOf(v), j.refused)
	answer, err := answerTo(string(j.ret.ReturnID), j.ret.OriginalEndToEndID, a.channel, v)
	return []store.Operation{answer}, err
}
