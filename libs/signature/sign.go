package signature

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"unicode/utf8"
)

// MinBits is the shortest RSA modulus that signs or is trusted, in bits.
const MinBits = 2048

// keyInfoID is the Id of KeyInfo: the one that the SPI itself uses.
const keyInfoID = "key-info-id"

// Signer signs messages with one key. It is safe for concurrent use if the key is.
type Signer struct {
	key     crypto.Signer
	keyInfo string // as it stands in the message
	digest  string // of KeyInfo, in base64: the same for every message
}

// NewSigner returns a signer for an RSA key of at least [MinBits] whose certificate has this issuer, written as
// [IssuerName] does, and serial number.
func NewSigner(key crypto.Signer, issuer string, serial *big.Int) (*Signer, error) {
	if key == nil {
		return nil, errors.New("signature: no key")
	}
	if err := checkKey(key.Public()); err != nil {
		return nil, fmt.Errorf("signature: %w", err)
	}
	if issuer == "" || serial == nil || serial.Sign() < 0 {
		return nil, errors.New("signature: issuer and serial number of the certificate are needed")
	}
	if !utf8.ValidString(issuer) || strings.ContainsFunc(issuer, func(r rune) bool { return !isChar(r) }) {
		return nil, errors.New("signature: issuer has a character that XML has not")
	}
	attributes := ` Id="` + keyInfoID + `"><ds:X509Data><ds:X509IssuerSerial><ds:X509IssuerName>` + escape(issuer) +
		`</ds:X509IssuerName><ds:X509SerialNumber>` + serial.String() +
		`</ds:X509SerialNumber></ds:X509IssuerSerial></ds:X509Data></ds:KeyInfo>`
	digest := sha256.Sum256([]byte(`<ds:KeyInfo` + dsDeclaration + attributes))
	return &Signer{
		key: key, keyInfo: `<ds:KeyInfo` + attributes, digest: base64.StdEncoding.EncodeToString(digest[:]),
	}, nil
}

// FromCertificate returns a signer for the key of a certificate.
func FromCertificate(key crypto.Signer, cert *x509.Certificate) (*Signer, error) {
	issuer, err := IssuerName(cert)
	if err != nil {
		return nil, err
	}
	s, err := NewSigner(key, issuer, cert.SerialNumber)
	if err != nil {
		return nil, err
	}
	if public, ok := cert.PublicKey.(*rsa.PublicKey); !ok || !public.Equal(key.Public()) {
		return nil, errors.New("signature: the certificate is of another key")
	}
	return s, nil
}

// checkKey refuses what the profile does not sign with.
func checkKey(key crypto.PublicKey) error {
	public, ok := key.(*rsa.PublicKey)
	if !ok {
		return errors.New("the profile of the SPI needs an RSA key")
	}
	if bits := public.N.BitLen(); bits < MinBits {
		return fmt.Errorf("RSA key of %d bits, at least %d are needed", bits, MinBits)
	}
	return nil
}

// Sign returns a message with its signature put into the empty Sgntr; nothing else of it changes. A message that could
// not be verified is refused with an [*Error]; other errors are the key's.
func (s *Signer) Sign(message []byte) ([]byte, error) {
	e, refused := read(message)
	if refused != nil {
		return nil, refused
	}
	if e.signature != nil {
		return nil, refuse(AlreadySigned, "expected an empty Sgntr at byte %d", e.sgntr.from)
	}
	header, document, refused := e.digests()
	if refused != nil {
		return nil, refused
	}
	// SignedInfo as it is digested, and as it stands in the message: the tag differs, where the namespace is inherited.
	signedInfo := s.signedInfo(header, document)
	digest := sha256.New()
	digest.Write([]byte(`<ds:SignedInfo` + dsDeclaration))
	digest.Write(signedInfo)
	value, err := s.key.Sign(rand.Reader, digest.Sum(nil), crypto.SHA256)
	if err != nil {
		return nil, fmt.Errorf("signature: sign: %w", err)
	}

	var out bytes.Buffer
	out.Grow(len(message) + len(signedInfo) + len(s.keyInfo) + 2*len(value) + 256)
	out.Write(message[:e.sgntr.from])
	out.WriteString(`<Sgntr><ds:Signature` + dsDeclaration + `><ds:SignedInfo`)
	out.Write(signedInfo)
	out.WriteString(`<ds:SignatureValue>`)
	out.Write(base64.StdEncoding.AppendEncode(nil, value))
	out.WriteString(`</ds:SignatureValue>`)
	out.WriteString(s.keyInfo)
	out.WriteString(`</ds:Signature></Sgntr>`)
	out.Write(message[e.sgntr.to:])
	return out.Bytes(), nil
}

// signedInfo writes SignedInfo canonically, without the beginning of its tag.
func (s *Signer) signedInfo(header, document [sha256.Size]byte) []byte {
	const transform = `<ds:Transform Algorithm="` + exclusiveC14N + `"></ds:Transform></ds:Transforms>` +
		`<ds:DigestMethod Algorithm="` + digestSHA256 + `"></ds:DigestMethod><ds:DigestValue>`
	const end = `</ds:DigestValue></ds:Reference>`
	out := make([]byte, 0, 2048)
	out = append(out, `><ds:CanonicalizationMethod Algorithm="`+exclusiveC14N+`"></ds:CanonicalizationMethod>`+
		`<ds:SignatureMethod Algorithm="`+rsaSHA256+`"></ds:SignatureMethod>`+
		`<ds:Reference URI="#`+keyInfoID+`"><ds:Transforms>`+transform...)
	out = append(append(out, s.digest...), end...)
	out = append(out, `<ds:Reference URI=""><ds:Transforms>`+
		`<ds:Transform Algorithm="`+envelopedXform+`"></ds:Transform>`+transform...)
	out = append(base64.StdEncoding.AppendEncode(out, header[:]), end...)
	out = append(out, `<ds:Reference><ds:Transforms>`+transform...)
	out = append(base64.StdEncoding.AppendEncode(out, document[:]), end...)
	return append(out, `</ds:SignedInfo>`...)
}

// digests are those of AppHdr and Document.
func (e *envelope) digests() (header, document [sha256.Size]byte, err *Error) {
	declaration := ` xmlns="` + e.namespace + `"`
	if header, err = e.header.digest(e.data, declaration); err == nil {
		document, err = e.document.digest(e.data, declaration)
	}
	return header, document, err
}
