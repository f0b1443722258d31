package iso20022_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
)

// plainPayment is a pacs.008 with two payments and nothing optional but an account's branch.
func plainPayment() sample {
	m := fixed(7).all()[0]
	doc := fixed(7).pacs008()
	doc.Priority, doc.ServiceLevel = iso20022.High, iso20022.PAGPRI
	t := iso20022.CreditTransfer{
		EndToEndID: "E1234567820260131120000000000001", Amount: 1050, AcceptedAt: m.header.Created,
		LocalInstrument: iso20022.MANU, Debtor: iso20022.Party{Name: "Fulano", ID: "11111111111"},
		DebtorAccount: iso20022.Account{ID: "1", Branch: "0001", Type: iso20022.CACC}, DebtorAgent: bankA, CreditorAgent: bankB,
		CreditorID: "22222222222", CreditorAccount: iso20022.Account{ID: "2", Type: iso20022.TRAN}, Purpose: iso20022.PurposePayment,
	}
	doc.Transactions = []iso20022.CreditTransfer{t, t}
	m.document = doc
	return m
}

// Each case replaces the first of one text by another in a good message.
func TestWhatIsNotTheSchemaIsRefusedWithItsPath(t *testing.T) {
	t.Parallel()
	const (
		tx    = "Envelope/Document/FIToFICstmrCdtTrf/CdtTrfTxInf[1]"
		group = "Envelope/Document/FIToFICstmrCdtTrf/GrpHdr"
	)
	good := string(plainPayment().build(t))
	for _, c := range []struct{ was, becomes, path, reason string }{
		// Elements.
		{"<ChrgBr>SLEV</ChrgBr>", "", tx, "found \"MndtRltdInf\" where ChrgBr must be"},
		{"<ChrgBr>SLEV</ChrgBr>", "<ChrgBr>SLEV</ChrgBr><ChrgBr>SLEV</ChrgBr>", tx, "found \"ChrgBr\" where MndtRltdInf must be"},
		{"<PmtId>", "<PmtId><New>1</New>", tx + "/PmtId", "found \"New\" where EndToEndId must be"},
		{"</PmtId>", "<New/></PmtId>", tx + "/PmtId", "found \"New\" where nothing more may be"},
		{"</CdtTrfTxInf>", "<RmtInf><Strd/></RmtInf></CdtTrfTxInf>", tx + "/RmtInf/Strd", "RfrdDocInf is missing"},
		{"</FIToFICstmrCdtTrf>", "<Splmt/></FIToFICstmrCdtTrf>", "Envelope/Document/FIToFICstmrCdtTrf", "found \"Splmt\""},
		{"</AppHdr>", "</AppHdr><Document/>", "Envelope/Document", "FIToFICstmrCdtTrf is missing"},
		{"</Document>", "</Document><Document></Document>", "Envelope", "found \"Document\" where nothing more may be"},
		{"</AppHdr>", "</AppHdr><AppHdr></AppHdr>", "Envelope", "found \"AppHdr\" where Document must be"},
		{"<GrpHdr>", "<GrpHdr>text", group, "found text between elements"},
		{"<Nm>Fulano</Nm>", "<Nm><b>Fulano</b></Nm>", tx + "/Dbtr/Nm", "found an element in a value"},
		{"<Nm>Fulano</Nm>", "<Nm></Nm>", tx + "/Dbtr/Nm", "want 1 to 140"},
		{"<Nm>Fulano</Nm>", "<Nm/>", tx + "/Dbtr/Nm", "want 1 to 140"},
		{"<Nm>Fulano</Nm>", "<Nm>Fulano</nm>", tx + "/Dbtr/Nm", "its end is missing"},
		{"</Envelope>", "", "Envelope", "its end is missing"},
		{"</Envelope>", "</Envelope><Envelope/>", "", "something follows the envelope"},
		// Attributes and namespaces.
		{"<Nm>", `<Nm lang="pt">`, tx + "/Dbtr/Nm", "the attribute \"lang\" is unknown"},
		{"<Nm>", `<Nm Ccy="BRL">`, tx + "/Dbtr/Nm", "the attribute \"Ccy\" is unknown"},
		{"<Dbtr>", `<Dbtr Ccy="BRL">`, tx + "/Dbtr", "the attribute \"Ccy\" is unknown"},
		{`Ccy="BRL"`, `Ccy="USD"`, tx + "/IntrBkSttlmAmt", "not as it must be"},
		{` Ccy="BRL"`, ``, tx + "/IntrBkSttlmAmt", "is missing"},
		{`Ccy="BRL"`, `Ccy="BRL" Ccy="BRL"`, tx + "/IntrBkSttlmAmt", "there twice"},
		{`Ccy="BRL"`, `Ccy=BRL`, tx + "/IntrBkSttlmAmt", "malformed"},
		{"<Document>", `<Document xmlns="urn:other">`, "Envelope/Document", "another namespace"},
		{"<Document>", `<x:Document xmlns:x="urn:other">`, "Envelope", "prefixes are for the signature"},
		// Values.
		{"<FIId><FinInstnId><Othr><Id>12345678", "<FIId><FinInstnId><Othr><Id>1234567", "Envelope/AppHdr/Fr/FIId/FinInstnId/Othr/Id", "want an ISPB"},
		{">pacs.008.spi.1.16<", ">pacs.008.spi.1.15<", "Envelope/AppHdr/MsgDefIdr", "want pacs.008.spi.1.16"},
		{"<NbOfTxs>2<", "<NbOfTxs>3<", "Envelope/Document/FIToFICstmrCdtTrf/GrpHdr/NbOfTxs", "not the number of transactions"},
		{"<NbOfTxs>2<", "<NbOfTxs>-2<", group + "/NbOfTxs", "want a number"},
		{"<SttlmMtd>CLRG", "<SttlmMtd>COVE", group + "/SttlmInf/SttlmMtd", "want CLRG"},
		{">10.50<", ">10,50<", tx + "/IntrBkSttlmAmt", "want an amount"},
		{">10.50<", ">10.505<", tx + "/IntrBkSttlmAmt", "want an amount"},
		{">10.50<", ">-1.00<", tx + "/IntrBkSttlmAmt", "want an amount"},
		{">10.50<", ">1e3<", tx + "/IntrBkSttlmAmt", "want an amount"},
		{">10.50<", ">12345678901234567.00<", tx + "/IntrBkSttlmAmt", "want an amount"},
		{">E1234567820260131", ">e1234567820260131", tx + "/PmtId/EndToEndId", "want an EndToEndId"},
		{">E1234567820260131", ">|1234567820260131", tx + "/PmtId/EndToEndId", "want an EndToEndId"},
		{"<Issr>0001", "<Issr>00001", tx + "/DbtrAcct/Id/Othr/Issr", "want 1 to 4 digits"},
		{">MANU<", ">MANUAL<", tx + "/MndtRltdInf/Tp/LclInstrm/Prtry", "want MANU"},
	} {
		require.Contains(t, good, c.was)
		bad := strings.Replace(good, c.was, c.becomes, 1)
		_, err := iso20022.DefaultVersions().Parse([]byte(bad))
		var syntax *iso20022.SyntaxError
		require.ErrorAs(t, err, &syntax, "%s -> %s", c.was, c.becomes)
		require.Equal(t, c.path, syntax.Path, "%s -> %s: %v", c.was, c.becomes, err)
		require.Contains(t, syntax.Reason, c.reason)
		require.NotContains(t, err.Error(), "Fulano")
	}
}

