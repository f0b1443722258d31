package signature

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/beevik/etree"
	dsig "github.com/russellhaering/goxmldsig"
	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/devstack/devtest"
)

// seeds are messages in as many spellings as there are.
func seeds() []string {
	const open, middle, end = `<Envelope xmlns="urn:spi"><AppHdr><Fr>1</Fr><Sgntr>`, `</Sgntr></AppHdr><Document>`, `</Document></Envelope>`
	const signed = `<ds:Signature xmlns:ds="http://www.w3.org/2000/09/xmldsig#"><ds:SignedInfo>` +
		`<ds:CanonicalizationMethod Algorithm="http://www.w3.org/2001/10/xml-exc-c14n#"/>` +
		`<ds:SignatureMethod Algorithm="http://www.w3.org/2001/04/xmldsig-more#rsa-sha256"/><ds:Reference URI="#k">` +
		`<ds:Transforms><ds:Transform Algorithm="http://www.w3.org/2001/10/xml-exc-c14n#"/></ds:Transforms>` +
		`<ds:DigestMethod Algorithm="http://www.w3.org/2001/04/xmlenc#sha256"/>` +
		"<ds:DigestValue>zspxY1CJqIFxTarExUmilPhh\r\nHEqznz1yqqnRZt7eNr8=</ds:DigestValue></ds:Reference>" +
		`<ds:Reference URI=""><ds:Transforms><ds:Transform Algorithm="http://www.w3.org/2000/09/xmldsig#enveloped-signature"/>` +
		`<ds:Transform Algorithm='http://www.w3.org/2001/10/xml-exc-c14n#'/></ds:Transforms>` +
		`<ds:DigestMethod Algorithm="http://www.w3.org/2001/04/xmlenc#sha256"/>` +
		`<ds:DigestValue>HPPPC9HF7mUezVRH+6NMP+acJdJlvacU9j5wniKfIHo=</ds:DigestValue></ds:Reference>` +
		"<ds:Reference>\n<ds:Transforms><ds:Transform Algorithm=\"http://www.w3.org/2001/10/xml-exc-c14n#\"></ds:Transform>" +
		`</ds:Transforms><ds:DigestMethod Algorithm="http://www.w3.org/2001/04/xmlenc#sha256"></ds:DigestMethod>` +
		`<ds:DigestValue>KI8BuPQWorSwu0NUYvg7QdhrUfYS3U+jAIzqCSdoHYw=</ds:DigestValue></ds:Reference></ds:SignedInfo>` +
		`<ds:SignatureValue>QUJD&#13;` + "\n" + `REVG</ds:SignatureValue><ds:KeyInfo Id="k"><ds:X509Data><ds:X509IssuerSerial>` +
		`<ds:X509IssuerName>CN=A &amp; B, C=BR</ds:X509IssuerName><ds:X509SerialNumber>1</ds:X509SerialNumber>` +
		`</ds:X509IssuerSerial></ds:X509Data></ds:KeyInfo></ds:Signature>`
	return []string{
		open + middle + end,
		open + signed + middle + `<A>1</A>` + end,
		`<?xml version="1.0" encoding="UTF-8" standalone="no"?>` + "\n" + open + middle + "<A b=\"1\" c=\"2\">x</A>" + end + "\n",
		open + middle + `<A c="1" b='2"' d = "&quot;&#9;&gt;>"  />` + end,
		open + middle + "<A >ã > &gt; &quot;'\" &#xD; &#13;&#x1F600; ]] \r\n \r \t</A\n>" + end,
		open + middle + `<A.b-c_1><A.b-c_1/></A.b-c_1 >` + end,
		strings.NewReplacer("<Document>", "<Document\tx='&lt;&amp;&apos;'>", "<Sgntr></Sgntr>", "<Sgntr/>").Replace(open + middle + end),
		open + middle + `<!-- --><?x?><![CDATA[x]]>` + end,
		`<!DOCTYPE x [<!ENTITY a "b">]>` + open + middle + `&a;` + end,
	}
}

// parsed is what a parser says of a message: tags, attributes and text, each on a line.
func parsed(message []byte) ([]string, error) {
	var said []string
	for decoder := xml.NewDecoder(bytes.NewReader(message)); ; {
		t, err := decoder.RawToken()
		if errors.Is(err, io.EOF) {
			return said, nil
		}
		if err != nil {
			return nil, err
		}
		join := func(n xml.Name) string { return strings.TrimPrefix(n.Space+":"+n.Local, ":") }
		switch t := t.(type) {
		case xml.StartElement:
			line := "<" + join(t.Name)
			for _, a := range t.Attr {
				line += "\n" + join(a.Name) + "=" + a.Value
			}
			said = append(said, line)
		case xml.EndElement:
			said = append(said, ">"+join(t.Name))
		case xml.CharData:
			said = append(said, string(t))
		case xml.ProcInst:
		default:
			said = append(said, "something else")
		}
	}
}

