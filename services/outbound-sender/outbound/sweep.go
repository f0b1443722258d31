package outbound

import (
	"context"
	"errors"
	"log/slog"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
)

// sweep looks for messages that are due again, until ctx ends: those without a known outcome after
// their pause, and those that a sender left behind.
func (c *channel) sweep(ctx context.Context) {
	retry := clock.Backoff{First: c.cfg.BackoffFirst, Most: c.cfg.BackoffMost}
	pause := c.cfg.Resend.Every
	for clock.Sleep(ctx, c.clk, pause) == nil {
		pause = c.cfg.Resend.Every
		if err := errors.Join(c.uncount(ctx), c.look(ctx)); err != nil && ctx.Err() == nil {
			pause = max(pause, retry.Next())
			c.log.Warn("resends cannot be read", slog.Any("error", err))
			continue
		}
		retry.Reset()
	}
}

// uncount takes back the attempts of messages that wait for their POST for so long that other
// senders would soon think that they had been sent.
func (c *channel) uncount(ctx context.Context) error {
	old := c.q.stale(c.cfg.Resend.LostAfter / 2)
	if len(old) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.StoreTimeout)
	defer cancel()
	if err := c.deps.Store.Withdraw(ctx, tries(old), false); err != nil {
		c.q.forget(old)
		return err
	}
	for _, p := range old {
		p.attempts--
		p.counted = clock.Reading{}
	}
	c.q.again(old)
	return nil
}

func (c *channel) look(ctx context.Context) error {
	room := c.q.room()
	if room == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.StoreTimeout)
	defer cancel()
	r := c.cfg.Resend
	due, err := c.deps.Store.Due(ctx, c.name, store.Resend{
		First: r.First, Most: r.Most, Attempts: r.Attempts, LostAfter: r.LostAfter,
	}, room)
	if err != nil || len(due) == 0 {
		return err
	}
	parcels := make([]*parcel, len(due))
	states := make(map[pix.MsgID]store.MessageState, len(due))
	for i, m := range due {
		states[m.MsgID] = m.State
		parcels[i] = &parcel{
			id: m.MsgID, msgType: m.MsgType, payload: m.Payload, attempts: m.Attempts, operations: len(m.Operations),
		}
	}
	// What is in hand here is not left behind, however long its permit or its record takes.
	return c.resend(ctx, c.q.adopt(parcels), states)
}

// resend makes adopted messages ready. One that its sender left behind is unknown from now on.
func (c *channel) resend(ctx context.Context, parcels []*parcel, states map[pix.MsgID]store.MessageState) error {
	if len(parcels) == 0 {
		return nil
	}
	var lost []pix.MsgID
	for _, p := range parcels {
		if states[p.id] == store.MessageBuilt && p.attempts > 0 {
			lost = append(lost, p.id)
		}
		c.m.resends.WithLabelValues(string(c.name), string(states[p.id])).Inc()
	}
	if len(lost) > 0 {
		if err := c.deps.Store.Unknown(ctx, lost, "its sender recorded no outcome"); err != nil {
			c.q.forget(parcels)
			return err
		}
	}
	c.log.Info("sending again", slog.Int("messages", len(parcels)), slog.Int("left_behind", len(lost)))
	c.q.again(parcels)
	return nil
}
