package iso20022

// Priority says whether a payment or return is sent at once (InstrPrty, SttlmPrty).
type Priority string

// The priorities.
const (
	High   Priority = "HIGH"
	Normal Priority = "NORM"
)

// ServiceLevel is the kind of handling of a payment (SvcLvl).
type ServiceLevel string

// The service levels.
const (
	// PAGPRI is settled at once.
	PAGPRI ServiceLevel = "PAGPRI"
	// PAGFRD is under suspicion of fraud and was looked at for longer.
	PAGFRD ServiceLevel = "PAGFRD"
	// PAGAGD is scheduled.
	PAGAGD ServiceLevel = "PAGAGD"
)

// LocalInstrument says how a payment was begun (LclInstrm).
type LocalInstrument string

// The local instruments.
const (
	// MANU: the payer typed the account in.
	MANU LocalInstrument = "MANU"
	// DICT: by a Pix key.
	DICT LocalInstrument = "DICT"
	// QRDN: by a dynamic QR code.
	QRDN LocalInstrument = "QRDN"
	// QRES: by a static QR code.
	QRES LocalInstrument = "QRES"
	// INIC: by an initiator of payments.
	INIC LocalInstrument = "INIC"
	// AUTO: Pix Automático.
	AUTO LocalInstrument = "AUTO"
	// APDN: by approach, with a dynamic code.
	APDN LocalInstrument = "APDN"
	// APES: by approach, with a static code.
	APES LocalInstrument = "APES"
)

// HasProxy reports whether a payment begun so carries the receiver's Pix key.
func (l LocalInstrument) HasProxy() bool { return l != MANU && l != AUTO }

// AccountType is the kind of an account.
type AccountType string

// The account types.
const (
	// CACC is a current account.
	CACC AccountType = "CACC"
	// SVGS is a savings account.
	SVGS AccountType = "SVGS"
	// TRAN is a payment account.
	TRAN AccountType = "TRAN"
	// SLRY is a salary account.
	SLRY AccountType = "SLRY"
	// OTHR is a PI account.
	OTHR AccountType = "OTHR"
)

// Purpose is what a payment is for (Purp).
type Purpose string

// The purposes.
const (
	// PurposePayment is a purchase or a transfer.
	PurposePayment Purpose = "IPAY"
	// PurposeChange is Pix Troco.
	PurposeChange Purpose = "GSCB"
	// PurposeWithdrawal is Pix Saque.
	PurposeWithdrawal Purpose = "OTHR"
	// PurposeRefund gives money back to the payer's participant (MED, Pix Automático).
	PurposeRefund Purpose = "REFU"
	// PurposeReturn gives money back to the payer (MED 2.0).
	PurposeReturn Purpose = "IPRT"
)

// Status is how a payment or return stands (TxSts).
type Status string

// The statuses.
const (
	// ACSP: the receiver's participant accepts.
	ACSP Status = "ACSP"
	// ACSC: settled, as the SPI tells the side whose account it debited.
	ACSC Status = "ACSC"
	// ACCC: settled, as the SPI tells the side whose account it credited.
	ACCC Status = "ACCC"
	// RJCT: rejected, by the receiver's participant or by the SPI.
	RJCT Status = "RJCT"
)

// ReturnReasonCode is why money is given back.
type ReturnReasonCode string

// The reasons of returns.
const (
	// ReturnAsked (MD06): the receiver asked for it.
	ReturnAsked ReturnReasonCode = "MD06"
	// ReturnFailure (BE08): a failure at a participant, by the MED.
	ReturnFailure ReturnReasonCode = "BE08"
	// ReturnFraud (FR01): a founded suspicion of fraud, by the MED.
	ReturnFraud ReturnReasonCode = "FR01"
	// ReturnCash (SL02): an error in a Pix Saque or Pix Troco.
	ReturnCash ReturnReasonCode = "SL02"
)

// TaxType is a tax of a split payment.
type TaxType string

// The taxes.
const (
	CBSSplit TaxType = "CBSSPLIT"
	IBSSplit TaxType = "IBSSPLIT"
)

// CashAgent is the kind of who hands out notes.
type CashAgent string

// The kinds of agents.
const (
	// AGFSS is a facilitator of cash services.
	AGFSS CashAgent = "AGFSS"
	// AGTEC is a shop.
	AGTEC CashAgent = "AGTEC"
	// AGTOT is another kind of company, or a correspondent.
	AGTOT CashAgent = "AGTOT"
)

// CashPartKind says what a part of the amount is.
type CashPartKind string

// The kinds of parts.
const (
	// CashPurchase (VLCP) is the value of the purchase.
	CashPurchase CashPartKind = "VLCP"
	// CashNotes (VLDN) is the value in notes.
	CashNotes CashPartKind = "VLDN"
)

func isPriority(s string) string {
	switch Priority(s) {
	case High, Normal:
		return ""
	}
	return "want HIGH or NORM"
}

func isServiceLevel(s string) string {
	switch ServiceLevel(s) {
	case PAGPRI, PAGFRD, PAGAGD:
		return ""
	}
	return "want PAGPRI, PAGFRD or PAGAGD"
}

func isLocalInstrument(s string) string {
	switch LocalInstrument(s) {
	case MANU, DICT, QRDN, QRES, INIC, AUTO, APDN, APES:
		return ""
	}
	return "want MANU, DICT, QRDN, QRES, INIC, AUTO, APDN or APES"
}

func isAccountType(s string) string {
	switch AccountType(s) {
	case CACC, SVGS, TRAN, SLRY, OTHR:
		return ""
	}
	return "want CACC, SVGS, TRAN, SLRY or OTHR"
}

func isPurpose(s string) string {
	switch Purpose(s) {
	case PurposePayment, PurposeChange, PurposeWithdrawal, PurposeRefund, PurposeReturn:
		return ""
	}
	return "want IPAY, GSCB, OTHR, REFU or IPRT"
}

func isStatus(s string) string {
	switch Status(s) {
	case ACSP, ACSC, ACCC, RJCT:
		return ""
	}
	return "want ACSP, ACSC, ACCC or RJCT"
}

func isReturnReasonCode(s string) string {
	switch ReturnReasonCode(s) {
	case ReturnAsked, ReturnFailure, ReturnFraud, ReturnCash:
		return ""
	}
	return "want MD06, BE08, FR01 or SL02"
}

func isTaxType(s string) string {
	switch TaxType(s) {
	case CBSSplit, IBSSplit:
		return ""
	}
	return "want CBSSPLIT or IBSSPLIT"
}

func isCashAgent(s string) string {
	switch CashAgent(s) {
	case AGFSS, AGTEC, AGTOT:
		return ""
	}
	return "want AGFSS, AGTEC or AGTOT"
}

func isCashPartKind(s string) string {
	switch CashPartKind(s) {
	case CashPurchase, CashNotes:
		return ""
	}
	return "want VLCP or VLDN"
}
