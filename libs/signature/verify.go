package signature

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"errors"
	"fmt"

	"github.com/cabine-pix/cabine/libs/clock"
)

// Verifier verifies messages against certificates that it trusts. It is safe for concurrent use.
type Verifier struct {
	clock clock.Clock
	certs map[string]*x509.Certificate // by certificateID
}

// NewVerifier returns a verifier that trusts these certificates, each for the time that it is in force by the wall
// clock of clk. Who issued them is not examined: that is done before they are given. Without certificates nothing is
// accepted. A certificate that has no RSA key of at least [MinBits], or is there twice with another content, is an error.
func NewVerifier(clk clock.Clock, certs ...*x509.Certificate) (*Verifier, error) {
	v := &Verifier{clock: clk, certs: make(map[string]*x509.Certificate, len(certs))}
	for _, cert := range certs {
		if err := checkKey(cert.PublicKey); err != nil {
			return nil, fmt.Errorf("signature: certificate %s: %w", cert.SerialNumber, err)
		}
		issuer, err := IssuerName(cert)
		if err != nil {
			return nil, err
		}
		id := certificateID(issuer, cert.SerialNumber)
		if other := v.certs[id]; other != nil && !other.Equal(cert) {
			return nil, fmt.Errorf("signature: two certificates with the serial number %s", cert.SerialNumber)
		}
		v.certs[id] = cert
	}
	return v, nil
}

// Verify returns the certificate that a message was signed with, or an [*Error]. What was signed is the message as it
// was given: parse those bytes and no other. That the certificate may speak for the sender in the header is for the
// caller to decide.
func (v *Verifier) Verify(message []byte) (*x509.Certificate, error) {
	e, refused := read(message)
	if refused != nil {
		return nil, refused
	}
	if e.signature == nil {
		return nil, refuse(Unsigned, "expected a signature in Sgntr at byte %d", e.sgntr.from)
	}
	cert := v.certs[certificateID(e.signature.issuer, e.signature.serial)]
	if cert == nil {
		return nil, refuse(UnknownCertificate, "no certificate has that issuer and serial number")
	}
	if now := v.clock.Now().Wall; now.Before(cert.NotBefore) || now.After(cert.NotAfter) {
		return nil, refuse(NotInForce, "certificate %s is in force from %s to %s",
			cert.SerialNumber, cert.NotBefore, cert.NotAfter)
	}
	if refused := e.checkDigests(); refused != nil {
		return nil, refused
	}
	if refused := e.checkValue(cert); refused != nil {
		return nil, refused
	}
	return cert, nil
}

// checkDigests compares the three digests with what they are of.
func (e *envelope) checkDigests() *Error {
	keyInfo, err := e.signature.keyInfo.digest(e.data, dsDeclaration)
	if err != nil {
		return err
	}
	header, document, err := e.digests()
	if err != nil {
		return err
	}
	parts := []string{"KeyInfo", "AppHdr", "Document"}
	for i, digest := range [...][sha256.Size]byte{keyInfo, header, document} {
		if subtle.ConstantTimeCompare(digest[:], e.signature.digests[i][:]) != 1 {
			return refuse(WrongDigest, "reference %d is not that of %s", i+1, parts[i])
		}
	}
	return nil
}

// checkValue holds SignedInfo against the key of the certificate.
func (e *envelope) checkValue(cert *x509.Certificate) *Error {
	digest, refused := e.signature.signedInfo.digest(e.data, dsDeclaration)
	if refused != nil {
		return refused
	}
	public, ok := cert.PublicKey.(*rsa.PublicKey)
	if !ok || errors.Join(checkKey(public), rsa.VerifyPKCS1v15(public, crypto.SHA256, digest[:], e.signature.value)) != nil {
		return refuse(WrongValue, "the signature is not by the key of certificate %s", cert.SerialNumber)
	}
	return nil
}
