package signature_test

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/signature"
	"github.com/cabine-pix/cabine/libs/signature/signaturetest"
)

// attack is a change of a signed message, and why the result must be refused.
type attack struct {
	name   string
	change func(signed string) string
	reason signature.Reason
}

// put replaces the first old by a new one, which may name it as $0.
func put(old, replacement string) func(string) string {
	return func(s string) string {
		return strings.Replace(s, old, strings.ReplaceAll(replacement, "$0", old), 1)
	}
}

// all matches a pattern over the whole message and replaces the first match.
func all(pattern, replacement string) func(string) string {
	re := regexp.MustCompile("(?s)" + pattern)
	return func(s string) string {
		at := re.FindStringIndex(s)
		if at == nil {
			return s
		}
		return s[:at[0]] + strings.ReplaceAll(replacement, "$0", s[at[0]:at[1]]) + s[at[1]:]
	}
}

// cut returns the part of a message that a pattern matches.
func cut(s, pattern string) string { return regexp.MustCompile("(?s)" + pattern).FindString(s) }

const (
	signatureOf = `<ds:Signature .*</ds:Signature>`
	keyInfoOf   = `<ds:KeyInfo .*</ds:KeyInfo>`
	documentOf  = `<Document>.*</Document>`
	headerOf    = `<AppHdr>.*</AppHdr>`
	evil        = `<Document><FIToFICstmrCdtTrf></FIToFICstmrCdtTrf></Document>`
)

// refuseAll makes each attack on a signed message. An attack that changes nothing is a mistake of the test.
func refuseAll(t *testing.T, attacks []attack) {
	t.Helper()
	signed := sign(t, order(1))
	verifier := theVerifier(t)
	for _, a := range attacks {
		changed := a.change(signed)
		require.NotEqual(t, signed, changed, a.name)
		cert, err := verifier.Verify([]byte(changed))
		var refused *signature.Error
		require.ErrorAs(t, err, &refused, a.name)
		require.Equal(t, a.reason, refused.Reason, "%s: %v", a.name, err)
		require.Nil(t, cert, a.name)
	}
}

func TestSignatureWrappingIsRefused(t *testing.T) {
	t.Parallel()
	refuseAll(t, []attack{
		{"another document, the signed one beside it", all(documentOf, evil+"$0"), signature.BadStructure},
		{"another document behind the signed one", all(documentOf, "$0"+evil), signature.BadStructure},
		{"the signed document in another", all(documentOf, "<Document>$0</Document>"), signature.BadStructure},
		{"the signed document hidden in the header", func(s string) string {
			return put("<Sgntr>", cut(s, documentOf)+"<Sgntr>")(all(documentOf, evil)(s))
		}, signature.BadStructure},
		{"the signed document hidden in the signature", func(s string) string {
			hidden := `<ds:Object>` + cut(s, documentOf) + `</ds:Object></ds:Signature>`
			return put("</ds:Signature>", hidden)(all(documentOf, evil)(s))
		}, signature.BadProfile},
		{"the signed document hidden in Sgntr", func(s string) string {
			return put("</Sgntr>", cut(s, documentOf)+"</Sgntr>")(all(documentOf, evil)(s))
		}, signature.BadStructure},
		{"another header before the signed one", all(headerOf, "<AppHdr><Sgntr></Sgntr></AppHdr>$0"), signature.BadStructure},
		{"another header behind the document", put("</Document>", "$0<AppHdr><Sgntr></Sgntr></AppHdr>"), signature.BadStructure},
		{"the signed header in another", all(headerOf, "<AppHdr>$0</AppHdr>"), signature.BadStructure},
		{"header behind the document", func(s string) string {
			return put("</Document>", "</Document>"+cut(s, headerOf))(all(headerOf, "")(s))
		}, signature.BadStructure},
		{"the signed envelope in another", func(s string) string {
			inner := s[strings.Index(s, "<Envelope"):]
			return `<Envelope xmlns="https://www.bcb.gov.br/pi/pacs.008/1.16"><AppHdr><Sgntr></Sgntr></AppHdr><Document>` +
				inner + `</Document></Envelope>`
		}, signature.BadStructure},
		{"the signed envelope behind another", func(s string) string {
			inner := s[strings.Index(s, "<Envelope"):]
			return order(1) + inner
		}, signature.Malformed},
		{"another root", func(s string) string { return strings.ReplaceAll(s, "Envelope", "Envelopes") }, signature.BadStructure},
		{"an element beside header and document", put("<Document>", "<Other></Other>$0"), signature.BadStructure},
		{"text beside header and document", put("<Document>", "text$0"), signature.BadStructure},
		{"a blank by reference beside header and document", put("<Document>", "&#32;$0"), signature.BadStructure},
		{"document without header", all(headerOf, ""), signature.BadStructure},
		{"header without document", all(documentOf, ""), signature.BadStructure},
		{"header without Sgntr", all("<Sgntr>.*</Sgntr>", ""), signature.BadStructure},
		{"a second Sgntr", put("<Sgntr>", "<Sgntr></Sgntr>$0"), signature.BadStructure},
		{"Sgntr deeper in the header", all("<Sgntr>.*</Sgntr>", "<Fr>$0</Fr>"), signature.BadStructure},
		{"Sgntr in the document", func(s string) string {
			return put("<Document>", "<Document>"+cut(s, "<Sgntr>.*</Sgntr>"))(all("<Sgntr>.*</Sgntr>", "<Sgntr></Sgntr>")(s))
		}, signature.BadStructure},
	})
}

