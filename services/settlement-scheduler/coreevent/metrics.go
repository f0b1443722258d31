package coreevent

import "github.com/prometheus/client_golang/prometheus"

// What became of a delivery, as the metric has it.
const (
	accepted = "accepted"
	refused  = "refused"
	repeated = "repeated"
	waiting  = "waiting"
	failing  = "failing"
)

type metrics struct {
	events      *prometheus.CounterVec
	unannounced prometheus.Counter
	unanswered  prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cabine_core_events_total",
			Help: "Deliveries of the core's events by what became of them: accepted, refused (each is a dead letter), repeated (the verdict stood), " +
				"waiting (the database was away), failing (a fault of our own).",
		}, []string{"result"}),
		unannounced: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "cabine_core_events_unannounced_total", Help: "Orders booked and not announced here; payments announces them.",
		}),
		unanswered: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "cabine_core_events_unanswered_total", Help: "Answers that the bus did not take; their events come again.",
		}),
	}
	for _, result := range []string{accepted, refused, repeated, waiting, failing} {
		m.events.WithLabelValues(result)
	}
	for _, c := range []prometheus.Collector{m.events, m.unannounced, m.unanswered} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
