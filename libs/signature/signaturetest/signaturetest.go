// Package signaturetest makes keys and certificates to throw away, for tests, the simulated SPI and the demo. They look
// like those of ICP-Brasil and nobody has issued them.
package signaturetest

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"time"

	"github.com/cabine-pix/cabine/libs/signature"
)

// Names of the files that [Identity.Write] writes.
const (
	KeyFile         = "signature.key.pem"
	CertificateFile = "signature.cert.pem"
)

// Identity is a key with its certificate.
type Identity struct {
	Key         *rsa.PrivateKey
	Certificate *x509.Certificate
}

// New makes an RSA key of 2048 bits and a certificate for it, signed by itself and in force between two times. The
// issuer is "CN=<name>, OU=CSPB-1, O=ICP-Brasil, C=BR", the serial number random.
func New(name string, notBefore, notAfter time.Time) (Identity, error) {
	key, err := rsa.GenerateKey(rand.Reader, signature.MinBits)
	if err != nil {
		return Identity{}, fmt.Errorf("signaturetest: make a key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 63))
	if err != nil {
		return Identity{}, fmt.Errorf("signaturetest: draw a serial number: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial.Add(serial, big.NewInt(1)),
		Subject: pkix.Name{
			Country: []string{"BR"}, Organization: []string{"ICP-Brasil"}, OrganizationalUnit: []string{"CSPB-1"},
			CommonName: name,
		},
		NotBefore: notBefore, NotAfter: notAfter,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageContentCommitment,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return Identity{}, fmt.Errorf("signaturetest: make a certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return Identity{}, fmt.Errorf("signaturetest: read the certificate: %w", err)
	}
	return Identity{Key: key, Certificate: cert}, nil
}

// Signer signs with the key.
func (i Identity) Signer() (*signature.Signer, error) {
	return signature.FromCertificate(i.Key, i.Certificate)
}

// Write puts [KeyFile] and [CertificateFile] into a directory that exists, and returns their paths.
func (i Identity) Write(dir string) (key, certificate string, err error) {
	der, err := x509.MarshalPKCS8PrivateKey(i.Key)
	if err != nil {
		return "", "", fmt.Errorf("signaturetest: write the key: %w", err)
	}
	key, certificate = filepath.Join(dir, KeyFile), filepath.Join(dir, CertificateFile)
	block := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	if err := os.WriteFile(key, block, 0o600); err != nil {
		return "", "", fmt.Errorf("signaturetest: write the key: %w", err)
	}
	block = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.Certificate.Raw})
	if err := os.WriteFile(certificate, block, 0o644); err != nil {
		return "", "", fmt.Errorf("signaturetest: write the certificate: %w", err)
	}
	return key, certificate, nil
}

// Wrap breaks the SignatureValue of a signed message into lines as the SPI does: 76 characters each, with &#13; and a
// line feed between them. The value is the same, and so is the message.
func Wrap(signed []byte) []byte {
	const column = 76
	from := bytes.Index(signed, []byte("<ds:SignatureValue>")) + len("<ds:SignatureValue>")
	to := bytes.Index(signed, []byte("</ds:SignatureValue>"))
	if to < from {
		return signed
	}
	out := bytes.Clone(signed[:from])
	for value := signed[from:to]; ; value = value[column:] {
		if len(value) <= column {
			return append(append(out, value...), signed[to:]...)
		}
		out = append(append(out, value[:column]...), "&#13;\n"...)
	}
}
