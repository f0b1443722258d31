package announce

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	published *prometheus.CounterVec
	errors    prometheus.Counter
	dropped   prometheus.Counter
	queued    prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		published: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cabine_outbox_published_total", Help: "Rows published: fresh, from the table, or again because no message carried them.",
		}, []string{"from"}),
		errors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "cabine_outbox_publish_errors_total", Help: "Rows that could not be published at a go.",
		}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "cabine_outbox_queue_dropped_total", Help: "Fresh rows left to the table because memory was full.",
		}),
		queued: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cabine_outbox_queue_rows", Help: "Fresh rows in memory waiting to be published.",
		}),
	}
	for _, from := range []string{fresh, table, unfinished} {
		m.published.WithLabelValues(from)
	}
	for _, c := range []prometheus.Collector{m.published, m.errors, m.dropped, m.queued} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
