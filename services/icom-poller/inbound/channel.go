package inbound

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/lease"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/slotpool"
	"github.com/cabine-pix/cabine/libs/transport"
)

// channel is the workers of one channel and what they share.
type channel struct {
	name pix.Channel
	cfg  Config
	deps Deps
	pub  *Publisher
	m    *metrics
	log  *slog.Logger
	gate *gate
	// reigns hands over the contexts of leaderships; see Poller.Lead.
	reigns chan context.Context

	mu     sync.Mutex
	stints map[int]*stint // by slot
}

func newChannel(name pix.Channel, cfg Config, deps Deps, pub *Publisher, m *metrics) *channel {
	c := &channel{
		name: name, cfg: cfg, deps: deps, pub: pub, m: m,
		log:    deps.Log.With(slog.String("channel", string(name))),
		stints: make(map[int]*stint), reigns: make(chan context.Context),
	}
	m.begin(string(name))
	c.gate = newGate(c.ready, cfg, deps.Clock, c.log)
	return c
}

// ready says why a slot would be of no use now.
func (c *channel) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.StoreTimeout)
	defer cancel()
	if err := c.deps.Ping(ctx); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return transport.Usable(ctx, c.deps.Transport, transport.Need{
		Channel: c.name, ISPB: c.cfg.ISPB, Pull: true, UserTimeout: c.cfg.UserTimeout,
	})
}

// poll runs the workers until taking ends and they have given their slots back; working ends what is in flight.
func (c *channel) poll(taking, working context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	guard, endGuard := context.WithCancel(working)
	defer endGuard()
	wg.Go(func() { c.gate.run(guard) })
	if !c.cfg.OnlyLeading {
		c.crew(taking, working)
		return
	}
	for {
		select {
		case leading := <-c.reigns:
			c.reign(leading, taking, working)
		case <-taking.Done():
			return
		}
	}
}

// reign runs the workers for one leadership.
func (c *channel) reign(leading, taking, working context.Context) {
	taking, cancel := context.WithCancel(taking)
	defer cancel()
	stop := context.AfterFunc(leading, cancel)
	defer stop()
	c.log.Info("polling as the leader")
	c.crew(taking, working)
	c.log.Info("no longer polling as the leader")
}

// crew runs N workers until taking ends.
func (c *channel) crew(taking, working context.Context) {
	var wg sync.WaitGroup
	for range c.cfg.Workers[c.name] {
		wg.Go(func() { c.work(taking, working) })
	}
	wg.Wait()
}

// work takes one slot after the other.
func (c *channel) work(taking, working context.Context) {
	retry := clock.Backoff{First: c.cfg.BackoffFirst, Most: c.cfg.BackoffMost}
	for {
		within, leave, err := c.gate.pass(taking)
		if err != nil {
			return
		}
		slot, err := c.deps.Slots[c.name].Acquire(within, lease.Poll)
		closed := within.Err() != nil
		leave()
		switch {
		case taking.Err() != nil && err != nil:
			return
		case closed && err != nil: // while it waited for a slot: back to the gate
			continue
		case errors.Is(err, lease.ErrClosed):
			c.log.Error("no more slots", slog.Any("error", err))
			return
		case err != nil:
			c.log.Warn("no slot", slog.Any("error", err))
			if clock.Sleep(taking, c.deps.Clock, retry.Next()) != nil {
				return
			}
			continue
		}
		if pause := c.serve(taking, working, slot, &retry); pause > 0 && clock.Sleep(taking, c.deps.Clock, pause) != nil {
			return
		}
	}
}

// serve does one stint and gives the slot back. It returns how long the worker should wait before the next.
func (c *channel) serve(taking, working context.Context, slot *slotpool.Slot, retry *clock.Backoff) time.Duration {
	s := &stint{
		c: c, slot: slot, taking: taking, retry: retry,
		log: c.log.With(slog.Int("slot", slot.ID().Slot), slog.String("grant", slot.Grant())),
	}
	c.enter(s)
	why, pause := s.run(working)
	if why.orderly() {
		s.closeStream(working)
	}
	how, err := slot.Give(working)
	c.leave(s)
	attrs := []slog.Attr{slog.String("how", string(how)), slog.String("why", string(why)), slog.Int64("term", s.session.Term)}
	level := slog.LevelInfo
	if err != nil {
		level, attrs = slog.LevelWarn, append(attrs, slog.Any("error", err))
	} else if how != slotpool.Released {
		level = slog.LevelWarn
	}
	s.log.LogAttrs(working, level, "slot given", attrs...)
	return pause
}

func (c *channel) enter(s *stint) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stints[s.slot.ID().Slot] = s
}

func (c *channel) leave(s *stint) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stints[s.slot.ID().Slot] == s {
		delete(c.stints, s.slot.ID().Slot)
	}
}

// Held is one stint, for people.
type Held struct {
	Channel  pix.Channel `json:"channel"`
	ISPB     pix.ISPB    `json:"ispb"`
	Slot     int         `json:"slot"`
	Term     int64       `json:"term"`
	Grant    string      `json:"grant"`
	Since    time.Time   `json:"since"`
	Polls    int64       `json:"polls"`
	LastPoll *time.Time  `json:"last_poll,omitempty"`
	Messages int64       `json:"messages"`
	// LastError is the latest error of the stint, empty after a poll that went well.
	LastError string `json:"last_error,omitempty"`
}

func (c *channel) held() []Held {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]Held, 0, len(c.stints))
	for _, s := range c.stints {
		out = append(out, s.held())
	}
	return out
}
