package obligation

import "github.com/prometheus/client_golang/prometheus"

// What became of a delivery, as the metric has it.
const (
	written = "written"
	known   = "known"
	waiting = "waiting"
	strange = "strange"
	failing = "failing"
)

type metrics struct {
	taken *prometheus.CounterVec
	late  prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		taken: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cabine_obligations_total",
			Help: "Announcements of obligations by what became of them: written, known, waiting for a cycle, strange, failing.",
		}, []string{"result"}),
		late: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "cabine_obligations_late_total", Help: "Obligations that came after their cycle and fell into the next.",
		}),
	}
	for _, result := range []string{written, known, waiting, strange, failing} {
		m.taken.WithLabelValues(result)
	}
	for _, c := range []prometheus.Collector{m.taken, m.late} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
