package decision

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cabine-pix/cabine/libs/corebank"
	"github.com/cabine-pix/cabine/libs/resilience"
)

type metrics struct {
	decisions *prometheus.CounterVec
	silent    *prometheus.CounterVec
	seconds   prometheus.Histogram
}

const (
	outcomeAccepted       = "accepted"
	outcomeRejected       = "rejected"
	outcomeSilentAccepted = "silent_accepted"
	outcomeSilentRejected = "silent_rejected"
)

// Why the core counts as silent.
const (
	whyTimeout   = "timeout"
	whyOpen      = "breaker_open"
	whySignature = "signature"
	whyWrong     = "wrong_answer"
	whyAway      = "unreachable"
)

func why(err error) string {
	switch {
	case errors.Is(err, resilience.ErrOpen):
		return whyOpen
	case errors.Is(err, corebank.ErrSignature):
		return whySignature
	case errors.Is(err, errWrong):
		return whyWrong
	case errors.Is(err, resilience.ErrTimeout):
		return whyTimeout
	default:
		return whyAway
	}
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cabine_decisions_total", Help: "Verdicts on incoming payments: the core's, or those without it.",
		}, []string{"outcome"}),
		silent: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cabine_decision_silences_total", Help: "Questions that the core left without a valid answer. Any is an alarm.",
		}, []string{"why"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "cabine_decision_seconds", Help: "Time from the question to the verdict.",
			Buckets: []float64{.002, .005, .01, .025, .05, .1, .25, .5, 1, 1.4, 2.3, 5, 10, 20},
		}),
	}
	for _, outcome := range []string{outcomeAccepted, outcomeRejected, outcomeSilentAccepted, outcomeSilentRejected} {
		m.decisions.WithLabelValues(outcome)
	}
	for _, w := range []string{whyTimeout, whyOpen, whySignature, whyWrong, whyAway} {
		m.silent.WithLabelValues(w)
	}
	for _, c := range []prometheus.Collector{m.decisions, m.silent, m.seconds} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
