package iso20022_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
)

const (
	bankA pix.ISPB = "12345678"
	bankB pix.ISPB = "9999A004"
)

// sampler makes messages that keep every rule, each part there or not by chance.
type sampler struct{ *rand.Rand }

func (s sampler) yes() bool { return s.IntN(2) == 0 }

// from returns n characters of an alphabet.
func (s sampler) from(alphabet string, n int) string {
	letters := []rune(alphabet)
	out := make([]rune, n)
	for i := range out {
		out[i] = letters[s.IntN(len(letters))]
	}
	return string(out)
}

const (
	numbers = "0123456789"
	upper   = numbers + "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	alnum   = upper + "abcdefghijklmnopqrstuvwxyz"
	free    = alnum + " çãõéÁ<>&'\"]\t\n\r€😀ß"
)

func (s sampler) text(most int) string { return s.from(free, 1+s.IntN(most)) }

// maybe returns v, or the zero value for what is absent.
func maybe[T any](s sampler, v T) T {
	if s.yes() {
		return v
	}
	return *new(T)
}

func one[T any](s sampler, of ...T) T { return of[s.IntN(len(of))] }

func (s sampler) ispb() pix.ISPB { return pix.ISPB(s.from(upper, 8)) }
func (s sampler) at() time.Time {
	return time.UnixMilli(1767225600000 + s.Int64N(1e11)).UTC()
}
func (s sampler) day() string        { return s.at().Format("2006-01-02") }
func (s sampler) amount() pix.Amount { return pix.Amount(s.Int64N(int64(pix.MaxAmount) + 1)) }

func (s sampler) id(kind string) string {
	return kind + string(s.ispb()) + s.at().Format("200601021504") + s.from(alnum, 11)
}
func (s sampler) endToEnd() pix.EndToEndID { return pix.EndToEndID(s.id("E")) }
func (s sampler) msgID(from pix.ISPB) pix.MsgID {
	return pix.MsgID("M" + string(from) + s.from(alnum, 23))
}
func (s sampler) cnpj() string { return s.from(upper, 12) + s.from(numbers, 2) }
func (s sampler) person() string {
	return one(s, s.from(numbers, 11), s.cnpj())
}

func (s sampler) account() iso20022.Account {
	return iso20022.Account{
		ID: s.from(upper, 1+s.IntN(20)), Branch: maybe(s, s.from(numbers, 1+s.IntN(4))),
		Type: one(s, iso20022.CACC, iso20022.SVGS, iso20022.TRAN, iso20022.SLRY, iso20022.OTHR),
	}
}

func (s sampler) remittance() *iso20022.Remittance {
	if s.yes() {
		return nil
	}
	r := &iso20022.Remittance{Text: maybe(s, s.text(140))}
	if s.yes() {
		r.Cash = &iso20022.Cash{
			Agent: one(s, iso20022.AGFSS, iso20022.AGTEC, iso20022.AGTOT), Facilitator: s.ispb(),
			Parts: []iso20022.CashPart{{Amount: s.amount(), Kind: iso20022.CashPurchase}, {Amount: s.amount(), Kind: iso20022.CashNotes}},
		}
		r.Cash.Parts = r.Cash.Parts[s.IntN(2):]
	}
	return r
}

func (s sampler) tax() *iso20022.Tax {
	if s.yes() {
		return nil
	}
	return &iso20022.Tax{Reference: s.from(alnum, 1+s.IntN(50)), Records: []iso20022.TaxRecord{
		{Type: iso20022.CBSSplit, Amount: s.amount()}, {Type: iso20022.IBSSplit, Amount: s.amount()},
	}}
}

func (s sampler) instrument() iso20022.LocalInstrument {
	return one(s, iso20022.MANU, iso20022.DICT, iso20022.QRDN, iso20022.QRES, iso20022.INIC, iso20022.AUTO, iso20022.APDN, iso20022.APES)
}

func (s sampler) purpose() iso20022.Purpose {
	return one(s, iso20022.PurposePayment, iso20022.PurposeChange, iso20022.PurposeWithdrawal, iso20022.PurposeRefund, iso20022.PurposeReturn)
}

