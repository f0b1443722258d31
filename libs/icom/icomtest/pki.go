package icomtest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/cabine-pix/cabine/libs/icom"
	"github.com/cabine-pix/cabine/libs/pix"
)

const (
	serverKeyBits = 2048
	validity      = 365 * 24 * time.Hour
)

// Files are the PEM files of one client, for a process that reads its certificates from disk.
type Files struct {
	// CA is the authority's certificate, Cert and Key the client's own.
	CA   string `json:"ca"`
	Cert string `json:"cert"`
	Key  string `json:"key"`
}

// PKI is a test authority with the bank's certificate. It is safe for concurrent use.
type PKI struct {
	ca     *x509.Certificate
	caKey  crypto.Signer
	server tls.Certificate
}

// NewPKI makes an authority and the bank's certificate for localhost and the real host names.
// The bank's key is RSA, because the required cipher suite is; the others are ECDSA, because they are quick to make.
func NewPKI() (*PKI, error) {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("icomtest: authority's key: %w", err)
	}
	p := &PKI{caKey: caKey}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "Cabine test authority", Organization: []string{"Cabine"}},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(10 * validity),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, caKey.Public(), caKey)
	if err != nil {
		return nil, fmt.Errorf("icomtest: authority: %w", err)
	}
	if p.ca, err = x509.ParseCertificate(der); err != nil {
		return nil, fmt.Errorf("icomtest: authority: %w", err)
	}
	key, err := rsa.GenerateKey(rand.Reader, serverKeyBits)
	if err != nil {
		return nil, fmt.Errorf("icomtest: bank's key: %w", err)
	}
	p.server, err = p.issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "icom.pi.rsfn.net.br"},
		DNSNames: []string{
			"localhost", "icom.pi.rsfn.net.br", "icom-h.pi.rsfn.net.br",
			"icom-sec.pi.rsfn.net.br", "icom-sec-h.pi.rsfn.net.br",
			"arq.pi.rsfn.net.br", "arq-h.pi.rsfn.net.br",
		},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		NotBefore:   now.Add(-time.Hour), NotAfter: now.Add(validity),
	}, key)
	return p, err
}

func serial() *big.Int {
	var raw [16]byte
	// crypto/rand.Read never returns an error.
	_, _ = rand.Read(raw[:])
	return new(big.Int).SetBytes(raw[:])
}

func (p *PKI) issue(template *x509.Certificate, key crypto.Signer) (tls.Certificate, error) {
	template.SerialNumber = serial()
	der, err := x509.CreateCertificate(rand.Reader, template, p.ca, key.Public(), p.caKey)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("icomtest: certificate of %s: %w", template.Subject.CommonName, err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// Pool holds the authority's certificate.
func (p *PKI) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(p.ca)
	return pool
}

// ServerConfig is the bank's side: TLS 1.2, the one cipher suite, a client certificate required.
func (p *PKI) ServerConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS12,
		CipherSuites: []uint16{icom.CipherSuite}, //nolint:gosec // the one that the ICOM speaks
		Certificates: []tls.Certificate{p.server},
		ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: p.Pool(),
		// Whole records from the start: the last piece of an answer is exactly one of them.
		DynamicRecordSizingDisabled: true,
	}
}

// Client makes a client certificate whose CN is the ISPB, valid for a year.
func (p *PKI) Client(ispb pix.ISPB) (tls.Certificate, error) {
	return p.ClientValid(ispb, time.Now().Add(-time.Hour), time.Now().Add(validity))
}

// ClientValid makes a client certificate for any time, also one that has expired.
func (p *PKI) ClientValid(ispb pix.ISPB, from, to time.Time) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("icomtest: client's key: %w", err)
	}
	return p.issue(&x509.Certificate{
		Subject:  pkix.Name{CommonName: string(ispb)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		NotBefore: from, NotAfter: to,
	}, key)
}

