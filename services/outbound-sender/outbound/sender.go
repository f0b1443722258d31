package outbound

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cabine-pix/cabine/libs/bus"
	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/lease"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/slotpool"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/libs/transport"
)

// Store is what the sender needs of the messages in the store; store.Outbound says what each does.
type Store interface {
	Claim(ctx context.Context, ids []int64) (free []store.Operation, taken []store.Message, err error)
	Build(ctx context.Context, drafts []store.Draft) ([]bool, error)
	Discard(ctx context.Context, id int64, reason string) error

	Attempt(ctx context.Context, tries []store.Try) ([]bool, error)
	Withdraw(ctx context.Context, tries []store.Try, release bool) error
	Sent(ctx context.Context, posted []store.Posted) error
	Unknown(ctx context.Context, msgIDs []pix.MsgID, reason string) error
	Refused(ctx context.Context, msgIDs []pix.MsgID, reason string) (contradicted []string, err error)

	Due(ctx context.Context, channel pix.Channel, r store.Resend, limit int) ([]store.Message, error)
	Release(ctx context.Context, msgIDs []pix.MsgID) error
	Tidy(ctx context.Context, attempts int, olderThan time.Duration) error
	Doubts(ctx context.Context, attempts int) (map[pix.Channel]store.Doubts, error)
}

// Slots grants the slots of one channel.
type Slots interface {
	Acquire(ctx context.Context, class lease.Class) (*slotpool.Slot, error)
}

// Signer signs messages as package iso20022 builds them.
type Signer interface {
	Sign(message []byte) ([]byte, error)
}

// Delivery says that an operation waits, and takes the answer: Ack once it is in a message, or Retry to have it come
// again after a while.
type Delivery struct {
	bus.Outbound
	Ack   func()
	Retry func(after time.Duration)
}

// Intake hands a channel's deliveries over until ctx ends, and returns when all that it handed over are answered.
type Intake func(ctx context.Context, channel pix.Channel, take func(Delivery)) error

// Deps are what a Sender works with. All are required.
type Deps struct {
	// Slots per channel; its keys are the channels that are sent on.
	Slots     map[pix.Channel]Slots
	Transport transport.Readiness
	Store     Store
	Intake    Intake
	Versions  iso20022.Versions
	Signer    Signer
	Clock     clock.Clock
	Log       *slog.Logger
	Metrics   prometheus.Registerer
}

// Sender sends the messages of one participant. Make it with New, run it with Run.
type Sender struct {
	cfg      Config
	deps     Deps
	m        *metrics
	channels map[pix.Channel]*channel
	stop     chan struct{} // closed by StopTaking
	stopOnce sync.Once
	abort    chan struct{} // closed by Abort
	cutOnce  sync.Once
	quiet    chan struct{} // closed when every worker has ended
}

// New checks the configuration, registers the metrics and starts nothing.
func New(cfg Config, deps Deps) (*Sender, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("outbound: %w", err)
	}
	m, err := newMetrics(deps.Metrics)
	if err != nil {
		return nil, fmt.Errorf("outbound: %w", err)
	}
	s := &Sender{
		cfg: cfg, deps: deps, m: m, channels: make(map[pix.Channel]*channel),
		stop: make(chan struct{}), abort: make(chan struct{}), quiet: make(chan struct{}),
	}
	for _, name := range pix.Channels() {
		if deps.Slots[name] != nil {
			s.channels[name] = newChannel(name, cfg, deps, m)
		}
	}
	if len(s.channels) == 0 {
		return nil, errors.New("outbound: no channel is enabled")
	}
	return s, nil
}

// Run sends until ctx ends, and returns when everything that it started has ended. Its end
// without StopTaking before it cuts what is in flight, as Abort does.
func (s *Sender) Run(ctx context.Context) error {
	taking, stopTaking := context.WithCancel(ctx)
	defer stopTaking()
	working, cut := context.WithCancel(ctx)
	defer cut()
	context.AfterFunc(ctx, s.StopTaking)

	var workers, rest sync.WaitGroup
	rest.Go(func() { s.watch(ctx) })
	rest.Go(func() {
		<-s.stop
		stopTaking()
		for _, c := range s.channels {
			c.q.close()
		}
		select {
		case <-s.abort:
			cut()
		case <-s.quiet:
		}
	})
	for _, c := range s.channels {
		workers.Go(func() { s.consume(taking, c) })
		workers.Go(func() { c.run(working, ctx) })
	}
	workers.Wait()
	close(s.quiet)
	<-ctx.Done()
	rest.Wait()
	return nil
}

