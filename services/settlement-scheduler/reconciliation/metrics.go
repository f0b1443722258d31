package reconciliation

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cabine-pix/cabine/libs/store"
)

type metrics struct {
	last, open      *prometheus.GaugeVec
	age, difference prometheus.Gauge
	flawed          prometheus.Gauge
	ended           *prometheus.CounterVec
	questions       *prometheus.CounterVec
	downloads       *prometheus.CounterVec
	took            prometheus.Histogram
}

// How a download ends, as the metric has it.
const (
	fetched   = "fetched"
	away      = "away"
	untrusted = "untrusted"
)

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	const there = " Zero where this replica does not lead."
	m := &metrics{
		last: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "cabine_reconciliation_lines", Help: "Lines in which the last comparison found our books and the bank's account to differ." + there,
		}, []string{"finding"}),
		open: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "cabine_reconciliation_open_lines", Help: "Lines of all comparisons that have no resolution." + there,
		}, []string{"finding"}),
		age: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cabine_reconciliation_age_seconds", Help: "Time since the last comparison, or since the first began if there is none." + there,
		}),
		difference: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cabine_reconciliation_balance_difference_centavos",
			Help: "The last balance that was judged, less what the one before and the entries since come to." + there,
		}),
		flawed: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cabine_reconciliation_flawed", Help: "How many of the last 24 comparisons were with a file that had a flaw: their reason says which." + there,
		}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cabine_reconciliations_total", Help: "Reconciliations that ended on this replica, by how.",
		}, []string{"state"}),
		questions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cabine_reconciliation_questions_total", Help: "Questions to the SPI: the file of a period, or a single entry.",
		}, []string{"subject"}),
		downloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cabine_reconciliation_downloads_total",
			Help: "Downloads of files of entries: fetched, away (no answer, or none of use), untrusted (not what was announced).",
		}, []string{"outcome"}),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "cabine_reconciliation_compare_seconds", Help: "Time to compare a period.", Buckets: []float64{.01, .05, .1, .5, 1, 5, 10, 30, 60, 300},
		}),
	}
	for _, outcome := range []string{fetched, away, untrusted} {
		m.downloads.WithLabelValues(outcome)
	}
	for _, subject := range []string{subjectEntries, subjectEntry} {
		m.questions.WithLabelValues(subject)
	}
	for _, state := range []store.ReconciliationState{store.ReconciliationCompared, store.ReconciliationFailed} {
		m.ended.WithLabelValues(string(state))
	}
	m.nothing()
	for _, c := range []prometheus.Collector{m.last, m.open, m.age, m.difference, m.flawed, m.ended, m.questions, m.downloads, m.took} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) agreement(a store.Agreement) {
	for _, f := range store.Findings() {
		m.last.WithLabelValues(string(f)).Set(float64(a.Last.Found[f]))
		m.open.WithLabelValues(string(f)).Set(float64(a.Open[f]))
	}
	m.age.Set(a.Age.Seconds())
	m.difference.Set(float64(a.Difference))
	m.flawed.Set(float64(a.Flawed))
}

// nothing is what a replica knows that does not lead.
func (m *metrics) nothing() { m.agreement(store.Agreement{}) }
