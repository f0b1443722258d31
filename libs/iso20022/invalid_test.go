package iso20022_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
)

// refused builds, which must fail at the path.
func refused(t *testing.T, m sample, path, reason string) {
	t.Helper()
	_, err := iso20022.DefaultVersions().Build(m.header, m.document)
	var invalid *iso20022.InvalidError
	require.ErrorAs(t, err, &invalid, "%s: %s", path, reason)
	require.Equal(t, path, invalid.Path)
	require.Contains(t, invalid.Reason, reason)
}

func TestInvalidPaymentsAreNotBuilt(t *testing.T) {
	t.Parallel()
	const root = "Envelope/Document/FIToFICstmrCdtTrf/"
	for _, c := range []struct {
		path, reason string
		spoil        func(*iso20022.Pacs008, *iso20022.CreditTransfer)
	}{
		{"GrpHdr/NbOfTxs", "want 1 to 10", func(m *iso20022.Pacs008, _ *iso20022.CreditTransfer) { m.Transactions = nil }},
		{"GrpHdr/NbOfTxs", "want 1 to 10", func(m *iso20022.Pacs008, _ *iso20022.CreditTransfer) {
			m.Transactions = make([]iso20022.CreditTransfer, 11)
		}},
		{"GrpHdr/PmtTpInf/InstrPrty", "HIGH goes with PAGPRI", func(m *iso20022.Pacs008, _ *iso20022.CreditTransfer) { m.Priority = iso20022.Normal }},
		{"GrpHdr/PmtTpInf/InstrPrty", "HIGH goes with PAGPRI", func(m *iso20022.Pacs008, _ *iso20022.CreditTransfer) { m.ServiceLevel = iso20022.PAGAGD }},
		{"GrpHdr/PmtTpInf/InstrPrty", "want HIGH", func(m *iso20022.Pacs008, _ *iso20022.CreditTransfer) { m.Priority = "" }},
		{"CdtTrfTxInf[2]/PmtId/EndToEndId", "want an EndToEndId", func(_ *iso20022.Pacs008, t *iso20022.CreditTransfer) {
			t.EndToEndID = "D1234567820260131120000000000001"
		}},
		{"CdtTrfTxInf[2]/PmtId/InstrId", "want an EndToEndId", func(_ *iso20022.Pacs008, t *iso20022.CreditTransfer) { t.InstrID = "x" }},
		{"CdtTrfTxInf[2]/PmtId/TxId", "absent for MANU", func(_ *iso20022.Pacs008, t *iso20022.CreditTransfer) { t.TxID = "1" }},
		{"CdtTrfTxInf[2]/PmtId/TxId", "want 1 to 35 letters or digits", func(_ *iso20022.Pacs008, t *iso20022.CreditTransfer) {
			t.TxID, t.LocalInstrument, t.Proxy = "a b", iso20022.QRDN, "chave"
		}},
		{"CdtTrfTxInf[2]/CdtrAcct/Prxy", "unless the instrument is MANU or AUTO", func(_ *iso20022.Pacs008, t *iso20022.CreditTransfer) { t.Proxy = "chave" }},
		{"CdtTrfTxInf[2]/CdtrAcct/Prxy", "unless the instrument is MANU or AUTO", func(_ *iso20022.Pacs008, t *iso20022.CreditTransfer) {
			t.LocalInstrument = iso20022.DICT
		}},
		{"CdtTrfTxInf[2]/CdtrAcct/Prxy/Id", "want 1 to 77", func(_ *iso20022.Pacs008, t *iso20022.CreditTransfer) {
			t.LocalInstrument, t.Proxy = iso20022.DICT, strings.Repeat("é", 78)
		}},
		{"CdtTrfTxInf[2]/IntrBkSttlmAmt", "want an amount", func(_ *iso20022.Pacs008, t *iso20022.CreditTransfer) { t.Amount = -1 }},
		{"CdtTrfTxInf[2]/IntrBkSttlmAmt", "want an amount", func(_ *iso20022.Pacs008, t *iso20022.CreditTransfer) { t.Amount = pix.MaxAmount + 1 }},
		{"CdtTrfTxInf[2]/AccptncDtTm", "want a time", func(_ *iso20022.Pacs008, t *iso20022.CreditTransfer) { t.AcceptedAt = time.Time{} }},
		{"CdtTrfTxInf[2]/AccptncDtTm", "want a time", func(_ *iso20022.Pacs008, t *iso20022.CreditTransfer) { t.AcceptedAt = t.AcceptedAt.AddDate(9000, 0, 0) }},
		{"CdtTrfTxInf[2]/Dbtr/Nm", "want 1 to 140", func(_ *iso20022.Pacs008, t *iso20022.CreditTransfer) { t.Debtor.Name = "" }},
		{"CdtTrfTxInf[2]/Dbtr/Nm", "a character that XML does not have", func(_ *iso20022.Pacs008, t *iso20022.CreditTransfer) { t.Debtor.Name = "a\x00" }},
		{"CdtTrfTxInf[2]/Dbtr/Nm", "no UTF-8", func(_ *iso20022.Pacs008, t *iso20022.CreditTransfer) { t.Debtor.Name = "a\xff" }},
		{"CdtTrfTxInf[2]/Dbtr/Id/PrvtId/Othr/Id", "want a CPF", func(_ *iso20022.Pacs008, t *iso20022.CreditTransfer) { t.Debtor.ID = "111.111.111-11" }},
		{"CdtTrfTxInf[2]/InitgPty/Id/OrgId/Othr/Id", "want a CNPJ", func(_ *iso20022.Pacs008, t *iso20022.CreditTransfer) { t.InitiatingParty = "11111111111" }},
		{"CdtTrfTxInf[2]/DbtrAcct/Id/Othr/Id", "want 1 to 20", func(_ *iso20022.Pacs008, t *iso20022.CreditTransfer) { t.DebtorAccount.ID = "" }},
		{"CdtTrfTxInf[2]/DbtrAcct/Id/Othr/Issr", "want 1 to 4 digits", func(_ *iso20022.Pacs008, t *iso20022.CreditTransfer) { t.DebtorAccount.Branch = "1-9" }},
		{"CdtTrfTxInf[2]/DbtrAcct/Tp/Cd", "want CACC", func(_ *iso20022.Pacs008, t *iso20022.CreditTransfer) { t.DebtorAccount.Type = "" }},
		{"CdtTrfTxInf[2]/Purp/Cd", "want IPAY", func(_ *iso20022.Pacs008, t *iso20022.CreditTransfer) { t.Purpose = "" }},
		{"CdtTrfTxInf[2]/Tax/Rcrd", "too few or too many", func(_ *iso20022.Pacs008, t *iso20022.CreditTransfer) {
			t.Tax = &iso20022.Tax{Reference: "1", Records: []iso20022.TaxRecord{{Type: iso20022.CBSSplit}}}
		}},
		{"CdtTrfTxInf[2]/Tax/RefNb", "want 1 to 50", func(_ *iso20022.Pacs008, t *iso20022.CreditTransfer) { t.Tax = &iso20022.Tax{} }},
		{"CdtTrfTxInf[2]/RmtInf/Strd/RfrdDocAmt/AdjstmntAmtAndRsn/Rsn", "the same twice", func(_ *iso20022.Pacs008, t *iso20022.CreditTransfer) {
			part := iso20022.CashPart{Kind: iso20022.CashNotes}
			t.Remittance = &iso20022.Remittance{Cash: &iso20022.Cash{
				Agent: iso20022.AGFSS, Facilitator: bankA, Parts: []iso20022.CashPart{part, part},
			}}
		}},
		{"CdtTrfTxInf[2]/RmtInf/Strd/RfrdDocAmt/AdjstmntAmtAndRsn", "too few or too many", func(_ *iso20022.Pacs008, t *iso20022.CreditTransfer) {
			t.Remittance = &iso20022.Remittance{Cash: &iso20022.Cash{Agent: iso20022.AGFSS, Facilitator: bankA, Parts: make([]iso20022.CashPart, 3)}}
		}},
	} {
		m := plainPayment()
		doc, ok := m.document.(*iso20022.Pacs008)
		require.True(t, ok)
		c.spoil(doc, &doc.Transactions[1])
		if strings.HasSuffix(c.path, "AdjstmntAmtAndRsn") {
			for i := range doc.Transactions[1].Remittance.Cash.Parts {
				doc.Transactions[1].Remittance.Cash.Parts[i].Kind = iso20022.CashNotes
			}
		}
		refused(t, m, root+c.path, c.reason)
		require.ErrorContains(t, iso20022.Validate(doc), c.reason)
	}
}

