package iso20022

import (
	"time"

	"github.com/cabine-pix/cabine/libs/pix"
)

const msgCamt060 = "camt.060"

// Camt060 asks about a participant's PI account (camt.060 1.9). The functions Balance, BalanceOn, Remuneration, Entries,
// CashReport, CashTotal and Entry make the questions that there are.
type Camt060 struct {
	// EntryID is the entry to be told: an EndToEndID, a ReturnID or a control number of the STR; "" in other questions.
	EntryID string `json:"entry_id,omitempty"`
	// Answer is the type of the message that answers.
	Answer AnswerType `json:"answer"`
	// Owner of the account.
	Owner pix.ISPB `json:"owner"`
	// Period is nil when absent.
	Period *Period `json:"period,omitempty"`
	// Subject is what is asked, "" for a single entry.
	Subject Subject `json:"subject,omitempty"`
}

// Period is a span of days, or of instants when it has times. All are UTC.
type Period struct {
	// FromDate and ToDate as "2026-01-31"; ToDate is "" when absent.
	FromDate string `json:"from_date"`
	ToDate   string `json:"to_date,omitempty"`
	// Times is nil when absent.
	Times *PeriodTimes `json:"times,omitempty"`
}

// PeriodTimes are the times of day at both ends of a period, "15:04:05.000Z".
type PeriodTimes struct {
	From string `json:"from"`
	To   string `json:"to"`
}

const (
	dateFormat = "2006-01-02"
	timeFormat = "15:04:05.000Z"
)

// Balance asks for the balance now; camt.053 answers.
func Balance(owner pix.ISPB) *Camt060 {
	return &Camt060{Answer: AnswerBalances, Owner: owner, Subject: SubjectBalance}
}

// BalanceOn asks for the balance of an earlier day, which is taken from the instant in UTC; camt.053 answers.
func BalanceOn(owner pix.ISPB, day time.Time) *Camt060 {
	return &Camt060{Answer: AnswerBalances, Owner: owner, Subject: SubjectBalance, Period: onDay(day)}
}

// Remuneration asks what the account earned on a day; camt.053 answers.
func Remuneration(owner pix.ISPB, day time.Time) *Camt060 {
	return &Camt060{Answer: AnswerBalances, Owner: owner, Subject: SubjectRemuneration, Period: onDay(day)}
}

// Entries asks for a file with the entries between two instants; camt.052 says when it is ready.
func Entries(owner pix.ISPB, from, to time.Time) *Camt060 {
	from, to = from.UTC(), to.UTC()
	return &Camt060{Answer: AnswerFile, Owner: owner, Subject: SubjectEntries, Period: &Period{
		FromDate: from.Format(dateFormat), ToDate: to.Format(dateFormat),
		Times: &PeriodTimes{From: from.Format(timeFormat), To: to.Format(timeFormat)},
	}}
}

// CashReport asks for the file of Pix Saque and Pix Troco by kind of agent since a day; camt.052 says when it is ready.
func CashReport(owner pix.ISPB, day time.Time) *Camt060 {
	return &Camt060{Answer: AnswerFile, Owner: owner, Subject: SubjectCashReport, Period: onDay(day)}
}

// CashTotal asks for the file of what is to be reimbursed for Pix Saque and Pix Troco; camt.052 says when it is ready.
func CashTotal(owner pix.ISPB, day time.Time) *Camt060 {
	return &Camt060{Answer: AnswerFile, Owner: owner, Subject: SubjectCashTotal, Period: onDay(day)}
}

// Entry asks about one entry, by the payment's EndToEndID or the return's ReturnID; camt.054 answers.
func Entry(owner pix.ISPB, id string) *Camt060 {
	return &Camt060{Answer: AnswerEntry, Owner: owner, EntryID: id}
}

func onDay(day time.Time) *Period { return &Period{FromDate: day.UTC().Format(dateFormat)} }

// MsgType is "camt.060".
func (m *Camt060) MsgType() string { return msgCamt060 }

func (m *Camt060) walk(x *walker) {
	x.group("AcctRptgReq", func() {
		x.groupHeader(nothing)
		x.group("RptgReq", func() {
			optional(x, &m.EntryID, entryID, "Id")
			text(x, &m.Answer, isAnswerType, "ReqdMsgNmId")
			text(x, &m.Owner, ispb, "AcctOwnr", "Agt", "FinInstnId", "ClrSysMmbId", "MmbId")
			pointer(x, &m.Period, "RptgPrd", (*Period).walk)
			optional(x, &m.Subject, isSubject, "ReqdBalTp", "CdOrPrtry", "Prtry")
			m.rules(x)
		})
	})
}

// rules are which parts go with which question.
func (m *Camt060) rules(x *walker) {
	timed := m.Period != nil && m.Period.Times != nil
	x.rule((m.EntryID != "") == (m.Answer == AnswerEntry), "an entry is named for camt.054, and only then", "Id")
	x.rule(m.Subject.answer() == m.Answer, "does not go with the message that answers", "ReqdBalTp")
	x.rule(timed == (m.Subject == SubjectEntries), "times are for the list of entries, which needs them", "RptgPrd", "FrToTm")
	x.rule(m.Period != nil || m.Subject == SubjectBalance || m.Answer == AnswerEntry, "is needed", "RptgPrd")
}

func (p *Period) walk(x *walker) {
	x.group("FrToDt", func() {
		text(x, &p.FromDate, date, "FrDt")
		optional(x, &p.ToDate, date, "ToDt")
	})
	pointer(x, &p.Times, "FrToTm", func(t *PeriodTimes, x *walker) {
		text(x, &t.From, timeOfDay, "FrTm")
		text(x, &t.To, timeOfDay, "ToTm")
	})
	x.fixed("ALLL", "Tp")
}
