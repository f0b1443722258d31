package inbound

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/transport"
)

func TestMessageType(t *testing.T) {
	t.Parallel()
	wrap := func(inner string) string { return "<Envelope><AppHdr>" + inner + "</AppHdr></Envelope>" }
	for name, tt := range map[string]struct{ body, kind, err string }{
		"pacs.008":            {body: string(envelope("pacs.008.spi.1.16")), kind: "pacs.008"},
		"with a BOM":          {body: "\xef\xbb\xbf" + wrap("<MsgDefIdr>admi.002.spi.1.5</MsgDefIdr>"), kind: "admi.002"},
		"prefixed, padded":    {body: "<p:Envelope><p:AppHdr><p:MsgDefIdr>\n pacs.002.spi.1.17 </p:MsgDefIdr></p:AppHdr></p:Envelope>\n", kind: "pacs.002"},
		"unknown form":        {body: wrap("<MsgDefIdr>hello</MsgDefIdr>")},
		"comment, CDATA, PI":  {body: wrap("<!-- < & --><?a <?><MsgDefIdr>pibr.001.spi.1.3</MsgDefIdr><x><![CDATA[<&]]></x>"), kind: "pibr.001"},
		"empty":               {err: "no element"},
		"no MsgDefIdr":        {body: wrap(""), err: "no Envelope/AppHdr/MsgDefIdr"},
		"MsgDefIdr elsewhere": {body: "<Envelope><Document><MsgDefIdr>pacs.008.spi.1.16</MsgDefIdr></Document></Envelope>", err: "no Envelope"},
		"truncated":           {body: string(envelope("pacs.008.spi.1.16"))[:120], err: "not closed"},
		"crossed":             {body: "<a><b></a></b>", err: "does not match"},
		"two roots":           {body: "<a/><b/>", err: "second root"},
		"text outside":        {body: "<a/>x", err: "outside of the root"},
		"latin-1":             {body: "<a>\xe7</a>", err: "not UTF-8"},
		"declared latin-1":    {body: `<?xml version="1.0" encoding="ISO-8859-1"?><a/>`, err: `charset is "ISO-8859-1"`},
		"declared twice":      {body: `<?xml version="1.0" encoding="x" encoding="UTF-8"?><a/>`, err: `charset is "x"`},
		"doctype":             {body: `<!DOCTYPE a [<!ENTITY x "y">]><a/>`, err: "document type"},
		"entity":              {body: "<a>&x;</a>", err: "undefined entity"},
		"control character":   {body: "<a>\x01</a>", err: "control character"},
		"attribute":           {body: "<a b=c/>", err: "without quotes"},
		"deep":                {body: strings.Repeat("<a>", 65), err: "more than 64 levels"},
		"not XML":             {body: "hello", err: "outside of the root"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kind, err := messageType([]byte(tt.body))
			if tt.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tt.err)
			}
			require.Equal(t, tt.kind, kind)
		})
	}
}

// Only an identifier of the SPI's form has a type.
func TestSPIType(t *testing.T) {
	t.Parallel()
	require.Equal(t, "camt.054", spiType([]byte("camt.054.spi.12.3")))
	for _, other := range []string{
		"", "camt.054", "camt.054.spi.1", "camt.054.spi.1.", "camt.054.spi..1", "camt.054.spi.1.2.3", "camt.054.001.08", "Camt.054.spi.1.2",
		"camt.05.spi.1.2", "camt.0545.spi.1.2", "camt-054.spi.1.2", "c4mt.054.spi.1.2", "camt.o54.spi.1.2", "camt.054.spi.1a.2", "camt.054.spi.1.2 x",
	} {
		require.Empty(t, spiType([]byte(other)), other)
	}
}

func TestExamineBoundsSizeAndID(t *testing.T) {
	t.Parallel()
	_, poison := examine(transport.Message{ResourceID: "a", Body: bytes.Repeat([]byte("x"), 11)}, 10)
	require.Equal(t, "message has 11 bytes, want at most 10", poison.Reason)
	_, poison = examine(transport.Message{ResourceID: strings.Repeat("a", 129)}, 10)
	require.Contains(t, poison.Reason, "129 characters")
	_, poison = examine(transport.Message{ResourceID: "a\x00"}, 10)
	require.Contains(t, poison.Reason, "not printable")
}

// Whatever the standard parser takes for a document without a type of its own, ours takes
// as well, so that no good message goes to the dead letters.
func FuzzMessageTypeRefusesNothingGood(f *testing.F) {
	f.Add(envelope("pacs.008.spi.1.16"))
	f.Add([]byte(`<a b='1' c="x>y"><d/>&#233;<!-- - --></a >`))
	f.Fuzz(func(t *testing.T, body []byte) {
		_, err := messageType(body)
		if err == nil || strings.HasPrefix(err.Error(), "no Envelope") {
			return
		}
		if good(body) {
			t.Fatalf("refused %q: %v", body, err)
		}
	})
}

// good is a strict reading of XML by encoding/xml, with what it lets pass and XML does not.
func good(body []byte) bool {
	d := xml.NewDecoder(bytes.NewReader(body))
	depth, roots := 0, 0
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			return roots == 1
		}
		if err != nil {
			return false
		}
		switch tok := tok.(type) {
		case xml.StartElement:
			if depth == 0 {
				roots++
			}
			if depth++; depth > maxDepth {
				return false
			}
		case xml.EndElement:
			depth--
		case xml.CharData:
			if depth == 0 && len(bytes.TrimSpace(tok)) > 0 {
				return false
			}
		case xml.Directive, xml.ProcInst:
			return false
		}
	}
}

func BenchmarkMessageType(b *testing.B) {
	body := envelope("pacs.008.spi.1.16")
	body = append(body[:len(body)-len("</Envelope>")], bytes.Repeat([]byte("<Elem attr=\"value\">some text</Elem>\n"), 140)...)
	body = append(body, "</Envelope>"...)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if _, err := messageType(body); err != nil {
			b.Fatal(err)
		}
	}
}