// Instants are in the header and again in the message, so they are tried where they stand once.
func TestInstantsAreUTCWithThreeDecimals(t *testing.T) {
	t.Parallel()
	good := string(plainPayment().build(t))
	at := good[strings.Index(good, "<AccptncDtTm>")+len("<AccptncDtTm>") : strings.Index(good, "</AccptncDtTm>")]
	for _, bad := range []string{
		strings.TrimSuffix(at, "Z"), strings.TrimSuffix(at, "Z") + "-03:00", at[:19] + "Z", at[:22] + "Z", at[:23] + "1Z",
		strings.Replace(at, "T", " ", 1), "2026-02-30T00:00:00.000Z", "2026-01-31T24:00:00.000Z", "2026-01-31T00:00:60.000Z",
		"0000-01-31T00:00:00.000Z", "26-01-31T00:00:00.000Z", "", "2026-01-31T00:00:00,000Z", "2026-1-31T00:00:00.000Z",
	} {
		_, err := iso20022.DefaultVersions().Parse([]byte(strings.Replace(good, "<AccptncDtTm>"+at, "<AccptncDtTm>"+bad, 1)))
		require.ErrorContains(t, err, "AccptncDtTm: want a time", bad)
	}
	_, err := iso20022.DefaultVersions().Parse([]byte(strings.Replace(good, "<CreDtTm>20", "<CreDtTm>19", 1)))
	require.ErrorContains(t, err, "GrpHdr/CreDtTm: is not CreDt of the header")
	_, err = iso20022.DefaultVersions().Parse([]byte(strings.Replace(good, "<MsgId>M12345678", "<MsgId>M12345679", 1)))
	require.ErrorContains(t, err, "GrpHdr/MsgId: is not BizMsgIdr of the header")
}

