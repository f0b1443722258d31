package inbound

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/signature"
)

type metrics struct {
	messages       *prometheus.CounterVec
	seconds        *prometheus.HistogramVec
	deadLetters    *prometheus.CounterVec
	moves          *prometheus.CounterVec
	contradictions prometheus.Counter
	refusals       *prometheus.CounterVec
	unverified     *prometheus.CounterVec
	unasked        *prometheus.CounterVec
	found          prometheus.Counter
}

// How a message ended.
const (
	done     = "done"
	repeated = "repeated"
	buried   = "dead"
)

// Why a payment is refused before the core is asked, or a return without it.
const (
	refusedLate     = "late"
	refusedOriginal = "original"
	refusedExceeds  = "exceeds"
)

func msgTypes() []string {
	return []string{"pacs.008", "pacs.002", "pacs.004", "admi.002", "camt.054", "camt.053", "camt.052", "pibr.002"}
}

// typeLabel keeps what was received from becoming a label.
func typeLabel(msgType string) string {
	if slices.Contains(msgTypes(), msgType) {
		return msgType
	}
	return "other"
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		messages: counter("cabine_payments_messages_total", "Messages of the SPI by how they ended.", "msg_type", "outcome"),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "cabine_payments_message_seconds", Help: "Time from the delivery of a message until its effect was committed and its answer offered.",
			Buckets: []float64{.002, .005, .01, .025, .05, .1, .25, .5, 1, 1.4, 2.3, 5, 10, 40},
		}, []string{"msg_type"}),
		deadLetters: counter("cabine_payments_dead_letters_total", "Messages that went to the dead letters. Any is an alarm.", "kind"),
		moves:       counter("cabine_payments_moves_total", "Payments and returns by the state that a message of the SPI brought them to.", "state"),
		contradictions: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "cabine_payments_contradictions_total", Help: "Times that the SPI contradicted a final state of our books. Any is an alarm.",
		}),
		unverified: counter("cabine_payments_unverified_total",
			"Times that a signature could not be judged by our certificates or our clock; the message comes again. Any is an alarm.", "reason"),
		unasked: counter("cabine_payments_unasked_total", "Files and balances that the SPI told of without a question of ours. Noted, and no fault.", "msg_type"),
		found: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "cabine_payments_found_total",
			Help: "Credits that the SPI had booked and we did not know, booked because a reconciliation asked. The core was not asked about them: any is an alarm.",
		}),
		refusals: counter("cabine_payments_refusals_total", "Incoming payments and returns refused by our own rules.", "why"),
	}
	for _, t := range append(msgTypes(), "other") {
		for _, outcome := range []string{done, repeated, buried} {
			m.messages.WithLabelValues(t, outcome)
		}
	}
	for _, t := range []string{"camt.052", "camt.053"} {
		m.unasked.WithLabelValues(t)
	}
	for _, k := range deadKinds() {
		m.deadLetters.WithLabelValues(string(k))
	}
	for _, s := range []pix.State{pix.Accepted, pix.Settled, pix.Rejected} {
		m.moves.WithLabelValues(string(s))
	}
	for _, why := range []string{refusedLate, refusedOriginal, refusedExceeds} {
		m.refusals.WithLabelValues(why)
	}
	for _, reason := range []signature.Reason{signature.UnknownCertificate, signature.NotInForce} {
		m.unverified.WithLabelValues(string(reason))
	}
	for _, c := range []prometheus.Collector{m.messages, m.seconds, m.deadLetters, m.moves, m.contradictions, m.refusals, m.unverified, m.unasked, m.found} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