func TestSignatureElsewhereIsRefused(t *testing.T) {
	t.Parallel()
	without := func(s string) string { return all(signatureOf, "")(s) }
	refuseAll(t, []attack{
		{"no signature", without, signature.Unsigned},
		{"empty element in Sgntr", all(signatureOf, "<ds/>"), signature.BadStructure},
		{"text in Sgntr", put("<Sgntr>", "$0text"), signature.BadStructure},
		{"two signatures", all(signatureOf, "$0$0"), signature.BadStructure},
		{"signature in the header", func(s string) string {
			return put("<Sgntr>", cut(s, signatureOf)+"<Sgntr>")(without(s))
		}, signature.BadStructure},
		{"signature in the document", func(s string) string {
			return put("<Document>", "<Document>"+cut(s, signatureOf))(without(s))
		}, signature.BadStructure},
		{"signature in the envelope", func(s string) string {
			return put("<AppHdr>", cut(s, signatureOf)+"<AppHdr>")(without(s))
		}, signature.BadStructure},
		{"a second signature in the document", func(s string) string {
			return put("</Document>", cut(s, signatureOf)+"</Document>")(s)
		}, signature.BadStructure},
		{"signature without prefix", func(s string) string {
			return strings.NewReplacer("ds:", "", ":ds", "").Replace(s)
		}, signature.BadStructure},
		{"a Signature of another namespace in the document", put("<Document>", "$0<Signature></Signature>"), signature.BadStructure},
		{"KeyInfo in the document", func(s string) string {
			return put("<Document>", "<Document>"+cut(s, keyInfoOf))(s)
		}, signature.BadStructure},
		{"KeyInfo of another namespace in the document", put("<Document>", "$0<KeyInfo></KeyInfo>"), signature.BadStructure},
		{"SignedInfo of another namespace in the document", put("<Document>", "$0<SignedInfo></SignedInfo>"), signature.BadStructure},
		{"KeyInfo moved out of the signature", func(s string) string {
			return put("</ds:Signature>", "</ds:Signature>"+cut(s, keyInfoOf))(all(keyInfoOf, "")(s))
		}, signature.BadProfile},
		{"KeyInfo twice", all(keyInfoOf, "$0$0"), signature.BadProfile},
		{"KeyInfo first", func(s string) string {
			return put("<ds:SignedInfo>", cut(s, keyInfoOf)+"<ds:SignedInfo>")(all(keyInfoOf, "")(s))
		}, signature.BadProfile},
		{"SignedInfo twice", all(`<ds:SignedInfo>.*</ds:SignedInfo>`, "$0$0"), signature.BadProfile},
		{"SignatureValue twice", all(`<ds:SignatureValue>.*</ds:SignatureValue>`, "$0$0"), signature.BadProfile},
		{"SignatureValue missing", all(`<ds:SignatureValue>.*</ds:SignatureValue>`, ""), signature.BadProfile},
	})
}