func (s sampler) transfer() iso20022.CreditTransfer {
	t := iso20022.CreditTransfer{
		InstrID: maybe(s, s.id(one(s, "E", "D"))), EndToEndID: s.endToEnd(), Amount: s.amount(), AcceptedAt: s.at(),
		LocalInstrument: s.instrument(), InitiatingParty: maybe(s, s.cnpj()),
		Debtor: iso20022.Party{Name: s.text(140), ID: s.person()}, DebtorAccount: s.account(),
		DebtorAgent: s.ispb(), CreditorAgent: s.ispb(), CreditorID: s.person(), CreditorAccount: s.account(),
		Purpose: s.purpose(), Tax: s.tax(), Remittance: s.remittance(),
	}
	if t.LocalInstrument != iso20022.MANU && t.LocalInstrument != iso20022.DICT {
		t.TxID = maybe(s, s.from(alnum, 1+s.IntN(35)))
	}
	if t.LocalInstrument.HasProxy() {
		t.Proxy = s.text(77)
	}
	return t
}

// times makes n values; nil for none.
func times[T any](n int, make func() T) (out []T) {
	for range n {
		out = append(out, make())
	}
	return out
}

func (s sampler) pacs008() *iso20022.Pacs008 {
	m := &iso20022.Pacs008{
		Priority: iso20022.High, ServiceLevel: iso20022.PAGPRI,
		Transactions: times(1+s.IntN(iso20022.MaxTransactions), s.transfer),
	}
	if s.yes() {
		m.Priority, m.ServiceLevel = iso20022.Normal, one(s, iso20022.PAGAGD, iso20022.PAGFRD)
	}
	return m
}

// pacs002 is of a participant, or of the SPI.
func (s sampler) pacs002(spi bool) *iso20022.Pacs002 {
	return &iso20022.Pacs002{Statuses: times(1+s.IntN(12), func() iso20022.PaymentStatus {
		st := iso20022.PaymentStatus{
			OriginalInstrID: s.id(one(s, "E", "D")), OriginalEndToEndID: s.endToEnd(), Status: one(s, iso20022.ACSP, iso20022.RJCT),
		}
		if spi {
			st.Status = one(s, iso20022.ACSC, iso20022.ACCC, iso20022.ACSP, iso20022.RJCT)
			at, day := s.at(), s.day()
			st.SettledAt, st.AccountingDate = maybe(s, &at), maybe(s, &day)
		}
		if st.Status == iso20022.RJCT {
			st.Reasons = times(1+s.IntN(3), func() iso20022.StatusReason {
				return iso20022.StatusReason{
					Code: one(s, iso20022.ReasonCodes()...), Info: times(s.IntN(3), func() string { return s.text(105) }),
				}
			})
		}
		return st
	})}
}

func (s sampler) returnReason() iso20022.ReturnReason {
	return iso20022.ReturnReason{
		Code: one(s, iso20022.ReturnAsked, iso20022.ReturnFailure, iso20022.ReturnFraud, iso20022.ReturnCash), Info: maybe(s, s.text(105)),
	}
}

func (s sampler) pacs004() *iso20022.Pacs004 {
	return &iso20022.Pacs004{Returns: times(1+s.IntN(iso20022.MaxTransactions), func() iso20022.PaymentReturn {
		return iso20022.PaymentReturn{
			ReturnID: pix.ReturnID(s.id("D")), OriginalEndToEndID: s.endToEnd(), Amount: s.amount(),
			Priority: one(s, iso20022.High, iso20022.Normal), Reason: s.returnReason(), Remittance: maybe(s, s.text(140)),
			DebtorAgent: s.ispb(), CreditorAgent: s.ispb(),
		}
	})}
}

func (s sampler) admi002() *iso20022.Admi002 {
	at := s.at()
	return &iso20022.Admi002{
		Ref: s.text(33), Reason: s.text(35), RejectedAt: maybe(s, &at), Location: maybe(s, s.text(350)),
		Description: maybe(s, s.text(350)), Data: maybe(s, s.text(1000)),
	}
}

