package iso20022

import (
	"time"

	"github.com/cabine-pix/cabine/libs/pix"
)

const msgCamt054 = "camt.054"

// Camt054 tells entries of a PI account, as answer to Camt060 or unasked (camt.054 1.16). A payment makes two entries:
// a debit on the payer's participant's account and a credit on the receiver's.
type Camt054 struct {
	// Notifications has one or more.
	Notifications []Notification `json:"notifications"`
}

// Notification is about one entry.
type Notification struct {
	// ID is the MsgID of the question, a new one when there was none.
	ID pix.MsgID `json:"id"`
	// Owner of the account.
	Owner pix.ISPB `json:"owner"`
	// Amount in centavos.
	Amount pix.Amount  `json:"amount"`
	Side   Side        `json:"side"`
	Status EntryStatus `json:"status"`
	// AccountingDate is the day in whose books it stands, "2026-01-31"; nil when absent.
	AccountingDate *string `json:"accounting_date,omitempty"`
	// StatusAt is the instant of the status; nil when absent.
	StatusAt *time.Time `json:"status_at,omitempty"`
	// Domain, Family and SubFamily say what kind of entry it is.
	Domain    EntryDomain    `json:"domain"`
	Family    EntryFamily    `json:"family"`
	SubFamily EntrySubFamily `json:"sub_family"`
	// Origin is the message that made the entry, as "pacs.008"; 1 to 35 characters.
	Origin string `json:"origin"`
	// Details is the payment, the return, or the movement with the STR.
	Details EntryDetails `json:"details"`
	// ErrorCode has 1 to 4 characters when the question could not be answered, with its text, 1 to 105, in Error; "" when absent.
	ErrorCode string `json:"error_code,omitempty"`
	Error     string `json:"error,omitempty"`
}

// EntryDetails is what an entry is about. Empty texts are absent.
type EntryDetails struct {
	// InstrID has the form of an EndToEndID or a ReturnID.
	InstrID string `json:"instr_id,omitempty"`
	// EndToEndID of the payment (E...), or of an entry that is none (L...).
	EndToEndID string `json:"end_to_end_id"`
	// TxID has at most 35 characters.
	TxID string `json:"tx_id,omitempty"`
	// ClearingRef is the control number of the STR.
	ClearingRef  string       `json:"clearing_ref,omitempty"`
	ServiceLevel ServiceLevel `json:"service_level,omitempty"`
	// Parties is nil when absent.
	Parties       *EntryParties `json:"parties,omitempty"`
	DebtorAgent   pix.ISPB      `json:"debtor_agent,omitempty"`
	CreditorAgent pix.ISPB      `json:"creditor_agent,omitempty"`
	// Other is the other side in the STR or the Selic; nil when absent.
	Other           *OtherAgent     `json:"other,omitempty"`
	LocalInstrument LocalInstrument `json:"local_instrument,omitempty"`
	Purpose         Purpose         `json:"purpose,omitempty"`
	// Remittance, AcceptedAt, Tax and Return (of a return alone) are nil when absent.
	Remittance *Remittance   `json:"remittance,omitempty"`
	AcceptedAt *time.Time    `json:"accepted_at,omitempty"`
	Tax        *Tax          `json:"tax,omitempty"`
	Return     *ReturnReason `json:"return,omitempty"`
	Priority   Priority      `json:"priority,omitempty"`
}

// EntryParties are the people of a payment, as in CreditTransfer.
type EntryParties struct {
	// InitiatingParty is a CNPJ, "" when absent.
	InitiatingParty string  `json:"initiating_party,omitempty"`
	Debtor          Party   `json:"debtor"`
	DebtorAccount   Account `json:"debtor_account"`
	CreditorID      string  `json:"creditor_id"`
	CreditorAccount Account `json:"creditor_account"`
	// Proxy is the Pix key, "" when absent.
	Proxy string `json:"proxy,omitempty"`
}

// OtherAgent is who is at the other end of a movement that is no payment.
type OtherAgent struct {
	Type  OtherAgentType `json:"type"`
	Agent pix.ISPB       `json:"agent"`
}

// MsgType is "camt.054".
func (m *Camt054) MsgType() string { return msgCamt054 }

func (m *Camt054) walk(x *walker) {
	x.group("BkToCstmrDbtCdtNtfctn", func() {
		x.groupHeader(nothing)
		list(x, &m.Notifications, 1, many, "Ntfctn", (*Notification).walk)
	})
}

