package cycle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/services/settlement-scheduler/singleton"
)

// Deps are what a Scheduler needs from outside.
type Deps struct {
	Plan    *Plan
	Cycles  *store.Cycles
	Clock   clock.Clock
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Scheduler keeps cycles. It is a leader's child.
type Scheduler struct {
	cfg  Config
	deps Deps
	m    *metrics
}

// New returns a scheduler that has started nothing.
func New(cfg Config, deps Deps) (*Scheduler, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("cycle config: %w", err)
	}
	m, err := newMetrics(deps.Metrics)
	if err != nil {
		return nil, fmt.Errorf("cycle metrics: %w", err)
	}
	return &Scheduler{cfg: cfg, deps: deps, m: m}, nil
}

// Run keeps cycles until ctx ends, or until its term is over: then it fails with store.ErrStaleTerm.
func (s *Scheduler) Run(ctx context.Context, term int64) error {
	by := store.Reign{Name: s.cfg.Leadership, Term: term}
	defer s.m.overdue.Set(0)
	checked := false
	return singleton.Repeat(ctx, s.deps.Clock, s.cfg.Every, func(ctx context.Context) error {
		err := s.step(ctx, by)
		if err == nil && !checked {
			err = s.recheck(ctx)
			checked = err == nil
		}
		return err
	}, s.turned)
}

func (s *Scheduler) turned(err error) {
	if err != nil {
		s.deps.Log.Error("cycles are not kept", slog.Any("error", err))
	} else {
		s.deps.Log.Info("cycles are kept again")
	}
}

// step does whatever is to be done now.
func (s *Scheduler) step(ctx context.Context, by store.Reign) error {
	cycles, now, last, err := s.deps.Cycles.Unclosed(ctx)
	if err != nil {
		return fmt.Errorf("reading cycles: %w", err)
	}
	if windows := s.missing(now, last); len(windows) > 0 {
		opened, err := s.open(ctx, by, windows)
		if err != nil {
			return err
		}
		cycles = append(cycles, opened...)
	}
	var overdue time.Duration
	for _, c := range cycles {
		if !c.ClosesAt.Before(now) {
			break
		}
		done, err := s.finish(ctx, by, c)
		if err != nil {
			return err
		}
		if !done {
			overdue = now.Sub(c.ClosesAt)
			break // the next one waits for it
		}
	}
	s.m.overdue.Set(overdue.Seconds())
	return nil
}

// missing returns the windows that are to be open at an instant and are not: until the current one and the one after it.
func (s *Scheduler) missing(now, last time.Time) []store.Window {
	var windows []store.Window
	var next store.Window
	if last.IsZero() {
		next = s.deps.Plan.After(now)
	} else {
		next = s.deps.Plan.After(last)
	}
	// What begins after now is one ahead: there is one such already, or this is it.
	for !last.After(s.deps.Plan.After(now).ClosesAt) {
		windows = append(windows, next)
		last = next.ClosesAt
		next = s.deps.Plan.After(last)
	}
	return windows
}

func (s *Scheduler) open(ctx context.Context, by store.Reign, windows []store.Window) ([]store.Cycle, error) {
	cycles, err := s.deps.Cycles.Open(ctx, by, windows)
	if err != nil {
		return nil, fmt.Errorf("opening cycles: %w", err)
	}
	for _, c := range cycles {
		s.m.steps.WithLabelValues(opened).Inc()
		s.deps.Log.InfoContext(ctx, "cycle opened", named(c)...)
	}
	return cycles, nil
}

// finish brings a cycle that is over as far as it goes, and answers whether it is closed.
func (s *Scheduler) finish(ctx context.Context, by store.Reign, c store.Cycle) (bool, error) {
	if c.State == store.CycleOpen {
		done, err := s.deps.Cycles.Seal(ctx, by, c.ID, store.Patience{Grace: s.cfg.Grace, Most: s.cfg.Patience})
		if err != nil {
			return false, fmt.Errorf("sealing cycle %d: %w", c.ID, err)
		}
		if !done {
			return false, nil
		}
		s.m.steps.WithLabelValues(sealed).Inc()
	}
	began := s.deps.Clock.Now()
	c, err := s.deps.Cycles.Close(ctx, by, c.ID)
	if err != nil {
		return false, s.judge(fmt.Errorf("closing cycle: %w", err))
	}
	s.m.took.Observe(s.deps.Clock.Now().Elapsed(began).Seconds())
	s.m.steps.WithLabelValues(closed).Inc()
	s.deps.Log.InfoContext(ctx, "cycle closed", append(named(c), slog.Int64("obligations", c.Obligations))...)
	return true, nil
}

// recheck nets again what was closed lately.
func (s *Scheduler) recheck(ctx context.Context) error {
	_, now, _, err := s.deps.Cycles.Unclosed(ctx)
	if err != nil {
		return fmt.Errorf("reading cycles: %w", err)
	}
	cycles, err := s.deps.Cycles.Between(ctx, now.AddDate(0, 0, -s.cfg.Recheck), now)
	if err != nil {
		return fmt.Errorf("reading cycles: %w", err)
	}
	for _, c := range cycles {
		if c.State != store.CycleClosed {
			continue
		}
		var differ *store.DifferError
		if err := s.judge(s.deps.Cycles.Check(ctx, c.ID)); err != nil && !errors.As(err, &differ) {
			return fmt.Errorf("checking cycle %d: %w", c.ID, err)
		}
	}
	return nil
}

// judge tells of lines that differ.
func (s *Scheduler) judge(err error) error {
	var differ *store.DifferError
	if errors.As(err, &differ) {
		s.m.differing.Inc()
		s.deps.Log.Error("a closed cycle does not come to its lines any more", slog.Int64("cycle", differ.CycleID),
			slog.Int("lines", len(differ.Lines)), slog.Any("first", differ.Lines[0]))
	}
	return err
}

func named(c store.Cycle) []any {
	return []any{
		slog.Int64("cycle", c.ID), slog.String("date", c.Date.Format(time.DateOnly)), slog.String("type", c.Type),
		slog.Time("opens_at", c.OpensAt), slog.Time("closes_at", c.ClosesAt),
	}
}
