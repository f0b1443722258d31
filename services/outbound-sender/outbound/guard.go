package outbound

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/cabine-pix/cabine/libs/clock"
)

// guard says whether this replica can send on a channel: the transport is ready, and the bank
// does not refuse how it is asked.
type guard struct {
	c     *channel
	doubt chan struct{}
	// checked is closed after the first look.
	checked chan struct{}

	mu    sync.Mutex
	halt  error          // why the bank refuses, until it accepts a message
	until clock.Deadline // how long nothing is tried meanwhile
	pause backoff
}

func newGuard(c *channel) *guard {
	return &guard{c: c, doubt: make(chan struct{}, 1), checked: make(chan struct{}), pause: backoff{first: c.cfg.HaltFirst, most: c.cfg.HaltMost}}
}

// guardMost is the longest pause between two checks of a transport that is not ready.
const guardMost = 5 * time.Second

// run checks until ctx ends: every so often while all is well, with back-off while it is not, at once when in doubt.
func (g *guard) run(ctx context.Context) {
	pause := backoff{first: g.c.cfg.BackoffFirst, most: guardMost}
	last := errNotChecked
	for first := true; ; first = false {
		err := g.c.ready(ctx)
		if ctx.Err() != nil {
			return
		}
		every := g.c.cfg.ReadyEvery
		if err != nil {
			every = pause.next()
		} else {
			pause.reset()
		}
		every, err = g.tell(every, err)
		g.say(last, err)
		last = err
		if first {
			close(g.checked)
		}
		g.rest(ctx, every)
	}
}

// tell lets the queue know, unless the channel is halted: then it returns why, and for how long.
func (g *guard) tell(every time.Duration, err error) (time.Duration, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.halt != nil {
		if left := g.until.Remaining(g.c.clk.Now()); left > 0 {
			err, every = g.halt, left
		}
	}
	g.c.q.setUnfit(err)
	return every, err
}

func (g *guard) say(last, err error) {
	switch {
	case err == nil && last != nil:
		g.c.log.Info("ready to send")
	case err != nil && (last == nil || last.Error() != err.Error()):
		g.c.log.Warn("not ready to send", slog.Any("error", err))
	}
}

func (g *guard) rest(ctx context.Context, d time.Duration) {
	timer := g.c.clk.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C():
	case <-g.doubt:
	}
}

// suspect asks for a check at once.
func (g *guard) suspect() {
	select {
	case g.doubt <- struct{}{}:
	default:
	}
}

// bar halts the channel and returns for how long.
func (g *guard) bar(err error) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	pause := g.pause.next()
	g.halt, g.until = err, g.c.clk.Now().Deadline(pause)
	g.c.q.probe(true)
	g.c.q.setUnfit(err)
	g.suspect() // so that the pause begins to count
	return pause
}

// halted reports that the bank refuses how it is asked, and has accepted nothing since.
func (g *guard) halted() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.halt != nil
}

// accepted says that the bank took a message, which ends a halt.
func (g *guard) accepted() {
	g.mu.Lock()
	was := g.halt
	g.halt, g.until = nil, clock.Deadline{}
	g.pause.reset()
	g.mu.Unlock()
	if was != nil {
		g.c.q.probe(false)
		g.c.m.halted.WithLabelValues(string(g.c.name)).Set(0)
		g.c.log.Info("the bank accepts messages again")
	}
}

// state is why this replica cannot send now, or may not be able to.
func (g *guard) state() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.halt != nil {
		return g.halt
	}
	return g.c.q.state()
}

// ready says why a permit would be of no use now.
func (c *channel) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.StoreTimeout)
	defer cancel()
	can, err := c.deps.Transport.Capabilities(ctx)
	if err != nil {
		return fmt.Errorf("transport: %w", err)
	}
	if !can.Send || !slices.Contains(can.Channels, c.name) {
		return fmt.Errorf("transport %s %s does not send on this channel", can.Name, can.Version)
	}
	if can.UserTimeout <= 0 || can.UserTimeout > c.cfg.UserTimeout {
		return fmt.Errorf("transport %s %s may deliver for %v what it wrote, want more than 0 and at most lease.user_timeout %v: the bank hold rests on it",
			can.Name, can.Version, can.UserTimeout, c.cfg.UserTimeout)
	}
	if err := c.deps.Transport.Ready(ctx, c.name, c.cfg.ISPB); err != nil {
		return fmt.Errorf("transport: %w", err)
	}
	return nil
}
