package inbound

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
)

// unknownHere is why a credit is booked without a pacs.008 or a pacs.004.
const unknownHere = "a reconciliation found it in the account and not in the books"

// answered notes what the SPI says of an entry with the reconciliation that asked, and answers whether one did.
func (p *Processor) answered(ctx context.Context, tx *store.Tx, e entry) (bool, error) {
	answer := string(e.Status)
	if e.Status == iso20022.Booked {
		answer = store.AnswerBooked
	} else if e.ErrorCode != "" {
		answer += " " + e.ErrorCode
	}
	side := store.Side{Direction: pix.Out, Amount: e.Amount}
	if e.Side == iso20022.Credit {
		side.Direction = pix.In
	}
	return p.deps.Books.Reconciliations.AnswerEntry(ctx, tx, e.ID, e.id, answer, side)
}

// found books a credit that the SPI has settled, that we did not know, and for which a reconciliation asked, and answers
// whether it did. What cannot be booked stays a line of that, and is a dead letter.
func (p *Processor) found(ctx context.Context, tx *store.Tx, a *arrival, e entry, out *outcome) (payment store.Payment, fresh bool, err error) {
	payment, document := e.credit(a)
	var why string
	switch {
	case e.Amount <= 0:
		why = "has the amount 0"
	case payment.Counterparty == "":
		why = "does not say who paid"
	case payment.Kind == pix.Payment && e.id[0] != 'E' || payment.Kind == pix.Return && e.id[0] != 'D':
		why = "has the name of something else"
	case payment.Kind == pix.Payment && cmp.Or(e.Details.CreditorAgent, p.cfg.ISPB) != p.cfg.ISPB:
		why = "is to be credited by another"
	}
	if why != "" {
		out.dead = append(out.dead, dead{deadUnknown, fmt.Sprintf("%s is said to be settled, is not in the books and %s", e.id, why)})
		return payment, false, nil
	}
	if payment.Document, err = json.Marshal(document); err != nil {
		return payment, false, fmt.Errorf("write document: %w", err)
	}
	insert := p.deps.Books.Payments.Insert
	if payment.Kind == pix.Return {
		insert = p.deps.Books.Payments.InsertReturn
	}
	fresh, err = insert(ctx, tx, payment, bySPI)
	switch {
	case errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrExceeds):
		out.contradictions++
		out.dead = append(out.dead, dead{deadContradiction, fmt.Sprintf("%s is said to be settled and does not fit its original: %v", e.id, err)})
		return payment, false, nil
	case err != nil:
		return payment, false, err
	case !fresh:
		return payment, false, fmt.Errorf("%s was booked meanwhile", e.id) // it comes again, and is known then
	}
	out.booked(pix.Settled, "")
	out.found++
	return payment, true, nil
}

// credit is an entry as the books have it, and as a message would have brought it.
func (e entry) credit(a *arrival) (store.Payment, any) {
	d := e.Details
	payment := store.Payment{
		ID: e.id, Kind: pix.Payment, Direction: pix.In, State: pix.Settled, Amount: e.Amount, Channel: a.channel,
		Counterparty: d.DebtorAgent, Reason: booked, Detail: unknownHere, SettledAt: e.settledAt(a), AcceptedAt: e.settledAt(a),
	}
	if d.AcceptedAt != nil {
		payment.AcceptedAt = *d.AcceptedAt
	}
	if e.SubFamily == iso20022.SubFamilyReturn {
		payment.Kind, payment.OriginalID, payment.Counterparty = pix.Return, d.EndToEndID, d.CreditorAgent
		back := iso20022.PaymentReturn{
			ReturnID: pix.ReturnID(e.id), OriginalEndToEndID: pix.EndToEndID(d.EndToEndID), Amount: e.Amount, Priority: d.Priority,
			DebtorAgent: d.DebtorAgent, CreditorAgent: d.CreditorAgent,
		}
		if d.Return != nil {
			back.Reason = *d.Return
		}
		return payment, back
	}
	transfer := iso20022.CreditTransfer{
		EndToEndID: pix.EndToEndID(e.id), InstrID: d.InstrID, TxID: d.TxID, Amount: e.Amount, AcceptedAt: payment.AcceptedAt,
		DebtorAgent: d.DebtorAgent, CreditorAgent: d.CreditorAgent, LocalInstrument: d.LocalInstrument, Purpose: d.Purpose,
		Remittance: d.Remittance, Tax: d.Tax,
	}
	if parties := d.Parties; parties != nil {
		transfer.InitiatingParty, transfer.Debtor, transfer.DebtorAccount = parties.InitiatingParty, parties.Debtor, parties.DebtorAccount
		transfer.CreditorID, transfer.CreditorAccount, transfer.Proxy = parties.CreditorID, parties.CreditorAccount, parties.Proxy
	}
	return payment, transfer
}
