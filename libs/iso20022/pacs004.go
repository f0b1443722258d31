package iso20022

import (
	"github.com/cabine-pix/cabine/libs/pix"
)

const msgPacs004 = "pacs.004"

// Pacs004 gives back payments, whole or in part (pacs.004 1.5). It comes from the original receiver's participant and is
// answered with Pacs002, whose OrgnlInstrId is the ReturnID.
type Pacs004 struct {
	// Returns has 1 to MaxTransactions.
	Returns []PaymentReturn `json:"returns"`
}

// PaymentReturn is one return.
type PaymentReturn struct {
	ReturnID pix.ReturnID `json:"return_id"`
	// OriginalEndToEndID is the original payment, never an earlier return.
	OriginalEndToEndID pix.EndToEndID `json:"original_end_to_end_id"`
	// Amount in centavos; all returns of a payment together are at most its amount.
	Amount pix.Amount `json:"amount"`
	// Priority: HIGH is to be sent at once, NORM may wait.
	Priority Priority     `json:"priority"`
	Reason   ReturnReason `json:"reason"`
	// Remittance is free text, at most 140 characters, "" when absent.
	Remittance string `json:"remittance,omitempty"`
	// DebtorAgent and CreditorAgent have the roles of the original payment: the creditor's agent is who gives back.
	DebtorAgent   pix.ISPB `json:"debtor_agent"`
	CreditorAgent pix.ISPB `json:"creditor_agent"`
}

// ReturnReason is why money is given back.
type ReturnReason struct {
	Code ReturnReasonCode `json:"code"`
	// Info has at most 105 characters, "" when absent.
	Info string `json:"info,omitempty"`
}

// MsgType is "pacs.004".
func (m *Pacs004) MsgType() string { return msgPacs004 }

func (m *Pacs004) walk(x *walker) {
	x.group("PmtRtr", func() {
		count := len(m.Returns)
		x.groupHeader(func() {
			x.transactions(&count)
			x.fixed("CLRG", "SttlmInf", "SttlmMtd")
		})
		list(x, &m.Returns, 1, many, "TxInf", (*PaymentReturn).walk)
		x.check(count == len(m.Returns), "is not the number of transactions", "GrpHdr", "NbOfTxs")
	})
}

func (r *PaymentReturn) walk(x *walker) {
	text(x, &r.ReturnID, returnID, "RtrId")
	text(x, &r.OriginalEndToEndID, endToEndID, "OrgnlEndToEndId")
	x.amount(&r.Amount, "RtrdIntrBkSttlmAmt")
	text(x, &r.Priority, isPriority, "SttlmPrty")
	x.fixed("SLEV", "ChrgBr")
	x.group("RtrRsnInf", func() { r.Reason.walk(x) })
	x.group("OrgnlTxRef", func() {
		optional(x, &r.Remittance, text140, "RmtInf", "Ustrd")
		text(x, &r.DebtorAgent, ispb, "DbtrAgt", "FinInstnId", "ClrSysMmbId", "MmbId")
		text(x, &r.CreditorAgent, ispb, "CdtrAgt", "FinInstnId", "ClrSysMmbId", "MmbId")
	})
}

func (r *ReturnReason) walk(x *walker) {
	text(x, &r.Code, isReturnReasonCode, "Rsn", "Cd")
	optional(x, &r.Info, text105, "AddtlInf")
}
