package main

import (
	"context"
	"crypto"
	"crypto/x509"
	"fmt"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/signature"
	"github.com/cabine-pix/cabine/libs/transport"
	"github.com/cabine-pix/cabine/services/internal/core"
)

// signer signs while its certificate is in force. After that the SPI would refuse one message after the other
// (admi.002), and each refusal rejects its payments.
type signer struct {
	*signature.Signer
	certificate *x509.Certificate
	clk         clock.Clock
}

func signerOf(key crypto.Signer, certificate *x509.Certificate, clk clock.Clock) (*signer, error) {
	s, err := signature.FromCertificate(key, certificate)
	if err != nil {
		return nil, core.Misconfigured(err)
	}
	return &signer{Signer: s, certificate: certificate, clk: clk}, nil
}

// inForce is nil while it is, by this machine's clock.
func (s *signer) inForce() error {
	c := s.certificate
	if now := s.clk.Now().Wall; now.Before(c.NotBefore) || now.After(c.NotAfter) {
		return fmt.Errorf("signature: certificate %s is in force from %v to %v", c.SerialNumber, c.NotBefore, c.NotAfter)
	}
	return nil
}

// Sign implements outbound.Signer.
func (s *signer) Sign(message []byte) ([]byte, error) {
	if err := s.inForce(); err != nil {
		return nil, err
	}
	return s.Signer.Sign(message)
}

// readiness is that of the transport and of the signature: without either, what is in hand is for other replicas.
type readiness struct {
	transport.Readiness
	signer *signer
}

// Ready implements transport.Readiness.
func (r readiness) Ready(ctx context.Context, channel pix.Channel, ispb pix.ISPB) error {
	if err := r.signer.inForce(); err != nil {
		return err
	}
	return r.Readiness.Ready(ctx, channel, ispb)
}
