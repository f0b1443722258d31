package outbound

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/slotpool"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/libs/transport"
)

// post sends one batch and sees to its outcome.
func (c *channel) post(working, recording context.Context, slot *slotpool.Slot, batch []*parcel) {
	select {
	case c.records <- struct{}{}:
	case <-working.Done():
		c.q.again(batch)
		return
	}
	batch = c.count(working, batch)
	if len(batch) == 0 {
		<-c.records
		return
	}
	payloads, operations := make([][]byte, len(batch)), 0
	now := c.clk.Now()
	for i, p := range batch {
		payloads[i] = p.payload
		operations += p.operations
		for _, since := range p.since {
			c.m.wait.WithLabelValues(string(c.name), p.msgType).Observe(now.Elapsed(since).Seconds())
		}
		p.since = nil // a resend is no wait
	}
	res, err := slot.Send(working, payloads, 0)
	v := judge(err)
	took := c.clk.Now().Elapsed(now)
	if v != unwritten {
		c.m.tokens.WithLabelValues(string(c.name)).Set(c.meter.debit(now, batch))
		c.m.batch.WithLabelValues(string(c.name)).Observe(float64(len(batch)))
		c.m.operations.WithLabelValues(string(c.name)).Observe(float64(operations))
		c.m.took.WithLabelValues(string(c.name)).Observe(took.Seconds())
	}
	c.m.posts.WithLabelValues(string(c.name), string(v)).Inc()
	c.settle(working, recording, v, batch, res.ResourceIDs, err)
}

// count counts the attempt of each message by compare-and-set and returns those that are ours to
// send. What was counted when it was stored is not counted again, as long as nobody can have taken
// it for left behind. After an error nobody knows what was counted: the messages are left to the sweep.
func (c *channel) count(ctx context.Context, batch []*parcel) []*parcel {
	now := c.clk.Now()
	var mine, ask, others []*parcel
	for _, p := range batch {
		if !p.counted.Wall.IsZero() && now.Elapsed(p.counted) < c.cfg.Resend.LostAfter/2 {
			mine = append(mine, p)
		} else {
			ask = append(ask, p)
		}
		p.counted = clock.Reading{}
	}
	if len(ask) == 0 {
		return mine
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.StoreTimeout)
	defer cancel()
	ours, err := c.deps.Store.Attempt(ctx, tries(ask))
	if err != nil {
		c.q.forget(ask)
		c.storeAway(err)
		return mine
	}
	for i, p := range ask {
		if ours[i] {
			p.attempts++
			mine = append(mine, p)
		} else {
			others = append(others, p)
		}
	}
	if len(others) > 0 {
		c.q.forget(others)
		c.log.Info("messages are sent by somebody else", slog.Int("messages", len(others)))
	}
	return mine
}

func tries(batch []*parcel) []store.Try {
	out := make([]store.Try, len(batch))
	for i, p := range batch {
		out[i] = store.Try{MsgID: p.id, Attempts: p.attempts}
	}
	return out
}

// settle decides by the verdict how the channel goes on, and records it beside the next POST.
func (c *channel) settle(working, recording context.Context, v verdict, batch []*parcel, resources []string, err error) {
	if v == declined && c.guard.halted() {
		v = barred // what was refused in a row is not the messages' fault, and one refusal more proves nothing against this one
	}
	if v == declined && len(batch) > 1 {
		for _, p := range batch {
			p.alone = true
		}
		c.log.Warn("the bank refused a batch, its messages go one by one", slog.Int("messages", len(batch)), transport.LogAttr(err))
		c.putBack(recording, batch, false)
		return
	}
	for _, p := range batch {
		c.m.messages.WithLabelValues(string(c.name), p.msgType, string(v)).Inc()
	}
	switch v {
	case stored:
		c.accepted()
		c.conclude(recording, "sent", batch, func(ctx context.Context) error {
			return c.deps.Store.Sent(ctx, receipts(batch, resources))
		})
	case declined:
		c.refused(batch[0], err)
		c.conclude(recording, "refused", batch, func(ctx context.Context) error {
			contradicted, failed := c.deps.Store.Refused(ctx, msgIDs(batch), reason(err))
			c.contradicted(contradicted)
			return failed
		})
	case unknown:
		if working.Err() != nil {
			c.given.Add(1)
		}
		c.failed(working, "messages without a known outcome", err, len(batch))
		c.conclude(recording, "unknown", batch, func(ctx context.Context) error {
			return c.deps.Store.Unknown(ctx, msgIDs(batch), reason(err))
		})
	case throttled:
		c.throttled(err, len(batch))
		c.putBack(recording, batch, false)
	case barred:
		c.halt(err, len(batch))
		c.putBack(recording, batch, true)
	case slow, unwritten:
		c.failed(working, "messages not sent", err, len(batch))
		c.putBack(recording, batch, false)
	}
}

// receipts puts the bank's identifiers to the messages. A list of another length fits none of them.
func receipts(batch []*parcel, resources []string) []store.Posted {
	out := make([]store.Posted, len(batch))
	for i, p := range batch {
		out[i].MsgID = p.id
		if len(resources) == len(batch) {
			out[i].ResourceID = resources[i]
		}
	}
	return out
}

func msgIDs(batch []*parcel) []pix.MsgID {
	out := make([]pix.MsgID, len(batch))
	for i, p := range batch {
		out[i] = p.id
	}
	return out
}