func (s sampler) camt060() *iso20022.Camt060 {
	owner := s.ispb()
	return one(
		s, iso20022.Balance(owner), iso20022.BalanceOn(owner, s.at()), iso20022.Remuneration(owner, s.at()),
		iso20022.Entries(owner, s.at(), s.at()), iso20022.CashReport(owner, s.at()), iso20022.CashTotal(owner, s.at()),
		iso20022.Entry(owner, one(s, s.id("E"), s.id("D"), "STR20260131"+s.from(alnum, 9))),
	)
}

func (s sampler) camt052() *iso20022.Camt052 {
	return &iso20022.Camt052{Reports: times(1+s.IntN(3), func() iso20022.FileReport {
		return iso20022.FileReport{ID: s.msgID(bankA), Owner: s.ispb(), Entries: s.IntN(1e9), Info: s.text(500)}
	})}
}

func (s sampler) camt053() *iso20022.Camt053 {
	return &iso20022.Camt053{Statements: times(1+s.IntN(3), func() iso20022.Statement {
		return iso20022.Statement{
			ID: one(s, string(s.msgID(bankA)), strings.Repeat("0", 32)), Owner: s.ispb(),
			Balances: times(1+s.IntN(4), func() iso20022.AccountBalance {
				return iso20022.AccountBalance{
					Type: one(s, iso20022.BalanceAvailable, iso20022.BalanceBlocked, iso20022.BalanceRemunerable,
						iso20022.BalanceRemuneration, iso20022.BalanceEMoney, iso20022.BalanceReserve),
					Amount: s.amount(), At: s.at(),
				}
			}),
		}
	})}
}

func (s sampler) details() iso20022.EntryDetails {
	at, reason := s.at(), s.returnReason()
	d := iso20022.EntryDetails{
		InstrID: maybe(s, s.id(one(s, "E", "D"))), EndToEndID: s.id(one(s, "E", "L")), TxID: maybe(s, s.text(35)),
		ClearingRef: maybe(s, "STR20260131"+s.from(alnum, 9)), ServiceLevel: maybe(s, iso20022.PAGFRD),
		DebtorAgent: maybe(s, s.ispb()), CreditorAgent: maybe(s, s.ispb()),
		LocalInstrument: maybe(s, s.instrument()), Purpose: maybe(s, s.purpose()), Remittance: s.remittance(),
		AcceptedAt: maybe(s, &at), Tax: s.tax(), Return: maybe(s, &reason), Priority: maybe(s, iso20022.High),
	}
	if d.Tax != nil {
		d.Tax.Reference = maybe(s, d.Tax.Reference)
	}
	if s.yes() {
		d.Parties = &iso20022.EntryParties{
			InitiatingParty: maybe(s, s.cnpj()), Debtor: iso20022.Party{Name: s.text(140), ID: s.person()}, DebtorAccount: s.account(),
			CreditorID: s.person(), CreditorAccount: s.account(), Proxy: maybe(s, s.text(77)),
		}
	} else {
		d.Other = &iso20022.OtherAgent{Type: one(s, iso20022.OtherSTR, iso20022.OtherSelic), Agent: s.ispb()}
	}
	return d
}

func (s sampler) camt054() *iso20022.Camt054 {
	return &iso20022.Camt054{Notifications: times(1+s.IntN(3), func() iso20022.Notification {
		at, day := s.at(), s.day()
		return iso20022.Notification{
			ID: s.msgID(pix.SPI), Owner: s.ispb(), Amount: s.amount(), Side: one(s, iso20022.Credit, iso20022.Debit),
			Status: one(s, iso20022.Booked, iso20022.NotSettled), AccountingDate: maybe(s, &day), StatusAt: maybe(s, &at),
			Domain:    one(s, iso20022.DomainPayments, iso20022.DomainAccount),
			Family:    one(s, iso20022.FamilyDebit, iso20022.FamilyCredit, iso20022.FamilyDeposit, iso20022.FamilyWithdrawal),
			SubFamily: one(s, iso20022.SubFamilyPayment, iso20022.SubFamilyReturn, iso20022.SubFamilyNone),
			Origin:    "pacs.008", Details: s.details(), ErrorCode: maybe(s, s.text(4)), Error: maybe(s, s.text(105)),
		}
	})}
}

