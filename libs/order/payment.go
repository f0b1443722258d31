package order

import (
	"crypto/rand"
	"fmt"
	"time"

	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
)

// AccountTypes are BACEN's words for the types of accounts, in the order in which they are documented.
func AccountTypes() []string { return []string{"CORRENTE", "POUPANCA", "PAGAMENTO", "SALARIO", "PI"} }

func accountType(word string) iso20022.AccountType {
	switch word {
	case "CORRENTE":
		return iso20022.CACC
	case "POUPANCA":
		return iso20022.SVGS
	case "PAGAMENTO":
		return iso20022.TRAN
	case "SALARIO":
		return iso20022.SLRY
	default:
		return iso20022.OTHR
	}
}

// AccountWord is BACEN's word for the type of an account.
func AccountWord(t iso20022.AccountType) string {
	for _, word := range AccountTypes() {
		if accountType(word) == t {
			return word
		}
	}
	return string(t)
}

// Payment is what a client asks for, read and judged, in the words of the message.
type Payment struct {
	transfer iso20022.CreditTransfer
	channel  pix.Channel
}

// readPayment reads and judges the body of a POST. at is when the order was accepted.
func readPayment(body []byte, ispb pix.ISPB, at time.Time) (Payment, error) {
	var found Violations
	var q PaymentRequest
	if err := decode(body, &q, &found); err != nil {
		return Payment{}, err
	}
	return judged(q, found, ispb, at)
}

// readEvent is readPayment for an event, whose id it returns also with a Refusal, unless that is about the id.
func readEvent(body []byte, ispb pix.ISPB, at time.Time) (id string, p Payment, err error) {
	var found Violations
	var q eventRequest
	if err = decode(body, &q, &found); err == nil || !about(err, "id") {
		id = q.ID
	}
	if err != nil && id == "" {
		return "", Payment{}, err
	}
	if !validID(id) {
		found.Add("id", "obrigatório, com 1 a 64 letras sem acento, algarismos ou hífens")
		id = ""
	}
	if err != nil {
		return id, Payment{}, found.Refusal()
	}
	p, err = judged(q.PaymentRequest, found, ispb, at)
	return id, p, err
}

// judged judges what was read; found is what is wrong with it already.
func judged(q PaymentRequest, found Violations, ispb pix.ISPB, at time.Time) (Payment, error) {
	o := Payment{channel: pix.CPM, transfer: iso20022.CreditTransfer{
		EndToEndID: pix.EndToEndID(q.EndToEndID), TxID: q.TxID, Amount: found.amount("valor", q.Amount), AcceptedAt: at,
		InitiatingParty: q.Initiator, Proxy: q.Key, DebtorAgent: ispb, Purpose: iso20022.PurposePayment,
	}}
	if q.EndToEndID != "" {
		found.EndToEndID("endToEndId", q.EndToEndID)
	}
	if q.Purpose != "" {
		o.transfer.Purpose = Choice(&found, "finalidade", q.Purpose, Purposes()...)
	}
	if q.Initiator != "" {
		found.cnpj("cnpjIniciador", q.Initiator)
	}
	if q.Text != "" {
		found.text("infoPagador", q.Text, max140)
		o.transfer.Remittance = &iso20022.Remittance{Text: q.Text}
	}
	if q.Service != "" && Choice(&found, "nivelServico", q.Service, iso20022.PAGPRI, iso20022.PAGAGD) == iso20022.PAGAGD {
		o.channel = pix.CSM
	}
	found.instrument(q, &o.transfer)
	found.payer(q.Payer, &o.transfer)
	found.receiver(q.Receiver, &o.transfer)
	return o, found.Refusal()
}

// Purposes are those that an order may have; the package comment says why Saque and Troco are not among them.
func Purposes() []iso20022.Purpose {
	return []iso20022.Purpose{iso20022.PurposePayment, iso20022.PurposeRefund, iso20022.PurposeReturn}
}

// Instruments are the ways in which a payment may be begun.
func Instruments() []iso20022.LocalInstrument {
	return []iso20022.LocalInstrument{
		iso20022.MANU, iso20022.DICT, iso20022.QRDN, iso20022.QRES, iso20022.INIC, iso20022.AUTO, iso20022.APDN, iso20022.APES,
	}
}

// instrument judges how the payment was begun, and with it the key and the receiver's reference (pacs.008, rules of
// Prxy and TxId).
func (v *Violations) instrument(q PaymentRequest, t *iso20022.CreditTransfer) {
	if q.Instrument == "" {
		v.Add("formaIniciacao", "obrigatório")
		return
	}
	t.LocalInstrument = Choice(v, "formaIniciacao", q.Instrument, Instruments()...)
	if t.LocalInstrument == "" {
		return
	}
	switch {
	case t.LocalInstrument.HasProxy() && q.Key == "":
		v.Add("chave", "obrigatória para "+q.Instrument)
	case !t.LocalInstrument.HasProxy() && q.Key != "":
		v.Add("chave", "não se usa com "+q.Instrument)
	case q.Key != "":
		v.text("chave", q.Key, max77)
	}
	switch {
	case q.TxID == "":
	case t.LocalInstrument == iso20022.MANU || t.LocalInstrument == iso20022.DICT:
		v.Add("txid", "não se usa com "+q.Instrument)
	default:
		v.of("txid", q.TxID, 35, alphanumeric, alphanumerics)
	}
}

func (v *Violations) payer(p *Payer, t *iso20022.CreditTransfer) {
	if p == nil {
		v.Add("pagador", "obrigatório")
		return
	}
	v.text("pagador.nome", p.Name, max140)
	t.Debtor = iso20022.Party{Name: p.Name, ID: v.person("pagador", p.CPF, p.CNPJ)}
	t.DebtorAccount = v.account("pagador", p.Branch, p.Account, p.AccountType)
}

func (v *Violations) receiver(p *Receiver, t *iso20022.CreditTransfer) {
	if p == nil {
		v.Add("recebedor", "obrigatório")
		return
	}
	t.CreditorAgent = v.ispb("recebedor.ispbParticipante", p.ISPB)
	t.CreditorID = v.person("recebedor", p.CPF, p.CNPJ)
	t.CreditorAccount = v.account("recebedor", p.Branch, p.Account, p.AccountType)
}

func (v *Violations) account(field, branch, number, kind string) iso20022.Account {
	if branch != "" {
		v.of(field+".agencia", branch, 4, digit, digits)
	}
	v.of(field+".conta", number, 20, digitOrCapital, digitsAndCapitals)
	return iso20022.Account{ID: number, Branch: branch, Type: accountType(Choice(v, field+".tipoConta", kind, AccountTypes()...))}
}

// named gives the order an identifier if the client gave none.
func (o *Payment) named(ispb pix.ISPB, at time.Time) error {
	if o.transfer.EndToEndID != "" {
		return nil
	}
	id, err := pix.NewEndToEndID(ispb, at, rand.Reader)
	if err != nil {
		return fmt.Errorf("new EndToEndId: %w", err)
	}
	o.transfer.EndToEndID = id
	return nil
}