func TestInvalidHeadersAreNotBuilt(t *testing.T) {
	t.Parallel()
	for path, spoil := range map[string]func(*iso20022.Header){
		"Fr/FIId/FinInstnId/Othr/Id": func(h *iso20022.Header) { h.From = "" },
		"To/FIId/FinInstnId/Othr/Id": func(h *iso20022.Header) { h.To = "1234567a" },
		"BizMsgIdr":                  func(h *iso20022.Header) { h.MsgID = "M123" },
		"CreDt":                      func(h *iso20022.Header) { h.Created = time.Time{} },
		"MsgDefIdr":                  func(h *iso20022.Header) { h.MsgType = "pacs.004" },
	} {
		m := plainPayment()
		spoil(&m.header)
		refused(t, m, "Envelope/AppHdr/"+path, "")
	}
}

func TestInvalidStatusesAreNotBuilt(t *testing.T) {
	t.Parallel()
	at, day, noDay := time.Now(), "2026-01-31", "2026-02-30"
	for _, c := range []struct {
		from         pix.ISPB
		path, reason string
		spoil        func(*iso20022.PaymentStatus)
	}{
		{bankA, "TxSts", "a participant says ACSP or RJCT", func(s *iso20022.PaymentStatus) { s.Status = iso20022.ACSC }},
		{bankA, "FctvIntrBkSttlmDt", "the SPI alone", func(s *iso20022.PaymentStatus) { s.SettledAt = &at }},
		{bankA, "OrgnlTxRef", "the SPI alone", func(s *iso20022.PaymentStatus) { s.AccountingDate = &day }},
		{pix.SPI, "OrgnlTxRef/IntrBkSttlmDt", "want a date", func(s *iso20022.PaymentStatus) { s.AccountingDate = &noDay }},
		{bankA, "StsRsnInf", "RJCT has a reason", func(s *iso20022.PaymentStatus) { s.Status = iso20022.RJCT }},
		{bankA, "StsRsnInf", "only RJCT", func(s *iso20022.PaymentStatus) { s.Reasons = []iso20022.StatusReason{{Code: iso20022.AB03}} }},
		{bankA, "StsRsnInf[1]/Rsn/Cd", "45 reasons", func(s *iso20022.PaymentStatus) { s.Reasons = []iso20022.StatusReason{{Code: "DS0H"}} }},
		{bankA, "StsRsnInf[1]/AddtlInf", "want 1 to 105", func(s *iso20022.PaymentStatus) {
			s.Reasons = []iso20022.StatusReason{{Info: []string{strings.Repeat("x", 106)}}}
		}},
		{bankA, "OrgnlInstrId", "want an EndToEndId or a RtrId", func(s *iso20022.PaymentStatus) { s.OriginalInstrID = "" }},
		{bankA, "OrgnlEndToEndId", "want an EndToEndId", func(s *iso20022.PaymentStatus) { s.OriginalEndToEndID = "D1234567820260131120000000000001" }},
	} {
		m := fixed(3).all()[2]
		m.header.From, m.header.MsgID = c.from, "M"+pix.MsgID(c.from)+"00000000000000000000000"
		status := iso20022.PaymentStatus{
			OriginalInstrID: "E1234567820260131120000000000001", OriginalEndToEndID: "E1234567820260131120000000000001", Status: iso20022.ACSP,
		}
		c.spoil(&status)
		m.document = &iso20022.Pacs002{Statuses: []iso20022.PaymentStatus{status}}
		refused(t, m, "Envelope/Document/FIToFIPmtStsRpt/TxInfAndSts[1]/"+c.path, c.reason)
	}
	m := fixed(3).all()[2]
	m.document = &iso20022.Pacs002{}
	refused(t, m, "Envelope/Document/FIToFIPmtStsRpt/TxInfAndSts", "too few or too many")
}