// StopTaking ends the intake: deliveries that are in no message go back to the bus; what is stored is still sent.
func (s *Sender) StopTaking() { s.stopOnce.Do(func() { close(s.stop) }) }

// Abort cuts what StopTaking left in flight; its slots cool down, its messages count as unknown.
func (s *Sender) Abort() {
	s.StopTaking()
	s.cutOnce.Do(func() { close(s.abort) })
}

// Quiet waits until every slot has been given back and every delivery answered.
func (s *Sender) Quiet(ctx context.Context) error {
	select {
	case <-s.quiet:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("sends not ended: %w", ctx.Err())
	}
}

// Ready reports why this replica could not send on a channel now. It says nothing about
// permits, which a healthy replica may well have none of.
func (s *Sender) Ready(context.Context) error {
	var errs []error
	for _, name := range pix.Channels() {
		if c := s.channels[name]; c != nil {
			if err := c.guard.state(); err != nil {
				errs = append(errs, fmt.Errorf("channel %s: %w", name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// consume takes a channel's deliveries until taking ends and those in hand are answered.
func (s *Sender) consume(taking context.Context, c *channel) {
	select {
	case <-c.guard.checked:
	case <-taking.Done():
		return
	}
	retry := clock.Backoff{First: s.cfg.BackoffFirst, Most: 10 * s.cfg.BackoffMost}
	for {
		err := s.deps.Intake(taking, c.name, s.take)
		if err == nil || taking.Err() != nil {
			return
		}
		c.log.Error("nothing can be taken from the bus", slog.Any("error", err))
		if clock.Sleep(taking, s.deps.Clock, retry.Next()) != nil {
			return
		}
	}
}

// elsewhereAfter is when a delivery that this replica cannot serve comes again, to whichever replica.
const elsewhereAfter = time.Second

// take keeps a delivery in hand until its operation is in a message.
func (s *Sender) take(d Delivery) {
	c := s.channels[d.Channel]
	if c == nil || d.ISPB != s.cfg.ISPB {
		s.deps.Log.Error("operation is not sent from here", slog.String("ispb", string(d.ISPB)),
			slog.String("channel", string(d.Channel)), slog.Int64("outbox_id", d.ID))
		d.Retry(s.cfg.HaltMost)
		return
	}
	done := func(err error) {
		switch {
		case err == nil:
			d.Ack()
		case errors.Is(err, errStopping):
			d.Retry(0)
		default:
			d.Retry(elsewhereAfter)
		}
	}
	if err := c.q.offer(op{id: d.ID, msgType: d.MsgType, since: s.deps.Clock.Now(), done: done}); err != nil {
		done(err)
	}
}

// watch sets the gauges, and closes messages that are not sent any more, until ctx ends.
func (s *Sender) watch(ctx context.Context) {
	for {
		err := s.look(ctx)
		failed := 0.0
		if err != nil && ctx.Err() == nil {
			failed = 1
			s.deps.Log.Warn("open messages cannot be counted", slog.Any("error", err))
		}
		s.m.unwatched.Set(failed)
		if clock.Sleep(ctx, s.deps.Clock, s.cfg.WatchEvery) != nil {
			return
		}
	}
}

func (s *Sender) look(ctx context.Context) error {
	for _, c := range s.channels {
		waiting, ready := c.q.sizes()
		c.m.inHand.WithLabelValues(string(c.name), stageWaiting).Set(float64(waiting))
		c.m.inHand.WithLabelValues(string(c.name), stageReady).Set(float64(ready))
		c.m.tokens.WithLabelValues(string(c.name)).Set(c.meter.tokens(s.deps.Clock.Now()))
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StoreTimeout)
	defer cancel()
	if err := s.deps.Store.Tidy(ctx, s.cfg.Resend.Attempts, s.cfg.Resend.LostAfter); err != nil {
		return err
	}
	doubts, err := s.deps.Store.Doubts(ctx, s.cfg.Resend.Attempts)
	if err != nil {
		return err
	}
	for name := range s.channels {
		s.m.doubts(string(name), doubts[name])
	}
	return nil
}
