package corebank

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

// MaxBody bounds the body of a question and of an answer, in bytes.
const MaxBody = 16 << 10

// Question asks whether a payment may be credited. The names are those of BACEN's Pix API.
type Question struct {
	EndToEndID string `json:"endToEndId"`
	// Amount in reais with two decimals, "12.34".
	Amount string `json:"valor"`
	// AcceptedAt is when the payer's participant accepted the order.
	AcceptedAt time.Time `json:"horario"`
	// Deadline is when the answer is no longer of use. The call ends then.
	Deadline time.Time `json:"prazo"`
	Payer    Payer     `json:"pagador"`
	Payee    Payee     `json:"recebedor"`
	// Key is the Pix key that was paid to; empty for manual data.
	Key string `json:"chave,omitempty"`
	// Message is the payer's free text.
	Message string `json:"infoPagador,omitempty"`
	// TxID is the payee's own reference.
	TxID string `json:"txid,omitempty"`
	// Initiation is MANU, DICT, QRDN, QRES, INIC, AUTO, APDN or APES.
	Initiation string `json:"formaIniciacao"`
	// Purpose is IPAY, GSCB, OTHR, REFU or IPRT.
	Purpose string `json:"finalidade"`
}

// Payer is who pays.
type Payer struct {
	ISPB string `json:"ispb"`
	Name string `json:"nome"`
	// Document is a CPF or CNPJ.
	Document string  `json:"cpfCnpj"`
	Account  Account `json:"conta"`
}

// Payee is who is to be credited, at the participant that is asked.
type Payee struct {
	// Document is a CPF or CNPJ.
	Document string  `json:"cpfCnpj"`
	Account  Account `json:"conta"`
}

// Account is an account.
type Account struct {
	// Branch may be empty.
	Branch string `json:"agencia,omitempty"`
	Number string `json:"numero"`
	// Type is CACC, SVGS, TRAN, SLRY or OTHR.
	Type string `json:"tipo"`
}

// Decision is what the core says.
type Decision string

// The decisions.
const (
	Accepted Decision = "aceita"
	Rejected Decision = "rejeitada"
)

// Answer is the core's decision about one question.
type Answer struct {
	// EndToEndID repeats that of the question.
	EndToEndID string   `json:"endToEndId"`
	Decision   Decision `json:"decisao"`
	// Reason is a code of pacs.002 that a receiver may give, e.g. AC03; only with Rejected, and always with it.
	Reason string `json:"motivo,omitempty"`
	// Detail is for people on this side, up to MaxDetail characters; the SPI is not told.
	Detail string `json:"detalhe,omitempty"`
}

// MaxDetail is the most characters of Answer.Detail.
const MaxDetail = 140

// Reasons lists the codes with which a receiver may refuse (SPI catalogue 5.13; AB09 is an error of its own systems).
func Reasons() []string {
	return []string{
		"AB09", "AC03", "AC06", "AC07", "AC14", "AG03", "AM02", "AM09", "BE01", "BE17", "CH11", "DS04", "DT02", "DT05",
		"ED05", "FRAD", "RR04", "SL02",
	}
}

// ErrAnswer says that an answer is not as the contract has it.
var ErrAnswer = errors.New("answer of the core is not valid")

// Check reports whether the answer is one to the question with that EndToEndId; ErrAnswer otherwise.
func (a Answer) Check(endToEndID string) error {
	if a.EndToEndID != endToEndID {
		return fmt.Errorf("%w: it is about another payment", ErrAnswer)
	}
	if n := utf8.RuneCountInString(a.Detail); n > MaxDetail || !utf8.ValidString(a.Detail) {
		return fmt.Errorf("%w: detalhe has %d characters, want at most %d", ErrAnswer, n, MaxDetail)
	}
	switch {
	case a.Decision == Accepted && a.Reason == "":
		return nil
	case a.Decision == Rejected:
		for _, known := range Reasons() {
			if a.Reason == known {
				return nil
			}
		}
		return fmt.Errorf("%w: motivo %.8q is none that a receiver gives", ErrAnswer, a.Reason)
	default:
		return fmt.Errorf("%w: decisao %.16q with motivo %.8q", ErrAnswer, a.Decision, a.Reason)
	}
}
