package republish

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cabine-pix/cabine/libs/store"
)

type metrics struct {
	published, errors  prometheus.Counter
	due, lag, attempts prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "cabine_obligations_due" + name, Help: help + " Zero where this replica does not lead."})
	}
	m := &metrics{
		published: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "cabine_obligations_announced_total", Help: "Announcements of obligations that are due.",
		}),
		errors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "cabine_obligations_announce_errors_total", Help: "Announcements that did not reach the bus.",
		}),
		due:      gauge("", "Settled payments whose obligation is not written."),
		lag:      gauge("_oldest_seconds", "Time since the oldest of them settled."),
		attempts: gauge("_attempts", "How often the one was announced that was so most often."),
	}
	for _, c := range []prometheus.Collector{m.published, m.errors, m.due, m.lag, m.attempts} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) backlog(b store.ObligationsBacklog) {
	m.due.Set(float64(b.Due))
	m.lag.Set(b.Lag.Seconds())
	m.attempts.Set(float64(b.Attempts))
}

// nothing is what a replica knows that does not lead.
func (m *metrics) nothing() { m.backlog(store.ObligationsBacklog{}) }
