package watch

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	open           *prometheus.GaugeVec
	oldest         *prometheus.GaugeVec
	outbox         *prometheus.GaugeVec
	outboxOldest   prometheus.Gauge
	outboxAttempts prometheus.Gauge
	enquiries      prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	gauge := func(name, help string) prometheus.GaugeOpts { return prometheus.GaugeOpts{Name: name, Help: help} }
	m := &metrics{
		open:   prometheus.NewGaugeVec(gauge("cabine_payments_open", "Payments and returns in a state that is not final."), []string{"state"}),
		oldest: prometheus.NewGaugeVec(gauge("cabine_payments_open_oldest_seconds", "How long the one has stood in the state that has done so longest."), []string{"state"}),
		outbox: prometheus.NewGaugeVec(gauge("cabine_outbox_waiting", "Outbox rows that no message carries: created (not published) or published."), []string{"state"}),
		outboxOldest: prometheus.NewGauge(gauge("cabine_outbox_waiting_oldest_seconds",
			"Age of the oldest outbox row that no message carries.")),
		outboxAttempts: prometheus.NewGauge(gauge("cabine_outbox_waiting_attempts",
			"How often the waiting outbox row was announced again that was so most often.")),
		enquiries: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "cabine_payments_enquiries_total", Help: "Payments that the SPI was asked about because they did not end.",
		}),
	}
	for _, c := range []prometheus.Collector{m.open, m.oldest, m.outbox, m.outboxOldest, m.outboxAttempts, m.enquiries} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
