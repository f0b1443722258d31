package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/drain"
	"github.com/cabine-pix/cabine/libs/telemetry"
)

// Stage is a part's place in the order of stopping, first to last. Starting goes the other way.
type Stage int

// The stages. Each may use what stands below it until it has stopped.
const (
	// Work takes from the bank, from queues or from HTTP: it stops first and gives back what it holds.
	Work Stage = iota
	// Carrying is the process behind the transport; it reports what it wrote last until every slot is given back.
	Carrying
	// Leading ends when the guarded work has returned.
	Leading
	// Renewing of leases goes on until the last one was given back.
	Renewing
	// Messaging is drained, so that what was published is acknowledged.
	Messaging
	// Clients of Redis and Postgres.
	Clients
	// Admin answers health questions until the end.
	Admin
)

// Part is something that lives as long as the service.
type Part struct {
	// Name for logs: a noun.
	Name string
	// Stage is its place in the order of stopping.
	Stage Stage
	// Budget is the most time that ending it may take. Default 5 s.
	Budget time.Duration
	// Start makes it usable before anything of an earlier stage starts. It must not
	// block for long. Optional.
	Start func(ctx context.Context) error
	// Run runs until ctx ends. If it returns earlier, with or without an error, the service stops. Optional.
	Run func(ctx context.Context) error
	// Stop holds what is done before Run's context is cancelled, each step with its own budget. Optional.
	Stop []drain.Phase
	// Close is called after Run has returned. Optional.
	Close func(ctx context.Context) error
}

// ErrEndedAlone is why a service stops when one of its parts returned without having been told to.
var ErrEndedAlone = errors.New("ended although nobody stopped it")

// Runner starts a service's parts, notices when one ends alone, and stops them in order.
// It is the only thing in a service that is stopped by the container.
type Runner struct {
	log  *slog.Logger
	clk  clock.Clock
	cfg  StopConfig
	exit func(int)

	health *telemetry.Health

	mu      sync.Mutex
	parts   []*running
	drain   *drain.Drain
	aborted bool
	// draining is set when stopping begins: from then on the end of a part is no surprise.
	draining bool
	fail     func(error)
}

type running struct {
	Part
	cancel context.CancelFunc // nil before it was started; guarded by Runner.mu
	done   chan struct{}
	err    error // what Run returned; read after done
}

// NewRunner returns a runner without parts. exit ends the process when the watchdog has waited long enough.
func NewRunner(cfg StopConfig, clk clock.Clock, log *slog.Logger, exit func(int)) *Runner {
	return &Runner{log: log, clk: clk, cfg: cfg, exit: exit, health: telemetry.NewHealth(), fail: func(error) {}}
}

// Health returns the service's health, which is not ready once stopping has begun.
func (r *Runner) Health() *telemetry.Health { return r.health }

