package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// SubscriptionConfig says how a subscription works. The zero value of each field but Stream and Durable means its default.
type SubscriptionConfig struct {
	// Stream and Durable name a declared consumer.
	Stream, Durable string
	// MaxHeld bounds the deliveries that are not answered yet. Default 256.
	MaxHeld int
	// InProgress is how often each of them is declared alive; well below AckWait. Default 5 s.
	InProgress time.Duration
	// PullWait is how long one request to the server waits for messages, and so about the longest that Run takes to stop
	// pulling. Default 1 s.
	PullWait time.Duration
	// RetryDelay is the pause after a failure of the connection. Default 1 s.
	RetryDelay time.Duration
	// DrainTimeout is how long deliveries in somebody's hands may take after the context of Run ended. Default 10 s.
	DrainTimeout time.Duration
}

func (c SubscriptionConfig) withDefaults() SubscriptionConfig {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	if c.MaxHeld <= 0 {
		c.MaxHeld = 256
	}
	def(&c.InProgress, 5*time.Second)
	def(&c.PullWait, time.Second)
	def(&c.RetryDelay, time.Second)
	def(&c.DrainTimeout, 10*time.Second)
	return c
}

// Subscription hands deliveries out and leaves it to whoever takes them how many to take at a time and when each is
// answered. Until then each is declared alive, so that no other replica gets it.
type Subscription struct {
	cfg        SubscriptionConfig
	bus        *Bus
	deliveries chan *Held

	mu    sync.Mutex
	held  map[*Held]struct{} // not answered
	freed chan struct{}      // has a token when one of them was answered
}

// Subscribe returns a subscription that pulls nothing before Run.
func (b *Bus) Subscribe(cfg SubscriptionConfig) *Subscription {
	cfg = cfg.withDefaults()
	return &Subscription{
		cfg: cfg, bus: b, deliveries: make(chan *Held, cfg.MaxHeld),
		held: map[*Held]struct{}{}, freed: make(chan struct{}, 1),
	}
}

// Deliveries is where they come, at most MaxHeld unanswered ones. It is closed when Run no longer pulls.
func (s *Subscription) Deliveries() <-chan *Held { return s.deliveries }

// Held is a delivery that waits for its answer: Ack, Retry or Drop, of which only the first one counts.
type Held struct {
	Delivery
	msg jetstream.Msg
	sub *Subscription
}

// Ack says that the effect is durable; the message will not come again.
func (h *Held) Ack() { h.answer(h.msg.Ack) }

// Retry gives the message back, to come again after the delay, to whichever replica.
func (h *Held) Retry(delay time.Duration) {
	h.answer(func() error { return h.msg.NakWithDelay(delay) })
}

// RetryLater is Retry after first, and after twice as long with each delivery, up to 30 s.
func (h *Held) RetryLater(first time.Duration) { h.Retry(pause(first, h.Deliveries)) }

// Drop takes the message off the stream although nothing was done for it; the reason goes to the server's advisories.
func (h *Held) Drop(reason string) {
	h.answer(func() error { return h.msg.TermWithReason(reason) })
}

func (h *Held) answer(send func() error) {
	s := h.sub
	s.mu.Lock()
	_, open := s.held[h]
	delete(s.held, h)
	s.mu.Unlock()
	if !open {
		return
	}
	s.logged(h.msg, send())
	select {
	case s.freed <- struct{}{}:
	default:
	}
}

// logged tells of an answer that did not go out: the message will come again.
func (s *Subscription) logged(msg jetstream.Msg, err error) {
	if err != nil {
		s.bus.log.Warn("answer to the bus failed", slog.String("subject", msg.Subject()), slog.Any("error", err))
	}
}

// Run pulls until ctx ends. Then it gives back what nobody took out of Deliveries, closes that, waits for what was taken
// to be answered, at most DrainTimeout, and returns nil; what is not answered by then comes again after AckWait.
// ErrNotProvisioned: the consumer does not exist, or no longer. Run may be called once.
func (s *Subscription) Run(ctx context.Context) error {
	beating, stop := context.WithCancel(context.WithoutCancel(ctx))
	var beat sync.WaitGroup
	beat.Go(func() { s.beat(beating) })
	defer func() { stop(); beat.Wait() }()
	err := s.pull(ctx)
	close(s.deliveries)
	for h := range s.deliveries { // whoever reads them still may be faster, and has them then
		h.answer(h.msg.Nak)
	}
	s.drain()
	return err
}

func (s *Subscription) pull(ctx context.Context) error {
	for ctx.Err() == nil {
		err := translate("subscription "+s.cfg.Stream+"/"+s.cfg.Durable, s.attach(ctx))
		if errors.Is(err, ErrNotProvisioned) {
			return err
		}
		if ctx.Err() == nil {
			s.bus.log.Warn("subscription interrupted", slog.String("durable", s.cfg.Durable), slog.Any("error", err))
			wait(ctx, s.cfg.RetryDelay)
		}
	}
	return nil
}

// attach looks the consumer up and pulls until that fails or ctx ends.
func (s *Subscription) attach(ctx context.Context) error {
	consumer, err := s.bus.js.Consumer(ctx, s.cfg.Stream, s.cfg.Durable)
	if err != nil {
		return fmt.Errorf("look up: %w", err)
	}
	return s.fetch(ctx, consumer)
}

// fetch asks for as many messages as may be held, again and again, until a request fails or ctx ends. A request that is
// under way when ctx ends is waited for, because the messages that it brings would be lost until AckWait.
func (s *Subscription) fetch(ctx context.Context, consumer jetstream.Consumer) error {
	for {
		room := s.room(ctx)
		if room == 0 {
			return nil
		}
		batch, err := consumer.Fetch(room, jetstream.FetchMaxWait(s.cfg.PullWait))
		if err != nil {
			return err
		}
		for msg := range batch.Messages() {
			h := &Held{Delivery: delivery(msg), msg: msg, sub: s}
			s.mu.Lock()
			s.held[h] = struct{}{}
			s.mu.Unlock()
			if ctx.Err() != nil {
				h.answer(msg.Nak)
				continue
			}
			s.deliveries <- h // has room for all that may be held
		}
		if err := batch.Error(); err != nil {
			return err
		}
	}
}

// room waits until more may be held, and returns how many; zero when ctx ended.
func (s *Subscription) room(ctx context.Context) int {
	for {
		s.mu.Lock()
		room := s.cfg.MaxHeld - len(s.held)
		s.mu.Unlock()
		if ctx.Err() != nil {
			return 0
		}
		if room > 0 {
			return room
		}
		select {
		case <-ctx.Done():
		case <-s.freed:
		}
	}
}

// beat declares alive what is held, all of it in each interval.
func (s *Subscription) beat(ctx context.Context) {
	for wait(ctx, s.cfg.InProgress) {
		s.mu.Lock()
		held := make([]*Held, 0, len(s.held))
		for h := range s.held {
			held = append(held, h)
		}
		s.mu.Unlock()
		for _, h := range held {
			if err := h.msg.InProgress(); !errors.Is(err, jetstream.ErrMsgAlreadyAckd) { // answered meanwhile
				s.logged(h.msg, err)
			}
		}
	}
}

// drain waits until everything was answered.
func (s *Subscription) drain() {
	timer := time.NewTimer(s.cfg.DrainTimeout)
	defer timer.Stop()
	for {
		s.mu.Lock()
		left := len(s.held)
		s.mu.Unlock()
		if left == 0 {
			return
		}
		select {
		case <-s.freed:
		case <-timer.C:
			s.bus.log.Warn("deliveries were not answered in time", slog.Int("deliveries", left))
			return
		}
	}
}
