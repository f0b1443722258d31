package iso20022

import (
	"time"

	"github.com/cabine-pix/cabine/libs/pix"
)

const msgCamt053 = "camt.053"

// Camt053 tells balances of a PI account, or what it earned (camt.053 1.4).
type Camt053 struct {
	// Statements has one or more.
	Statements []Statement `json:"statements"`
}

// Statement is about one account.
type Statement struct {
	// ID is the MsgID of the question, or 32 zeros.
	ID string `json:"id"`
	// Owner of the account.
	Owner pix.ISPB `json:"owner"`
	// Balances has one or more.
	Balances []AccountBalance `json:"balances"`
}

// AccountBalance is one of the balances of an account.
type AccountBalance struct {
	Type BalanceType `json:"type"`
	// Amount in centavos, never negative.
	Amount pix.Amount `json:"amount"`
	// At is the instant of the balance; UTC, milliseconds.
	At time.Time `json:"at"`
}

// MsgType is "camt.053".
func (m *Camt053) MsgType() string { return msgCamt053 }

func (m *Camt053) walk(x *walker) {
	x.group("BkToCstmrStmt", func() {
		x.groupHeader(nothing)
		list(x, &m.Statements, 1, many, "Stmt", func(s *Statement, x *walker) {
			text(x, &s.ID, msgIDOrZeros, "Id")
			text(x, &s.Owner, ispb, "Acct", "Id", "Othr", "Id")
			list(x, &s.Balances, 1, many, "Bal", (*AccountBalance).walk)
		})
	})
}

func (b *AccountBalance) walk(x *walker) {
	text(x, &b.Type, isBalanceType, "Tp", "CdOrPrtry", "Prtry")
	x.amount(&b.Amount, "Amt")
	x.fixed("CRDT", "CdtDbtInd")
	x.instant(&b.At, "Dt", "DtTm")
}