// Add registers a part. Before Start only.
func (r *Runner) Add(p Part) {
	if p.Budget == 0 {
		p.Budget = 5 * time.Second
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.parts = append(r.parts, &running{Part: p, done: make(chan struct{})})
}

// Phases returns the order of stopping. Within a stage what was added last stops first.
func (r *Runner) Phases() []drain.Phase {
	var phases []drain.Phase
	for _, p := range r.ordered() {
		for _, ph := range p.Stop {
			step := ph.Run
			ph.Run = func(ctx context.Context) error {
				if r.cancelOf(p) == nil {
					return nil // it never worked
				}
				return step(ctx)
			}
			phases = append(phases, ph)
		}
		phases = append(phases, drain.Phase{Name: "end " + p.Name, Budget: p.Budget, Always: true, Run: func(ctx context.Context) error {
			return r.end(ctx, p)
		}})
	}
	return phases
}

// Check reports whether the phases fit into the limits of stopping, with the numbers.
func (r *Runner) Check() error {
	l := drain.Limits{Phases: drain.Total(r.Phases()...), Stop: r.cfg.Timeout, Platform: r.cfg.Platform}
	if err := l.Validate(); err != nil {
		return Misconfigured(fmt.Errorf("stop: %w", err))
	}
	return nil
}

func (r *Runner) ordered() []*running {
	r.mu.Lock()
	defer r.mu.Unlock()
	parts := slices.Clone(r.parts)
	slices.Reverse(parts)
	slices.SortStableFunc(parts, func(a, b *running) int { return cmp.Compare(a.Stage, b.Stage) })
	return parts
}

// Start checks the limits, then starts every part, the last to stop first. fail is told, at
// most once per part, that one ended alone. If a part does not start, those that did are
// ended and the error is returned.
func (r *Runner) Start(ctx context.Context, fail func(error)) error {
	if err := r.Check(); err != nil {
		return err
	}
	parts := r.ordered()
	slices.Reverse(parts)
	d := drain.New(r.log, r.clk, r.Phases()...).WithExit(r.exit)
	r.mu.Lock()
	r.fail, r.drain = fail, d
	if r.aborted {
		r.drain.Abort()
	}
	r.mu.Unlock()
	for _, p := range parts {
		if err := r.start(ctx, p); err != nil {
			_ = r.Stop(context.WithoutCancel(ctx)) // each phase has logged its own failure
			return fmt.Errorf("start %s: %w", p.Name, err)
		}
	}
	return nil
}

func (r *Runner) start(ctx context.Context, p *running) error {
	if p.Start != nil {
		if err := p.Start(ctx); err != nil {
			return err
		}
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx)) //nolint:gosec // called by end
	r.mu.Lock()
	p.cancel = cancel
	r.mu.Unlock()
	if p.Run == nil {
		close(p.done)
		return nil
	}
	go func() {
		defer close(p.done)
		p.err = p.Run(run)
		r.ended(run, p)
	}()
	r.log.Debug("started", "part", p.Name)
	return nil
}

// ended judges the return of a part's Run.
func (r *Runner) ended(ctx context.Context, p *running) {
	r.mu.Lock()
	draining, fail := r.draining, r.fail
	r.mu.Unlock()
	if draining {
		if errors.Is(p.err, context.Canceled) && ctx.Err() != nil {
			p.err = nil
		}
		return
	}
	err := p.err
	if err == nil {
		err = ErrEndedAlone
	}
	// Reported here; what the drain finds is how it ended, which it has.
	p.err = nil
	err = fmt.Errorf("%s: %w", p.Name, err)
	r.log.Error("stopping the service because a part of it ended", "part", p.Name, "error", err)
	fail(err)
}

// end cancels a part's Run, waits for it and closes it.
func (r *Runner) end(ctx context.Context, p *running) error {
	cancel := r.cancelOf(p)
	if cancel == nil { // it never worked
		return r.close(ctx, p)
	}
	cancel()
	select {
	case <-p.done:
		return errors.Join(p.err, r.close(ctx, p))
	case <-ctx.Done():
		// Not closed: what still runs may use it, and the end of the process closes it too.
		return fmt.Errorf("%s has not returned: %w", p.Name, context.Cause(ctx))
	}
}

func (r *Runner) cancelOf(p *running) context.CancelFunc {
	r.mu.Lock()
	defer r.mu.Unlock()
	return p.cancel
}

func (r *Runner) close(ctx context.Context, p *running) error {
	if p.Close == nil {
		return nil
	}
	return p.Close(ctx)
}

// Stop tells the health checks and runs the phases. The end of ctx aborts.
func (r *Runner) Stop(ctx context.Context) error {
	r.mu.Lock()
	r.draining = true
	d := r.drain
	r.mu.Unlock()
	r.health.Drain()
	if d == nil {
		return nil
	}
	return d.Run(ctx)
}

// Abort cuts short whatever only waits; see drain.Drain.
func (r *Runner) Abort() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.aborted = true
	if r.drain != nil {
		r.drain.Abort()
	}
}

// Arm starts the watchdog; the first thing to do when stopping begins.
func (r *Runner) Arm() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.drain != nil {
		r.drain.Arm()
	}
}

// Disarm stops the watchdog: the process is about to end.
func (r *Runner) Disarm() {
	r.mu.Lock()
	d := r.drain
	r.mu.Unlock()
	if d != nil {
		d.Disarm()
	}
}
