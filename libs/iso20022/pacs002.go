package iso20022

import (
	"time"

	"github.com/cabine-pix/cabine/libs/pix"
)

const msgPacs002 = "pacs.002"

// Pacs002 says how payments and returns stand (pacs.002 1.17). A receiver's participant answers with it; the SPI tells
// both sides the outcome with it. One message may speak of payments and returns.
type Pacs002 struct {
	// Statuses has one or more.
	Statuses []PaymentStatus `json:"statuses"`
}

// PaymentStatus is the state of one payment or return.
type PaymentStatus struct {
	// OriginalInstrID is the payment's EndToEndID (E...) or the return's ReturnID (D...).
	OriginalInstrID string `json:"original_instr_id"`
	// OriginalEndToEndID is the payment; for a return, the payment that is given back.
	OriginalEndToEndID pix.EndToEndID `json:"original_end_to_end_id"`
	// Status; a participant says ACSP or RJCT.
	Status Status `json:"status"`
	// Reasons may be several, and are there when the status is RJCT.
	Reasons []StatusReason `json:"reasons,omitempty"`
	// SettledAt is the instant of the settlement, from the SPI alone; nil when absent.
	SettledAt *time.Time `json:"settled_at,omitempty"`
	// AccountingDate is the day in whose books it stands, "2026-01-31", from the SPI alone; nil when absent.
	AccountingDate *string `json:"accounting_date,omitempty"`
}

// StatusReason is why.
type StatusReason struct {
	// Code may be absent: "".
	Code ReasonCode `json:"code,omitempty"`
	// Info has texts of 1 to 105 characters.
	Info []string `json:"info,omitempty"`
}

// MsgType is "pacs.002".
func (m *Pacs002) MsgType() string { return msgPacs002 }

func (m *Pacs002) walk(x *walker) {
	x.group("FIToFIPmtStsRpt", func() {
		x.groupHeader(nothing)
		list(x, &m.Statuses, 1, many, "TxInfAndSts", (*PaymentStatus).walk)
	})
}

func (s *PaymentStatus) walk(x *walker) {
	text(x, &s.OriginalInstrID, paymentOrReturnID, "OrgnlInstrId")
	text(x, &s.OriginalEndToEndID, endToEndID, "OrgnlEndToEndId")
	text(x, &s.Status, isStatus, "TxSts")
	list(x, &s.Reasons, 0, many, "StsRsnInf", (*StatusReason).walk)
	x.optionalInstant(&s.SettledAt, "FctvIntrBkSttlmDt", "DtTm")
	x.optionalDate(&s.AccountingDate, "OrgnlTxRef", "IntrBkSttlmDt")

	fromSPI := x.header.From == pix.SPI
	x.rule(fromSPI || s.Status == ACSP || s.Status == RJCT, "a participant says ACSP or RJCT", "TxSts")
	x.rule(fromSPI || s.SettledAt == nil, "the SPI alone says when it settled", "FctvIntrBkSttlmDt")
	x.rule(fromSPI || s.AccountingDate == nil, "the SPI alone says in which day's books it stands", "OrgnlTxRef")
	x.rule((s.Status == RJCT) == (len(s.Reasons) > 0 && s.Reasons[0].Code != ""), "RJCT has a reason with its code, and only RJCT", "StsRsnInf")
}

func (r *StatusReason) walk(x *walker) {
	optional(x, &r.Code, isReasonCode, "Rsn", "Cd")
	x.check(r.Code != DS02 && r.Code != DU03 || x.since("1.17"), "is not in this version", "Rsn", "Cd")
	texts(x, &r.Info, text105, "AddtlInf")
}
