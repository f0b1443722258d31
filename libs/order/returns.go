package order

import (
	"crypto/rand"
	"fmt"
	"time"

	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
)

// Natures are BACEN's words for why money is given back, in the order in which they are documented.
func Natures() []string { return []string{"ORIGINAL", "RETIRADA", "MED_OPERACIONAL", "MED_FRAUDE"} }

func natureCode(word string) iso20022.ReturnReasonCode {
	switch word {
	case "RETIRADA":
		return iso20022.ReturnCash
	case "MED_OPERACIONAL":
		return iso20022.ReturnFailure
	case "MED_FRAUDE":
		return iso20022.ReturnFraud
	default:
		return iso20022.ReturnAsked
	}
}

// NatureWord is BACEN's word for why a return was ordered.
func NatureWord(code iso20022.ReturnReasonCode) string {
	for _, word := range Natures() {
		if natureCode(word) == code {
			return word
		}
	}
	return string(code)
}

// ReadReturn reads and judges the body of a PUT. What depends on the original is not in it.
func ReadReturn(body []byte) (iso20022.PaymentReturn, error) {
	var found Violations
	var q ReturnRequest
	if err := decode(body, &q, &found); err != nil {
		return iso20022.PaymentReturn{}, err
	}
	r := iso20022.PaymentReturn{
		Amount: found.amount("valor", q.Amount), Priority: iso20022.High, Remittance: q.Text,
		Reason: iso20022.ReturnReason{Code: iso20022.ReturnAsked},
	}
	if q.Nature != "" {
		r.Reason.Code = natureCode(Choice(&found, "natureza", q.Nature, Natures()...))
	}
	if q.Text != "" {
		found.text("descricao", q.Text, max140)
	}
	return r, found.Refusal()
}

// ReturnName judges the two names of a return: its payment's, and the one that its client gave it.
func ReturnName(e2eid, id string) (pix.EndToEndID, error) {
	var found Violations
	original := found.EndToEndID("e2eid", e2eid)
	found.of("id", id, 35, alphanumeric, alphanumerics)
	return original, found.Refusal()
}

// SameReturn reports whether a return asks what an earlier one under the same name asked.
func SameReturn(a, b iso20022.PaymentReturn) bool {
	return a.Amount == b.Amount && a.Reason == b.Reason && a.Remittance == b.Remittance
}

// completed returns r with an identifier and with the agents in their roles in the original payment.
func completed(r iso20022.PaymentReturn, original iso20022.CreditTransfer, ispb pix.ISPB, at time.Time) (iso20022.PaymentReturn, error) {
	id, err := pix.NewReturnID(ispb, at, rand.Reader)
	if err != nil {
		return r, fmt.Errorf("new RtrId: %w", err)
	}
	r.ReturnID, r.OriginalEndToEndID = id, original.EndToEndID
	r.DebtorAgent, r.CreditorAgent = original.DebtorAgent, original.CreditorAgent
	return r, nil
}

func exceeds() error {
	return Refuse("devolucao-excede", "Devolução acima do valor", "A soma das devoluções passaria do valor do pagamento.",
		Violation{Field: "valor", Reason: "passa do que resta devolver"})
}
