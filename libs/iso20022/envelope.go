package iso20022

import (
	"time"

	"github.com/cabine-pix/cabine/libs/pix"
)

// Header is the business application header (AppHdr), which is the same for all messages.
type Header struct {
	// From and To: one of them is the SPI (pix.SPI); the counterparty of a payment is an agent inside the message.
	From pix.ISPB `json:"from"`
	To   pix.ISPB `json:"to"`
	// MsgID is BizMsgIdr, and MsgId of the message where it has one.
	MsgID pix.MsgID `json:"msg_id"`
	// Created is CreDt, and CreDtTm of the message; UTC, milliseconds.
	Created time.Time `json:"created"`
	// MsgType is the type, "pacs.008", and Version its version, "1.16".
	MsgType string `json:"msg_type"`
	Version string `json:"version"`
}

// Envelope is a message with its header.
type Envelope struct {
	Header Header
	// Signed reports that Sgntr holds a signature. Whether it is good is for libs/signature to say.
	Signed bool
	// Document is one of the messages of this package: *Pacs008, *Pacs002 and so on.
	Document Document
}

// Document is a message of this package.
type Document interface {
	// MsgType is the type without version: "pacs.008".
	MsgType() string
	// walk is the schema of what Document holds.
	walk(x *walker)
}

// newDocument makes an empty message; nil for a type that this package does not have.
func newDocument(msgType string) Document {
	switch msgType {
	case msgPacs008:
		return new(Pacs008)
	case msgPacs002:
		return new(Pacs002)
	case msgPacs004:
		return new(Pacs004)
	case msgAdmi002:
		return new(Admi002)
	case msgPibr001:
		return new(Pibr001)
	case msgPibr002:
		return new(Pibr002)
	case msgCamt060:
		return new(Camt060)
	case msgCamt052:
		return new(Camt052)
	case msgCamt053:
		return new(Camt053)
	case msgCamt054:
		return new(Camt054)
	}
	return nil
}

// walkHeader is the schema of AppHdr.
func (x *walker) walkHeader(signed *bool) {
	h := x.header
	x.group("AppHdr", func() {
		text(x, &h.From, ispb, "Fr", "FIId", "FinInstnId", "Othr", "Id")
		text(x, &h.To, ispb, "To", "FIId", "FinInstnId", "Othr", "Id")
		text(x, &h.MsgID, msgID, "BizMsgIdr")
		x.fixed(h.MsgType+".spi."+h.Version, "MsgDefIdr")
		x.instant(&h.Created, "CreDt")
		x.signature(signed)
	})
}

// groupHeader is GrpHdr: the identifier and the time of the header again, and what a message adds.
func (x *walker) groupHeader(more func()) {
	if x.noHeader {
		x.group("GrpHdr", more)
		return
	}
	x.group("GrpHdr", func() {
		id, created := x.header.MsgID, x.header.Created
		text(x, &id, msgID, "MsgId")
		x.instant(&created, "CreDtTm")
		x.check(id == x.header.MsgID, "is not BizMsgIdr of the header", "MsgId")
		x.check(created.Equal(x.header.Created), "is not CreDt of the header", "CreDtTm")
		more()
	})
}

// nothing is added to GrpHdr by most messages.
func nothing() {}
