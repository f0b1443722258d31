package api

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/cabine-pix/cabine/libs/clock"
)

// loadTLS reads the files of c; nil without any.
func loadTLS(c TLSConfig) (*tls.Config, error) {
	if c.Cert == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
	if err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	t := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if c.ClientCA == "" {
		return t, nil
	}
	pem, err := os.ReadFile(c.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("tls: client CA: %w", err)
	}
	t.ClientCAs = x509.NewCertPool()
	if !t.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("tls: client CA: %s holds no certificate", c.ClientCA)
	}
	t.ClientAuth = tls.RequireAndVerifyClientCert
	return t, nil
}

func newServer(cfg Config, h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      10*time.Second + cfg.RequestTimeout,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// Listen takes the address, so that it is known before Run serves on it. Optional: Run does it otherwise.
func (a *API) Listen(ctx context.Context) error {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", a.cfg.Listen)
	if err != nil {
		return fmt.Errorf("api.listen: %w", err)
	}
	a.listener = ln
	a.log.Info("api listens", "address", ln.Addr().String(), "tls", a.tls != nil, "client_certificates", a.cfg.TLS.ClientCA != "")
	return nil
}

// Address is where the API listens; empty before Listen.
func (a *API) Address() string {
	if a.listener == nil {
		return ""
	}
	return a.listener.Addr().String()
}

// Run serves until ctx ends, then takes nothing new and waits DrainTimeout for the requests under way. Those that have
// not ended by then are cut off, which is logged; their clients repeat them under the same key.
func (a *API) Run(ctx context.Context) error {
	if a.listener == nil {
		if err := a.Listen(ctx); err != nil {
			return err
		}
	}
	server := newServer(a.cfg, a.handler, a.log)
	served, end := context.WithCancel(ctx)
	stopped, purged := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(purged)
		a.purge(served)
	}()
	go func() {
		defer close(stopped)
		<-served.Done()
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.cfg.DrainTimeout)
		defer cancel()
		if server.Shutdown(last) != nil {
			a.log.Error("requests were cut off")
			_ = server.Close()
		}
	}()
	ln := a.listener
	if a.tls != nil {
		ln = tls.NewListener(ln, a.tls)
	}
	err := server.Serve(ln)
	end()
	<-stopped
	<-purged
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("api: %w", err)
}

// purge forgets keys whose time is over, until ctx ends.
func (a *API) purge(ctx context.Context) {
	for clock.Sleep(ctx, a.deps.Clock, purgePause) == nil {
		var all int64
		n, err := a.ledger.keys.Purge(ctx, keyLife)
		for ; n > 0 && err == nil; n, err = a.ledger.keys.Purge(ctx, keyLife) {
			all += n
		}
		if err != nil && ctx.Err() == nil {
			a.log.Warn("idempotency keys not purged", "error", err)
		}
		if all > 0 {
			a.log.Info("idempotency keys purged", "count", all)
		}
	}
}
