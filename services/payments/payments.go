package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cabine-pix/cabine/libs/bus"
	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/signature"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/services/internal/core"
	"github.com/cabine-pix/cabine/services/payments/announce"
	"github.com/cabine-pix/cabine/services/payments/api"
	"github.com/cabine-pix/cabine/services/payments/decision"
	"github.com/cabine-pix/cabine/services/payments/inbound"
	"github.com/cabine-pix/cabine/services/payments/watch"
)

func newBooks(db *store.DB) inbound.Books {
	return inbound.Books{
		DB: db, Inbox: store.NewInbox(db), Payments: store.NewPayments(db), Outbox: store.NewOutbox(db), Outbound: store.NewOutbound(db),
		Reconciliations: store.NewReconciliations(db),
	}
}

// newVerifier trusts the SPI's certificates and no other.
func newVerifier(cfg Config, clk clock.Clock) (*signature.Verifier, error) {
	certs, err := signature.LoadCertificates(cfg.Signature.SPICertificates)
	if err != nil {
		return nil, core.Misconfigured(fmt.Errorf("signature.spi_certificates: %w", err))
	}
	v, err := signature.NewVerifier(clk, certs...)
	return v, core.Misconfigured(err)
}

func newCore(cfg Config, clk clock.Clock, log *slog.Logger, reg prometheus.Registerer) (*decision.Core, error) {
	dc := cfg.decision()
	if cfg.Core.CAFile != "" {
		pem, err := os.ReadFile(cfg.Core.CAFile)
		if err != nil {
			return nil, core.Misconfigured(fmt.Errorf("core.ca_file: %w", err))
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(pem) {
			return nil, core.Misconfigured(fmt.Errorf("core.ca_file: no certificate in %s", cfg.Core.CAFile))
		}
		dc.TLS = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	}
	c, err := decision.New(dc, decision.Deps{Clock: clk, Log: log, Metrics: reg})
	return c, core.Misconfigured(err)
}

func newAnnouncer(cfg Config, b *bus.Bus, books inbound.Books, clk clock.Clock, log *slog.Logger, reg prometheus.Registerer) (*announce.Announcer, error) {
	a, err := announce.New(cfg.announce(), announce.Deps{Carrier: b, Outbox: books.Outbox, Clock: clk, Log: log, Metrics: reg})
	return a, core.Misconfigured(err)
}

func newProcessor(
	cfg Config, b *bus.Bus, books inbound.Books, v *signature.Verifier, c *decision.Core, a *announce.Announcer,
	clk clock.Clock, log *slog.Logger, reg prometheus.Registerer,
) (*inbound.Processor, error) {
	in, err := cfg.inbound()
	if err != nil {
		return nil, core.Misconfigured(err)
	}
	p, err := inbound.New(in, inbound.Deps{
		Source: b, Verifier: v, Core: c, Announcer: a, Books: books, Clock: clk, Log: log, Metrics: reg,
	})
	return p, core.Misconfigured(err)
}

func newWatch(cfg Config, books inbound.Books, a *announce.Announcer, clk clock.Clock, log *slog.Logger, reg prometheus.Registerer) (*watch.Watch, error) {
	w, err := watch.New(cfg.watch(), watch.Deps{
		DB: books.DB, Payments: books.Payments, Outbox: books.Outbox, Announcer: a, Clock: clk, Log: log, Metrics: reg,
	})
	return w, core.Misconfigured(err)
}

func newAPI(cfg Config, db *store.DB, a *announce.Announcer, clk clock.Clock, log *slog.Logger, reg prometheus.Registerer) (*api.API, error) {
	h, err := api.New(cfg.api(), api.Deps{DB: db, Announcer: a, Clock: clk, Log: log, Metrics: reg})
	return h, core.Misconfigured(err)
}

func runAnnouncer(r *core.Runner, a *announce.Announcer) {
	r.Add(core.Part{Name: "announcer", Stage: core.Work, Budget: 5 * time.Second, Run: a.Run})
}

func runWatch(r *core.Runner, w *watch.Watch) {
	r.Add(core.Part{Name: "watch", Stage: core.Work, Budget: 5 * time.Second, Run: w.Run})
}

// runProcessor lets messages in hand end; the core's connections close after the last question.
func runProcessor(cfg Config, r *core.Runner, p *inbound.Processor, c *decision.Core) {
	r.Add(core.Part{
		Name: "processor", Stage: core.Work, Budget: cfg.Inbound.DrainTimeout + 2*time.Second, Run: p.Run,
		Close: func(context.Context) error { c.Close(); return nil },
	})
}

func runAPI(r *core.Runner, a *api.API) {
	r.Add(core.Part{Name: "api", Stage: core.Work, Budget: 5 * time.Second, Start: a.Listen, Run: a.Run})
}
