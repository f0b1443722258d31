package iso20022

import (
	"time"

	"github.com/cabine-pix/cabine/libs/pix"
)

const msgPacs008 = "pacs.008"

// MaxTransactions is the most payments, or returns, that one message may carry; more is AM18.
const MaxTransactions = 10

// Pacs008 orders payments (pacs.008 1.16): the payer's participant to the SPI, and the SPI, under a header of its own, to
// the receiver's.
type Pacs008 struct {
	// Priority and ServiceLevel go together: HIGH with PAGPRI, NORM with PAGFRD or PAGAGD.
	Priority     Priority     `json:"priority"`
	ServiceLevel ServiceLevel `json:"service_level"`
	// Transactions has 1 to MaxTransactions.
	Transactions []CreditTransfer `json:"transactions"`
}

// CreditTransfer is one payment.
type CreditTransfer struct {
	// InstrID is the EndToEndID or ReturnID of the transaction that a contestation (MED) began with; "" when absent, as it is
	// in a usual payment.
	InstrID    string         `json:"instr_id,omitempty"`
	EndToEndID pix.EndToEndID `json:"end_to_end_id"`
	// TxID is the receiver's own reference, 1 to 35 letters and digits; "" when absent, as for MANU and DICT.
	TxID string `json:"tx_id,omitempty"`
	// Amount in centavos.
	Amount pix.Amount `json:"amount"`
	// AcceptedAt is the instant at which the payer's participant accepted the order (t0'); UTC, milliseconds.
	AcceptedAt      time.Time       `json:"accepted_at"`
	LocalInstrument LocalInstrument `json:"local_instrument"`
	// InitiatingParty is the CNPJ of who began the payment for the payer; "" when absent.
	InitiatingParty string `json:"initiating_party,omitempty"`
	// Debtor is the payer.
	Debtor        Party    `json:"debtor"`
	DebtorAccount Account  `json:"debtor_account"`
	DebtorAgent   pix.ISPB `json:"debtor_agent"`
	CreditorAgent pix.ISPB `json:"creditor_agent"`
	// CreditorID is the CPF or CNPJ of the receiver, whose name the message does not carry.
	CreditorID      string  `json:"creditor_id"`
	CreditorAccount Account `json:"creditor_account"`
	// Proxy is the receiver's Pix key, at most 77 characters; "" when absent. LocalInstrument.HasProxy says when it is there.
	Proxy   string  `json:"proxy,omitempty"`
	Purpose Purpose `json:"purpose"`
	// Tax is for split payment; nil when absent.
	Tax *Tax `json:"tax,omitempty"`
	// Remittance is nil when absent.
	Remittance *Remittance `json:"remittance,omitempty"`
}

// Party is a person or an organisation.
type Party struct {
	// Name has 1 to 140 characters.
	Name string `json:"name"`
	// ID is a CPF (11 digits) or a CNPJ (12 digits or capital letters, and two digits).
	ID string `json:"id"`
}

// Account is an account of a participant's client.
type Account struct {
	// ID has 1 to 20 digits or capital letters.
	ID string `json:"id"`
	// Branch has 1 to 4 digits; "" when absent.
	Branch string      `json:"branch,omitempty"`
	Type   AccountType `json:"type"`
}

// MsgType is "pacs.008".
func (m *Pacs008) MsgType() string { return msgPacs008 }

func (m *Pacs008) walk(x *walker) {
	x.group("FIToFICstmrCdtTrf", func() {
		count := len(m.Transactions)
		x.groupHeader(func() {
			x.transactions(&count)
			x.fixed("CLRG", "SttlmInf", "SttlmMtd")
			x.group("PmtTpInf", func() {
				text(x, &m.Priority, isPriority, "InstrPrty")
				text(x, &m.ServiceLevel, isServiceLevel, "SvcLvl", "Prtry")
				x.rule((m.Priority == High) == (m.ServiceLevel == PAGPRI), "HIGH goes with PAGPRI, NORM with PAGFRD and PAGAGD", "InstrPrty")
			})
		})
		list(x, &m.Transactions, 1, many, "CdtTrfTxInf", (*CreditTransfer).walk)
		x.check(count == len(m.Transactions), "is not the number of transactions", "GrpHdr", "NbOfTxs")
	})
}

func (t *CreditTransfer) walk(x *walker) {
	x.group("PmtId", func() {
		optional(x, &t.InstrID, paymentOrReturnID, "InstrId")
		x.check(t.InstrID == "" || x.since("1.16"), "is not in this version", "InstrId")
		text(x, &t.EndToEndID, endToEndID, "EndToEndId")
		optional(x, &t.TxID, txID, "TxId")
		x.rule(t.TxID == "" || t.LocalInstrument != MANU && t.LocalInstrument != DICT, "is absent for MANU and DICT", "TxId")
	})
	x.amount(&t.Amount, "IntrBkSttlmAmt")
	x.instant(&t.AcceptedAt, "AccptncDtTm")
	x.fixed("SLEV", "ChrgBr")
	text(x, &t.LocalInstrument, isLocalInstrument, "MndtRltdInf", "Tp", "LclInstrm", "Prtry")
	optional(x, &t.InitiatingParty, cnpj, "InitgPty", "Id", "OrgId", "Othr", "Id")
	x.group("Dbtr", func() {
		text(x, &t.Debtor.Name, text140, "Nm")
		text(x, &t.Debtor.ID, cpfOrCNPJ, "Id", "PrvtId", "Othr", "Id")
	})
	x.group("DbtrAcct", func() { t.DebtorAccount.walk(x) })
	text(x, &t.DebtorAgent, ispb, "DbtrAgt", "FinInstnId", "ClrSysMmbId", "MmbId")
	text(x, &t.CreditorAgent, ispb, "CdtrAgt", "FinInstnId", "ClrSysMmbId", "MmbId")
	text(x, &t.CreditorID, cpfOrCNPJ, "Cdtr", "Id", "PrvtId", "Othr", "Id")
	x.group("CdtrAcct", func() {
		t.CreditorAccount.walk(x)
		optional(x, &t.Proxy, text77, "Prxy", "Id")
		x.rule((t.Proxy != "") == t.LocalInstrument.HasProxy(), "is there unless the instrument is MANU or AUTO, and only then", "Prxy")
	})
	text(x, &t.Purpose, isPurpose, "Purp", "Cd")
	pointer(x, &t.Tax, "Tax", (*Tax).walk)
	pointer(x, &t.Remittance, "RmtInf", (*Remittance).walk)
}

func (a *Account) walk(x *walker) {
	x.group("Id", func() {
		x.group("Othr", func() {
			text(x, &a.ID, accountID, "Id")
			optional(x, &a.Branch, branch, "Issr")
		})
	})
	text(x, &a.Type, isAccountType, "Tp", "Cd")
}
