package cycle

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	steps     *prometheus.CounterVec
	differing prometheus.Counter
	overdue   prometheus.Gauge
	took      prometheus.Histogram
}

// The steps of a cycle, as the metric has them.
const (
	opened = "opened"
	sealed = "sealed"
	closed = "closed"
)

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		steps: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cabine_cycles_total", Help: "Steps of settlement cycles that this replica took: opened, sealed, closed.",
		}, []string{"step"}),
		differing: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "cabine_cycles_differing_total", Help: "Closed cycles whose obligations do not come to their lines. Must stay zero.",
		}),
		overdue: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cabine_cycles_overdue_seconds",
			Help: "Time since the end of the oldest cycle that is over and not closed. Zero where this replica does not lead.",
		}),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "cabine_cycles_close_seconds", Help: "Time to net and close a cycle.",
			Buckets: []float64{.01, .05, .1, .5, 1, 5, 10, 30, 60, 300},
		}),
	}
	for _, step := range []string{opened, sealed, closed} {
		m.steps.WithLabelValues(step)
	}
	for _, c := range []prometheus.Collector{m.steps, m.differing, m.overdue, m.took} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
