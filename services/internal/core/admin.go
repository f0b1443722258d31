package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cabine-pix/cabine/libs/telemetry"
)

// AdminServer answers what a platform and an operator ask: /health (as /health/ready),
// /health/live, /health/ready, /metrics, and what a service adds with Handle. It has no
// authentication: it belongs on a network that only they reach, and what is added shows no personal data.
type AdminServer struct {
	cfg    AdminConfig
	log    *slog.Logger
	mux    *http.ServeMux
	server *http.Server
	ln     net.Listener
}

// NewAdminServer returns the server; it listens when started.
func NewAdminServer(cfg AdminConfig, health *telemetry.Health, metrics prometheus.Gatherer, log *slog.Logger) *AdminServer {
	a := &AdminServer{cfg: cfg, log: log, mux: http.NewServeMux()}
	a.mux.Handle("GET /health", health.ReadyHandler())
	a.mux.Handle("GET /health/ready", health.ReadyHandler())
	a.mux.Handle("GET /health/live", health.LiveHandler())
	a.mux.Handle("GET /metrics", telemetry.MetricsHandler(metrics, log))
	a.server = &http.Server{
		Handler:           a.mux,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	return a
}

// Handle adds a page, as "GET /slots". Before Start only.
func (a *AdminServer) Handle(pattern string, h http.Handler) { a.mux.Handle(pattern, h) }

// Start listens.
func (a *AdminServer) Start(ctx context.Context) error {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", a.cfg.Listen)
	if err != nil {
		return fmt.Errorf("admin.listen: %w", err)
	}
	a.ln = ln
	a.log.Info("admin server listens", "address", ln.Addr().String())
	return nil
}

// Run serves until ctx ends and answers under way are given, for at most a second.
func (a *AdminServer) Run(ctx context.Context) error {
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if a.server.Shutdown(last) != nil {
			_ = a.server.Close() // whoever still asks is cut off
		}
	}()
	err := a.server.Serve(a.ln)
	if !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	<-stopped
	return nil
}

func (a *AdminServer) part() Part {
	return Part{Name: "admin server", Stage: Admin, Budget: 2 * time.Second, Start: a.Start, Run: a.Run}
}
