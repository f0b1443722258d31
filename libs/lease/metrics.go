package lease

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the permit's own figures. Labels: set (bounded by channels and ISPBs), class, result.
type metrics struct {
	acquires    *prometheus.CounterVec
	waits       *prometheus.HistogramVec
	renewals    *prometheus.HistogramVec
	losses      *prometheus.CounterVec
	cooldowns   *prometheus.CounterVec
	undos       *prometheus.CounterVec
	unreleased  *prometheus.CounterVec
	holding     *prometheus.GaugeVec
	quarantined *prometheus.GaugeVec
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "cabine_lease_" + name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "cabine_lease_" + name, Help: help}, labels)
	}
	m := &metrics{
		acquires: counter("acquires_total", "Answers to requests for a slot.", "set", "class", "result"),
		waits: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "cabine_lease_wait_seconds", Help: "Time from asking for a slot to holding it.",
			Buckets: []float64{.001, .01, .1, .5, 1, 5, 10, 30, 60, 300},
		}, []string{"set", "class"}),
		renewals: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "cabine_lease_renewal_seconds", Help: "Round trip of one batched renewal.",
			Buckets: []float64{.0005, .001, .005, .01, .05, .1, .5, 1},
		}, []string{"result"}),
		losses:    counter("lost_total", "Leases lost, by cause.", "set", "cause"),
		cooldowns: counter("cooldowns_total", "Slots given to nobody until the bank was done.", "set"),
		undos:     counter("undos_total", "Acquires taken back because their outcome was not known.", "set"),
		unreleased: counter("unreleased_total",
			"Releases of which Redis did not hear: their slots come back when their keys end.", "set"),
		holding:     gauge("held", "Slots this replica holds.", "set", "class"),
		quarantined: gauge("quarantine_seconds", "Time left until new grants, as last seen by this replica.", "set"),
	}
	for _, c := range []prometheus.Collector{
		m.acquires, m.waits, m.renewals, m.losses, m.cooldowns, m.undos, m.unreleased, m.holding, m.quarantined,
	} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("lease: metrics: %w", err)
		}
	}
	return m, nil
}

// setMetrics are one set's series. They exist before their first event, so that a rate sees it.
type setMetrics struct {
	classes     map[Class]*classMetrics
	losses      map[Cause]prometheus.Counter
	cooldowns   prometheus.Counter
	undos       prometheus.Counter
	unreleased  prometheus.Counter
	quarantined prometheus.Gauge
}

type classMetrics struct {
	answers map[string]prometheus.Counter
	wait    prometheus.Observer
	held    prometheus.Gauge
}

func (m *metrics) of(cfg SetConfig) *setMetrics {
	sm := &setMetrics{
		classes:     make(map[Class]*classMetrics, len(cfg.Floors)),
		losses:      make(map[Cause]prometheus.Counter),
		cooldowns:   m.cooldowns.WithLabelValues(cfg.Name),
		undos:       m.undos.WithLabelValues(cfg.Name),
		unreleased:  m.unreleased.WithLabelValues(cfg.Name),
		quarantined: m.quarantined.WithLabelValues(cfg.Name),
	}
	for class := range cfg.Floors {
		cm := &classMetrics{
			answers: make(map[string]prometheus.Counter),
			wait:    m.waits.WithLabelValues(cfg.Name, string(class)),
			held:    m.holding.WithLabelValues(cfg.Name, string(class)),
		}
		for _, result := range []string{"granted", "taken", "quarantined", "conflict", "unavailable"} {
			cm.answers[result] = m.acquires.WithLabelValues(cfg.Name, string(class), result)
		}
		sm.classes[class] = cm
	}
	for _, c := range []Cause{Expired, Taken, Stopped} {
		sm.losses[c] = m.losses.WithLabelValues(cfg.Name, string(c))
	}
	return sm
}

func (m *metrics) renewed(d time.Duration, err error) {
	result := "ok"
	if err != nil {
		result = "failed"
	}
	m.renewals.WithLabelValues(result).Observe(d.Seconds())
}
