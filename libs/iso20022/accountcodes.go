package iso20022

// AnswerType is the message that answers a question about the account (ReqdMsgNmId).
type AnswerType string

// The answers.
const (
	AnswerFile     AnswerType = msgCamt052
	AnswerBalances AnswerType = msgCamt053
	AnswerEntry    AnswerType = msgCamt054
)

// Subject is what a question about the account is about (ReqdBalTp).
type Subject string

// The subjects.
const (
	// SubjectBalance (CSA): the balances.
	SubjectBalance Subject = "CSA"
	// SubjectRemuneration (CRE): what the account earned.
	SubjectRemuneration Subject = "CRE"
	// SubjectEntries (REL): a file with the entries.
	SubjectEntries Subject = "REL"
	// SubjectCashReport (TRD): a file of Pix Saque and Pix Troco by kind of agent.
	SubjectCashReport Subject = "TRD"
	// SubjectCashTotal (TRT): a file with what is to be reimbursed for them.
	SubjectCashTotal Subject = "TRT"
)

// answer is the message that answers, which for no subject is that of a single entry.
func (s Subject) answer() AnswerType {
	switch s {
	case SubjectBalance, SubjectRemuneration:
		return AnswerBalances
	case SubjectEntries, SubjectCashReport, SubjectCashTotal:
		return AnswerFile
	}
	return AnswerEntry
}

// BalanceType is which balance of a PI account.
type BalanceType string

// The balances.
const (
	// BalanceAvailable (SADP) is what may be spent: what is blocked is not in it.
	BalanceAvailable BalanceType = "SADP"
	// BalanceBlocked (SABK) is held by payments that are being settled.
	BalanceBlocked BalanceType = "SABK"
	// BalanceRemunerable (PSSR) is the part of the daily balance that earns.
	BalanceRemunerable BalanceType = "PSSR"
	// BalanceRemuneration (REMN) is what was earned.
	BalanceRemuneration BalanceType = "REMN"
	// BalanceEMoney (VSME) is the share of e-money held at BACEN.
	BalanceEMoney BalanceType = "VSME"
	// BalanceReserve (VVSR) is the share of the average daily VSR that limits what earns.
	BalanceReserve BalanceType = "VVSR"
)

// Side of an entry.
type Side string

// The sides.
const (
	Credit Side = "CRDT"
	Debit  Side = "DBIT"
)

// EntryStatus says whether an entry was booked.
type EntryStatus string

// The statuses of entries.
const (
	// Booked: settled.
	Booked EntryStatus = "BOOK"
	// NotSettled: not settled, at the time of the answer.
	NotSettled EntryStatus = "INFO"
)

// EntryDomain is the first part of an entry's kind.
type EntryDomain string

// The domains.
const (
	// DomainPayments is payments and returns.
	DomainPayments EntryDomain = "PMNT"
	// DomainAccount is deposits, withdrawals and the rediscount.
	DomainAccount EntryDomain = "CAMT"
)

// EntryFamily is the second part of an entry's kind.
type EntryFamily string

// The families.
const (
	// FamilyDebit (IRCT) is the debit of a payment.
	FamilyDebit EntryFamily = "IRCT"
	// FamilyCredit (RRCT) is the credit of a payment.
	FamilyCredit EntryFamily = "RRCT"
	// FamilyDeposit (MCOP) puts money into the PI account.
	FamilyDeposit EntryFamily = "MCOP"
	// FamilyWithdrawal (MDOP) takes money out of it.
	FamilyWithdrawal EntryFamily = "MDOP"
)

// EntrySubFamily is the third part of an entry's kind.
type EntrySubFamily string

// The sub-families.
const (
	// SubFamilyPayment (DMCT) is a payment.
	SubFamilyPayment EntrySubFamily = "DMCT"
	// SubFamilyReturn (RRTN) is a return.
	SubFamilyReturn EntrySubFamily = "RRTN"
	// SubFamilyNone (NTAV) is for deposits and withdrawals.
	SubFamilyNone EntrySubFamily = "NTAV"
)

// OtherAgentType says where the other end of a movement is.
type OtherAgentType string

// The types.
const (
	OtherSelic OtherAgentType = "ContraparteSelic"
	OtherSTR   OtherAgentType = "ContraparteSTR"
)

func isAnswerType(s string) string {
	switch AnswerType(s) {
	case AnswerFile, AnswerBalances, AnswerEntry:
		return ""
	}
	return "want camt.052, camt.053 or camt.054"
}

func isSubject(s string) string {
	switch Subject(s) {
	case SubjectBalance, SubjectRemuneration, SubjectEntries, SubjectCashReport, SubjectCashTotal:
		return ""
	}
	return "want CSA, CRE, REL, TRD or TRT"
}

func isBalanceType(s string) string {
	switch BalanceType(s) {
	case BalanceAvailable, BalanceBlocked, BalanceRemunerable, BalanceRemuneration, BalanceEMoney, BalanceReserve:
		return ""
	}
	return "want SADP, SABK, PSSR, REMN, VSME or VVSR"
}

func isSide(s string) string {
	switch Side(s) {
	case Credit, Debit:
		return ""
	}
	return "want CRDT or DBIT"
}

func isEntryStatus(s string) string {
	switch EntryStatus(s) {
	case Booked, NotSettled:
		return ""
	}
	return "want BOOK or INFO"
}

func isEntryDomain(s string) string {
	switch EntryDomain(s) {
	case DomainPayments, DomainAccount:
		return ""
	}
	return "want PMNT or CAMT"
}

func isEntryFamily(s string) string {
	switch EntryFamily(s) {
	case FamilyDebit, FamilyCredit, FamilyDeposit, FamilyWithdrawal:
		return ""
	}
	return "want IRCT, RRCT, MCOP or MDOP"
}

func isEntrySubFamily(s string) string {
	switch EntrySubFamily(s) {
	case SubFamilyPayment, SubFamilyReturn, SubFamilyNone:
		return ""
	}
	return "want DMCT, RRTN or NTAV"
}

func isOtherAgentType(s string) string {
	switch OtherAgentType(s) {
	case OtherSelic, OtherSTR:
		return ""
	}
	return "want ContraparteSelic or ContraparteSTR"
}
