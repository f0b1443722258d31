package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"regexp"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/lease"
)

var (
	// ErrStuck says that a child has not returned although its leadership is over. The process must end.
	ErrStuck = errors.New("leader: a child outlives its leadership")
	// ErrDeadline is the cause with which a child's context ends when no renewal was confirmed for so long that it must stop now.
	ErrDeadline = errors.New("leader: no renewal confirmed in time")
	// ErrChildEnded is the cause with which the others' contexts end when a child returned without having been told to.
	ErrChildEnded = errors.New("leader: a child ended")
)

// Lease is what an elector needs of a granted lease; *lease.Lease has it. Six methods,
// because holding, stopping in time and giving back are all of it.
type Lease interface {
	// Grant names the grant in logs.
	Grant() string
	// StartDeadline is D, after which the children must stop; it moves with each confirmed renewal.
	StartDeadline() clock.Deadline
	// AbortDeadline is A, by which they must have stopped.
	AbortDeadline() clock.Deadline
	// Lost is closed when the lease is over.
	Lost() <-chan struct{}
	// Err is nil while the lease is held and the cause after.
	Err() error
	// Release gives the lease back; nothing happens to one that is lost.
	Release(ctx context.Context) error
}

// Acquire waits for the lease.
type Acquire func(ctx context.Context) (Lease, error)

// From returns the Acquire of a set made with SetConfig.
func From(set *lease.Set) Acquire {
	return func(ctx context.Context) (Lease, error) {
		l, err := set.Acquire(ctx, lease.Lead)
		if err != nil {
			return nil, err
		}
		return l, nil
	}
}

// SetConfig returns the set of one that elects a leader called name.
func SetConfig(name string) lease.SetConfig {
	return lease.SetConfig{Name: "leader:{" + name + "}", Slots: 1, Floors: map[lease.Class]int{lease.Lead: 1}}
}

// Minter gives each election its term.
type Minter interface {
	// Mint returns a number greater than every one it returned before for name.
	Mint(ctx context.Context, name, owner string) (int64, error)
}

// Child is a singleton: it runs on one replica at a time.
type Child struct {
	// Name for logs.
	Name string
	// Run works until ctx ends and returns soon after: in less than the bank's hold B of the
	// lease. A return before that, with or without an error, ends this leadership.
	Run func(ctx context.Context, term int64) error
}

// Config of an Elector.
type Config struct {
	// Name of the leadership: letters, digits, '.', '_', '-', ':'. Required.
	Name string
	// Owner is what a person reads beside the term: this replica. Required.
	Owner string
	// MintTimeout bounds one call to the minter. Default 3 s.
	MintTimeout time.Duration
	// StopBudget is what children get to return while the lease is still held. Default 4 s.
	StopBudget time.Duration
	// Pause is the least time before competing again after a leadership that failed; up to as
	// much again is added at random. Default 2 s.
	Pause time.Duration
	// ReleaseTimeout bounds giving the lease back. Default 1 s.
	ReleaseTimeout time.Duration
}

// WithDefaults returns a copy in which zero fields have their defaults.
func (c Config) WithDefaults() Config {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&c.MintTimeout, 3*time.Second)
	def(&c.StopBudget, 4*time.Second)
	def(&c.Pause, 2*time.Second)
	def(&c.ReleaseTimeout, time.Second)
	return c
}

var validName = regexp.MustCompile(`^[A-Za-z0-9:._-]{1,64}$`)

// Validate names every value that does not fit.
func (c Config) Validate() error {
	var errs []error
	if !validName.MatchString(c.Name) {
		errs = append(errs, fmt.Errorf("name is %q, want 1 to 64 letters, digits, '.', '_', '-', ':'", c.Name))
	}
	if c.Owner == "" {
		errs = append(errs, errors.New("owner is empty"))
	}
	for _, f := range []struct {
		name string
		d    time.Duration
	}{
		{"MintTimeout", c.MintTimeout},
		{"StopBudget", c.StopBudget},
		{"Pause", c.Pause},
		{"ReleaseTimeout", c.ReleaseTimeout},
	} {
		if f.d < time.Millisecond {
			errs = append(errs, fmt.Errorf("%s is %v, want at least 1ms", f.name, f.d))
		}
	}
	return errors.Join(errs...)
}

// Deps are what an elector works with. All are required.
type Deps struct {
	Acquire Acquire
	Terms   Minter
	Clock   clock.Clock
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Elector competes for one leadership. Make it with New, run it with Run.
type Elector struct {
	cfg      Config
	deps     Deps
	log      *slog.Logger
	met      *metrics
	children []Child

	mu sync.Mutex
	// reign is the current leadership; nil for a follower. changed is closed and replaced when it changes.
	reign   *reign
	changed chan struct{}
}

// New checks cfg and registers the metrics. It starts nothing.
func New(cfg Config, deps Deps, children ...Child) (*Elector, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("leader: %w", err)
	}
	met, err := newMetrics(cfg.Name, deps.Metrics)
	if err != nil {
		return nil, fmt.Errorf("leader: metrics: %w", err)
	}
	return &Elector{
		cfg: cfg, deps: deps, met: met, children: children,
		log: deps.Log.With("leadership", cfg.Name), changed: make(chan struct{}),
	}, nil
}

// Run competes, leads and follows until ctx ends; then it returns nil, the children having
// returned and the lease given back. It returns ErrStuck when a child did not return in
// time, and lease.ErrClosed when the keeper has stopped: in both cases the process must end.
func (e *Elector) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		l, err := e.deps.Acquire(ctx)
		switch {
		case err == nil:
			err = e.hold(ctx, l)
		case ctx.Err() != nil:
			continue
		default:
			err = fmt.Errorf("leader: acquire: %w", err)
		}
		if errors.Is(err, ErrStuck) || errors.Is(err, lease.ErrClosed) {
			return err
		}
		if err != nil && ctx.Err() == nil {
			e.log.ErrorContext(ctx, "following", "error", err)
			_ = clock.Sleep(ctx, e.deps.Clock, e.cfg.Pause+rand.N(e.cfg.Pause)) //nolint:gosec // spreads load; ended by ctx, which the loop sees
		}
	}
	return nil
}

// hold has the lease: it takes a term, leads, and gives the lease back unless somebody still works under it.
func (e *Elector) hold(ctx context.Context, l Lease) error {
	term, err := e.mint(ctx, l)
	if err == nil {
		err = e.lead(ctx, l, term)
	}
	if errors.Is(err, ErrStuck) {
		return err
	}
	give, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.cfg.ReleaseTimeout)
	defer cancel()
	if rerr := l.Release(give); rerr != nil {
		e.log.WarnContext(ctx, "lease not given back, it ends by itself", "grant", l.Grant(), "error", rerr)
	}
	return err
}

// mint takes a term while the lease is held.
func (e *Elector) mint(ctx context.Context, l Lease) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.MintTimeout)
	defer cancel()
	term, err := e.deps.Terms.Mint(ctx, e.cfg.Name, e.cfg.Owner)
	if err != nil {
		return 0, fmt.Errorf("leader: no term: %w", err)
	}
	return term, nil
}
