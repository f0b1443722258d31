package inbound

import (
	"errors"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cabine-pix/cabine/libs/icom"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/libs/transport"
)

type metrics struct {
	polls       *prometheus.CounterVec
	batch       *prometheus.HistogramVec
	messages    *prometheus.CounterVec
	lag         *prometheus.HistogramVec
	throttled   *prometheus.CounterVec
	malformed   *prometheus.CounterVec
	abandoned   *prometheus.CounterVec
	deadLetters *prometheus.CounterVec

	permits *prometheus.GaugeVec
	cooling *prometheus.GaugeVec
	idle    *prometheus.GaugeVec

	published  *prometheus.CounterVec
	publishErr prometheus.Counter
	queued     prometheus.Gauge
	gaps       prometheus.Counter
	attempts   prometheus.Gauge
	open       *prometheus.GaugeVec
	oldest     prometheus.Gauge
}

// Reasons of dead letters, as the metric has them.
const (
	malformed = "malformed"
	conflict  = "conflict"
	refused   = "refused"
)

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, []string{"channel"})
	}
	m := &metrics{
		polls:       counter("cabine_inbound_polls_total", "Polls by outcome.", "channel", "outcome"),
		batch:       histogram("cabine_inbound_batch_messages", "Messages per poll that brought any.", prometheus.LinearBuckets(1, 1, 10)),
		messages:    counter("cabine_inbound_messages_total", "Messages received: stored, repeated or dead.", "channel", "outcome"),
		lag:         histogram("cabine_inbound_lag_seconds", "Time from the bank's stamp in the resource id until the message was stored.", []float64{.01, .025, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60, 300}),
		throttled:   counter("cabine_inbound_throttled_total", "Answers 429. Any is an alarm.", "channel"),
		malformed:   counter("cabine_inbound_malformed_answers_total", "Answers that could not be split into messages. Any is an alarm.", "channel"),
		abandoned:   counter("cabine_inbound_streams_abandoned_total", "Streams given up after unreadable answers. Any is an alarm.", "channel"),
		deadLetters: counter("cabine_inbound_dead_letters_total", "Messages that went to the dead letters. Any is an alarm.", "channel", "reason"),
		permits:     gauge("cabine_permits_in_use", "Slots held anywhere, as Redis says.", "channel", "class"),
		cooling:     gauge("cabine_permits_cooling", "Slots that cool down, as Redis says.", "channel"),
		idle:        gauge("cabine_inbound_idle_seconds", "How long no replica has held a polling slot of the channel.", "channel"),
		published:   counter("cabine_inbound_published_total", "Rows published: fresh, from the table, or again because nobody finished them.", "from"),
		publishErr:  prometheus.NewCounter(prometheus.CounterOpts{Name: "cabine_inbound_publish_errors_total", Help: "Rows that could not be published at the first go."}),
		queued:      prometheus.NewGauge(prometheus.GaugeOpts{Name: "cabine_inbound_publish_queue_rows", Help: "Fresh rows in memory waiting to be published."}),
		gaps:        prometheus.NewCounter(prometheus.CounterOpts{Name: "cabine_inbound_publish_gaps_total", Help: "Times that a full queue left its rows to the table."}),
		open:        gauge("cabine_inbound_open_rows", "Rows that no consumer has finished: received (not published yet) or published.", "state"),
		oldest:      prometheus.NewGauge(prometheus.GaugeOpts{Name: "cabine_inbound_open_oldest_seconds", Help: "Age of the oldest row that no consumer has finished."}),
		attempts:    prometheus.NewGauge(prometheus.GaugeOpts{Name: "cabine_inbound_open_attempts", Help: "How often the open row that went out again most often did so."}),
	}
	for _, c := range []prometheus.Collector{
		m.polls, m.batch, m.messages, m.lag, m.throttled, m.malformed, m.abandoned, m.deadLetters,
		m.permits, m.cooling, m.idle, m.published, m.publishErr, m.queued, m.gaps, m.open, m.oldest, m.attempts,
	} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// begin lets every counter of a channel exist before its first event: an increase from nothing is none.
func (m *metrics) begin(channel string) {
	m.throttled.WithLabelValues(channel)
	m.malformed.WithLabelValues(channel)
	m.abandoned.WithLabelValues(channel)
	for _, reason := range []string{malformed, conflict, refused} {
		m.deadLetters.WithLabelValues(channel, reason)
	}
	for _, outcome := range []string{"stored", "repeated", "dead"} {
		m.messages.WithLabelValues(channel, outcome)
	}
	m.polls.WithLabelValues(channel, pollOutcome(0, nil))
	m.polls.WithLabelValues(channel, pollOutcome(1, nil))
	for _, kind := range []transport.Kind{
		transport.NotSent, transport.Rejected, transport.Throttled, transport.Gone,
		transport.Unavailable, transport.OutcomeUnknown, transport.Malformed, transport.PluginGone,
	} {
		m.polls.WithLabelValues(channel, pollOutcome(0, &transport.Error{Kind: kind}))
	}
}

// received counts one stored batch.
func (m *metrics) received(channel string, batch store.Batch, receipt store.Receipt, now time.Time) {
	if n := len(batch.Arrivals) + len(batch.Poison); n > 0 {
		m.batch.WithLabelValues(channel).Observe(float64(n))
	}
	fresh, conflicts, poison := len(receipt.Fresh), len(receipt.Conflicts), len(batch.Poison)
	m.messages.WithLabelValues(channel, "stored").Add(float64(fresh))
	m.messages.WithLabelValues(channel, "repeated").Add(float64(max(0, len(batch.Arrivals)-fresh-conflicts)))
	m.messages.WithLabelValues(channel, "dead").Add(float64(poison + conflicts))
	m.deadLetters.WithLabelValues(channel, malformed).Add(float64(poison))
	m.deadLetters.WithLabelValues(channel, conflict).Add(float64(conflicts))
	for _, row := range receipt.Fresh {
		if id, err := icom.ParseResourceID(row.MessageID); err == nil {
			m.lag.WithLabelValues(channel).Observe(max(0, now.Sub(id.At).Seconds()))
		}
	}
}

// pollOutcome is the metric label of a poll's ending.
func pollOutcome(messages int, err error) string {
	var e *transport.Error
	switch {
	case err == nil && messages == 0:
		return "empty"
	case err == nil:
		return "messages"
	case errors.As(err, &e):
		return strings.ReplaceAll(string(e.Kind), " ", "_")
	default:
		return "cancelled"
	}
}
