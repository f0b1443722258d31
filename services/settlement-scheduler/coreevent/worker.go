package coreevent

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cabine-pix/cabine/libs/bus"
	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/order"
	"github.com/cabine-pix/cabine/libs/store"
)

// Bus brings events and takes what is said about them.
type Bus interface {
	Subscribe(cfg bus.SubscriptionConfig) *bus.Subscription
	// PublishOutbound tells the sender of operations, and PublishCoreAnswers the core of verdicts: one result for each,
	// nil for what is stored at the other end.
	PublishOutbound(ctx context.Context, operations []bus.Outbound) bus.Results
	PublishCoreAnswers(ctx context.Context, answers []bus.CoreAnswer) bus.Results
}

// Deps are what a Worker needs from outside.
type Deps struct {
	Bus Bus
	DB  *store.DB
	// Gate is what every order passes. Nil: order.Rules.
	Gate    order.Gate
	Clock   clock.Clock
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Worker makes orders of events. Make it with New, run it with Run.
type Worker struct {
	cfg    Config
	deps   Deps
	desk   *order.Desk
	events *store.CoreEvents
	outbox *store.Outbox
	m      *metrics
}

// New returns a worker that has started nothing.
func New(cfg Config, deps Deps) (*Worker, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("core event config: %w", err)
	}
	m, err := newMetrics(deps.Metrics)
	if err != nil {
		return nil, fmt.Errorf("core event metrics: %w", err)
	}
	desk := order.NewDesk(order.Config{ISPB: cfg.ISPB, Channels: cfg.Channels}, order.Deps{DB: deps.DB, Gate: deps.Gate, Clock: deps.Clock})
	return &Worker{
		cfg: cfg, deps: deps, desk: desk, events: store.NewCoreEvents(deps.DB), outbox: store.NewOutbox(deps.DB), m: m,
	}, nil
}

// Run takes events until ctx ends, and then decides those in hand.
func (w *Worker) Run(ctx context.Context) error {
	sub := w.deps.Bus.Subscribe(bus.SubscriptionConfig{
		Stream: bus.StreamCoreEvents, Durable: bus.ConsumerCoreEvents,
		MaxHeld: 2 * w.cfg.Workers * w.cfg.Batch, DrainTimeout: w.cfg.DrainTimeout,
	})
	return sub.RunBatches(ctx, w.cfg.Workers, w.cfg.Batch, w.take)
}

// take decides a batch, says what it decided, and answers each delivery.
func (w *Worker) take(ctx context.Context, batch []*bus.Held) {
	var decided []*bus.Held
	var answers []bus.CoreAnswer
	var queued []store.Operation
	for _, h := range batch {
		a, operations, err := w.handle(ctx, h.Delivery)
		if err != nil {
			h.RetryLater(w.cfg.RetryDelay)
			continue
		}
		decided, answers, queued = append(decided, h), append(answers, a), append(queued, operations...)
	}
	w.announce(ctx, queued)
	if len(answers) == 0 {
		return
	}
	told, cancel := context.WithTimeout(ctx, w.cfg.TellTimeout)
	defer cancel()
	results := w.deps.Bus.PublishCoreAnswers(told, answers)
	for i, h := range decided {
		if results[i] != nil {
			w.m.unanswered.Inc()
			h.RetryLater(w.cfg.RetryDelay)
			continue
		}
		h.Ack()
	}
	if err := results.Err(); err != nil {
		w.deps.Log.Warn("the core is not told, its events come again", slog.Any("error", err))
	}
}

// announce tells the sender at once. What fails is in the outbox, where payments finds it.
func (w *Worker) announce(ctx context.Context, queued []store.Operation) {
	if len(queued) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, w.cfg.TellTimeout)
	defer cancel()
	notices := make([]bus.Outbound, len(queued))
	for i, o := range queued {
		notices[i] = bus.Outbound{ISPB: w.cfg.ISPB, Channel: o.Channel, ID: o.ID, MsgType: o.MsgType}
	}
	results := w.deps.Bus.PublishOutbound(ctx, notices)
	acked := results.Acked()
	ids := make([]int64, len(acked))
	for i, n := range acked {
		ids[i] = queued[n].ID
	}
	err := results.Err()
	if err == nil {
		err = w.outbox.MarkPublished(ctx, ids)
	}
	w.m.unannounced.Add(float64(len(queued) - len(ids)))
	if err != nil {
		w.deps.Log.Warn("orders are left to the announcer of payments", slog.Int("orders", len(queued)-len(ids)), slog.Any("error", err))
	}
}
