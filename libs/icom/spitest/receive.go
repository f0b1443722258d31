package spitest

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"github.com/cabine-pix/cabine/libs/icom/icomtest"
	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
)

// refusal is why a message is answered with admi.002.
type refusal struct {
	reason string // RjctgPtyRsn
	detail string // RsnDesc
}

// read takes what participants sent, one message after the other, until ctx ends.
func (s *SPI) read(ctx context.Context) error {
	for {
		r, ok := s.inbox.pop(ctx)
		if !ok {
			return nil
		}
		e, why := s.open(r)
		var reply iso20022.Document
		if why == nil {
			reply, why = s.take(r, e)
		}
		if why != nil {
			reply = s.refuse(r, e.Header.MsgID, *why)
		}
		if reply == nil {
			continue
		}
		if err := s.send(r.ISPB, r.Channel, reply); err != nil {
			return err
		}
	}
}

// open reads and verifies a message.
func (s *SPI) open(r icomtest.Received) (iso20022.Envelope, *refusal) {
	e, err := s.cfg.Versions.Parse(r.Body)
	if err != nil {
		return e, &refusal{"XML inválido", err.Error()}
	}
	h := e.Header
	verifier := s.verifier(r.ISPB)
	switch {
	case h.From != r.ISPB:
		return e, &refusal{"Remetente inválido", "Fr is not the sender"}
	case h.To != pix.SPI:
		return e, &refusal{"Destinatário inválido", "To is not the SPI"}
	case h.MsgID.ISPB() != r.ISPB:
		return e, &refusal{"Identificador inválido", "BizMsgIdr is not of the sender"}
	case !e.Signed:
		return e, &refusal{"Assinatura inválida", "Sgntr holds no signature"}
	case verifier == nil:
		return e, &refusal{"Assinatura inválida", "the participant has no certificate"}
	}
	if _, err := verifier.Verify(r.Body); err != nil {
		return e, &refusal{"Assinatura inválida", err.Error()}
	}
	return e, nil
}

// take does what a message asks for. reply is what the sender is told at once, on the same channel.
func (s *SPI) take(r icomtest.Received, e iso20022.Envelope) (reply iso20022.Document, why *refusal) {
	switch d := e.Document.(type) {
	case *iso20022.Pacs008:
		return nil, s.takePayments(r, d)
	case *iso20022.Pacs004:
		return nil, s.takeReturns(r, d)
	case *iso20022.Pacs002:
		return nil, s.takeAnswers(r, d)
	case *iso20022.Camt060:
		return s.ask(r, e.Header.MsgID, d)
	case *iso20022.Pibr001:
		return &iso20022.Pibr002{OriginalData: d.Data}, nil
	default:
		return nil, &refusal{"Mensagem não aceita", "the SPI does not take " + e.Header.MsgType}
	}
}

func (s *SPI) takePayments(r icomtest.Received, d *iso20022.Pacs008) *refusal {
	now := s.now()
	orders := make([]*order, len(d.Transactions))
	for i, t := range d.Transactions {
		body := payment{CreditTransfer: t, Priority: d.Priority, ServiceLevel: d.ServiceLevel}
		orders[i] = s.paymentOrder(body, r.ISPB, r.Channel, now)
	}
	return s.place(orders)
}

func (s *SPI) paymentOrder(body payment, sender pix.ISPB, channel pix.Channel, now time.Time) *order {
	return &order{
		id: string(body.EndToEndID), original: string(body.EndToEndID), kind: pix.Payment,
		sender: sender, debited: body.DebtorAgent, credited: body.CreditorAgent, amount: body.Amount,
		channel: channel, group: "pacs.008/" + string(body.ServiceLevel),
		received: now, limit: s.limit(body, now), body: body, content: fingerprint(body),
	}
}

