package telemetry

import (
	"log/slog"
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// NewRegistry returns a registry of its own (the client library's global one is shared
// with every dependency that registers in init) with the collectors of the Go runtime
// and of the process, and the gauge cabine_build_info, always 1, whose labels say what runs.
func NewRegistry(service, version string) *prometheus.Registry {
	reg := prometheus.NewRegistry()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "cabine_build_info",
		Help:        "Always 1; the labels say which build runs.",
		ConstLabels: prometheus.Labels{"service": service, "version": version, "go": runtime.Version()},
	})
	info.Set(1)
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), info)
	return reg
}

// MetricsHandler serves g in the Prometheus formats. A collector that fails costs its
// own metrics, not the page, and is logged. At most three scrapes run at once, ten
// seconds each: a scraper that hangs must not pile up work.
func MetricsHandler(g prometheus.Gatherer, log *slog.Logger) http.Handler {
	return promhttp.HandlerFor(g, promhttp.HandlerOpts{
		ErrorLog:            promLog{log},
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: 3,
		Timeout:             10 * time.Second,
	})
}

type promLog struct{ log *slog.Logger }

// Println implements promhttp.Logger.
func (p promLog) Println(v ...any) { p.log.Error("metrics not complete", "error", v) }