func TestDuplicateIdsAreRefused(t *testing.T) {
	t.Parallel()
	refuseAll(t, []attack{
		{"on the document", put("<Document>", `<Document Id="key-info-id">`), signature.BadStructure},
		{"on the header", put("<AppHdr>", `<AppHdr Id="key-info-id">`), signature.BadStructure},
		{"on Sgntr", put("<Sgntr>", `<Sgntr Id="key-info-id">`), signature.BadStructure},
		{"on the envelope", put("<Envelope", `<Envelope Id="key-info-id"`), signature.BadStructure},
		{"deep in the document", put("<GrpHdr>", `<GrpHdr Id="another">`), signature.BadStructure},
		{"in capitals", put("<GrpHdr>", `<GrpHdr ID="key-info-id">`), signature.BadStructure},
		{"in small letters", put("<GrpHdr>", `<GrpHdr id="key-info-id">`), signature.BadStructure},
		{"xml:id", put("<GrpHdr>", `<GrpHdr xml:id="key-info-id">`), signature.BadStructure},
		{"on the signature", put("<ds:Signature ", `<ds:Signature Id="key-info-id" `), signature.BadProfile},
		{"on SignedInfo", put("<ds:SignedInfo>", `<ds:SignedInfo Id="key-info-id">`), signature.BadProfile},
		{"on SignatureValue", put("<ds:SignatureValue>", `<ds:SignatureValue Id="key-info-id">`), signature.BadProfile},
		{"twice on KeyInfo", put(`<ds:KeyInfo Id="key-info-id">`, `<ds:KeyInfo Id="key-info-id" Id="key-info-id">`), signature.Malformed},
		{"another on KeyInfo", put(`<ds:KeyInfo Id="key-info-id">`, `<ds:KeyInfo Id="other">`), signature.BadProfile},
		{"none on KeyInfo", put(`<ds:KeyInfo Id="key-info-id">`, `<ds:KeyInfo>`), signature.BadProfile},
		{"empty on KeyInfo", func(s string) string {
			return put(`URI="#key-info-id"`, `URI="#"`)(put(`Id="key-info-id"`, `Id=""`)(s))
		}, signature.BadProfile},
		{"by references on KeyInfo", put(`Id="key-info-id"`, `Id="key-info-i&#100;"`), signature.BadProfile},
	})
}

