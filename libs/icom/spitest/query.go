package spitest

import (
	"time"

	"github.com/cabine-pix/cabine/libs/icom/icomtest"
	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
)

// unknownEntry is the code with which the SPI says that it has no such entry. The real one is not published.
const unknownEntry = "ED05"

// ask answers a question about a PI account: the balances now or at the end of an earlier day, the entries of a period,
// and one entry. The files of Pix Saque and Pix Troco (TRD, TRT) and the remuneration are not there.
func (s *SPI) ask(r icomtest.Received, id pix.MsgID, q *iso20022.Camt060) (iso20022.Document, *refusal) {
	if q.Owner != r.ISPB {
		return nil, &refusal{"Conta não autorizada", "the account is another participant's"}
	}
	if err := iso20022.Validate(q); err != nil {
		return nil, &refusal{"Consulta inválida", err.Error()}
	}
	switch {
	case q.Answer == iso20022.AnswerEntry:
		return s.entry(id, q), nil
	case q.Subject == iso20022.SubjectBalance:
		return s.balance(id, q)
	case q.Subject == iso20022.SubjectEntries:
		return nil, s.askEntries(r, id, q)
	}
	return nil, &refusal{"Consulta não disponível", "this SPI answers CSA, REL and single entries"}
}

func (s *SPI) balance(id pix.MsgID, q *iso20022.Camt060) (iso20022.Document, *refusal) {
	at := s.now().UTC()
	if q.Period != nil {
		day, err := time.Parse(time.DateOnly, q.Period.FromDate)
		if err != nil {
			return nil, &refusal{"Consulta inválida", "FrDt is no date"}
		}
		if end := day.Add(24*time.Hour - time.Millisecond); end.Before(at) {
			at = end
		}
	}
	// Nothing is ever blocked: an order takes its money when it is settled, all at once.
	return &iso20022.Camt053{Statements: []iso20022.Statement{{
		ID: string(id), Owner: q.Owner, Balances: []iso20022.AccountBalance{
			{Type: iso20022.BalanceAvailable, Amount: s.ledger.balanceAt(q.Owner, at), At: at},
			{Type: iso20022.BalanceBlocked, At: at},
		},
	}}}, nil
}

// entry tells how an order stands for one of its two sides: BOOK when it is settled; INFO with the reason when it is
// rejected, INFO with nothing while it waits, INFO with unknownEntry and a text when there is none. That a rejection's
// reason stands in AddtlNtryInf is our reading; the catalogue says only that a failed query's code does.
func (s *SPI) entry(id pix.MsgID, q *iso20022.Camt060) iso20022.Document {
	o, ok := s.ledger.find(q.EntryID, q.Owner)
	n := iso20022.Notification{
		ID: id, Owner: q.Owner, Side: iso20022.Debit, Status: iso20022.NotSettled,
		Domain: iso20022.DomainPayments, Family: iso20022.FamilyDebit, SubFamily: iso20022.SubFamilyPayment, Origin: "pacs.008",
	}
	if !ok {
		n.ErrorCode, n.Error = unknownEntry, "Lançamento não encontrado"
		n.Details = nothing(q.EntryID, q.Owner, s.now())
		return &iso20022.Camt054{Notifications: []iso20022.Notification{n}}
	}
	n.Amount = o.amount
	if q.Owner == o.credited {
		n.Side, n.Family = iso20022.Credit, iso20022.FamilyCredit
	}
	if o.kind == pix.Return {
		n.SubFamily, n.Origin = iso20022.SubFamilyReturn, "pacs.004"
	}
	at := o.ended.UTC()
	switch o.state {
	case Settled:
		day := accountingDate(at)
		n.Status, n.AccountingDate, n.StatusAt = iso20022.Booked, &day, &at
	case Rejected:
		n.ErrorCode, n.StatusAt = o.reason, &at
	case Waiting:
	}
	n.Details = details(o)
	return &iso20022.Camt054{Notifications: []iso20022.Notification{n}}
}

// nothing is what an entry that does not exist must still carry.
func nothing(id string, owner pix.ISPB, now time.Time) iso20022.EntryDetails {
	d := iso20022.EntryDetails{}
	switch {
	case id[0] == 'E' && len(id) == 32:
		d.EndToEndID = id
	case id[0] == 'D' && len(id) == 32:
		d.InstrID, d.EndToEndID = id, "L"+id[1:]
	default:
		d.ClearingRef, d.EndToEndID = id, "L"+string(owner)+now.UTC().Format("200601021504")+"00000000000"
	}
	return d
}

func details(o order) iso20022.EntryDetails {
	switch t := o.body.(type) {
	case payment:
		accepted := t.AcceptedAt
		return iso20022.EntryDetails{
			InstrID: t.InstrID, EndToEndID: o.id, TxID: t.TxID, ServiceLevel: t.ServiceLevel,
			Parties: &iso20022.EntryParties{
				InitiatingParty: t.InitiatingParty, Debtor: t.Debtor, DebtorAccount: t.DebtorAccount,
				CreditorID: t.CreditorID, CreditorAccount: t.CreditorAccount, Proxy: t.Proxy,
			},
			DebtorAgent: t.DebtorAgent, CreditorAgent: t.CreditorAgent,
			LocalInstrument: t.LocalInstrument, Purpose: t.Purpose, Remittance: t.Remittance, AcceptedAt: &accepted, Tax: t.Tax,
			Priority: t.Priority,
		}
	case iso20022.PaymentReturn:
		reason := t.Reason
		return iso20022.EntryDetails{
			InstrID: o.id, EndToEndID: o.original, DebtorAgent: t.DebtorAgent, CreditorAgent: t.CreditorAgent,
			Return: &reason, Priority: t.Priority,
		}
	}
	return iso20022.EntryDetails{InstrID: o.id, EndToEndID: o.original}
}

// find copies an order, if owner is one of its sides.
func (l *ledger) find(id string, owner pix.ISPB) (order, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.orders[id]
	if o == nil || owner != o.debited && owner != o.credited {
		return order{}, false
	}
	return *o, true
}

// balanceAt is what an account held at an instant.
func (l *ledger) balanceAt(ispb pix.ISPB, at time.Time) pix.Amount {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.accounts[ispb]
	if a == nil {
		return 0
	}
	balance := a.balance
	for _, o := range l.log {
		if o.state != Settled || !o.ended.After(at) {
			continue
		}
		if o.debited == ispb {
			balance += o.amount
		}
		if o.credited == ispb {
			balance -= o.amount
		}
	}
	return balance
}
