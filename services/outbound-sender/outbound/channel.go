package outbound

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/lease"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/slotpool"
)

// ending is why a permit is given back.
type ending string

const (
	idled     ending = "idle"
	yielded   ending = "yield"
	leaseLost ending = "lease lost"
	aborted   ending = "abort"
	tainted   ending = "outcome unknown"
)

// channel is the workers of one channel and what they share.
type channel struct {
	name  pix.Channel
	cfg   Config
	deps  Deps
	clk   clock.Clock
	log   *slog.Logger
	m     *metrics
	q     *queue
	guard *guard
	meter *meter

	// records bounds the outcomes that are not recorded yet: a store that is away stops the sending.
	records   chan struct{}
	recording sync.WaitGroup

	// given counts what stopping gave up: POSTs cut, outcomes not recorded, messages not given back.
	given atomic.Int64

	mu       sync.Mutex
	retry    clock.Backoff // failures in a row
	throttle clock.Backoff // 429 in a row
	refusals int           // messages refused in a row
}

func newChannel(name pix.Channel, cfg Config, deps Deps, m *metrics) *channel {
	workers := cfg.Workers[name]
	c := &channel{
		name: name, cfg: cfg, deps: deps, clk: deps.Clock, m: m,
		log:      deps.Log.With(slog.String("channel", string(name))),
		meter:    newMeter(name, cfg.Traffic, deps.Clock.Now()),
		records:  make(chan struct{}, 2*workers),
		retry:    clock.Backoff{First: cfg.BackoffFirst, Most: cfg.BackoffMost},
		throttle: clock.Backoff{First: cfg.ThrottleFirst, Most: cfg.ThrottleMost},
	}
	c.q = newQueue(deps.Clock, cfg.Groups, cfg.Ahead*workers, c.meter.wait)
	c.guard = newGuard(c)
	m.begin(string(name))
	return c
}

// run works until nothing is left to send after the intake was closed, or working ends. The
// outcomes of POSTs are recorded until they are stored or recording ends.
func (c *channel) run(working, recording context.Context) {
	beside, end := context.WithCancel(working)
	var besides, workers sync.WaitGroup
	besides.Go(func() { c.guard.run(beside) })
	besides.Go(func() { c.sweep(beside) })
	workers.Go(func() { c.make(working) })
	for range c.cfg.Workers[c.name] {
		workers.Go(func() { c.work(working, recording) })
	}
	workers.Wait()
	end()
	besides.Wait()
	c.recording.Wait()
	c.release(recording)
}

// release leaves what is stored and was not sent to the other replicas, at once.
func (c *channel) release(ctx context.Context) {
	left := c.q.rest()
	if len(left) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.StoreTimeout)
	defer cancel()
	counted, others := split(left)
	err := errors.Join(c.deps.Store.Withdraw(ctx, tries(counted), true), c.deps.Store.Release(ctx, msgIDs(others)))
	if err != nil {
		c.given.Add(int64(len(left)))
		c.log.Warn("messages are left to others only after a while", slog.Int("messages", len(left)), slog.Any("error", err))
	}
}

// split tells messages whose coming attempt is counted already from the others.
func split(parcels []*parcel) (counted, others []*parcel) {
	for _, p := range parcels {
		if p.counted.Wall.IsZero() {
			others = append(others, p)
		} else {
			counted = append(counted, p)
		}
	}
	return counted, others
}

// work fetches one permit after the other, whenever one more is of use.
func (c *channel) work(working, recording context.Context) {
	retry := clock.Backoff{First: c.cfg.BackoffFirst, Most: c.cfg.BackoffMost}
	for c.q.want(working) {
		slot, err := c.acquire(working)
		switch {
		case err == nil:
			retry.Reset()
			c.serve(working, recording, slot)
			continue
		case errors.Is(err, errOver):
			c.q.unhand()
			continue
		case errors.Is(err, lease.ErrClosed):
			c.log.Error("no more permits", slog.Any("error", err))
			c.q.unhand()
			return
		case working.Err() == nil:
			c.log.Warn("no permit", slog.Any("error", err))
		}
		c.q.unhand()
		if clock.Sleep(working, c.clk, retry.Next()) != nil {
			return
		}
	}
}

// errOver: a permit is of no use any more.
var errOver = errors.New("nothing is left to send")

// acquire waits for a permit, and no longer than there is something to send or something may still come: a sender that
// stops must not wait for what others hold when it has nothing.
func (c *channel) acquire(working context.Context) (*slotpool.Slot, error) {
	ctx, cancel := context.WithCancelCause(working)
	var watch sync.WaitGroup
	watch.Go(func() {
		if c.q.over(ctx) {
			cancel(errOver)
		}
	})
	slot, err := c.deps.Slots[c.name].Acquire(ctx, lease.Send)
	if err != nil && errors.Is(context.Cause(ctx), errOver) {
		err = errOver
	}
	cancel(nil)
	watch.Wait()
	return slot, err
}

// serve sends under one permit and gives it back.
func (c *channel) serve(working, recording context.Context, slot *slotpool.Slot) {
	log := c.log.With(slog.Int("slot", slot.ID().Slot), slog.String("grant", slot.Grant()))
	log.Debug("permit granted")
	why := c.stint(working, recording, slot)
	how, err := slot.Give(working)
	attrs := []slog.Attr{slog.String("how", string(how)), slog.String("why", string(why))}
	level := slog.LevelInfo
	if err != nil {
		attrs = append(attrs, slog.Any("error", err))
	}
	if err != nil || how != slotpool.Released {
		level = slog.LevelWarn
	}
	log.LogAttrs(working, level, "permit given", attrs...)
}

// stint makes one POST after the other. The permit counts as idle when it begins.
func (c *channel) stint(working, recording context.Context, slot *slotpool.Slot) ending {
	for {
		if why := c.startable(working, slot); why != "" {
			c.q.unhand()
			return why
		}
		batch, why := c.q.take(working, slot, c.cfg.IdleAfter)
		if why != "" {
			return why
		}
		c.post(working, recording, slot, batch)
		c.q.landed()
		if slot.Tainted() {
			return tainted
		}
		c.q.hand()
	}
}

// renewalPause is the pause between two looks at a lease that waits for its renewal.
const renewalPause = 100 * time.Millisecond

// startable waits while renewals fail and the lease is past its start deadline: either the next
// renewal succeeds, or the lease is lost within seconds.
func (c *channel) startable(ctx context.Context, slot *slotpool.Slot) ending {
	for said := false; !slot.Startable(); {
		if why := interrupted(ctx, slot); why != "" {
			return why
		}
		if !said {
			said = true
			c.log.Warn("no POST until the lease is renewed")
		}
		if clock.Sleep(ctx, c.clk, renewalPause) != nil {
			return aborted
		}
	}
	return ""
}

// interrupted is why a permit must be given back, whatever there is to send.
func interrupted(ctx context.Context, g grip) ending {
	if ctx.Err() != nil {
		return aborted
	}
	select {
	case <-g.Lost():
		return leaseLost
	case <-g.Yield():
		return yielded
	default:
		return ""
	}
}