func TestOtherAlgorithmsAndReferencesAreRefused(t *testing.T) {
	t.Parallel()
	const (
		exclusive = "http://www.w3.org/2001/10/xml-exc-c14n#"
		transform = `<ds:Transform Algorithm="` + exclusive + `"></ds:Transform>`
		enveloped = `<ds:Transform Algorithm="http://www.w3.org/2000/09/xmldsig#enveloped-signature"></ds:Transform>`
		first     = `<ds:Reference URI="#key-info-id">.*?</ds:Reference>`
		second    = `<ds:Reference URI="">.*?</ds:Reference>`
		third     = `<ds:Reference>.*?</ds:Reference>`
	)
	attacks := []attack{
		{"inclusive namespaces", put(transform, strings.Replace(transform, "></ds:Transform>",
			`><ec:InclusiveNamespaces xmlns:ec="`+exclusive+`" PrefixList="ds"></ec:InclusiveNamespaces></ds:Transform>`, 1)), signature.BadProfile},
		{"a truncated HMAC", put(`rsa-sha256"></`, `rsa-sha256"><ds:HMACOutputLength>8</ds:HMACOutputLength></`), signature.BadProfile},
		{"no transform", put(transform, ""), signature.BadProfile},
		{"a transform more", put(transform, "$0$0"), signature.BadProfile},
		{"enveloped signature missing", put(enveloped, ""), signature.BadProfile},
		{"transforms in another order", put(enveloped+transform, transform+enveloped), signature.BadProfile},
		{"no references", all(first+second+third, ""), signature.BadProfile},
		{"first reference missing", all(first, ""), signature.BadProfile},
		{"second reference missing", all(second, ""), signature.BadProfile},
		{"third reference missing", all(third, ""), signature.BadProfile},
		{"a fourth reference", all(third, "$0$0"), signature.BadProfile},
		{"references in another order", func(s string) string { return put(cut(s, second)+cut(s, third), cut(s, third)+cut(s, second))(s) }, signature.BadProfile},
		{"first reference to something else", put(`URI="#key-info-id"`, `URI="#another"`), signature.BadProfile},
		{"first reference to everything", put(`URI="#key-info-id"`, `URI=""`), signature.BadProfile},
		{"second reference to a file", put(`URI=""`, `URI="file:///etc/passwd"`), signature.BadProfile},
		{"second reference to nothing", put(`<ds:Reference URI="">`, `<ds:Reference>`), signature.BadProfile},
		{"third reference to everything", put(`<ds:Reference>`, `<ds:Reference URI="">`), signature.BadProfile},
		{"a type", put(`<ds:Reference>`, `<ds:Reference Type="http://www.w3.org/2000/09/xmldsig#Object">`), signature.BadProfile},
		{"a manifest", put(`<ds:Reference>`, `<ds:Manifest></ds:Manifest><ds:Reference>`), signature.BadProfile},
		{"text in SignedInfo", put(`<ds:SignedInfo>`, "$0text"), signature.BadProfile},
		{"digest empty", all(`<ds:DigestValue>[^<]*<`, "<ds:DigestValue><"), signature.BadProfile},
		{"digest too short", put("=</ds:DigestValue>", "</ds:DigestValue>"), signature.BadProfile},
		{"digest too long", put("<ds:DigestValue>", "$0AAAA"), signature.BadProfile},
		{"digest in two parts", put("<ds:DigestValue>", "$0<ds:x></ds:x>"), signature.BadProfile},
		{"base64 with other letters", put("<ds:SignatureValue>", "$0!"), signature.BadProfile},
		{"an embedded certificate", put("<ds:X509IssuerSerial>", "<ds:X509Certificate>AAAA</ds:X509Certificate>$0"), signature.BadProfile},
		{"an embedded key", put("<ds:X509Data>", "<ds:KeyValue></ds:KeyValue>$0"), signature.BadProfile},
		{"a serial number that is none", all("<ds:X509SerialNumber>[0-9]*", "<ds:X509SerialNumber>-1"), signature.BadProfile},
		{"a serial number without end", all("<ds:X509SerialNumber>[0-9]*", "<ds:X509SerialNumber>"+strings.Repeat("1", 10_000)), signature.BadProfile},
	}
	for algorithm, others := range map[string][]string{
		exclusive: {
			"http://www.w3.org/TR/2001/REC-xml-c14n-20010315", exclusive + "WithComments", "http://www.w3.org/2006/12/xml-c14n11",
			"http://www.w3.org/TR/1999/REC-xslt-19991116", "http://www.w3.org/2002/06/xmldsig-filter2", "", "#",
		},
		"http://www.w3.org/2001/04/xmldsig-more#rsa-sha256": {
			"http://www.w3.org/2000/09/xmldsig#rsa-sha1", "http://www.w3.org/2000/09/xmldsig#hmac-sha1",
			"http://www.w3.org/2001/04/xmldsig-more#hmac-sha256", "http://www.w3.org/2001/04/xmldsig-more#rsa-sha512",
			"http://www.w3.org/2000/09/xmldsig#dsa-sha1", "",
		},
		"http://www.w3.org/2001/04/xmlenc#sha256": {
			"http://www.w3.org/2000/09/xmldsig#sha1", "http://www.w3.org/2001/04/xmlenc#sha512", "",
		},
		"http://www.w3.org/2000/09/xmldsig#enveloped-signature": {
			"http://www.w3.org/TR/1999/REC-xpath-19991116", "http://www.w3.org/2000/09/xmldsig#base64", "",
		},
	} {
		places := strings.Count(sign(t, order(1)), `"`+algorithm+`"`)
		require.Positive(t, places)
		for _, other := range others {
			for place := range places {
				attacks = append(attacks, attack{algorithm + " as " + other, func(s string) string {
					parts := strings.SplitAfterN(s, `"`+algorithm+`"`, place+2)
					parts[place] = strings.TrimSuffix(parts[place], algorithm+`"`) + other + `"`
					return strings.Join(parts, "")
				}, signature.BadProfile})
			}
		}
	}
	refuseAll(t, attacks)
}

