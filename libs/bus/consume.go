package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cabine-pix/cabine/libs/pix"
)

// ConsumeConfig says how a consumer loop works. The zero value of each field but Stream and Durable means its default.
type ConsumeConfig struct {
	// Stream and Durable name a declared consumer.
	Stream, Durable string
	// Concurrency is how many messages are in hand at once. With more than one, the order is lost. Default 1.
	Concurrency int
	// Prefetch is how many messages the server may have sent that nobody has in hand yet;
	// their AckWait runs already, so keep it small. Default: Concurrency.
	Prefetch int
	// InProgress is how often a message in hand is declared alive; well below AckWait. Default 5 s.
	InProgress time.Duration
	// MaxDeliveries is after how many failed deliveries a message is poison. Default 5.
	MaxDeliveries int
	// RetryDelay is the pause after the first failure; it doubles with each, up to 30 s. Default 1 s.
	RetryDelay time.Duration
	// DrainTimeout is how long messages in hand may take after ctx ended, before their context ends too. Default 10 s.
	DrainTimeout time.Duration
	// Poison is told of a message that failed MaxDeliveries times, with the last failure.
	// If it returns nil the message is taken off the stream, otherwise it comes again.
	// Default: log it and let it come again.
	Poison func(ctx context.Context, d Delivery, cause error) error
}

func (c ConsumeConfig) withDefaults() ConsumeConfig {
	def := func(n *int, v int) {
		if *n <= 0 {
			*n = v
		}
	}
	defDuration := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&c.Concurrency, 1)
	def(&c.Prefetch, c.Concurrency)
	def(&c.MaxDeliveries, 5)
	defDuration(&c.InProgress, 5*time.Second)
	defDuration(&c.RetryDelay, time.Second)
	defDuration(&c.DrainTimeout, 10*time.Second)
	if c.Poison == nil {
		c.Poison = func(_ context.Context, _ Delivery, cause error) error { return cause }
	}
	return c
}

// Delivery is one message in hand.
type Delivery struct {
	Subject string
	Payload []byte
	// Headers are the first values of the message's headers.
	Headers map[string]string
	// Deliveries counts from 1; more than 1 means that an earlier delivery failed, or is
	// still at work somewhere.
	Deliveries int
}

// Inbound reads the delivery as a message of PIX_INBOUND.
func (d Delivery) Inbound() (Inbound, error) {
	m := Inbound{
		MessageID: d.Headers[headerMessageID], Source: d.Headers[headerSource], MsgType: d.Headers[headerMsgType],
		Payload: d.Payload, Headers: d.Headers,
	}
	if m.MessageID == "" || m.Source == "" {
		return Inbound{}, errNoKey
	}
	if parts := strings.Split(d.Subject, "."); len(parts) == 4 {
		m.ISPB = pix.ISPB(parts[2])
	}
	if text := d.Headers[headerAttempt]; text != "" {
		attempt, err := strconv.Atoi(text)
		if err != nil {
			return Inbound{}, fmt.Errorf("header %s: %w", headerAttempt, err)
		}
		m.Attempt = attempt
	}
	return m, nil
}

// ConsumeInbound runs Consume on PIX_INBOUND. The handler gets the message and returns nil once its effect is durable.
func (b *Bus) ConsumeInbound(ctx context.Context, cfg ConsumeConfig, handle func(context.Context, Inbound) error) error {
	cfg.Stream = StreamInbound
	return b.Consume(ctx, cfg, func(ctx context.Context, d Delivery) error {
		m, err := d.Inbound()
		if err != nil {
			return err
		}
		return handle(ctx, m)
	})
}

// Consume pulls messages and hands each to handle until ctx ends; then it takes no more,
// waits for those in hand and returns nil. A message is acknowledged after handle
// returned nil, so handle may see it again and must be idempotent. ErrNotProvisioned: the
// consumer does not exist, or no longer.
func (b *Bus) Consume(ctx context.Context, cfg ConsumeConfig, handle func(context.Context, Delivery) error) error {
	cfg = cfg.withDefaults()
	l := &loop{cfg: cfg, log: b.log, handle: handle, hands: make(chan struct{}, cfg.Concurrency)}
	working, abort := context.WithCancel(context.WithoutCancel(ctx))
	defer abort()
	defer func() {
		timer := time.AfterFunc(cfg.DrainTimeout, abort)
		defer timer.Stop()
		l.work.Wait()
	}()
	for ctx.Err() == nil {
		consumer, err := b.js.Consumer(ctx, cfg.Stream, cfg.Durable)
		if err != nil {
			err = translate("consume "+cfg.Stream+"/"+cfg.Durable, err)
			if ctx.Err() != nil {
				break
			}
			if !errors.Is(err, ErrUnavailable) {
				return err
			}
			b.log.Warn("consumer unavailable", slog.String("durable", cfg.Durable), slog.Any("error", err))
			wait(ctx, cfg.RetryDelay)
			continue
		}
		if err := l.pull(ctx, working, consumer); err != nil && ctx.Err() == nil {
			b.log.Warn("pull interrupted", slog.String("durable", cfg.Durable), slog.Any("error", err))
			wait(ctx, cfg.RetryDelay)
		}
	}
	return nil
}