func (s *SPI) takeReturns(r icomtest.Received, d *iso20022.Pacs004) *refusal {
	now := s.now()
	orders := make([]*order, len(d.Returns))
	for i, t := range d.Returns {
		orders[i] = &order{
			id: string(t.ReturnID), original: string(t.OriginalEndToEndID), kind: pix.Return,
			sender: r.ISPB, debited: t.CreditorAgent, credited: t.DebtorAgent, amount: t.Amount,
			// Returns and what follows them are the primary channel's, whatever channel they came on.
			channel: pix.CPM, group: groupReturn,
			received: now, limit: now.Add(s.cfg.SettleWithin), body: t, content: fingerprint(t),
		}
	}
	return s.place(orders)
}

// place gives the orders of one message to the ledger and sends what follows from that.
func (s *SPI) place(orders []*order) *refusal {
	for _, o := range orders {
		if _, hit := s.strike(AtOrder, o.id, ""); hit {
			return &refusal{"Mensagem recusada", "operation " + o.id + " is refused by a fault rule"}
		}
	}
	for _, o := range orders {
		reason := "AM18"
		if len(orders) <= maxOperations {
			reason = s.fault(o)
		}
		notices, waits := s.ledger.place(o, reason, o.received)
		if waits {
			s.agenda.add(o.limit, func(now time.Time) { s.dispatch(s.ledger.expire(o, now)) })
		}
		s.dispatch(notices)
	}
	return nil
}

func (s *SPI) takeAnswers(r icomtest.Received, d *iso20022.Pacs002) *refusal {
	answers := make([]answer, len(d.Statuses))
	for i, st := range d.Statuses {
		a := answer{by: r.ISPB, id: st.OriginalInstrID, original: string(st.OriginalEndToEndID)}
		switch {
		case st.SettledAt != nil || st.AccountingDate != nil:
			return &refusal{"Situação inválida", "the SPI alone says when it settled"}
		case st.Status == iso20022.ACSP:
			a.accepted = true
		case st.Status == iso20022.RJCT && len(st.Reasons) > 0 && st.Reasons[0].Code != "":
			a.reason, a.info = string(st.Reasons[0].Code), st.Reasons[0].Info
		default:
			return &refusal{"Situação inválida", "a participant says ACSP, or RJCT with its reason"}
		}
		answers[i] = a
	}
	if !s.ledger.mayAnswer(answers) {
		return &refusal{"Resposta não autorizada", "an order of this message does not wait for this participant"}
	}
	now := s.now()
	for _, a := range answers {
		settle := func(now time.Time) { s.dispatch(s.ledger.answer(a, now)) }
		fault, hit := s.strike(AtAnswer, a.id, "")
		switch {
		case !hit:
			settle(now)
		case fault.Do == Delay:
			s.agenda.add(now.Add(fault.Delay), settle)
		case fault.Do == Late:
			s.agenda.add(s.ledger.limit(a.id), settle)
		}
	}
	return nil
}

// refuse is the admi.002 for a message.
func (s *SPI) refuse(r icomtest.Received, id pix.MsgID, why refusal) iso20022.Document {
	s.refused.Add(1)
	now := s.now()
	d := iso20022.Admi002{
		Ref: r.ResourceID, Reason: why.reason, RejectedAt: &now, Description: why.detail, Data: string(id),
	}
	if s.cfg.RefByMsgID && id != "" {
		d.Ref, d.Data = string(id), r.ResourceID
	}
	d = d.Truncated()
	return &d
}

// strike asks the fault rules, and counts.
func (s *SPI) strike(at Place, id, whom string) (Fault, bool) {
	f, hit := s.rules.Load().strike(at, id, whom)
	if hit {
		s.struck.Add(1)
	}
	return f, hit
}

// fingerprint tells one operation from another under the same identifier.
func fingerprint(operation any) [32]byte {
	text, err := json.Marshal(operation)
	if err != nil {
		// The messages are plain structs.
		panic(fmt.Sprintf("spitest: %v", err))
	}
	return sha256.Sum256(text)
}
