package drain

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/cabine-pix/cabine/libs/clock"
)

const (
	// WatchdogSlack is what the watchdog adds to the sum of all budgets.
	WatchdogSlack = 5 * time.Second
	// Linger is how long a phase may take to return once its context is cancelled. It
	// comes out of WatchdogSlack, not out of another phase's budget.
	Linger = 200 * time.Millisecond
)

var (
	// ErrOverrun is the cause with which a phase's context ends at its budget, and the error of that phase.
	ErrOverrun = errors.New("drain: budget spent")
	// ErrAborted is the cause with which a phase's context ends when Abort was called.
	ErrAborted = errors.New("drain: aborted")
)

// Phase is one step of stopping.
type Phase struct {
	// Name for logs and errors: an imperative, "release slots".
	Name string
	// Budget is the most time the phase gets; more than zero.
	Budget time.Duration
	// Always says that the phase keeps its budget when the drain is aborted. For what
	// gives back; phases that only wait leave it false.
	Always bool
	// Waits says that the phase only waits for what a later one ends: a budget that was spent is told and no failure. The
	// later phase fails if it cost something.
	Waits bool
	// Run does it. It returns soon after ctx ends.
	Run func(ctx context.Context) error
}

// Drain runs phases once. Make it with New.
type Drain struct {
	log    *slog.Logger
	clk    clock.Clock
	phases []Phase
	exit   func(code int)

	once     sync.Once
	err      error
	armed    sync.Once
	abort    sync.Once
	aborted  chan struct{}
	disarm   sync.Once
	disarmed chan struct{}
	watchdog sync.WaitGroup
}

// New returns a drain of the given phases, in their order. It starts nothing.
func New(log *slog.Logger, clk clock.Clock, phases ...Phase) *Drain {
	return &Drain{
		log: log, clk: clk, phases: phases, exit: os.Exit,
		aborted: make(chan struct{}), disarmed: make(chan struct{}),
	}
}

// WithExit replaces what the watchdog calls, os.Exit, and returns d. Before Run only.
func (d *Drain) WithExit(exit func(code int)) *Drain {
	d.exit = exit
	return d
}

// Total returns the sum of all budgets.
func (d *Drain) Total() time.Duration { return Total(d.phases...) }

// Total returns the sum of the phases' budgets.
func Total(phases ...Phase) time.Duration {
	var sum time.Duration
	for _, p := range phases {
		sum += p.Budget
	}
	return sum
}

// Abort makes everything that only waits end now. Idempotent, and allowed before Run.
func (d *Drain) Abort() { d.abort.Do(func() { close(d.aborted) }) }

// Aborted is closed by Abort, for work that wants to hear of it directly.
func (d *Drain) Aborted() <-chan struct{} { return d.aborted }

// Disarm stops the watchdog and waits until it has gone. The process is about to end,
// or, in a test, goes on living.
func (d *Drain) Disarm() {
	d.disarm.Do(func() { close(d.disarmed) })
	d.watchdog.Wait()
}

// Run arms the watchdog and runs the phases. It returns after the last one, with the
// joined errors of those that failed, each with its phase's name. The end of ctx counts as Abort.
// Further calls wait for the first and return its error.
func (d *Drain) Run(ctx context.Context) error {
	d.once.Do(func() {
		stop := context.AfterFunc(ctx, d.Abort)
		defer stop()
		d.Arm()
		d.err = d.run(context.WithoutCancel(ctx))
	})
	return d.err
}

// Arm starts the watchdog, which Run does too. Call it first of all when stopping begins:
// whatever happens before Run, a log that nobody reads included, may block. Idempotent.
func (d *Drain) Arm() {
	d.armed.Do(func() {
		limit := d.Total() + WatchdogSlack
		timer := d.clk.NewTimer(limit)
		d.watchdog.Go(func() {
			defer timer.Stop()
			select {
			case <-timer.C():
				d.bite(limit)
			case <-d.disarmed:
			}
		})
	})
}

// bite ends the process, after saying so if the log takes it: a log that blocks may be why we are here.
func (d *Drain) bite(limit time.Duration) {
	said := make(chan struct{})
	go func() {
		defer close(said)
		d.log.Error("still not stopped, ending the process", "limit", limit)
	}()
	select {
	case <-said:
	case <-time.After(Linger):
	}
	d.exit(1)
}

func (d *Drain) run(ctx context.Context) error {
	began := d.clk.Now()
	d.log.Info("stopping", "phases", len(d.phases), "budget", d.Total())
	var errs []error
	for _, p := range d.phases {
		start := d.clk.Now()
		err := d.phase(ctx, p)
		took := d.clk.Now().Elapsed(start)
		if p.Waits && err == ErrOverrun { //nolint:errorlint // nothing else failed
			d.log.Warn("stopping: phase not over in its budget", "phase", p.Name, "took", took)
			continue
		}
		if err != nil {
			d.log.Error("stopping: phase failed", "phase", p.Name, "took", took, "budget", p.Budget, "error", err)
			errs = append(errs, fmt.Errorf("stopping, %s: %w", p.Name, err))
			continue
		}
		d.log.Info("stopping: phase done", "phase", p.Name, "took", took)
	}
	d.log.Info("stopped", "took", d.clk.Now().Elapsed(began), "failed", len(errs))
	return errors.Join(errs...)
}

// phase runs p within its budget and returns when p has, or Linger after its context was cancelled.
func (d *Drain) phase(ctx context.Context, p Phase) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	aborted := d.aborted
	if p.Always {
		aborted = nil
	}
	timer := d.clk.NewTimer(p.Budget)
	defer timer.Stop()
	select {
	case <-aborted:
		cancel(ErrAborted)
	default:
	}
	done := make(chan error, 1)
	go func() { done <- guarded(ctx, p) }()
	select {
	case err := <-done:
		return outcome(ctx, err)
	case <-timer.C():
		cancel(ErrOverrun)
	case <-aborted:
		cancel(ErrAborted)
	}
	timer.Reset(Linger)
	select {
	case err := <-done:
		return outcome(ctx, err)
	case <-timer.C():
		return fmt.Errorf("left behind, it ignores its context: %w", context.Cause(ctx))
	}
}

// outcome turns what a phase returned into its error. One that stopped waiting because it
// was told to is no failure; one that spent its budget is, whatever it returned.
func outcome(ctx context.Context, err error) error {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, ErrOverrun) && err != nil && !errors.Is(err, context.Canceled):
		return fmt.Errorf("%w: %w", ErrOverrun, err)
	case errors.Is(cause, ErrOverrun):
		return ErrOverrun
	case errors.Is(cause, ErrAborted) && (errors.Is(err, context.Canceled) || errors.Is(err, ErrAborted)):
		return nil
	}
	return err
}

func guarded(ctx context.Context, p Phase) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return p.Run(ctx)
}