type loop struct {
	cfg    ConsumeConfig
	log    *slog.Logger
	handle func(context.Context, Delivery) error
	hands  chan struct{} // one token per message in hand
	work   sync.WaitGroup
}

// pull takes messages from one subscription until it breaks or ctx ends. working outlives ctx and belongs to what is in hand.
func (l *loop) pull(ctx, working context.Context, consumer jetstream.Consumer) error {
	messages, err := consumer.Messages(jetstream.PullMaxMessages(l.cfg.Prefetch), jetstream.PullHeartbeat(5*time.Second))
	if err != nil {
		return fmt.Errorf("pull: %w", err)
	}
	defer l.giveBack(messages)
	for {
		select {
		case <-ctx.Done():
			return nil
		case l.hands <- struct{}{}:
		}
		msg, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			<-l.hands
			return err
		}
		l.work.Go(func() {
			defer func() { <-l.hands }()
			l.take(working, msg)
		})
	}
}

// giveBack ends the subscription and returns what was sent to it and is in nobody's hands, for another replica to take at once.
func (l *loop) giveBack(messages jetstream.MessagesContext) {
	messages.Drain()
	for {
		msg, err := messages.Next(jetstream.NextMaxWait(time.Second))
		if err != nil {
			return
		}
		l.answered(msg, msg.Nak())
	}
}

// take works on one message and answers for it.
func (l *loop) take(ctx context.Context, msg jetstream.Msg) {
	d := delivery(msg)
	alive, stop := context.WithCancel(ctx)
	var beat sync.WaitGroup
	beat.Go(func() {
		for wait(alive, l.cfg.InProgress) {
			l.answered(msg, msg.InProgress())
		}
	})
	err := l.handle(ctx, d)
	poison := err != nil && d.Deliveries >= l.cfg.MaxDeliveries && ctx.Err() == nil
	if poison {
		l.log.Error("message is poison", slog.String("subject", d.Subject),
			slog.Int("deliveries", d.Deliveries), slog.Any("error", err))
		err = l.cfg.Poison(ctx, d, err)
	}
	stop()
	beat.Wait()
	switch {
	case err == nil && poison:
		l.answered(msg, msg.TermWithReason("poison"))
	case err == nil:
		l.answered(msg, msg.Ack())
	default:
		l.log.Warn("message failed", slog.String("subject", d.Subject),
			slog.Int("deliveries", d.Deliveries), slog.Any("error", err))
		l.answered(msg, msg.NakWithDelay(pause(l.cfg.RetryDelay, d.Deliveries)))
	}
}

// answered logs an answer that did not go out: the message will come again.
func (l *loop) answered(msg jetstream.Msg, err error) {
	if err != nil {
		l.log.Warn("answer to the bus failed", slog.String("subject", msg.Subject()), slog.Any("error", err))
	}
}

// longestPause bounds the pause until a delivery comes again.
const longestPause = 30 * time.Second

// pause is how long after its so-many-th delivery a message comes again: first, and twice as long each time.
func pause(first time.Duration, deliveries int) time.Duration {
	d := first
	for range deliveries - 1 {
		if d *= 2; d > longestPause {
			return longestPause
		}
	}
	return d
}

func delivery(msg jetstream.Msg) Delivery {
	d := Delivery{Subject: msg.Subject(), Payload: msg.Data(), Headers: map[string]string{}, Deliveries: 1}
	for k, v := range msg.Headers() {
		if len(v) > 0 {
			d.Headers[k] = v[0]
		}
	}
	if meta, err := msg.Metadata(); err == nil {
		d.Deliveries = int(meta.NumDelivered)
	}
	return d
}

// wait reports whether d passed before ctx ended.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
