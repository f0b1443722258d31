package fileimport

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	files   *prometheus.CounterVec
	rows    prometheus.Counter
	waiting prometheus.Gauge
	age     prometheus.Gauge
	overdue prometheus.Gauge
	took    prometheus.Histogram
}

// What becomes of a file, as the metric has it.
const (
	imported = "imported"
	refused  = "refused"
	known    = "known"
)

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		files: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cabine_files_total", Help: "Files of the bank that this replica looked into, by what became of them: imported, refused, known.",
		}, []string{"outcome"}),
		rows: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "cabine_file_rows_refused_total", Help: "Rows of imported files that were not taken. Each is listed with its reason.",
		}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cabine_files_waiting", Help: "Settlement files whose cycle is not closed. Zero where this replica does not lead.",
		}),
		age: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cabine_files_entries_age_seconds",
			Help: "Time since the newest file of entries was imported. Zero where this replica does not lead, and if there is none.",
		}),
		overdue: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cabine_files_overdue_seconds",
			Help: "Time for which the next file of entries is overdue. Zero where this replica does not lead.",
		}),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "cabine_file_import_seconds", Help: "Time from finding a file until it is imported.",
			Buckets: []float64{.05, .1, .5, 1, 5, 10, 30, 60, 300, 900},
		}),
	}
	for _, outcome := range []string{imported, refused, known} {
		m.files.WithLabelValues(outcome)
	}
	for _, c := range []prometheus.Collector{m.files, m.rows, m.waiting, m.age, m.overdue, m.took} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