func TestXMLThatTheSPIHasNoUseForIsRefused(t *testing.T) {
	t.Parallel()
	const doctype = `<!DOCTYPE Envelope [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>`
	before := func(what string) func(string) string { return put("<Envelope", what+"$0") }
	refuseAll(t, []attack{
		{"comment in the document", put("<GrpHdr>", "$0<!-- -->"), signature.Malformed},
		{"comment in a value", put("1234.56", "12<!-- -->34.56"), signature.Malformed},
		{"comment in the digest", put("<ds:DigestValue>", "$0<!-- -->"), signature.Malformed},
		{"comment in the issuer", put("ICP-Brasil", "ICP<!-- -->-Brasil"), signature.Malformed},
		{"comment before the envelope", before("<!-- -->"), signature.Malformed},
		{"comment behind the envelope", put("</Envelope>", "$0<!-- -->"), signature.Malformed},
		{"instruction in the document", put("<GrpHdr>", "$0<?php ?>"), signature.Malformed},
		{"instruction before the envelope", before("<?xml-stylesheet href='x'?>"), signature.Malformed},
		{"instruction behind the envelope", put("</Envelope>", "$0<?x?>"), signature.Malformed},
		{"a second declaration", before(`<?xml version="1.0"?>`), signature.Malformed},
		{"declaration behind white space", put("<?xml", " <?xml"), signature.Malformed},
		{"declaration of another version", put(`version="1.0"`, `version="1.1"`), signature.Malformed},
		{"declaration of another encoding", put(`"UTF-8"`, `"ISO-8859-1"`), signature.Malformed},
		{"declaration with something else", put(`standalone="no"`, `standalone="no" more="1"`), signature.Malformed},
		{"declaration without version", put(`version="1.0" `, ``), signature.Malformed},
		{"document type", before("<!DOCTYPE Envelope>"), signature.Malformed},
		{"external document type", before(`<!DOCTYPE Envelope SYSTEM "file:///etc/passwd">`), signature.Malformed},
		{"entities", func(s string) string { return put("1234.56", "&b;")(before(doctype)(s)) }, signature.Malformed},
		{"entity that nobody declared", put("1234.56", "&nbsp;"), signature.Malformed},
		{"reference to no character", put("1234.56", "&#0;"), signature.Malformed},
		{"reference to half a character", put("1234.56", "&#xD800;"), signature.Malformed},
		{"reference beyond all characters", put("1234.56", "&#x110000;"), signature.Malformed},
		{"reference without end", put("1234.56", "&amp"), signature.Malformed},
		{"CDATA", put("1234.56", "<![CDATA[1234.56]]>"), signature.Malformed},
		{"end of CDATA", put("1234.56", "]]>"), signature.Malformed},
		{"byte order mark", func(s string) string { return "\ufeff" + s }, signature.Malformed},
		{"UTF-16", func(s string) string {
			var out bytes.Buffer
			for _, unit := range utf16.Encode([]rune(s)) {
				_, _ = out.Write([]byte{byte(unit >> 8), byte(unit)})
			}
			return out.String()
		}, signature.Malformed},
		{"not UTF-8", put("1234.56", "\xff"), signature.Malformed},
		{"control character", put("1234.56", "\x01"), signature.Malformed},
		{"no character", put("1234.56", "\ufffe"), signature.Malformed},
		{"attribute twice", put(`Ccy="BRL"`, `$0 $0`), signature.Malformed},
		{"attribute over lines", put(`Ccy="BRL"`, "Ccy=\"BRL\n\""), signature.Malformed},
		{"attribute without quotes", put(`Ccy="BRL"`, `Ccy=BRL`), signature.Malformed},
		{"attribute without value", put(`Ccy="BRL"`, `Ccy`), signature.Malformed},
		{"attributes without space", put(`Ccy="BRL"`, `$0a="b"`), signature.Malformed},
		{"too many attributes", put(`Ccy="BRL"`, `$0 a="" b="" c="" d="" e="" f="" g="" h=""`), signature.Malformed},
		{"too deep", put("<GrpHdr>", strings.Repeat("<a>", 100)+strings.Repeat("</a>", 100)+"$0"), signature.Malformed},
		{"too long", func(s string) string { return s + strings.Repeat(" ", signature.MaxSize) }, signature.Malformed},
		{"elements that overlap", put("<GrpHdr>", "<a><b></a></b>$0"), signature.Malformed},
		{"name in other letters", put("<GrpHdr>", "<Ênvelope></Ênvelope>$0"), signature.Malformed},
		{"cut off", func(s string) string { return s[:len(s)-1] }, signature.Malformed},
		{"nothing", func(string) string { return "" }, signature.Malformed},
		{"text behind the envelope", put("</Envelope>", "$0text"), signature.Malformed},
	})
}

