package signature

import (
	"bytes"
	"strings"
)

// fragment is an element whose canonical octets are digested.
type fragment struct {
	span
	name      int  // where the name in its start tag ends
	hole      span // what is left out of it
	canonical bool // its octets stand in the message as they are, but for the namespace it inherits
}

// envelope is where the parts of a message stand.
type envelope struct {
	data      []byte
	namespace string // the default one
	header    fragment
	document  fragment
	sgntr     span       // of the element
	signature *signature // nil when Sgntr is empty
}

// parser reads the structure of a message. After an error it reads nothing more.
type parser struct {
	scanner
	tok       token // the one read last
	canonical bool  // all that was read since begin is
	err       *Error
}

// read finds the parts of a message and refuses what the package comment says.
func read(data []byte) (*envelope, *Error) {
	p := parser{scanner: scanner{data: data}}
	e := &envelope{data: data}
	p.err = p.declaration()
	p.skipBlank()
	e.namespace = p.root()
	p.skipBlank()
	p.header(e)
	p.skipBlank()
	e.document = p.document()
	p.skipBlank()
	p.expectEnd("Envelope")
	p.skipBlank()
	if p.tok.kind != atEnd {
		p.refuse(BadStructure, "expected the end of the message")
	}
	return e, p.err
}

// refuse stops the parser, with the offset of the token read last.
func (p *parser) refuse(r Reason, what string) {
	if p.err == nil {
		p.err = refuse(r, "%s at byte %d", what, p.tok.from)
	}
}

// advance reads the next token.
func (p *parser) advance() {
	if p.err != nil {
		p.tok = token{}
		return
	}
	p.exact = true
	p.tok, p.err = p.next()
	p.canonical = p.canonical && p.exact
}

// skipBlank reads the next token that is not white space.
func (p *parser) skipBlank() {
	p.advance()
	for p.tok.kind == text && isBlank(p.tok.of(p.data)) {
		p.advance()
	}
}

func (p *parser) at(k kind, name string) bool {
	return p.err == nil && p.tok.kind == k && string(p.tok.name.of(p.data)) == name
}

func (p *parser) expectStart(name string) {
	if !p.at(startTag, name) {
		p.refuse(BadStructure, "expected "+name)
	}
}

func (p *parser) expectEnd(name string) {
	if !p.at(endTag, name) {
		p.refuse(BadStructure, "expected the end of "+name)
	}
}

// root reads the tag of Envelope and returns the namespace that it declares.
func (p *parser) root() string {
	p.expectStart("Envelope")
	if p.err != nil {
		return ""
	}
	if len(p.tok.attrs) != 1 || string(p.tok.attrs[0].name) != "xmlns" {
		p.refuse(BadStructure, "expected xmlns and no other attribute of Envelope")
		return ""
	}
	// One way to write it is enough, and leaves nothing to canonicalise.
	value := string(p.tok.attrs[0].value)
	if value == "" || value == xmldsig || strings.ContainsAny(value, "&<>\"' ") {
		p.refuse(BadStructure, "expected the namespace of a message")
	}
	return value
}

// begin starts a fragment at the start tag read last.
func (p *parser) begin() fragment {
	p.canonical = p.exact
	return fragment{span: span{from: p.tok.from}, name: p.tok.name.to}
}

// header reads AppHdr with what is in Sgntr.
func (p *parser) header(e *envelope) {
	p.expectStart("AppHdr")
	p.plain()
	e.header = p.begin()
	for p.advance(); p.err == nil && p.tok.kind != endTag; p.advance() {
		switch {
		case p.tok.kind == text:
		case p.at(startTag, "Sgntr") && e.sgntr.empty():
			e.sgntr.from = p.tok.from
			p.plain()
			p.sgntr(e)
			e.sgntr.to = p.tok.to
		default:
			p.element()
		}
	}
	if e.sgntr.empty() {
		p.refuse(BadStructure, "expected Sgntr before the end of AppHdr")
	}
	e.header.to, e.header.canonical = p.tok.to, p.canonical
	if e.signature != nil {
		e.header.hole = e.signature.span
	}
}

// sgntr reads to the end of Sgntr.
func (p *parser) sgntr(e *envelope) {
	for p.advance(); p.err == nil && p.tok.kind != endTag; p.advance() {
		switch {
		case p.tok.kind == text && isBlank(p.tok.of(p.data)): // of AppHdr, and signed with it
		case p.at(startTag, "ds:Signature") && e.signature == nil:
			outside := p.canonical
			e.signature = p.signature()
			p.canonical = outside
		default:
			p.refuse(BadStructure, "expected one ds:Signature and nothing else in Sgntr")
		}
	}
}

// document reads Document.
func (p *parser) document() fragment {
	p.expectStart("Document")
	p.plain()
	f := p.begin()
	p.content()
	f.to, f.canonical = p.tok.to, p.canonical
	return f
}

// element reads an element of the message to its end.
func (p *parser) element() {
	name := p.tok.name.of(p.data)
	if bytes.IndexByte(name, ':') >= 0 {
		p.refuse(BadStructure, "prefix outside the signature")
	}
	switch string(name) {
	case "Envelope", "AppHdr", "Document", "Sgntr", "Signature", "SignedInfo", "SignatureValue", "KeyInfo":
		p.refuse(BadStructure, "part of an envelope where none may be")
	}
	p.plain()
	p.content()
}

// content reads to the end of the element whose start tag was read last.
func (p *parser) content() {
	for p.advance(); p.err == nil && p.tok.kind != endTag; p.advance() {
		if p.tok.kind == startTag {
			p.element()
		}
	}
}

// plain refuses attributes that change how names are read or what a reference means.
func (p *parser) plain() {
	if p.err != nil {
		return
	}
	for _, a := range p.tok.attrs {
		switch {
		case string(a.name) == "xmlns" || bytes.IndexByte(a.name, ':') >= 0:
			p.refuse(BadStructure, "namespace declaration or attribute with a prefix")
		case len(a.name) == len("Id") && strings.EqualFold(string(a.name), "Id"):
			p.refuse(BadStructure, "attribute Id outside KeyInfo")
		}
	}
}
