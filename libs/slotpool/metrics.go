package slotpool

import (
	"errors"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cabine-pix/cabine/libs/transport"
)

type metrics struct {
	calls      *prometheus.CounterVec
	margin     prometheus.Histogram
	coolDowns  *prometheus.CounterVec
	stale      *prometheus.CounterVec
	lateWrites prometheus.Counter
	given      *prometheus.CounterVec
}

func newMetrics(cfg Config, reg prometheus.Registerer) (*metrics, error) {
	who := prometheus.Labels{"channel": string(cfg.Channel), "ispb": string(cfg.ISPB)}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: who}, labels)
	}
	m := &metrics{
		calls: counter("cabine_slot_calls_total", "Calls of the transport by call and outcome.", "call", "outcome"),
		margin: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "cabine_slot_start_margin_seconds", ConstLabels: who,
			Help:    "Time left until the start deadline when a request started.",
			Buckets: []float64{0.1, 0.5, 1, 2, 4, 6, 8, 9, 10, 11, 12, 15, 20},
		}),
		coolDowns: counter("cabine_slot_cooldowns_total", "Slots that had to cool down, by cause.", "cause"),
		stale: counter("cabine_slot_stale_starts_blocked_total",
			"Requests refused because the start deadline had passed, by who refused: host or transport.", "where"),
		lateWrites: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "cabine_slot_late_writes_total", ConstLabels: who,
			Help: "First bytes that a transport reported to have written past the start deadline. Must stay zero.",
		}),
		given: counter("cabine_slot_given_total", "Slots given back, by ending: released, cooled or lost.", "how"),
	}
	for _, c := range []prometheus.Collector{m.calls, m.margin, m.coolDowns, m.stale, m.lateWrites, m.given} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	m.begin()
	return m, nil
}

// begin lets the series exist before their first event: an increase from nothing is none.
func (m *metrics) begin() {
	for _, where := range []string{"host", "transport"} {
		m.stale.WithLabelValues(where)
	}
	for _, cause := range []string{outcomeOf(&transport.Error{Kind: transport.OutcomeUnknown}), outcomeOf(&transport.Error{Kind: transport.PluginGone}), midCall} {
		m.coolDowns.WithLabelValues(cause)
	}
	for _, how := range []Ending{Released, Cooled, Lost} {
		m.given.WithLabelValues(string(how))
	}
}

// outcomeOf is the metric label of a call's ending.
func outcomeOf(err error) string {
	var e *transport.Error
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &e):
		return strings.ReplaceAll(string(e.Kind), " ", "_")
	default:
		return "cancelled"
	}
}
