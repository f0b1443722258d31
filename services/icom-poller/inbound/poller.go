package inbound

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/lease"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/slotpool"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/libs/transport"
)

// Inbox is what the workers need of the store.
type Inbox interface {
	// OpenSession takes a new term for the slot's stream and returns the saved cursor.
	OpenSession(ctx context.Context, channel pix.Channel, ispb pix.ISPB, slot int, owner string) (store.Session, error)
	// Receive stores a batch and moves the cursor in one transaction and returns what is new
	// in it; store.ErrStaleTerm when the term was taken by somebody else.
	Receive(ctx context.Context, batch store.Batch) (store.Receipt, error)
	// CloseSession notes that the stream was deleted at the bank.
	CloseSession(ctx context.Context, session store.Session) error
	// ResetCursor notes that the stream is gone, so that the next Pull opens a new one.
	ResetCursor(ctx context.Context, session store.Session) error
}

// Slots grants the slots of one channel.
type Slots interface {
	Acquire(ctx context.Context, class lease.Class) (*slotpool.Slot, error)
}

// Deps are what a Poller works with. All are required.
type Deps struct {
	// Slots per channel; its keys are the channels that are polled.
	Slots map[pix.Channel]Slots
	// Holders reads from Redis who holds the slots of a channel.
	Holders   map[pix.Channel]func(context.Context) ([]lease.Holder, error)
	Transport transport.Readiness
	Inbox     Inbox
	// Ping reports whether the store answers.
	Ping    func(context.Context) error
	Outlet  Outlet
	Clock   clock.Clock
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Poller keeps the streams of one participant. Make it with New, run it with Run.
type Poller struct {
	cfg      Config
	deps     Deps
	channels []*channel
	pub      *Publisher
	stop     chan struct{} // closed by StopTaking
	stopOnce sync.Once
	abort    chan struct{} // closed by Abort
	cutOnce  sync.Once
	quiet    chan struct{} // closed when every worker has ended
}

// New checks the configuration, registers the metrics and starts nothing.
func New(cfg Config, deps Deps) (*Poller, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("inbound: %w", err)
	}
	m, err := newMetrics(deps.Metrics)
	if err != nil {
		return nil, fmt.Errorf("inbound: %w", err)
	}
	p := &Poller{
		cfg: cfg, deps: deps,
		pub:   newPublisher(cfg.Publisher, deps.Outlet, deps.Clock, deps.Log, m),
		stop:  make(chan struct{}),
		abort: make(chan struct{}),
		quiet: make(chan struct{}),
	}
	for _, name := range pix.Channels() {
		if deps.Slots[name] != nil {
			p.channels = append(p.channels, newChannel(name, cfg, deps, p.pub, m))
		}
	}
	if len(p.channels) == 0 {
		return nil, errors.New("inbound: no channel is enabled")
	}
	return p, nil
}

// Run polls until ctx ends, and returns when everything that it started has ended. Its end
// without StopTaking before it cuts what is in flight, as Abort does.
func (p *Poller) Run(ctx context.Context) error {
	taking, stopTaking := context.WithCancel(ctx)
	defer stopTaking()
	working, cut := context.WithCancel(ctx)
	defer cut()
	context.AfterFunc(ctx, p.StopTaking)

	var workers, rest sync.WaitGroup
	rest.Go(func() { p.pub.Run(ctx) })
	rest.Go(func() {
		<-p.stop
		stopTaking()
		select {
		case <-p.abort:
			cut()
		case <-p.quiet:
		}
	})
	for _, c := range p.channels {
		rest.Go(func() { c.watch(ctx) })
		workers.Go(func() { c.poll(taking, working) })
	}
	workers.Wait()
	close(p.quiet)
	// Whoever ended taking also ends ctx, after the publisher was flushed.
	<-ctx.Done()
	rest.Wait()
	return nil
}

// Lead is for Config.OnlyLeading: the poller polls until leading ends. It returns as soon as
// that is so, while polls still end and streams are closed: leadership says who polls, and
// nothing rests on it, since every request has its permit and every cursor its own term.
func (p *Poller) Lead(leading context.Context, _ int64) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, c := range p.channels {
		wg.Go(func() {
			select {
			case c.reigns <- leading:
			case <-leading.Done():
			}
		})
	}
	<-leading.Done()
	return nil
}

// StopTaking makes the workers end: no slot is acquired any more, polls in flight end by
// themselves, their streams are deleted and their slots given back.
func (p *Poller) StopTaking() { p.stopOnce.Do(func() { close(p.stop) }) }

// Abort cuts what StopTaking left in flight; its slots cool down.
func (p *Poller) Abort() {
	p.StopTaking()
	p.cutOnce.Do(func() { close(p.abort) })
}

// Quiet waits until every slot has been given back.
func (p *Poller) Quiet(ctx context.Context) error {
	select {
	case <-p.quiet:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("slots not given back: %w", ctx.Err())
	}
}

// Flush waits until the publisher has carried away what it has in memory. What it has not
// by the end of ctx stays unpublished in the table.
func (p *Poller) Flush(ctx context.Context) error { return p.pub.flush(ctx) }

// Ready reports why a channel could not poll now: its transport or the store. It says
// nothing about slots, which a healthy replica may well have none of.
func (p *Poller) Ready(context.Context) error {
	var errs []error
	for _, c := range p.channels {
		if err := c.gate.state(); err != nil {
			errs = append(errs, fmt.Errorf("channel %s: %w", c.name, err))
		}
	}
	return errors.Join(errs...)
}

// Held lists the stints of this replica, by channel and slot.
func (p *Poller) Held() []Held {
	var all []Held
	for _, c := range p.channels {
		all = append(all, c.held()...)
	}
	slices.SortFunc(all, func(a, b Held) int {
		if a.Channel != b.Channel {
			return slices.Index(pix.Channels(), a.Channel) - slices.Index(pix.Channels(), b.Channel)
		}
		return a.Slot - b.Slot
	})
	return all
}
