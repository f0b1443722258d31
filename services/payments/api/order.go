package api

import (
	"crypto/rand"
	"fmt"
	"time"

	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
)

// accountTypes are BACEN's words for the types of accounts, in the order in which they are documented.
func accountTypes() []string { return []string{"CORRENTE", "POUPANCA", "PAGAMENTO", "SALARIO", "PI"} }

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

func accountWord(t iso20022.AccountType) string {
	for _, word := range accountTypes() {
		if accountType(word) == t {
			return word
		}
	}
	return string(t)
}

// order is what a POST asks for, in the words of the message.
type order struct {
	transfer iso20022.CreditTransfer
	channel  pix.Channel
}

// readOrder reads and judges the body of a POST. at is when the order was accepted.
func readOrder(body []byte, ispb pix.ISPB, at time.Time) (order, error) {
	var found violations
	var q orderRequest
	if err := decode(body, &q, &found); err != nil {
		return order{}, err
	}
	o := order{channel: pix.CPM, transfer: iso20022.CreditTransfer{
		EndToEndID: pix.EndToEndID(q.EndToEndID), TxID: q.TxID, Amount: found.amount("valor", q.Amount), AcceptedAt: at,
		InitiatingParty: q.Initiator, Proxy: q.Key, DebtorAgent: ispb, Purpose: iso20022.PurposePayment,
	}}
	if q.EndToEndID != "" {
		found.endToEndID("endToEndId", q.EndToEndID)
	}
	if q.Purpose != "" {
		o.transfer.Purpose = choice(&found, "finalidade", q.Purpose, purposes()...)
	}
	if q.Initiator != "" {
		found.cnpj("cnpjIniciador", q.Initiator)
	}
	if q.Text != "" {
		found.text("infoPagador", q.Text, max140)
		o.transfer.Remittance = &iso20022.Remittance{Text: q.Text}
	}
	if q.Service != "" && choice(&found, "nivelServico", q.Service, iso20022.PAGPRI, iso20022.PAGAGD) == iso20022.PAGAGD {
		o.channel = pix.CSM
	}
	found.instrument(q, &o.transfer)
	found.payer(q.Payer, &o.transfer)
	found.receiver(q.Receiver, &o.transfer)
	return o, found.problem()
}

// purposes are those that an order may have; the package comment says why Saque and Troco are not among them.
func purposes() []iso20022.Purpose {
	return []iso20022.Purpose{iso20022.PurposePayment, iso20022.PurposeRefund, iso20022.PurposeReturn}
}

func instruments() []iso20022.LocalInstrument {
	return []iso20022.LocalInstrument{
		iso20022.MANU, iso20022.DICT, iso20022.QRDN, iso20022.QRES, iso20022.INIC, iso20022.AUTO, iso20022.APDN, iso20022.APES,
	}
}

// instrument judges how the payment was begun, and with it the key and the receiver's reference (pacs.008, rules of
// Prxy and TxId).
func (v *violations) instrument(q orderRequest, t *iso20022.CreditTransfer) {
	if q.Instrument == "" {
		v.add("formaIniciacao", "obrigatório")
		return
	}
	t.LocalInstrument = choice(v, "formaIniciacao", q.Instrument, instruments()...)
	if t.LocalInstrument == "" {
		return
	}
	switch {
	case t.LocalInstrument.HasProxy() && q.Key == "":
		v.add("chave", "obrigatória para "+q.Instrument)
	case !t.LocalInstrument.HasProxy() && q.Key != "":
		v.add("chave", "não se usa com "+q.Instrument)
	case q.Key != "":
		v.text("chave", q.Key, max77)
	}
	switch {
	case q.TxID == "":
	case t.LocalInstrument == iso20022.MANU || t.LocalInstrument == iso20022.DICT:
		v.add("txid", "não se usa com "+q.Instrument)
	default:
		v.of("txid", q.TxID, 35, alphanumeric, alphanumerics)
	}
}

func (v *violations) payer(p *payer, t *iso20022.CreditTransfer) {
	if p == nil {
		v.add("pagador", "obrigatório")
		return
	}
	v.text("pagador.nome", p.Name, max140)
	t.Debtor = iso20022.Party{Name: p.Name, ID: v.person("pagador", p.CPF, p.CNPJ)}
	t.DebtorAccount = v.account("pagador", p.Branch, p.Account, p.AccountType)
}

func (v *violations) receiver(p *receiver, t *iso20022.CreditTransfer) {
	if p == nil {
		v.add("recebedor", "obrigatório")
		return
	}
	t.CreditorAgent = v.ispb("recebedor.ispbParticipante", p.ISPB)
	t.CreditorID = v.person("recebedor", p.CPF, p.CNPJ)
	t.CreditorAccount = v.account("recebedor", p.Branch, p.Account, p.AccountType)
}

func (v *violations) account(field, branch, number, kind string) iso20022.Account {
	if branch != "" {
		v.of(field+".agencia", branch, 4, digit, digits)
	}
	v.of(field+".conta", number, 20, digitOrCapital, digitsAndCapitals)
	return iso20022.Account{ID: number, Branch: branch, Type: accountType(choice(v, field+".tipoConta", kind, accountTypes()...))}
}

// named gives the order an identifier if the client gave none.
func (o *order) named(ispb pix.ISPB, at time.Time) error {
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
