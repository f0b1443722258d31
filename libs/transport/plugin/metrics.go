package plugin

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cabine-pix/cabine/libs/transport"
)

// metrics of one host.
type metrics struct {
	ends  *prometheus.CounterVec
	up    prometheus.Gauge
	calls *prometheus.HistogramVec
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		ends: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cabine_transport_process_ends_total",
			Help: "Transport processes that ended, by what ended them: start (never became ready), exit, broken (connection lost), silent, stop.",
		}, []string{"cause"}),
		up: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cabine_transport_process_up",
			Help: "1 while a transport process can be called.",
		}),
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "cabine_transport_call_seconds",
			Help:    "Time of one call to the transport process, by method and by kind of ending (ok or the error's kind).",
			Buckets: []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 7.5, 10, 20},
		}, []string{"method", "kind"}),
	}
	for _, c := range []prometheus.Collector{m.ends, m.up, m.calls} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) observe(method string, took time.Duration, err error) {
	kind := "ok"
	if err != nil {
		kind = string(transport.OutcomeUnknown)
		var e *transport.Error
		if errors.As(err, &e) {
			kind = string(e.Kind)
		}
	}
	m.calls.WithLabelValues(method, kind).Observe(took.Seconds())
}