// ClientConfig is a client's side for a participant; the server's name is localhost.
func (p *PKI) ClientConfig(ispb pix.ISPB) (*tls.Config, error) {
	cert, err := p.Client(ispb)
	if err != nil {
		return nil, err
	}
	return p.ClientConfigFor(cert), nil
}

// ClientConfigFor is a client's side with a certificate of the caller's choice.
func (p *PKI) ClientConfigFor(cert tls.Certificate) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS12,
		CipherSuites: []uint16{icom.CipherSuite}, //nolint:gosec // the one that the ICOM speaks
		Certificates: []tls.Certificate{cert}, RootCAs: p.Pool(), ServerName: "localhost",
	}
}

const (
	caFile, caKeyFile         = "ca.pem", "ca-key.pem"
	serverFile, serverKeyFile = "server.pem", "server-key.pem"
)

// OpenPKI reads the authority and the bank's certificate from a directory, or makes
// them and writes them there. It is for tests and demonstrations: the keys lie in the open.
func OpenPKI(dir string) (*PKI, error) {
	_, err := os.Stat(filepath.Join(dir, caFile))
	if errors.Is(err, fs.ErrNotExist) {
		return createPKI(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("icomtest: %w", err)
	}
	ca, err := tls.LoadX509KeyPair(filepath.Join(dir, caFile), filepath.Join(dir, caKeyFile))
	if err != nil {
		return nil, fmt.Errorf("icomtest: authority: %w", err)
	}
	server, err := tls.LoadX509KeyPair(filepath.Join(dir, serverFile), filepath.Join(dir, serverKeyFile))
	if err != nil {
		return nil, fmt.Errorf("icomtest: bank's certificate: %w", err)
	}
	signer, ok := ca.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("icomtest: authority's key %T cannot sign", ca.PrivateKey)
	}
	return &PKI{ca: ca.Leaf, caKey: signer, server: server}, nil
}

func createPKI(dir string) (*PKI, error) {
	p, err := NewPKI()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("icomtest: %w", err)
	}
	// The authority's certificate comes last: a directory that has it has everything.
	if err := write(dir, serverFile, serverKeyFile, p.server); err != nil {
		return nil, err
	}
	ca := tls.Certificate{Certificate: [][]byte{p.ca.Raw}, PrivateKey: p.caKey}
	return p, write(dir, caFile, caKeyFile, ca)
}

// WriteClient writes a participant's certificate into a directory, as client-<ISPB>.pem
// and client-<ISPB>-key.pem beside ca.pem, unless it is there already.
func (p *PKI) WriteClient(dir string, ispb pix.ISPB) (Files, error) {
	cert, key := "client-"+string(ispb)+".pem", "client-"+string(ispb)+"-key.pem"
	files := Files{CA: filepath.Join(dir, caFile), Cert: filepath.Join(dir, cert), Key: filepath.Join(dir, key)}
	if _, err := os.Stat(files.CA); errors.Is(err, fs.ErrNotExist) {
		if err := writePEM(files.CA, "CERTIFICATE", p.ca.Raw, 0o644); err != nil {
			return Files{}, err
		}
	}
	if _, err := os.Stat(files.Cert); err == nil {
		return files, nil
	}
	c, err := p.Client(ispb)
	if err != nil {
		return Files{}, err
	}
	return files, write(dir, cert, key, c)
}

func write(dir, certFile, keyFile string, c tls.Certificate) error {
	key, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		return fmt.Errorf("icomtest: %s: %w", keyFile, err)
	}
	if err := writePEM(filepath.Join(dir, keyFile), "PRIVATE KEY", key, 0o600); err != nil {
		return err
	}
	return writePEM(filepath.Join(dir, certFile), "CERTIFICATE", c.Certificate[0], 0o644)
}

func writePEM(path, kind string, der []byte, mode fs.FileMode) error {
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), mode); err != nil {
		return fmt.Errorf("icomtest: %w", err)
	}
	return nil
}
