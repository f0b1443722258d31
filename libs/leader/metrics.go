package leader

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cabine-pix/cabine/libs/lease"
)

// metrics of one elector.
type metrics struct {
	leading prometheus.Gauge
	term    prometheus.Gauge
	ends    *prometheus.CounterVec
}

func newMetrics(name string, reg prometheus.Registerer) (*metrics, error) {
	labels := prometheus.Labels{"leadership": name}
	m := &metrics{
		leading: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cabine_leader_leading", Help: "1 while this replica leads.", ConstLabels: labels,
		}),
		term: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cabine_leader_term", Help: "Term of the last leadership of this replica.", ConstLabels: labels,
		}),
		ends: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cabine_leader_ends_total", Help: "Leaderships that ended, by cause: stopped, deadline, lost, child.", ConstLabels: labels,
		}, []string{"cause"}),
	}
	for _, cause := range []string{"stopped", "deadline", "lost", "child"} {
		m.ends.WithLabelValues(cause) // so that the first one is an increase
	}
	for _, c := range []prometheus.Collector{m.leading, m.term, m.ends} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) lead(term int64) {
	m.term.Set(float64(term))
	m.leading.Set(1)
}

func (m *metrics) follow(cause error) {
	m.leading.Set(0)
	var lost *lease.LostError
	switch {
	case errors.Is(cause, context.Canceled):
		m.ends.WithLabelValues("stopped").Inc()
	case errors.Is(cause, ErrDeadline):
		m.ends.WithLabelValues("deadline").Inc()
	case errors.Is(cause, ErrChildEnded):
		m.ends.WithLabelValues("child").Inc()
	case errors.As(cause, &lost):
		m.ends.WithLabelValues("lost").Inc()
	}
}
