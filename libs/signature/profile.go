package signature

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"math/big"
)

// Names of the profile.
const (
	xmldsig        = "http://www.w3.org/2000/09/xmldsig#"
	dsDeclaration  = ` xmlns:ds="` + xmldsig + `"`
	exclusiveC14N  = "http://www.w3.org/2001/10/xml-exc-c14n#"
	rsaSHA256      = "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256"
	digestSHA256   = "http://www.w3.org/2001/04/xmlenc#sha256"
	envelopedXform = xmldsig + "enveloped-signature"
)

// maxSerial bounds the digits of a serial number: certificates have at most 20 bytes (RFC 5280).
const maxSerial = 49

// signature is what a ds:Signature says.
type signature struct {
	span
	signedInfo fragment
	keyInfo    fragment
	digests    [3][sha256.Size]byte // of KeyInfo, AppHdr, Document
	value      []byte
	issuer     string
	serial     *big.Int
}

// signature reads a ds:Signature, whose start tag was read last, to its end. It takes the profile and nothing else.
func (p *parser) signature() *signature {
	s := &signature{span: span{from: p.tok.from}}
	if len(p.tok.attrs) != 1 || string(p.tok.attrs[0].name) != "xmlns:ds" || string(p.tok.attrs[0].value) != xmldsig {
		p.refuse(BadProfile, "expected the declaration of ds and no other attribute of ds:Signature")
	}
	uri := p.signedInfo(s)
	s.value = p.base64("ds:SignatureValue")
	id := p.keyInfo(s)
	p.close("ds:Signature")
	s.to = p.tok.to
	if p.err == nil && (len(id) == 0 || !bytes.Equal(uri, append([]byte{'#'}, id...))) {
		p.refuse(BadProfile, "expected a first reference to KeyInfo")
	}
	return s
}

// signedInfo reads ds:SignedInfo and returns the URI of its first reference.
func (p *parser) signedInfo(s *signature) (uri []byte) {
	p.open("ds:SignedInfo")
	s.signedInfo = p.begin()
	p.algorithm("ds:CanonicalizationMethod", exclusiveC14N)
	p.algorithm("ds:SignatureMethod", rsaSHA256)

	p.open("ds:Reference", "URI")
	uri = p.attribute0()
	p.reference(&s.digests[0], exclusiveC14N)

	p.open("ds:Reference", "URI")
	if len(p.attribute0()) != 0 {
		p.refuse(BadProfile, "expected an empty URI in the second reference")
	}
	p.reference(&s.digests[1], envelopedXform, exclusiveC14N)

	p.open("ds:Reference")
	p.reference(&s.digests[2], exclusiveC14N)

	p.close("ds:SignedInfo")
	s.signedInfo.to, s.signedInfo.canonical = p.tok.to, p.canonical
	return uri
}

// reference reads what is in a ds:Reference, and its end.
func (p *parser) reference(digest *[sha256.Size]byte, transforms ...string) {
	p.open("ds:Transforms")
	for _, t := range transforms {
		p.algorithm("ds:Transform", t)
	}
	p.close("ds:Transforms")
	p.algorithm("ds:DigestMethod", digestSHA256)
	value := p.base64("ds:DigestValue")
	if copy(digest[:], value) != len(digest) || len(value) != len(digest) {
		p.refuse(BadProfile, "expected a digest of 32 bytes")
	}
	p.close("ds:Reference")
}

// keyInfo reads ds:KeyInfo and returns its Id.
func (p *parser) keyInfo(s *signature) (id []byte) {
	p.open("ds:KeyInfo", "Id")
	id = p.attribute0()
	s.keyInfo = p.begin()
	p.open("ds:X509Data")
	p.open("ds:X509IssuerSerial")
	p.open("ds:X509IssuerName")
	s.issuer = string(unescape(p.text("ds:X509IssuerName")))
	p.open("ds:X509SerialNumber")
	digits := bytes.TrimSpace(p.text("ds:X509SerialNumber"))
	if len(digits) == 0 || len(digits) > maxSerial || len(bytes.Trim(digits, "0123456789")) > 0 {
		p.refuse(BadProfile, "expected a decimal serial number")
	} else {
		s.serial, _ = new(big.Int).SetString(string(digits), 10) // digits only
	}
	p.close("ds:X509IssuerSerial")
	p.close("ds:X509Data")
	p.close("ds:KeyInfo")
	s.keyInfo.to, s.keyInfo.canonical = p.tok.to, p.canonical
	return id
}

// open reads the start tag of an element that has exactly these attributes.
func (p *parser) open(name string, attributes ...string) {
	p.skipBlank()
	if !p.at(startTag, name) {
		p.refuse(BadProfile, "expected "+name)
		return
	}
	if len(p.tok.attrs) != len(attributes) {
		p.refuse(BadProfile, "other attributes than the profile has in "+name)
		return
	}
	for i, a := range attributes {
		if string(p.tok.attrs[i].name) != a {
			p.refuse(BadProfile, "other attributes than the profile has in "+name)
		}
	}
}

// attribute0 is the value of the first attribute of the start tag read last, where open has seen that there is one. A
// value that needs a reference is none of the profile.
func (p *parser) attribute0() []byte {
	if p.err != nil {
		return nil
	}
	value := p.tok.attrs[0].value
	if bytes.IndexByte(value, '&') >= 0 {
		p.refuse(BadProfile, "reference to a character in an attribute")
	}
	return value
}

func (p *parser) close(name string) {
	p.skipBlank()
	if !p.at(endTag, name) {
		p.refuse(BadProfile, "expected the end of "+name)
	}
}

// algorithm reads an empty element that names an algorithm.
func (p *parser) algorithm(name, algorithm string) {
	p.open(name, "Algorithm")
	if string(p.attribute0()) != algorithm {
		p.refuse(BadProfile, "another algorithm than the profile has in "+name)
	}
	p.close(name)
}

// text reads the text of an element that has nothing else, and its end. It is returned as written.
func (p *parser) text(name string) []byte {
	p.advance()
	if p.err != nil || p.tok.kind != text {
		p.refuse(BadProfile, "expected text in "+name)
		return nil
	}
	t := p.tok.of(p.data)
	p.close(name)
	return t
}

// base64 reads an element of base64, which may be broken into lines, also by &#13;.
func (p *parser) base64(name string) []byte {
	p.open(name)
	raw := unescape(p.text(name))
	packed := make([]byte, 0, len(raw))
	for _, c := range raw {
		if !isSpace(c) {
			packed = append(packed, c)
		}
	}
	value := make([]byte, base64.StdEncoding.DecodedLen(len(packed)))
	n, err := base64.StdEncoding.Strict().Decode(value, packed)
	if err != nil {
		p.refuse(BadProfile, "expected base64 in "+name)
	}
	return value[:n]
}
