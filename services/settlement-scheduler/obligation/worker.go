package obligation

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cabine-pix/cabine/libs/bus"
	"github.com/cabine-pix/cabine/libs/store"
)

// Source hands deliveries out until they are answered.
type Source interface {
	Subscribe(cfg bus.SubscriptionConfig) *bus.Subscription
}

// Books are where obligations are written.
type Books interface {
	// Book writes the obligations of payments that settled, each once.
	Book(ctx context.Context, ids []string) (store.Booking, error)
}

// Deps are what a Worker needs from outside.
type Deps struct {
	Source  Source
	Books   Books
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Worker writes obligations. Make it with New, run it with Run.
type Worker struct {
	cfg  Config
	deps Deps
	m    *metrics
}

// New returns a worker that has started nothing.
func New(cfg Config, deps Deps) (*Worker, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("obligation config: %w", err)
	}
	m, err := newMetrics(deps.Metrics)
	if err != nil {
		return nil, fmt.Errorf("obligation metrics: %w", err)
	}
	return &Worker{cfg: cfg, deps: deps, m: m}, nil
}

// Run takes deliveries until ctx ends, and then writes those in hand.
func (w *Worker) Run(ctx context.Context) error {
	sub := w.deps.Source.Subscribe(bus.SubscriptionConfig{
		Stream: bus.StreamSettlement, Durable: bus.ConsumerSettlement,
		MaxHeld: 2 * w.cfg.Workers * w.cfg.Batch, DrainTimeout: w.cfg.DrainTimeout,
	})
	return sub.RunBatches(ctx, w.cfg.Workers, w.cfg.Batch, w.write)
}

// write writes a batch and answers each of its deliveries.
func (w *Worker) write(ctx context.Context, batch []*bus.Held) {
	ids, held := make([]string, 0, len(batch)), make(map[string][]*bus.Held, len(batch))
	for _, h := range batch {
		o, err := h.Obligation()
		if err != nil {
			w.m.taken.WithLabelValues(strange).Inc()
			w.deps.Log.Error("delivery names no obligation", slog.String("subject", h.Subject), slog.Any("error", err))
			h.Drop("names no obligation")
			continue
		}
		if held[o.ID] == nil {
			ids = append(ids, o.ID)
		}
		held[o.ID] = append(held[o.ID], h)
	}
	if len(ids) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, w.cfg.TxTimeout)
	defer cancel()
	booking, err := w.deps.Books.Book(ctx, ids)
	if err != nil {
		w.m.taken.WithLabelValues(failing).Add(float64(len(ids)))
		w.deps.Log.Warn("obligations are not written, they come again", slog.Int("obligations", len(ids)), slog.Any("error", err))
		w.answer(held, ids, func(h *bus.Held) { h.RetryLater(w.cfg.RetryDelay) })
		return
	}
	w.answer(held, booking.Fresh, (*bus.Held).Ack)
	w.answer(held, booking.Known, (*bus.Held).Ack)
	w.answer(held, booking.Waiting, w.await)
	w.answer(held, booking.Strange, func(h *bus.Held) { h.Drop("is not settled") })
	w.tell(booking)
}

func (w *Worker) answer(held map[string][]*bus.Held, ids []string, answer func(*bus.Held)) {
	for _, id := range ids {
		for _, h := range held[id] {
			answer(h)
		}
	}
}

// await has one come again that has no cycle, until it has come often enough: the table will announce it again.
func (w *Worker) await(h *bus.Held) {
	if h.Deliveries >= w.cfg.MaxDeliveries {
		h.Drop("no cycle is open")
		return
	}
	h.RetryLater(w.cfg.RetryDelay)
}

func (w *Worker) tell(b store.Booking) {
	w.m.taken.WithLabelValues(written).Add(float64(len(b.Fresh)))
	w.m.taken.WithLabelValues(known).Add(float64(len(b.Known)))
	w.m.taken.WithLabelValues(waiting).Add(float64(len(b.Waiting)))
	w.m.taken.WithLabelValues(strange).Add(float64(len(b.Strange)))
	w.m.late.Add(float64(b.Late))
	if b.Late > 0 {
		w.deps.Log.Warn("obligations came after their cycle", slog.Int("obligations", b.Late))
	}
	if len(b.Waiting) > 0 {
		w.deps.Log.Warn("no cycle is open for obligations", slog.Int("obligations", len(b.Waiting)))
	}
	if len(b.Strange) > 0 {
		w.deps.Log.Error("announced and not settled in the books", slog.Int("payments", len(b.Strange)),
			slog.String("payment_id", b.Strange[0]))
	}
}