// What the schema allows beside the SPI's own way of writing is taken.
func TestTheSchemasFreedomIsTaken(t *testing.T) {
	t.Parallel()
	want := plainPayment()
	good := string(want.build(t))
	for _, c := range []struct{ was, becomes string }{
		{"<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"no\"?>", ""},
		{"<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"no\"?>", "<?xml version='1.0' encoding='utf-8' ?>\n"},
		{"<Sgntr></Sgntr>", "<Sgntr/>"},
		{"<Sgntr></Sgntr>", "<Sgntr >\n</Sgntr\t>"},
		{"<PmtId>", "\r\n<PmtId>\n\t"},
		{"</Envelope>", "</Envelope>\n"},
		{"<Nm>Fulano<", "<Nm>F&#x75;la&#110;o<"},
		{">10.50<", ">10.5<"},
		{">10.50<", "> +0010.500 <"},
		{"<NbOfTxs>2<", "<NbOfTxs> 02<"},
		{` Ccy="BRL"`, ` Ccy = 'BRL' `},
		{"<Document>", `<Document xmlns="https://www.bcb.gov.br/pi/pacs.008/1.16" xmlns:x="urn:unused">`},
	} {
		require.Contains(t, good, c.was)
		got, err := iso20022.DefaultVersions().Parse([]byte(strings.Replace(good, c.was, c.becomes, 1)))
		require.NoError(t, err, c.becomes)
		require.Equal(t, iso20022.Envelope{Header: want.header, Document: want.document}, got, c.becomes)
	}
}

// None of what makes XML dangerous is understood.
func TestOnlyAPartOfXMLIsUnderstood(t *testing.T) {
	t.Parallel()
	good := string(plainPayment().build(t))
	declared, body, _ := strings.Cut(good, "?>")
	bomb := `<!DOCTYPE Envelope [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;&a;">]>`
	in := func(text string) string { return strings.Replace(good, ">Fulano<", ">"+text+"<", 1) }
	for name, c := range map[string]struct{ text, reason string }{
		"document type":          {declared + "?>" + bomb + body, "document types are refused"},
		"entity of its own":      {in("&b;"), "an entity other than XML's five"},
		"entity of HTML":         {in("&nbsp;"), "an entity other than XML's five"},
		"reference to nothing":   {in("&#0;"), "wrong reference"},
		"reference to half":      {in("&#xD800;"), "wrong reference"},
		"reference beyond":       {in("&#x110000;"), "wrong reference"},
		"reference to a control": {in("&#8;"), "wrong reference"},
		"long reference":         {in("&#" + strings.Repeat("0", 100) + "65;"), "wrong reference"},
		"open reference":         {in("&amp"), "wrong reference"},
		"comment":                {in("Ful<!-- x -->ano"), "comments are refused"},
		"comment between":        {strings.Replace(good, "<PmtId>", "<!-- x --><PmtId>", 1), "comments are refused"},
		"CDATA":                  {in("<![CDATA[Fulano]]>"), "CDATA is refused"},
		"end of CDATA":           {in("Fulano]]>"), "found ]]>"},
		"instruction":            {strings.Replace(good, "<PmtId>", "<?php x ?><PmtId>", 1), "processing instructions are refused"},
		"second declaration":     {good[:len(declared)+2] + good, "processing instructions are refused"},
		"XML 1.1":                {strings.Replace(good, `"1.0"`, `"1.1"`, 1), "want XML 1.0"},
		"Latin-1":                {strings.Replace(good, "UTF-8", "ISO-8859-1", 1), "want UTF-8"},
		"not UTF-8":              {in("Fulan\xe7"), "no UTF-8"},
		"UTF-16":                 {"\xff\xfe<\x00", "no UTF-8"},
		"byte order mark":        {"\ufeff" + good, "text between elements"},
		"control character":      {in("Fulano\x08"), "a character that XML does not have"},
		"no character":           {in("Fulano\uffff"), "a character that XML does not have"},
		"zero":                   {in("Fulano\x00"), "a character that XML does not have"},
		"nothing":                {"", "Envelope is missing"},
		"white space":            {" \n", "Envelope is missing"},
		"no tag":                 {"<", "begins no element"},
		"no end of a tag":        {"<Envelope", "a tag has no end"},
		"quotes in quotes":       {`<Envelope xmlns="<">`, "malformed"},
		"too long":               {good + strings.Repeat(" ", iso20022.MaxSize), "longer than"},
		"letter beyond ASCII":    {strings.Replace(good, "<PmtId>", "<PmtIdé>", 1), "a character that the SPI does not use"},
	} {
		_, err := iso20022.DefaultVersions().Parse([]byte(c.text))
		var syntax *iso20022.SyntaxError
		require.ErrorAs(t, err, &syntax, name)
		require.Contains(t, err.Error(), c.reason, name)
	}
}