func TestInvalidQuestionsAreNotBuilt(t *testing.T) {
	t.Parallel()
	now := time.Now()
	day := &iso20022.Period{FromDate: "2026-01-31"}
	for _, c := range []struct {
		path string
		ask  *iso20022.Camt060
	}{
		{"Id", iso20022.Entry(bankA, "")},
		{"Id", iso20022.Entry(bankA, "M1234567800000000000000000000000")},
		{"Id", &iso20022.Camt060{Answer: iso20022.AnswerBalances, Owner: bankA, Subject: iso20022.SubjectBalance, EntryID: fixed(1).id("E")}},
		{"ReqdBalTp", &iso20022.Camt060{Answer: iso20022.AnswerBalances, Owner: bankA, Subject: iso20022.SubjectEntries, Period: day}},
		{"ReqdBalTp", &iso20022.Camt060{Answer: iso20022.AnswerFile, Owner: bankA}},
		{"RptgPrd/FrToTm", &iso20022.Camt060{Answer: iso20022.AnswerFile, Owner: bankA, Subject: iso20022.SubjectEntries, Period: day}},
		{"RptgPrd/FrToTm", &iso20022.Camt060{
			Answer: iso20022.AnswerFile, Owner: bankA, Subject: iso20022.SubjectCashTotal, Period: iso20022.Entries(bankA, now, now).Period,
		}},
		{"RptgPrd", &iso20022.Camt060{Answer: iso20022.AnswerBalances, Owner: bankA, Subject: iso20022.SubjectRemuneration}},
		{"RptgPrd/FrToDt/FrDt", &iso20022.Camt060{
			Answer: iso20022.AnswerBalances, Owner: bankA, Subject: iso20022.SubjectBalance, Period: &iso20022.Period{FromDate: "31/01/2026"},
		}},
		{"AcctOwnr/Agt/FinInstnId/ClrSysMmbId/MmbId", iso20022.Balance("")},
	} {
		m := fixed(3).all()[8]
		m.document = c.ask
		refused(t, m, "Envelope/Document/AcctRptgReq/RptgReq/"+c.path, "")
	}
}

func TestAMessageLongerThanTheLimitIsNotBuilt(t *testing.T) {
	t.Parallel()
	m := fixed(3).all()[9]
	doc, ok := m.document.(*iso20022.Camt052)
	require.True(t, ok)
	for len(doc.Reports) < iso20022.MaxSize/200 {
		doc.Reports = append(doc.Reports, doc.Reports[0])
	}
	_, err := iso20022.DefaultVersions().Build(m.header, doc)
	require.ErrorContains(t, err, "longer than")
}
