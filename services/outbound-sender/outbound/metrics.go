package outbound

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cabine-pix/cabine/libs/store"
)

type metrics struct {
	batchWait  *prometheus.HistogramVec
	wait       *prometheus.HistogramVec
	batch      *prometheus.HistogramVec
	operations *prometheus.HistogramVec
	took       *prometheus.HistogramVec

	posts      *prometheus.CounterVec
	messages   *prometheus.CounterVec
	resends    *prometheus.CounterVec
	throttled  *prometheus.CounterVec
	refused    *prometheus.CounterVec
	discarded  *prometheus.CounterVec
	unrecorded *prometheus.CounterVec

	contradictions *prometheus.CounterVec

	halted    *prometheus.GaugeVec
	tokens    *prometheus.GaugeVec
	inHand    *prometheus.GaugeVec
	open      *prometheus.GaugeVec
	oldest    *prometheus.GaugeVec
	unwatched prometheus.Gauge
}

// Stages of what is in hand, and states of what is open in the store, as the metrics have them.
const (
	stageWaiting = "waiting"
	stageReady   = "ready"

	openBuilt     = "built"
	openUnknown   = "unknown"
	openExhausted = "exhausted"
)

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, append([]string{"channel"}, labels...))
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, append([]string{"channel"}, labels...))
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, append([]string{"channel"}, labels...))
	}
	waits := []float64{.001, .002, .005, .01, .025, .05, .1, .25, .5, 1, 2, 5, 10, 30, 60}
	m := &metrics{
		batchWait:  histogram("cabine_outbound_batch_wait_seconds", "Time from a delivery until it was taken into a batch.", waits),
		wait:       histogram("cabine_outbound_wait_seconds", "Time from a delivery until the first POST of its message.", waits, "msg_type"),
		batch:      histogram("cabine_outbound_batch_messages", "Messages per POST.", prometheus.LinearBuckets(1, 1, 10)),
		operations: histogram("cabine_outbound_batch_operations", "Operations per POST.", []float64{1, 2, 5, 10, 20, 50, 100}),
		took:       histogram("cabine_outbound_post_seconds", "Time of a POST.", []float64{.01, .025, .05, .1, .2, .3, .5, 1, 2, 4, 8}),
		posts:      counter("cabine_outbound_posts_total", "POSTs by outcome.", "outcome"),
		messages:   counter("cabine_outbound_messages_total", "Messages posted, by the outcome of the POST.", "msg_type", "outcome"),
		resends:    counter("cabine_outbound_resends_total", "Messages taken up again, by the state in which they were.", "state"),
		throttled:  counter("cabine_outbound_throttled_total", "Answers 429. Any is an alarm."),
		refused:    counter("cabine_outbound_refused_total", "Messages that the bank refused alone; their payments are rejected. Any is an alarm."),
		discarded:  counter("cabine_outbound_discarded_total", "Operations that no message can carry; their payments are rejected. Any is an alarm."),
		unrecorded: counter("cabine_outbound_unrecorded_total", "Outcomes that the store refused to record. Any is an alarm."),
		contradictions: counter("cabine_outbound_contradictions_total",
			"Payments that the SPI settled and whose only message the bank says it refused. Any is an alarm."),
		halted:    gauge("cabine_outbound_halted", "1 while the bank refuses how it is asked, so that nothing is sent."),
		tokens:    gauge("cabine_outbound_bucket_tokens", "What is left of this replica's share of the bank's bucket, as we reckon."),
		inHand:    gauge("cabine_outbound_in_hand", "Operations waiting for a message, messages ready for a POST.", "stage"),
		open:      gauge("cabine_outbound_open_messages", "Messages in the store without a known outcome: built, unknown, exhausted (unknown, and not sent again).", "state"),
		oldest:    gauge("cabine_outbound_open_oldest_seconds", "Age of the oldest message without a known outcome."),
		unwatched: prometheus.NewGauge(prometheus.GaugeOpts{Name: "cabine_outbound_watch_failed", Help: "1 while the store cannot be asked for what is open."}),
	}
	for _, c := range []prometheus.Collector{
		m.batchWait, m.wait, m.batch, m.operations, m.took, m.posts, m.messages, m.resends, m.throttled, m.refused,
		m.discarded, m.unrecorded, m.contradictions, m.halted, m.tokens, m.inHand, m.open, m.oldest, m.unwatched,
	} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// begin lets every counter of a channel exist before its first event: an increase from nothing is none.
func (m *metrics) begin(channel string) {
	for _, c := range []*prometheus.CounterVec{m.throttled, m.refused, m.discarded, m.unrecorded, m.contradictions} {
		c.WithLabelValues(channel)
	}
	for _, v := range verdicts() {
		m.posts.WithLabelValues(channel, string(v))
		for _, msgType := range []string{msgPacs008, msgPacs002, msgPacs004} {
			m.messages.WithLabelValues(channel, msgType, string(v))
		}
	}
	m.halted.WithLabelValues(channel).Set(0)
	m.doubts(channel, store.Doubts{})
}

// doubts shows what is open in the store.
func (m *metrics) doubts(channel string, d store.Doubts) {
	m.open.WithLabelValues(channel, openBuilt).Set(float64(d.Built))
	m.open.WithLabelValues(channel, openUnknown).Set(float64(d.Unknown))
	m.open.WithLabelValues(channel, openExhausted).Set(float64(d.Exhausted))
	m.oldest.WithLabelValues(channel).Set(d.Oldest.Seconds())
}