func TestSgntrHoldsOneSignatureOrNothing(t *testing.T) {
	t.Parallel()
	m := plainPayment()
	built := m.build(t)
	deep := func(n int) string {
		return strings.Replace(signature, "AAAA</ds:DigestValue>", strings.Repeat("<ds:x>", n)+strings.Repeat("</ds:x>", n)+"</ds:DigestValue>", 1)
	}
	for name, c := range map[string]struct{ signature, reason string }{
		"the SPI's":         {signature, ""},
		"white space":       {"\n" + signature + "\n", ""},
		"default namespace": {strings.NewReplacer("ds:", "", "xmlns:ds", "xmlns").Replace(signature), ""},
		"deep":              {deep(8), ""},
		"too deep":          {deep(9), "nests too deep"},
		"two":               {signature + signature, `found "ds:Signature"`},
		"text":              {"signed", "found text between elements"},
		"text before":       {"x" + signature, "found text between elements"},
		"of another kind":   {`<Signature xmlns="urn:x"/>`, `found "Signature" where a signature must be`},
		"of no namespace":   {`<ds:Signature/>`, `found "ds:Signature" where a signature must be`},
		"another element":   {`<ds:Object xmlns:ds="http://www.w3.org/2000/09/xmldsig#"/>`, `found "ds:Object"`},
		"comment in it":     {strings.Replace(signature, "AAAA", "AA<!---->AA", 1), "comments are refused"},
		"entity in it":      {strings.Replace(signature, "AAAA", "&a;", 1), "an entity other than XML's five"},
		"attribute twice":   {strings.Replace(signature, `Id="`, `Id="x" Id="`, 1), "there twice"},
		"not closed":        {strings.Replace(signature, "</ds:KeyInfo>", "", 1), "the end of an element is missing"},
		"never closed":      {strings.Replace(signature, "</ds:Signature>", "", 1), "the end of an element is missing"},
		"document in it":    {strings.Replace(signature, "AAAA", string(built[len(`<?xml version="1.0" encoding="UTF-8" standalone="no"?>`):]), 1), "nests too deep"},
	} {
		got, err := iso20022.DefaultVersions().Parse(signed(built, c.signature))
		if c.reason == "" {
			require.NoError(t, err, name)
			require.Equal(t, iso20022.Envelope{Header: m.header, Signed: true, Document: m.document}, got, name)
			continue
		}
		var syntax *iso20022.SyntaxError
		require.ErrorAs(t, err, &syntax, name)
		require.True(t, strings.HasPrefix(syntax.Path, "Envelope/AppHdr/Sgntr"), "%s: %v", name, err)
		require.Contains(t, syntax.Reason, c.reason, name)
	}
}

// Every prefix of a message, and every message with one byte gone, is refused or read, and never more than that.
func TestCutMessagesAreRefused(t *testing.T) {
	t.Parallel()
	good := signed(plainPayment().build(t), signature)
	for i := range good {
		_, err := iso20022.DefaultVersions().Parse(good[:i])
		require.Error(t, err, "%s", good[:i])
		_, _ = iso20022.DefaultVersions().Parse(append(bytes.Clone(good[:i]), good[i+1:]...)) // must only not panic
	}
}

// Of a group larger than the rule, the SPI says AM18: it has to be read for that.
func TestWhatBreaksOnlyARuleIsRead(t *testing.T) {
	t.Parallel()
	m := plainPayment()
	one := string(m.build(t))
	transaction := one[strings.Index(one, "<CdtTrfTxInf>") : strings.Index(one, "</CdtTrfTxInf>")+len("</CdtTrfTxInf>")]
	eleven := strings.Replace(one, transaction, strings.Repeat(transaction, 10), 1)
	got, err := iso20022.DefaultVersions().Parse([]byte(strings.Replace(eleven, "<NbOfTxs>2<", "<NbOfTxs>11<", 1)))
	require.NoError(t, err)
	doc, ok := got.Document.(*iso20022.Pacs008)
	require.True(t, ok)
	require.Len(t, doc.Transactions, 11)
	_, err = iso20022.DefaultVersions().Build(iso20022.Header{From: pix.SPI, To: bankB, MsgID: m.header.MsgID, Created: m.header.Created}, doc)
	require.ErrorContains(t, err, "want 1 to 10 transactions")
}
