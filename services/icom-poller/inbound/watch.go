package inbound

import (
	"context"
	"log/slog"
	"time"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/lease"
)

// watch reads every few seconds who holds the slots, for the gauges, and raises the alarm when
// nobody in the whole system has polled this channel for IdleAlarm. Redis that cannot be
// read counts as nobody: without it nobody gets a permit either.
func (c *channel) watch(ctx context.Context) {
	active := c.deps.Clock.Now() // when a poller was last seen
	alarmed := false
	for {
		polling, err := c.look(ctx)
		now := c.deps.Clock.Now()
		if polling > 0 {
			if alarmed {
				c.log.Info("the channel is polled again")
			}
			active, alarmed = now, false
		}
		idle := now.Elapsed(active)
		c.m.idle.WithLabelValues(string(c.name)).Set(idle.Seconds())
		if idle >= c.cfg.IdleAlarm && !alarmed && ctx.Err() == nil {
			alarmed = true
			c.log.Error("no replica polls this channel",
				slog.Bool("critical", true), slog.Duration("for", idle.Round(time.Second)), slog.Any("error", err))
		}
		if clock.Sleep(ctx, c.deps.Clock, c.cfg.WatchEvery) != nil {
			return
		}
	}
}

// look sets the gauges and returns how many slots are held by pollers.
func (c *channel) look(ctx context.Context) (polling int, err error) {
	holders, err := c.deps.Holders[c.name](ctx)
	if err != nil {
		if ctx.Err() == nil {
			c.log.Debug("slots cannot be read", slog.Any("error", err))
		}
		return 0, err
	}
	held := map[lease.Class]int{lease.Poll: 0, lease.Send: 0}
	cooling := 0
	for _, h := range holders {
		switch {
		case h.Cooling:
			cooling++
		case h.Held():
			held[h.Class]++
		}
	}
	for class, n := range held {
		c.m.permits.WithLabelValues(string(c.name), string(class)).Set(float64(n))
	}
	c.m.cooling.WithLabelValues(string(c.name)).Set(float64(cooling))
	return held[lease.Poll], nil
}
