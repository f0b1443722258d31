package iso20022

import (
	"github.com/cabine-pix/cabine/libs/pix"
)

// Tax carries the taxes of a split payment, for pacs.008 and camt.054.
type Tax struct {
	// Reference is the fiscal document, 1 to 50 letters and digits. It may be absent, "", in camt.054 alone.
	Reference string `json:"reference,omitempty"`
	// Records has exactly two.
	Records []TaxRecord `json:"records"`
}

// TaxRecord is one tax.
type TaxRecord struct {
	Type TaxType `json:"type"`
	// Amount in centavos.
	Amount pix.Amount `json:"amount"`
}

// Remittance is what the payer says, for pacs.008 and camt.054.
type Remittance struct {
	// Text has at most 140 characters, "" when absent.
	Text string `json:"text,omitempty"`
	// Cash is for Pix Saque and Pix Troco; nil when absent.
	Cash *Cash `json:"cash,omitempty"`
}

// Cash is the part of a payment that is handed over in notes: Pix Saque and Pix Troco.
type Cash struct {
	// Agent is the kind of who hands it over, and Facilitator the participant that offers the service.
	Agent       CashAgent `json:"agent"`
	Facilitator pix.ISPB  `json:"facilitator"`
	// Parts has one or two, each of another kind.
	Parts []CashPart `json:"parts"`
}

// CashPart is the value of the purchase or of the notes.
type CashPart struct {
	// Amount in centavos.
	Amount pix.Amount   `json:"amount"`
	Kind   CashPartKind `json:"kind"`
}

func (t *Tax) walk(x *walker) {
	text(x, &t.Reference, fiscalDocument, "RefNb")
	t.walkRecords(x)
}

func (t *Tax) walkRecords(x *walker) {
	list(x, &t.Records, 2, 2, "Rcrd", func(r *TaxRecord, x *walker) {
		text(x, &r.Type, isTaxType, "Tp")
		x.fixed("INF", "Ctgy")
		x.amount(&r.Amount, "TaxAmt", "TtlAmt")
	})
}

func (r *Remittance) walk(x *walker) {
	optional(x, &r.Text, text140, "Ustrd")
	pointer(x, &r.Cash, "Strd", (*Cash).walk)
}

func (c *Cash) walk(x *walker) {
	x.group("RfrdDocInf", func() {
		x.group("Tp", func() {
			text(x, &c.Agent, isCashAgent, "CdOrPrtry", "Prtry")
			text(x, &c.Facilitator, ispb, "Issr")
		})
	})
	x.group("RfrdDocAmt", func() {
		list(x, &c.Parts, 1, 2, "AdjstmntAmtAndRsn", func(p *CashPart, x *walker) {
			x.amount(&p.Amount, "Amt")
			text(x, &p.Kind, isCashPartKind, "Rsn")
		})
		x.check(len(c.Parts) < 2 || c.Parts[0].Kind != c.Parts[1].Kind, "is the same twice", "AdjstmntAmtAndRsn", "Rsn")
	})
}