func TestNamespaceTricksAreRefused(t *testing.T) {
	t.Parallel()
	const spi, ds = "https://www.bcb.gov.br/pi/pacs.008/1.16", "http://www.w3.org/2000/09/xmldsig#"
	refuseAll(t, []attack{
		{"another namespace on the document", put("<Document>", `<Document xmlns="urn:x">`), signature.BadStructure},
		{"the same namespace on the document", put("<Document>", `<Document xmlns="`+spi+`">`), signature.BadStructure},
		{"another namespace on the header", put("<AppHdr>", `<AppHdr xmlns="urn:x">`), signature.BadStructure},
		{"no namespace on an element", put("<GrpHdr>", `<GrpHdr xmlns="">`), signature.BadStructure},
		{"another namespace on Sgntr", put("<Sgntr>", `<Sgntr xmlns="urn:x">`), signature.BadStructure},
		{"no namespace", put(` xmlns="`+spi+`"`, ""), signature.BadStructure},
		{"an empty namespace", put(spi, ""), signature.BadStructure},
		{"the signature's namespace", put(spi, ds), signature.BadStructure},
		{"namespace by references", put(spi, "https://www.bcb.gov.br/pi/pacs.008/1.1&#54;"), signature.BadStructure},
		{"ds on the envelope", put("<Envelope", `<Envelope xmlns:ds="urn:x"`), signature.BadStructure},
		{"a prefix on the envelope", put("<Envelope", `<Envelope xmlns:x="urn:x"`), signature.BadStructure},
		{"a prefix on an element", put("<GrpHdr>", `<GrpHdr xmlns:x="urn:x">`), signature.BadStructure},
		{"a prefix without declaration", put("<GrpHdr>", `<x:y></x:y>$0`), signature.BadStructure},
		{"prefixes throughout", func(s string) string {
			return regexp.MustCompile(`(</?)([A-Z])`).ReplaceAllString(put(" xmlns=", " xmlns:e=")(s), "${1}e:$2")
		}, signature.BadStructure},
		{"an attribute with a prefix", put(`Ccy="BRL"`, `$0 xml:lang="pt"`), signature.BadStructure},
		{"ds for something else", put(`xmlns:ds="`+ds, `xmlns:ds="urn:x`), signature.BadProfile},
		{"ds twice", put(`xmlns:ds="`+ds+`"`, `$0 $0`), signature.Malformed},
		{"ds for something else in SignedInfo", put("<ds:SignedInfo>", `<ds:SignedInfo xmlns:ds="urn:x">`), signature.BadProfile},
		{"ds for something else in KeyInfo", put("<ds:KeyInfo", `<ds:KeyInfo xmlns:ds="urn:x"`), signature.BadProfile},
		{"a default namespace on the signature", put("<ds:Signature ", `<ds:Signature xmlns="urn:x" `), signature.BadProfile},
		{"a default namespace on SignedInfo", put("<ds:SignedInfo>", `<ds:SignedInfo xmlns="urn:x">`), signature.BadProfile},
		{"another message's namespace", put(spi, "https://www.bcb.gov.br/pi/pacs.004/1.5"), signature.WrongDigest},
	})
}

