package inbound

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cabine-pix/cabine/libs/corebank"
	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/services/payments/decision"
)

// decided is a payment with its verdict, or why it has none.
type decided struct {
	transfer iso20022.CreditTransfer
	verdict  decision.Verdict
	// known: the books have it already.
	known bool
	// refused is why our own rules did so, for the metric.
	refused string
	// dead is set where the payment must not be there.
	dead *dead
}

// payments decides about every payment of the message, all at once, before any of it is written.
func (p *Processor) payments(ctx context.Context, a *arrival, doc *iso20022.Pacs008) (effect, error) {
	all := make([]decided, len(doc.Transactions))
	errs := make([]error, len(all))
	var asking sync.WaitGroup
	for i, t := range doc.Transactions {
		asking.Go(func() { all[i], errs[i] = p.decide(ctx, a, doc.ServiceLevel, t) })
	}
	asking.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	// In the order of their keys, as everything locks them.
	slices.SortStableFunc(all, func(x, y decided) int { return cmp.Compare(x.transfer.EndToEndID, y.transfer.EndToEndID) })
	return func(ctx context.Context, tx *store.Tx, out *outcome) error {
		var answers []store.Operation
		for _, d := range all {
			if d.dead != nil {
				out.dead = append(out.dead, *d.dead)
			}
			if d.dead != nil || d.known {
				continue
			}
			answer, err := p.book(ctx, tx, a, d, out)
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

// decide applies the local rules and then asks the core.
func (p *Processor) decide(ctx context.Context, a *arrival, level iso20022.ServiceLevel, t iso20022.CreditTransfer) (decided, error) {
	d := decided{transfer: t}
	switch {
	case t.CreditorAgent != p.cfg.ISPB:
		d.dead = &dead{deadAddressee, fmt.Sprintf("%s is to be credited by %s", t.EndToEndID, t.CreditorAgent)}
		return d, nil
	case t.Amount <= 0:
		d.dead = &dead{deadSyntax, fmt.Sprintf("%s has the amount 0", t.EndToEndID)}
		return d, nil
	}
	have, err := p.deps.Books.Payments.Get(ctx, string(t.EndToEndID))
	switch {
	case err == nil:
		d.known = true
		if have.Direction != pix.In || have.Amount != t.Amount || have.Counterparty != t.DebtorAgent {
			d.dead = &dead{deadContradiction, fmt.Sprintf("%s is booked as another payment", t.EndToEndID)}
		}
		return d, nil
	case !errors.Is(err, store.ErrNotFound):
		return d, err
	}
	left := p.left(a, level, t.AcceptedAt)
	if left <= 0 {
		d.refused = refusedLate
		d.verdict = decision.Verdict{
			Reason: decision.SilentReason, Who: decision.ByRules,
			Detail: fmt.Sprintf("taken %v after its acceptance, the SPI's time is over", a.at.Sub(t.AcceptedAt).Round(time.Second)),
		}
		return d, nil
	}
	d.verdict, err = p.deps.Core.Decide(ctx, question(t), left)
	return d, err
}

// left is how long an answer is of use, by the database's clock when the message was taken.
func (p *Processor) left(a *arrival, level iso20022.ServiceLevel, accepted time.Time) time.Duration {
	limit := accepted.Add(p.cfg.SettleWithin)
	switch level {
	case iso20022.PAGPRI:
	case iso20022.PAGFRD:
		limit = a.head.Created.Add(p.cfg.SettleWithin)
	case iso20022.PAGAGD:
		limit = accepted.Add(p.cfg.ScheduledWithin)
	}
	return limit.Sub(a.at) - p.cfg.AnswerMargin - p.deps.Clock.Now().Elapsed(a.began)
}

func question(t iso20022.CreditTransfer) corebank.Question {
	q := corebank.Question{
		EndToEndID: string(t.EndToEndID), Amount: t.Amount.String(), AcceptedAt: t.AcceptedAt,
		Payer: corebank.Payer{
			ISPB: string(t.DebtorAgent), Name: t.Debtor.Name, Document: t.Debtor.ID, Account: account(t.DebtorAccount),
		},
		Payee: corebank.Payee{Document: t.CreditorID, Account: account(t.CreditorAccount)},
		Key:   t.Proxy, TxID: t.TxID, Initiation: string(t.LocalInstrument), Purpose: string(t.Purpose),
	}
	if t.Remittance != nil {
		q.Message = t.Remittance.Text
	}
	return q
}

func account(a iso20022.Account) corebank.Account {
	return corebank.Account{Branch: a.Branch, Number: a.ID, Type: string(a.Type)}
}

// book writes a payment and returns its answer; none if another message brought it meanwhile.
func (p *Processor) book(ctx context.Context, tx *store.Tx, a *arrival, d decided, out *outcome) ([]store.Operation, error) {
	document, err := json.Marshal(d.transfer)
	if err != nil {
		return nil, fmt.Errorf("write document: %w", err)
	}
	t := d.transfer
	payment := store.Payment{
		ID: string(t.EndToEndID), Kind: pix.Payment, Direction: pix.In, State: stateOf(d.verdict), Amount: t.Amount,
		Channel: a.channel, Counterparty: t.DebtorAgent, Reason: d.verdict.Reason, Detail: d.verdict.Detail,
		Document: document, AcceptedAt: t.AcceptedAt,
	}
	fresh, err := p.deps.Books.Payments.Insert(ctx, tx, payment, d.verdict.Who)
	if err != nil || !fresh {
		return nil, err
	}
	out.booked(payment.State, d.refused)
	answer, err := answerTo(payment.ID, t.EndToEndID, a.channel, d.verdict)
	return []store.Operation{answer}, err
}

func stateOf(v decision.Verdict) pix.State {
	if v.Accepted {
		return pix.Accepted
	}
	return pix.Rejected
}

// answerTo is the pacs.002 that tells the SPI a verdict. Its detail stays on this side.
func answerTo(id string, e2e pix.EndToEndID, channel pix.Channel, v decision.Verdict) (store.Operation, error) {
	status := iso20022.PaymentStatus{OriginalInstrID: id, OriginalEndToEndID: e2e, Status: iso20022.ACSP}
	if !v.Accepted {
		status.Status = iso20022.RJCT
		status.Reasons = []iso20022.StatusReason{{Code: iso20022.ReasonCode(v.Reason)}}
	}
	body, err := json.Marshal(status)
	if err != nil {
		return store.Operation{}, fmt.Errorf("write answer: %w", err)
	}
	return store.Operation{PaymentID: id, MsgType: "pacs.002", Channel: channel, Body: body}, nil
}