// sample is a message with the header that it goes under.
type sample struct {
	header   iso20022.Header
	document iso20022.Document
}

// all makes one message of each type, and pacs.002 of both sides.
func (s sampler) all() []sample {
	under := func(from, to pix.ISPB, d iso20022.Document) sample {
		msgType := d.MsgType()
		return sample{iso20022.Header{
			From: from, To: to, MsgID: s.msgID(from), Created: s.at(),
			MsgType: msgType, Version: iso20022.DefaultVersions()[msgType][0],
		}, d}
	}
	return []sample{
		under(bankA, pix.SPI, s.pacs008()),
		under(pix.SPI, bankB, s.pacs008()),
		under(bankB, pix.SPI, s.pacs002(false)),
		under(pix.SPI, bankA, s.pacs002(true)),
		under(bankB, pix.SPI, s.pacs004()),
		under(pix.SPI, bankA, s.admi002()),
		under(bankA, pix.SPI, &iso20022.Pibr001{Data: s.text(35)}),
		under(pix.SPI, bankA, &iso20022.Pibr002{OriginalData: s.text(35)}),
		under(bankA, pix.SPI, s.camt060()),
		under(pix.SPI, bankA, s.camt052()),
		under(pix.SPI, bankA, s.camt053()),
		under(pix.SPI, bankA, s.camt054()),
	}
}

// build builds a sample.
func (m sample) build(t testing.TB) []byte {
	t.Helper()
	out, err := iso20022.DefaultVersions().Build(m.header, m.document)
	require.NoError(t, err)
	return out
}

// fixed is a sampler that always makes the same messages.
func fixed(n uint64) sampler { return sampler{rand.New(rand.NewPCG(n, n))} }

// signature looks like the SPI's: carriage returns, wrapped lines, white space, an empty element.
const signature = `<ds:Signature xmlns:ds="http://www.w3.org/2000/09/xmldsig#"><ds:SignedInfo>` +
	`<ds:CanonicalizationMethod Algorithm="http://www.w3.org/2001/10/xml-exc-c14n#"/>` +
	`<ds:SignatureMethod Algorithm="http://www.w3.org/2001/04/xmldsig-more#rsa-sha256"></ds:SignatureMethod>` +
	`<ds:Reference URI="#key-info-id"><ds:Transforms><ds:Transform Algorithm="http://www.w3.org/2001/10/xml-exc-c14n#"/></ds:Transforms>` +
	`<ds:DigestMethod Algorithm="http://www.w3.org/2001/04/xmlenc#sha256"/><ds:DigestValue>AAAA</ds:DigestValue></ds:Reference>` +
	"</ds:SignedInfo>\n<ds:SignatureValue>AAAA&#13;\nBBBB&#xD;\n</ds:SignatureValue>" +
	`<ds:KeyInfo Id="key-info-id"><ds:X509Data><ds:X509IssuerSerial><ds:X509IssuerName>CN=SPI, C=BR</ds:X509IssuerName>` +
	`<ds:X509SerialNumber>1</ds:X509SerialNumber></ds:X509IssuerSerial></ds:X509Data></ds:KeyInfo></ds:Signature>`

// signed puts a signature where it belongs.
func signed(envelope []byte, signature string) []byte {
	return []byte(strings.Replace(string(envelope), "<Sgntr></Sgntr>", "<Sgntr>"+signature+"</Sgntr>", 1))
}

func (m sample) String() string { return fmt.Sprintf("%s from %s", m.header.MsgType, m.header.From) }

// digitsOf is the ISPB itself, or one of digits for one with letters.
func digitsOf(ispb pix.ISPB) pix.ISPB {
	if ispb == bankB {
		return "87654321"
	}
	return ispb
}
