package bacen

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/icom"
	"github.com/cabine-pix/cabine/libs/pix"
)

// credentials reads the certificate files anew for each connection. While a file is
// being replaced it may not fit its key or not parse: then the last good pair serves,
// and the log says so.
type credentials struct {
	cfg Config
	clk clock.Clock
	log *slog.Logger

	mu    sync.Mutex
	pool  *x509.CertPool
	pairs map[pix.ISPB]tls.Certificate
}

// tlsConfig returns the client's side for a new connection: TLS 1.2 and the one cipher
// suite that the bank must support, no session of an earlier connection.
func (c *credentials) tlsConfig(ispb pix.ISPB, serverName string) (*tls.Config, error) {
	pool, err := c.authorities()
	if err != nil {
		return nil, err
	}
	pair, err := c.pair(ispb)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:             tls.VersionTLS12,
		MaxVersion:             tls.VersionTLS12,
		CipherSuites:           []uint16{icom.CipherSuite}, //nolint:gosec // the one suite that the bank must support
		ServerName:             serverName,
		RootCAs:                pool,
		Certificates:           []tls.Certificate{pair},
		SessionTicketsDisabled: true,
		Time:                   func() time.Time { return c.clk.Now().Wall },
	}, nil
}

func (c *credentials) authorities() (*x509.CertPool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	pool, err := readPool(c.cfg.CA)
	if err != nil {
		if c.pool == nil {
			return nil, err
		}
		c.log.Warn("authority file cannot be read, the last good one serves", "error", err)
		return c.pool, nil
	}
	c.pool = pool
	return pool, nil
}

func readPool(path string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("authorities: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("authorities: no certificate in %s", path)
	}
	return pool, nil
}

func (c *credentials) pair(ispb pix.ISPB) (tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id, ok := c.cfg.Participants[ispb]
	if !ok {
		return tls.Certificate{}, fmt.Errorf("participant %s is not configured", ispb)
	}
	pair, err := tls.LoadX509KeyPair(id.Cert, id.Key)
	if err != nil {
		err = fmt.Errorf("client certificate of %s: %w", ispb, err)
		last, ok := c.pairs[ispb]
		if !ok {
			return tls.Certificate{}, err
		}
		c.log.Warn("client certificate cannot be read, the last good one serves", "ispb", ispb, "error", err)
		return last, nil
	}
	c.pairs[ispb] = pair
	return pair, nil
}

// check says what the bank would hold against the participant's certificate. The bank
// itself only breaks the handshake, or answers 403, without a reason.
func (c *credentials) check(ispb pix.ISPB) error {
	pair, err := c.pair(ispb)
	if err != nil {
		return err
	}
	leaf := pair.Leaf
	if leaf == nil {
		return errors.New("client certificate has no leaf")
	}
	switch now := c.clk.Now().Wall; {
	case now.After(leaf.NotAfter):
		return fmt.Errorf("client certificate of %s expired at %s", ispb, leaf.NotAfter.Format(time.RFC3339))
	case now.Before(leaf.NotBefore):
		return fmt.Errorf("client certificate of %s is valid only from %s", ispb, leaf.NotBefore.Format(time.RFC3339))
	}
	if !c.cfg.AnySubject && !names(leaf, ispb) {
		return fmt.Errorf("client certificate is not for %s: its subject is %q", ispb, leaf.Subject)
	}
	return nil
}

// names reports whether the certificate's subject carries the ISPB, in the common name
// or an organisational unit ("ISPB-12345678" in the SPB profile).
func names(leaf *x509.Certificate, ispb pix.ISPB) bool {
	for _, s := range append([]string{leaf.Subject.CommonName}, leaf.Subject.OrganizationalUnit...) {
		for word := range strings.FieldsFuncSeq(s, func(r rune) bool {
			return (r < '0' || r > '9') && (r < 'A' || r > 'Z')
		}) {
			if word == string(ispb) {
				return true
			}
		}
	}
	return false
}
