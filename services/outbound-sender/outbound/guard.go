package outbound

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/transport"
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
	pause clock.Backoff
}

func newGuard(c *channel) *guard {
	return &guard{c: c, doubt: make(chan struct{}, 1), checked: make(chan struct{}), pause: clock.Backoff{First: c.cfg.HaltFirst, Most: c.cfg.HaltMost}}
}

// guardMost is the longest pause between two checks of a transport that is not ready.
const guardMost = 5 * time.Second

// run checks until ctx ends: every so often while all is well, with back-off while it is not, at once when in doubt.
func (g *guard) run(ctx context.Context) {
	pause := clock.Backoff{First: g.c.cfg.BackoffFirst, Most: guardMost}
	last := errNotChecked
	for first := true; ; first = false {
		err := g.c.ready(ctx)
		if ctx.Err() != nil {
			return
		}
		every := g.c.cfg.ReadyEvery
		if err != nil {
			every = pause.Next()
		} else {
			pause.Reset()
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
	pause := g.pause.Next()
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
	g.pause.Reset()
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
	return transport.Usable(ctx, c.deps.Transport, transport.Need{
		Channel: c.name, ISPB: c.cfg.ISPB, Send: true, UserTimeout: c.cfg.UserTimeout,
	})
}