func TestWhatWasChangedIsRefused(t *testing.T) {
	t.Parallel()
	refuseAll(t, []attack{
		{"amount", put("1234.56", "9234.56"), signature.WrongDigest},
		{"currency", put(`Ccy="BRL"`, `Ccy="USD"`), signature.WrongDigest},
		{"sender", put("<Id>99999008</Id>", "<Id>99999009</Id>"), signature.WrongDigest},
		{"line breaks in the document", put("<GrpHdr>", "\n$0"), signature.WrongDigest},
		{"line breaks in the header", put("<BizMsgIdr>", "\n$0"), signature.WrongDigest},
		{"white space in Sgntr", put("</Sgntr>", "\n$0"), signature.WrongDigest},
		{"an attribute of the document", put("<Document>", `<Document a="b">`), signature.WrongDigest},
		{"an attribute of the header", put("<AppHdr>", `<AppHdr a="b">`), signature.WrongDigest},
		{"line breaks in KeyInfo", put("<ds:X509Data>", "\n$0"), signature.WrongDigest},
		{"line breaks in SignedInfo", put("<ds:SignatureMethod", "\n$0"), signature.WrongValue},
		{"digest", all("<ds:DigestValue>..", "<ds:DigestValue>AA"), signature.WrongDigest},
		{"value", all("<ds:SignatureValue>....", "<ds:SignatureValue>AAAA"), signature.WrongValue},
		{"value cut", all("[^>]{4}</ds:SignatureValue>", "</ds:SignatureValue>"), signature.WrongValue},
		{"serial", put("<ds:X509SerialNumber>", "$01"), signature.UnknownCertificate},
		{"issuer", put("AC SIMULADA", "AC QUALQUER"), signature.UnknownCertificate},
		{"the signature of another message", func(s string) string {
			return all(signatureOf, cut(sign(t, order(2)), signatureOf))(s)
		}, signature.WrongDigest},
	})
}

func TestCertificateMustBeKnownAndInForce(t *testing.T) {
	t.Parallel()
	signed := []byte(sign(t, order(1)))
	reason := func(clk clock.Clock, certs ...*x509.Certificate) signature.Reason {
		v, err := signature.NewVerifier(clk, certs...)
		require.NoError(t, err)
		_, err = v.Verify(signed)
		var refused *signature.Error
		if err != nil {
			require.ErrorAs(t, err, &refused)
			return refused.Reason
		}
		return ""
	}
	ours := theIdentity(t).Certificate
	require.Equal(t, signature.UnknownCertificate, reason(clock.NewFake()))

	clk := clock.NewFake() // an hour before the certificate's end
	clk.Advance(time.Hour)
	require.Empty(t, reason(clk, ours))
	clk.Advance(time.Second)
	require.Equal(t, signature.NotInForce, reason(clk, ours))
	require.Equal(t, signature.NotInForce, reason(before{clock.NewFake()}, ours))

	// Another key under the same issuer and serial number.
	other, err := signaturetest.New("AC SIMULADA SPB", ours.NotBefore, ours.NotAfter)
	require.NoError(t, err)
	require.Equal(t, signature.UnknownCertificate, reason(clock.NewFake(), other.Certificate))
	template := *ours
	template.PublicKey = nil
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, other.Key.Public(), other.Key)
	require.NoError(t, err)
	impostor, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	require.Equal(t, signature.WrongValue, reason(clock.NewFake(), impostor))
	_, err = signature.NewVerifier(clock.NewFake(), ours, impostor)
	require.ErrorContains(t, err, "two certificates")
	_, err = signature.NewVerifier(clock.NewFake(), ours, ours)
	require.NoError(t, err)
}

// before is a clock that is two hours slow.
type before struct{ clock.Clock }

func (b before) Now() clock.Reading {
	now := b.Clock.Now()
	now.Wall = now.Wall.Add(-2 * time.Hour)
	return now
}
