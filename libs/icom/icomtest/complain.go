package icomtest

import (
	"encoding/xml"
	"fmt"
	"slices"
	"strings"

	"github.com/cabine-pix/cabine/libs/pix"
)

// accepted lists the versions of the in catalogue, emitted those of the out catalogue.
// The real lists are longer.
func accepted() []string {
	return []string{
		"pacs.008.spi.1.16", "pacs.002.spi.1.17", "pacs.004.spi.1.5", "camt.060.spi.1.9", "pibr.001.spi.1.3",
	}
}

func emitted() []string {
	return []string{
		"pacs.008.spi.1.16", "pacs.002.spi.1.17", "pacs.004.spi.1.5", "admi.002.spi.1.5", "pibr.002.spi.1.3",
		"camt.052.spi.1.3", "camt.053.spi.1.4", "camt.054.spi.1.16",
	}
}

// sent is what the bank looks at in a message that a participant sent.
type sent struct {
	XMLName   xml.Name
	From      string `xml:"AppHdr>Fr>FIId>FinInstnId>Othr>Id"`
	To        string `xml:"AppHdr>To>FIId>FinInstnId>Othr>Id"`
	BizMsgID  string `xml:"AppHdr>BizMsgIdr"`
	MsgDef    string `xml:"AppHdr>MsgDefIdr"`
	Signature []struct {
		XMLName xml.Name
	} `xml:"AppHdr>Sgntr>Signature"`
}

// fault says why the SPI would not take the message of a participant; empty if it would.
func (s sent) fault(ispb pix.ISPB) string {
	msg, version, ok := strings.Cut(s.MsgDef, ".spi.")
	switch {
	case s.XMLName.Local != "Envelope":
		return "root is " + s.XMLName.Local
	case !ok || !slices.Contains(accepted(), s.MsgDef):
		return "MsgDefIdr is not in the catalogue: " + s.MsgDef
	case s.XMLName.Space != "https://www.bcb.gov.br/pi/"+msg+"/"+version:
		return "namespace is not of " + s.MsgDef + ": " + s.XMLName.Space
	case s.From != string(ispb):
		return "Fr is not the sender: " + s.From
	case s.To != string(pix.SPI):
		return "To is not the SPI: " + s.To
	case len(s.BizMsgID) != 32 || !strings.HasPrefix(s.BizMsgID, "M"+string(ispb)):
		return "BizMsgIdr is malformed: " + s.BizMsgID
	case len(s.Signature) != 1:
		return "Sgntr holds no signature"
	}
	return ""
}

// complain answers messages that the SPI would not take with an admi.002 on the
// sender's own queue. The bank looks at the envelope only and verifies no signature.
func (c *conn) complain(received Received) {
	var s sent
	var why string
	if err := xml.Unmarshal(received.Body, &s); err != nil {
		why = "XML is not well-formed: " + err.Error()
	} else {
		why = s.fault(received.ISPB)
	}
	if why == "" {
		return
	}
	c.desk.queue.enqueue(c.bank.examples.rejection(received, s.BizMsgID, why))
}

// rejection is an admi.002 in the shape of version 1.5. Ref is the PI-ResourceId and
// AddtlData the sender's own identifier; the sources disagree on which is which, so a
// receiver must find its message by either.
func (m *mint) rejection(received Received, bizMsgID, why string) []byte {
	const most = 350 // characters of RsnDesc
	now := m.clock.Now().Wall.UTC()
	var id [32]byte
	m.mu.Lock()
	m.msgID(id[:], now)
	m.mu.Unlock()
	at := now.Format("2006-01-02T15:04:05.000Z")
	if runes := []rune(why); len(runes) > most {
		why = string(runes[:most])
	}
	party := func(tag, ispb string) string {
		return fmt.Sprintf("<%s><FIId><FinInstnId><Othr><Id>%s</Id></Othr></FinInstnId></FIId></%s>", tag, ispb, tag)
	}
	return []byte(`<?xml version="1.0" encoding="UTF-8" standalone="no"?>` +
		`<Envelope xmlns="https://www.bcb.gov.br/pi/admi.002/1.5"><AppHdr>` +
		party("Fr", string(pix.SPI)) + party("To", string(received.ISPB)) +
		`<BizMsgIdr>` + string(id[:]) + `</BizMsgIdr><MsgDefIdr>admi.002.spi.1.5</MsgDefIdr>` +
		`<CreDt>` + at + `</CreDt><Sgntr></Sgntr></AppHdr>` +
		`<Document><admi.002.001.01><RltdRef><Ref>` + received.ResourceID + `</Ref></RltdRef>` +
		`<Rsn><RjctgPtyRsn>Mensagem rejeitada</RjctgPtyRsn><RjctnDtTm>` + at + `</RjctnDtTm>` +
		`<RsnDesc>` + escaped(why) + `</RsnDesc><AddtlData>` + escaped(bizMsgID) + `</AddtlData></Rsn>` +
		`</admi.002.001.01></Document></Envelope>`)
}

func escaped(s string) string {
	var b strings.Builder
	// A strings.Builder never fails.
	_ = xml.EscapeText(&b, []byte(s))
	return b.String()
}
