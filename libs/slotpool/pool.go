package slotpool

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/lease"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/transport"
)

// Config describes the connections of one channel and ISPB.
type Config struct {
	// Channel and ISPB under which the bank counts.
	Channel pix.Channel
	ISPB    pix.ISPB
	// BankHold is B of lease.Timing: the longest time the bank may count a request after
	// its first byte. Required, and the same number that the lease has.
	BankHold time.Duration
	// ReceiveTimeout is the longest wait for an answer and the cap on each call's own
	// timeout. Required, below BankHold.
	ReceiveTimeout time.Duration
	// Margin is what a call may take beyond its timeout before it is cancelled from
	// here, so that the transport's own, better informed ending usually comes first.
	// Default: half of what lies between ReceiveTimeout and BankHold, at most 500 ms.
	Margin time.Duration
	// Linger is the least time between the last answer and the release of the slot.
	// Default 50 ms, about one round trip to the bank; negative: none, which is safe only
	// with a bank known to count down before its last byte.
	Linger time.Duration
	// DisconnectTimeout bounds the closing of the connection in Give. Default 1 s.
	DisconnectTimeout time.Duration
	// GiveTimeout bounds the whole of Give. Default 5 s.
	GiveTimeout time.Duration
}

// WithDefaults returns a copy in which zero fields have their defaults.
func (c Config) WithDefaults() Config {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&c.Margin, min(500*time.Millisecond, (c.BankHold-c.ReceiveTimeout)/2))
	def(&c.Linger, 50*time.Millisecond)
	def(&c.DisconnectTimeout, time.Second)
	def(&c.GiveTimeout, 5*time.Second)
	return c
}

// Validate names the numbers of each rule that is broken.
func (c Config) Validate() error {
	var errs []error
	if _, err := pix.ParseChannel(string(c.Channel)); err != nil {
		errs = append(errs, err)
	}
	if _, err := pix.ParseISPB(string(c.ISPB)); err != nil {
		errs = append(errs, err)
	}
	if c.ReceiveTimeout <= 0 || c.Margin <= 0 {
		errs = append(errs, fmt.Errorf("ReceiveTimeout is %v and Margin is %v, want more than zero", c.ReceiveTimeout, c.Margin))
	}
	if sum := c.ReceiveTimeout + c.Margin; sum > c.BankHold {
		errs = append(errs, fmt.Errorf("ReceiveTimeout %v + Margin %v = %v, want at most BankHold %v",
			c.ReceiveTimeout, c.Margin, sum, c.BankHold))
	}
	if c.DisconnectTimeout <= 0 || c.GiveTimeout <= c.DisconnectTimeout+c.Linger {
		errs = append(errs, fmt.Errorf("GiveTimeout is %v, want more than DisconnectTimeout %v + Linger %v",
			c.GiveTimeout, c.DisconnectTimeout, c.Linger))
	}
	return errors.Join(errs...)
}

// Lease is what a slot needs of a granted lease. It has the method set of the lease
// library's own type, ten methods, because a slot is the one place that uses all of it.
type Lease interface {
	// Slot is the granted number, from 1.
	Slot() int
	// Class is the class that it was granted to.
	Class() lease.Class
	// Grant is the opaque name of this grant.
	Grant() string
	// StartDeadline is D as of the last confirmed renewal; passed or zero once lost.
	StartDeadline() clock.Deadline
	// Lost is closed when the lease is over without having been given back.
	Lost() <-chan struct{}
	// Err is nil while the lease is held and the cause after it was lost.
	Err() error
	// Served notes that the lease has served a request: before that it is not asked to yield.
	Served()
	// Yield is closed when the slot should go to somebody else after the current request.
	Yield() <-chan struct{}
	// Release frees the slot at once.
	Release(ctx context.Context) error
	// CoolDown keeps the slot closed until last + B + eps.
	CoolDown(ctx context.Context, last clock.Instant) error
}

// Acquire waits for a lease of a class. It is what the lease library's set offers; From adapts it.
type Acquire func(ctx context.Context, class lease.Class) (Lease, error)

// From turns an acquire function that returns the lease library's own type into an Acquire.
func From[L Lease](acquire func(context.Context, lease.Class) (L, error)) Acquire {
	return func(ctx context.Context, class lease.Class) (Lease, error) {
		l, err := acquire(ctx, class)
		if err != nil {
			return nil, err
		}
		return l, nil
	}
}

// Deps are what a pool works with. All are required.
type Deps struct {
	Acquire   Acquire
	Transport transport.Transport
	Clock     clock.Clock
	Log       *slog.Logger
	Metrics   prometheus.Registerer
}

// Pool grants the slots of one channel and ISPB. It holds no slot itself.
type Pool struct {
	cfg  Config
	deps Deps
	log  *slog.Logger
	m    *metrics
}

// New checks the configuration and registers the metrics. It starts nothing.
func New(cfg Config, deps Deps) (*Pool, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("slot pool: %w", err)
	}
	m, err := newMetrics(cfg, deps.Metrics)
	if err != nil {
		return nil, fmt.Errorf("slot pool: %w", err)
	}
	log := deps.Log.With(slog.String("channel", string(cfg.Channel)), slog.String("ispb", string(cfg.ISPB)))
	return &Pool{cfg: cfg, deps: deps, log: log, m: m}, nil
}

// Acquire waits until class is granted a slot and returns it, or the lease library's
// error. Whoever gets a slot owes a Give.
func (p *Pool) Acquire(ctx context.Context, class lease.Class) (*Slot, error) {
	l, err := p.deps.Acquire(ctx, class)
	if err != nil {
		return nil, fmt.Errorf("slot of %s: %w", p.cfg.Channel, err)
	}
	return &Slot{
		pool:  p,
		lease: l,
		id:    transport.SlotID{Channel: p.cfg.Channel, ISPB: p.cfg.ISPB, Slot: l.Slot()},
		since: p.deps.Clock.Now(),
		given: make(chan struct{}),
	}, nil
}
