package iso20022

import (
	"github.com/cabine-pix/cabine/libs/pix"
)

const msgCamt052 = "camt.052"

// Camt052 says that files which Camt060 asked for are ready (camt.052 1.3). The files come over another interface.
type Camt052 struct {
	// Reports has one or more.
	Reports []FileReport `json:"reports"`
}

// FileReport is about one file.
type FileReport struct {
	// ID is the MsgID of the question.
	ID pix.MsgID `json:"id"`
	// Owner of the account.
	Owner pix.ISPB `json:"owner"`
	// Entries is how many the file has.
	Entries int `json:"entries"`
	// Info has 1 to 500 characters: the hash of the file.
	Info string `json:"info"`
}

// MsgType is "camt.052".
func (m *Camt052) MsgType() string { return msgCamt052 }

func (m *Camt052) walk(x *walker) {
	x.group("BkToCstmrAcctRpt", func() {
		x.groupHeader(nothing)
		list(x, &m.Reports, 1, many, "Rpt", func(r *FileReport, x *walker) {
			text(x, &r.ID, msgID, "Id")
			text(x, &r.Owner, ispb, "Acct", "Id", "Othr", "Id")
			x.count(&r.Entries, "TxsSummry", "TtlNtries", "NbOfNtries")
			text(x, &r.Info, text500, "AddtlRptInf")
		})
	})
}
