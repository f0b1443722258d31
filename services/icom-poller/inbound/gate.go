package inbound

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/cabine-pix/cabine/libs/clock"
)

// errNotChecked is the state of a gate that has not looked yet.
var errNotChecked = errors.New("not checked yet")

// gateMost is the longest pause between two checks of a closed gate.
const gateMost = 5 * time.Second

// gate keeps workers from taking slots with which they could do nothing.
type gate struct {
	check func(context.Context) error
	every time.Duration
	first time.Duration
	clk   clock.Clock
	log   *slog.Logger
	doubt chan struct{}

	mu     sync.Mutex
	err    error         // why it is closed; nil: open
	open   chan struct{} // closed while the gate is open
	passed map[*pass]struct{}
}

// pass is a worker that went through the gate and looks for a slot.
type pass struct{ turnBack context.CancelFunc }

func newGate(check func(context.Context) error, cfg Config, clk clock.Clock, log *slog.Logger) *gate {
	return &gate{
		check: check, every: cfg.ReadyEvery, first: cfg.BackoffFirst, clk: clk, log: log,
		doubt: make(chan struct{}, 1), err: errNotChecked, open: make(chan struct{}),
		passed: make(map[*pass]struct{}),
	}
}

// run checks until ctx ends: every so often while open, with back-off while closed, at once when in doubt.
func (g *gate) run(ctx context.Context) {
	pause := clock.Backoff{First: g.first, Most: gateMost}
	for {
		wait := g.every
		err := g.check(ctx)
		if ctx.Err() != nil {
			return
		}
		g.set(err)
		if err != nil {
			wait = pause.Next()
		} else {
			pause.Reset()
		}
		timer := g.clk.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C():
		case <-g.doubt:
		}
		timer.Stop()
	}
}

func (g *gate) set(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	was := g.err
	g.err = err
	switch {
	case err == nil && was != nil:
		close(g.open)
		g.log.Info("ready to poll")
	case err != nil && was == nil:
		g.open = make(chan struct{})
		for p := range g.passed {
			p.turnBack()
		}
	}
	if err != nil && (was == nil || was.Error() != err.Error()) {
		g.log.Warn("not ready to poll", slog.Any("error", err))
	}
}

// suspect closes the gate because of what a worker met, until a check says otherwise.
func (g *gate) suspect(err error) {
	g.set(err)
	select {
	case g.doubt <- struct{}{}:
	default:
	}
}

// state is nil when the gate is open and why it is closed otherwise.
func (g *gate) state() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// pass waits until the gate is open or ctx ends. The context that it returns ends with ctx
// or when the gate closes again; leave ends it as well.
func (g *gate) pass(ctx context.Context) (within context.Context, leave func(), err error) {
	for {
		within, leave, open := g.enter(ctx)
		if within != nil {
			return within, leave, nil
		}
		select {
		case <-open:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
}

// enter is pass without the wait: it returns no context while the gate is closed, and what will be closed when it opens.
func (g *gate) enter(ctx context.Context) (within context.Context, leave func(), open <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil {
		return nil, nil, g.open
	}
	p := &pass{}
	within, p.turnBack = context.WithCancel(ctx)
	g.passed[p] = struct{}{}
	return within, func() { g.leave(p) }, nil
}

func (g *gate) leave(p *pass) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p.turnBack()
	delete(g.passed, p)
}