// conclude records an outcome, after which the messages are in nobody's hand.
func (c *channel) conclude(recording context.Context, what string, batch []*parcel, do func(context.Context) error) {
	c.record(recording, what, batch, do, func() { c.q.forget(batch) })
}

// putBack records that the bank stored nothing of a batch, which then is ready again. With
// release other replicas may have it at once, and here others go before it: a message that keeps the channel halted must
// not be the only one that tries. It is tried once: after an error it may be done, and done
// again it would take back the attempt of whoever has the message by then. What is not taken back
// counts as unknown for whoever finds it.
func (c *channel) putBack(recording context.Context, batch []*parcel, release bool) {
	counted := tries(batch)
	var failed error
	c.record(recording, "nothing stored", batch, func(ctx context.Context) error {
		failed = c.deps.Store.Withdraw(ctx, counted, release)
		return nil
	}, func() {
		if failed != nil {
			c.log.Error("attempts that stored nothing are not taken back", slog.Int("messages", len(batch)), slog.Any("error", failed))
			c.q.forget(batch)
			return
		}
		for _, p := range batch {
			p.attempts--
		}
		if release {
			c.q.behind(batch)
		} else {
			c.q.again(batch)
		}
	})
}

// recordTries is how often an outcome is offered to a store that refuses it.
const recordTries = 5

// record stores an outcome beside the next POST. A store that is away is asked until it answers or
// recording ends. What is not recorded counts as unknown for whoever finds the message.
func (c *channel) record(recording context.Context, what string, batch []*parcel, do func(context.Context) error, then func()) {
	c.recording.Go(func() {
		defer func() { <-c.records }()
		retry := clock.Backoff{First: c.cfg.BackoffFirst, Most: c.cfg.BackoffMost}
		for refusals := 0; ; {
			ctx, cancel := context.WithTimeout(recording, c.cfg.StoreTimeout)
			err := do(ctx)
			cancel()
			if err == nil {
				then()
				return
			}
			c.log.Error("outcome of a POST not recorded", slog.String("outcome", what), slog.Int("messages", len(batch)), slog.Any("error", err))
			if !errors.Is(err, store.ErrUnavailable) && recording.Err() == nil {
				refusals++
			}
			if refusals == recordTries {
				c.m.unrecorded.WithLabelValues(string(c.name)).Inc()
				c.q.forget(batch)
				return
			}
			if clock.Sleep(recording, c.clk, retry.Next()) != nil {
				c.given.Add(1)
				return
			}
		}
	})
}

// accepted notes that the bank takes messages.
func (c *channel) accepted() {
	c.mu.Lock()
	c.retry.Reset()
	c.throttle.Reset()
	c.refusals = 0
	c.mu.Unlock()
	c.guard.accepted()
}

// failed backs off after a POST that may be repeated.
func (c *channel) failed(working context.Context, what string, err error, messages int) {
	if working.Err() != nil {
		return // cut by ourselves
	}
	c.mu.Lock()
	pause := c.retry.Next()
	c.mu.Unlock()
	c.q.hold(pause, what)
	c.guard.suspect()
	c.log.Warn("POST failed", slog.String("outcome", what), transport.LogAttr(err), slog.Int("messages", messages), slog.Duration("pause", pause))
}

// storeAway backs off because nothing can be stored.
func (c *channel) storeAway(err error) {
	c.mu.Lock()
	pause := c.retry.Next()
	c.mu.Unlock()
	c.q.hold(pause, "store away")
	c.log.Warn("store does not answer, nothing is sent", slog.Any("error", err), slog.Duration("pause", pause))
}

// throttled makes the whole channel wait, as the bank counts the participant and not the request.
func (c *channel) throttled(err error, messages int) {
	var e *transport.Error
	var after time.Duration
	if errors.As(err, &e) {
		after = e.RetryAfter
	}
	c.mu.Lock()
	pause := min(max(after, c.throttle.Next()), c.cfg.ThrottleMost)
	c.mu.Unlock()
	c.q.hold(pause, "throttled")
	c.m.throttled.WithLabelValues(string(c.name)).Inc()
	c.log.Error("throttled by the bank", transport.LogAttr(err), slog.Int("messages", messages), slog.Duration("pause", pause))
}

// refused notes a message that the bank will never take. Several in a row are no fault of the messages.
func (c *channel) refused(p *parcel, err error) {
	c.m.refused.WithLabelValues(string(c.name)).Inc()
	c.log.Error("message refused by the bank", slog.String("msg_id", string(p.id)), slog.String("msg_type", p.msgType), transport.LogAttr(err))
	c.mu.Lock()
	c.refusals++
	tooMany := c.refusals >= c.cfg.RefusalsInARow
	c.mu.Unlock()
	if tooMany {
		c.halt(fmt.Errorf("%d messages refused in a row: %w", c.cfg.RefusalsInARow, err), 0)
	}
}

// contradicted tells of payments that the SPI settled, and whose only message the bank says it refused.
func (c *channel) contradicted(payments []string) {
	if len(payments) > 0 {
		c.m.contradictions.WithLabelValues(string(c.name)).Add(float64(len(payments)))
		c.log.Error("the bank refused what the SPI has settled", slog.Any("payments", payments))
	}
}

// halt stops the channel because the bank refuses how it is asked.
func (c *channel) halt(err error, messages int) {
	pause := c.guard.bar(fmt.Errorf("the bank refuses our requests: %w", err))
	c.m.halted.WithLabelValues(string(c.name)).Set(1)
	c.log.Error("channel halted", transport.LogAttr(err), slog.Int("messages", messages), slog.Duration("pause", pause))
}
