package iso20022

import "slices"

// ReasonCode says why a payment or return was rejected (StsRsnInf/Rsn/Cd of pacs.002 1.17).
type ReasonCode string

// The reasons, all that there are.
const (
	// AB03: the SPI's time for the settlement ran out.
	AB03 ReasonCode = "AB03"
	// AB09: an error at the receiver's participant.
	AB09 ReasonCode = "AB09"
	// AB11: the time of the participant that ordered ran out.
	AB11 ReasonCode = "AB11"
	// AC03: the receiver's branch or account does not exist.
	AC03 ReasonCode = "AC03"
	// AC06: the receiver's account is blocked.
	AC06 ReasonCode = "AC06"
	// AC07: the receiver's account is closed.
	AC07 ReasonCode = "AC07"
	// AC14: the receiver's account is of another type.
	AC14 ReasonCode = "AC14"
	// AG03: this kind of payment is not allowed on the account.
	AG03 ReasonCode = "AG03"
	// AG12: both accounts are in the same institution, which is no matter of the SPI.
	AG12 ReasonCode = "AG12"
	// AG13: a return is not returned.
	AG13 ReasonCode = "AG13"
	// AGNT: the direct participant does not settle for the payer's participant.
	AGNT ReasonCode = "AGNT"
	// AM01: the amount is zero.
	AM01 ReasonCode = "AM01"
	// AM02: the amount is above the limit of the credited account.
	AM02 ReasonCode = "AM02"
	// AM04: the PI account of the payer's participant has too little.
	AM04 ReasonCode = "AM04"
	// AM09: the returns would be more than the original payment.
	AM09 ReasonCode = "AM09"
	// AM12: the parts of Pix Saque or Pix Troco do not add up to the amount.
	AM12 ReasonCode = "AM12"
	// AM18: the number of transactions is not allowed.
	AM18 ReasonCode = "AM18"
	// AM23: the taxes are more than the amount.
	AM23 ReasonCode = "AM23"
	// BE01: the receiver's CPF or CNPJ is not that of the account's holder.
	BE01 ReasonCode = "BE01"
	// BE05: the CNPJ of the initiator is not registered.
	BE05 ReasonCode = "BE05"
	// BE15: the receiver's reference (TxId) is missing or wrong.
	BE15 ReasonCode = "BE15"
	// BE17: the receiver's participant refuses the QR code.
	BE17 ReasonCode = "BE17"
	// CH11: the receiver's CPF or CNPJ is wrong.
	CH11 ReasonCode = "CH11"
	// CH16: the content is wrong or against the rules.
	CH16 ReasonCode = "CH16"
	// CN01: the recurring payment was cancelled.
	CN01 ReasonCode = "CN01"
	// DS02: the institution's own setting in SPI-Web refuses it, as a manual block.
	DS02 ReasonCode = "DS02"
	// DS04: the receiver's participant refuses it.
	DS04 ReasonCode = "DS04"
	// DS0G: the signer may not sign this kind of message.
	DS0G ReasonCode = "DS0G"
	// DS27: the participant is not registered or does not operate yet.
	DS27 ReasonCode = "DS27"
	// DT02: the date and time of sending is wrong.
	DT02 ReasonCode = "DT02"
	// DT05: the time for a return is over.
	DT05 ReasonCode = "DT05"
	// DU03: the charge was paid in another arrangement already.
	DU03 ReasonCode = "DU03"
	// DUPL: the same again.
	DUPL ReasonCode = "DUPL"
	// ED05: an error in the processing.
	ED05 ReasonCode = "ED05"
	// FF07: the purpose does not go with the structured remittance.
	FF07 ReasonCode = "FF07"
	// FF08: the EndToEndId is malformed.
	FF08 ReasonCode = "FF08"
	// FRAD: a founded suspicion of fraud.
	FRAD ReasonCode = "FRAD"
	// INDT: the content does not go with the QR code or the request of Pix Automático.
	INDT ReasonCode = "INDT"
	// MD01: the facilitator of Pix Saque or Pix Troco does not exist.
	MD01 ReasonCode = "MD01"
	// RC09: the ISPB of the payer's participant is wrong.
	RC09 ReasonCode = "RC09"
	// RC10: the ISPB of the receiver's participant is wrong.
	RC10 ReasonCode = "RC10"
	// RR04: the payer is under sanctions of the United Nations.
	RR04 ReasonCode = "RR04"
	// RR06: taxes are for payments between legal persons alone.
	RR06 ReasonCode = "RR06"
	// SL02: the original is no Pix Saque and no Pix Troco.
	SL02 ReasonCode = "SL02"
	// UPAY: there is no valid recurrence: the payment is undue.
	UPAY ReasonCode = "UPAY"
)

// ReasonCodes lists all reasons in order.
func ReasonCodes() []ReasonCode {
	return []ReasonCode{
		AB03, AB09, AB11, AC03, AC06, AC07, AC14, AG03, AG12, AG13, AGNT, AM01,
		AM02, AM04, AM09, AM12, AM18, AM23, BE01, BE05, BE15, BE17, CH11, CH16,
		CN01, DS02, DS04, DS0G, DS27, DT02, DT05, DU03, DUPL, ED05, FF07, FF08,
		FRAD, INDT, MD01, RC09, RC10, RR04, RR06, SL02, UPAY,
	}
}

func isReasonCode(s string) string {
	if slices.Contains(ReasonCodes(), ReasonCode(s)) {
		return ""
	}
	return "want one of the 45 reasons of pacs.002"
}