// scanned says the same by the scanner.
func scanned(message []byte) []string {
	s := scanner{data: message}
	if s.declaration() != nil {
		return nil
	}
	var said []string
	for {
		t, err := s.next()
		if err != nil {
			return nil
		}
		switch t.kind {
		case startTag:
			line := "<" + string(t.name.of(message))
			for _, a := range t.attrs {
				line += "\n" + string(a.name) + "=" + string(unescape(a.value))
			}
			said = append(said, line)
		case endTag:
			said = append(said, ">"+string(t.name.of(message)))
		case text:
			// Line ends as every parser reports them, before references are replaced.
			lines := bytes.ReplaceAll(bytes.ReplaceAll(t.of(message), []byte("\r\n"), []byte("\n")), []byte("\r"), []byte("\n"))
			said = append(said, string(unescape(lines)))
		case atEnd:
			return said
		}
	}
}

// FuzzRead holds the scanner to what a full parser reads, and the canonical octets to what the general library makes of
// the whole message and of the parts.
func FuzzRead(f *testing.F) {
	for _, seed := range seeds() {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		if said := scanned(message); said != nil {
			other, err := parsed(message)
			require.NoError(t, err, "the scanner accepts what is not XML")
			require.Equal(t, other, said)
		}
		e, refused := read(message)
		if refused != nil {
			return
		}
		require.NotNil(t, scanned(message))
		if e.signature != nil {
			checkFragment(t, e.signature.signedInfo, message, dsDeclaration)
			checkFragment(t, e.signature.keyInfo, message, dsDeclaration)
		}
		declaration := ` xmlns="` + e.namespace + `"`
		whole := canonicalWhole(t, message, e.header.hole)
		for _, part := range []fragment{e.header, e.document} {
			octets := checkFragment(t, part, message, declaration)
			require.Contains(t, whole, strings.Replace(string(octets), declaration, "", 1))
		}
	})
}

// checkFragment returns the canonical octets, which are the library's whether it was asked or not.
func checkFragment(t *testing.T, part fragment, message []byte, declaration string) []byte {
	t.Helper()
	octets, refused := part.octets(message, declaration)
	require.Nil(t, refused)
	library, err := exclusive(part.written(message, declaration))
	require.NoError(t, err)
	require.Equal(t, string(library), string(octets))
	again, err := exclusive(octets)
	require.NoError(t, err)
	require.Equal(t, string(octets), string(again))
	return octets
}

// canonicalWhole canonicalises a message without its signature.
func canonicalWhole(t *testing.T, message []byte, hole span) string {
	t.Helper()
	tree := etree.NewDocument()
	require.NoError(t, tree.ReadFromBytes(append(bytes.Clone(message[:hole.from]), message[hole.to:]...)))
	whole, err := dsig.MakeC14N10ExclusiveCanonicalizerWithPrefixList("").Canonicalize(tree.Root())
	require.NoError(t, err)
	return string(whole)
}

// TestCanonicalFormByLibxml2 holds the octets to a second library, which shares nothing with the first.
func TestCanonicalFormByLibxml2(t *testing.T) {
	t.Parallel()
	accepted := 0
	for i, seed := range seeds() {
		e, refused := read([]byte(seed))
		if refused != nil {
			continue
		}
		accepted++
		hole := e.header.hole
		path := filepath.Join(t.TempDir(), strconv.Itoa(i)+".xml")
		require.NoError(t, os.WriteFile(path, []byte(seed[:hole.from]+seed[hole.to:]), 0o600))
		whole, err := devtest.XMLLint(t, "--exc-c14n", path)
		require.NoError(t, err)
		declaration := ` xmlns="` + e.namespace + `"`
		for _, part := range []fragment{e.header, e.document} {
			octets, refused := part.octets([]byte(seed), declaration)
			require.Nil(t, refused)
			require.Contains(t, whole, strings.Replace(string(octets), declaration, "", 1))
		}
	}
	require.Equal(t, 7, accepted, "all but those with a document type, a comment or CDATA")
}

func TestCanonicalFormOfEverySpelling(t *testing.T) {
	t.Parallel()
	const before, after = `<Envelope xmlns="urn:spi"><AppHdr><Sgntr/></AppHdr>`, `</Envelope>`
	for written, canonical := range map[string]string{
		`<Document></Document>`:      `<Document xmlns="urn:spi"></Document>`,
		`<Document/>`:                `<Document xmlns="urn:spi"></Document>`,
		`<Document ></Document >`:    `<Document xmlns="urn:spi"></Document>`,
		`<Document b = '1'  a='"'/>`: `<Document xmlns="urn:spi" a="&quot;" b="1"></Document>`,
		`<Document><A b="&#9;&#10;&#13;&gt;&apos;"/></Document>`: `<Document xmlns="urn:spi"><A b="&#x9;&#xA;&#xD;>'"></A></Document>`,
		`<Document>a > b &quot;&apos;&#65;</Document>`:           `<Document xmlns="urn:spi">a &gt; b "'A</Document>`,
		"<Document>1\r\n2\r3&#13;\n</Document>":                  "<Document xmlns=\"urn:spi\">1\n2\n3&#xD;\n</Document>",
		`<Document>&amp;&lt;&gt;&#xD;</Document>`:                `<Document xmlns="urn:spi">&amp;&lt;&gt;&#xD;</Document>`,
		`<Document>&#227;&#x1F600;</Document>`:                   `<Document xmlns="urn:spi">ã😀</Document>`,
	} {
		message := []byte(before + written + after)
		e, refused := read(message)
		require.Nil(t, refused, written)
		octets, refused := e.document.octets(message, ` xmlns="urn:spi"`)
		require.Nil(t, refused, written)
		require.Equal(t, canonical, string(octets))
	}
}