func (n *Notification) walk(x *walker) {
	text(x, &n.ID, msgID, "Id")
	text(x, &n.Owner, ispb, "Acct", "Id", "Othr", "Id")
	x.group("Ntry", func() {
		x.amount(&n.Amount, "Amt")
		text(x, &n.Side, isSide, "CdtDbtInd")
		text(x, &n.Status, isEntryStatus, "Sts", "Cd")
		x.optionalDate(&n.AccountingDate, "BookgDt", "Dt")
		x.optionalInstant(&n.StatusAt, "ValDt", "DtTm")
		x.group("BkTxCd", func() {
			x.group("Domn", func() {
				text(x, &n.Domain, isEntryDomain, "Cd")
				x.group("Fmly", func() {
					text(x, &n.Family, isEntryFamily, "Cd")
					text(x, &n.SubFamily, isEntrySubFamily, "SubFmlyCd")
				})
			})
		})
		text(x, &n.Origin, text35, "AddtlInfInd", "MsgNmId")
		x.group("NtryDtls", func() {
			x.group("TxDtls", func() { n.Details.walk(x) })
		})
		optional(x, &n.ErrorCode, text4, "AddtlNtryInf")
	})
	optional(x, &n.Error, text105, "AddtlNtfctnInf")
}

func (d *EntryDetails) walk(x *walker) {
	x.group("Refs", func() {
		optional(x, &d.InstrID, paymentOrReturnID, "InstrId")
		x.check(d.InstrID == "" || d.InstrID[0] == 'D' || x.since("1.16"), "is a RtrId in this version", "InstrId")
		text(x, &d.EndToEndID, entryEndToEndID, "EndToEndId")
		optional(x, &d.TxID, text35, "TxId")
		optional(x, &d.ClearingRef, controlNumber, "ClrSysRef")
		x.maybe("Prtry", d.ServiceLevel != "", func() {
			x.fixed("ServiceLevel", "Tp")
			text(x, &d.ServiceLevel, isServiceLevel, "Ref")
		})
	})
	pointer(x, &d.Parties, "RltdPties", (*EntryParties).walk)
	x.group("RltdAgts", func() {
		optional(x, &d.DebtorAgent, ispb, "DbtrAgt", "FinInstnId", "ClrSysMmbId", "MmbId")
		optional(x, &d.CreditorAgent, ispb, "CdtrAgt", "FinInstnId", "ClrSysMmbId", "MmbId")
		pointer(x, &d.Other, "Prtry", func(o *OtherAgent, x *walker) {
			text(x, &o.Type, isOtherAgentType, "Tp")
			text(x, &o.Agent, ispb, "Agt", "FinInstnId", "ClrSysMmbId", "MmbId")
		})
	})
	optional(x, &d.LocalInstrument, isLocalInstrument, "LclInstrm", "Prtry")
	optional(x, &d.Purpose, isPurpose, "Purp", "Cd")
	pointer(x, &d.Remittance, "RmtInf", (*Remittance).walk)
	x.optionalInstant(&d.AcceptedAt, "RltdDts", "AccptncDtTm")
	pointer(x, &d.Tax, "Tax", (*Tax).walkEntry)
	pointer(x, &d.Return, "RtrInf", (*ReturnReason).walk)
	optional(x, &d.Priority, isPriority, "AddtlTxInf")
}

func (p *EntryParties) walk(x *walker) {
	optional(x, &p.InitiatingParty, cnpj, "InitgPty", "Pty", "Id", "OrgId", "Othr", "Id")
	x.group("Dbtr", func() {
		x.group("Pty", func() {
			text(x, &p.Debtor.Name, text140, "Nm")
			text(x, &p.Debtor.ID, cpfOrCNPJ, "Id", "PrvtId", "Othr", "Id")
		})
	})
	x.group("DbtrAcct", func() { p.DebtorAccount.walk(x) })
	text(x, &p.CreditorID, cpfOrCNPJ, "Cdtr", "Pty", "Id", "PrvtId", "Othr", "Id")
	x.group("CdtrAcct", func() {
		p.CreditorAccount.walk(x)
		optional(x, &p.Proxy, text77, "Prxy", "Id")
	})
}

// walkEntry differs from pacs.008 in that the reference may be absent.
func (t *Tax) walkEntry(x *walker) {
	optional(x, &t.Reference, fiscalDocument, "RefNb")
	t.walkRecords(x)
}
