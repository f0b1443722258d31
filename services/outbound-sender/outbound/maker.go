package outbound

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
)

// make turns what is waiting into stored, signed messages, until nothing more will come.
func (c *channel) make(ctx context.Context) {
	retry := clock.Backoff{First: c.cfg.BackoffFirst, Most: c.cfg.BackoffMost}
	for {
		ops := c.q.next(ctx)
		if len(ops) == 0 {
			return
		}
		now := c.clk.Now()
		for _, o := range ops {
			c.m.batchWait.WithLabelValues(string(c.name)).Observe(now.Elapsed(o.since).Seconds())
		}
		left, err := c.turn(ctx, ops)
		if len(left) > 0 {
			c.q.back(left)
		}
		if err == nil {
			retry.Reset()
			continue
		}
		pause := retry.Next()
		if ctx.Err() == nil {
			c.log.Warn("no messages made", slog.Int("operations", len(left)), slog.Any("error", err), slog.Duration("pause", pause))
		}
		if clock.Sleep(ctx, c.clk, pause) != nil {
			return
		}
	}
}

// turn makes messages of operations. It returns those that are still in hand.
func (c *channel) turn(ctx context.Context, ops []op) (left []op, err error) {
	hand := handful{ops: ops}
	free, err := c.claim(ctx, hand.ids())
	if err != nil {
		return ops, err
	}
	// What is done, or in a message already, needs nothing more from its delivery.
	c.settled(hand.keep(free)...)
	all, broken := bundles(free, c.cfg.Groups)
	made, unmade, unsigned := c.compose(all)
	for id, why := range unmade {
		broken[id] = why
	}
	if err := c.discard(ctx, broken); err != nil {
		return hand.ops, err
	}
	c.settled(hand.drop(broken)...)
	if unsigned != nil {
		defer func() { err = errors.Join(err, unsigned) }()
	}
	built, err := c.build(ctx, made)
	if err != nil {
		return hand.ops, err
	}
	for i, m := range made {
		if !built[i] {
			continue // somebody else has one of them: claimed again, the rest is free
		}
		mine := hand.take(m.draft.OperationIDs)
		for _, o := range mine {
			m.parcel.since = append(m.parcel.since, o.since)
		}
		c.q.built(len(mine), m.parcel)
		for _, o := range mine {
			o.done(nil)
		}
	}
	return hand.ops, nil
}

// settled answers deliveries of which nothing is left to do.
func (c *channel) settled(ops ...op) {
	if len(ops) == 0 {
		return
	}
	c.q.built(len(ops))
	for _, o := range ops {
		o.done(nil)
	}
}

func (c *channel) claim(ctx context.Context, ids []int64) ([]store.Operation, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.StoreTimeout)
	defer cancel()
	free, _, err := c.deps.Store.Claim(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	return free, nil
}

// made is a signed message that is not stored yet.
type made struct {
	parcel *parcel
	draft  store.Draft
}

// compose builds and signs the messages, all at once. unmade are operations that can be in no
// message and why; unsigned says that signing failed, and leaves its messages out.
func (c *channel) compose(all []*bundle) (messages []made, unmade map[int64]error, unsigned error) {
	type result struct {
		made made
		err  error
	}
	results := make([]result, len(all))
	var wg sync.WaitGroup
	for i, b := range all {
		wg.Go(func() { results[i].made, results[i].err = c.sign(b) })
	}
	wg.Wait()
	unmade = make(map[int64]error)
	for i, r := range results {
		var invalid *iso20022.InvalidError
		switch {
		case r.err == nil:
			messages = append(messages, r.made)
		case !errors.As(r.err, &invalid):
			unsigned = r.err
		case len(all[i].ops) == 1:
			unmade[all[i].ops[0].ID] = r.err
		default:
			singles, bad, err := c.compose(all[i].singles())
			messages, unsigned = append(messages, singles...), errors.Join(unsigned, err)
			for id, why := range bad {
				unmade[id] = why
			}
		}
	}
	return messages, unmade, unsigned
}

// singles takes a bundle apart.
func (b *bundle) singles() []*bundle {
	var out []*bundle
	for _, o := range b.ops {
		o.Alone = true
		one, _ := bundles([]store.Operation{o}, Groups{}) // each was read before
		out = append(out, one...)
	}
	return out
}

func (c *channel) sign(b *bundle) (made, error) {
	var counted clock.Reading
	attempts := 0
	if c.q.flowing() { // its bytes go out right away: the store need not be asked again before that
		counted, attempts = c.clk.Now(), 1
	}
	id, err := pix.NewMsgID(c.cfg.ISPB, rand.Reader)
	if err != nil {
		return made{}, err
	}
	header := iso20022.Header{
		From: c.cfg.ISPB, To: pix.SPI, MsgID: id,
		Created: c.clk.Now().Wall.UTC().Truncate(time.Millisecond),
	}
	plain, err := c.deps.Versions.Build(header, b.document)
	if err != nil {
		return made{}, err
	}
	signed, err := c.deps.Signer.Sign(plain)
	if err != nil {
		return made{}, fmt.Errorf("sign: %w", err)
	}
	msgType := b.document.MsgType()
	ids := make([]int64, len(b.ops))
	for i, o := range b.ops {
		ids[i] = o.ID
	}
	return made{
		parcel: &parcel{
			id: id, msgType: msgType, payload: signed, operations: len(b.ops), attempts: attempts, counted: counted,
		},
		draft: store.Draft{
			Message:      store.Message{MsgID: id, Channel: c.name, MsgType: msgType, Payload: signed, Attempts: attempts},
			OperationIDs: ids,
		},
	}, nil
}

// buildTries is how often a batch is stored before its operations are claimed anew: an answer of
// the store that was lost must not leave its messages to the sweep.
const buildTries = 3

func (c *channel) build(ctx context.Context, messages []made) (built []bool, err error) {
	if len(messages) == 0 {
		return nil, nil
	}
	drafts := make([]store.Draft, len(messages))
	for i, m := range messages {
		drafts[i] = m.draft
	}
	retry := clock.Backoff{First: c.cfg.BackoffFirst, Most: c.cfg.BackoffMost}
	for try := 1; ; try++ {
		built, err = c.buildOnce(ctx, drafts)
		if err == nil || try == buildTries || !errors.Is(err, store.ErrUnavailable) {
			return built, err
		}
		if clock.Sleep(ctx, c.clk, retry.Next()) != nil {
			return nil, err
		}
	}
}

func (c *channel) buildOnce(ctx context.Context, drafts []store.Draft) ([]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.StoreTimeout)
	defer cancel()
	built, err := c.deps.Store.Build(ctx, drafts)
	if err != nil {
		return nil, fmt.Errorf("build: %w", err)
	}
	return built, nil
}

// discard gives up operations that no message can carry. Nothing of them was sent: their payments are rejected.
func (c *channel) discard(ctx context.Context, broken map[int64]error) error {
	for id, why := range broken {
		ctx, cancel := context.WithTimeout(ctx, c.cfg.StoreTimeout)
		err := c.deps.Store.Discard(ctx, id, why.Error())
		cancel()
		if err != nil {
			return fmt.Errorf("discard: %w", err)
		}
		c.m.discarded.WithLabelValues(string(c.name)).Inc()
		c.log.Error("operation cannot be sent", slog.Int64("outbox_id", id), slog.Any("error", why))
	}
	return nil
}

// handful is the operations of one turn that are still in hand. One id may have been delivered twice.
type handful struct{ ops []op }

func (h *handful) ids() []int64 {
	ids := make([]int64, len(h.ops))
	for i, o := range h.ops {
		ids[i] = o.id
	}
	return ids
}

// keep keeps those that are free and returns the others.
func (h *handful) keep(free []store.Operation) []op {
	is := make(map[int64]struct{}, len(free))
	for _, o := range free {
		is[o.ID] = struct{}{}
	}
	return h.part(func(id int64) bool { _, ok := is[id]; return !ok })
}

// drop takes out those that are broken.
func (h *handful) drop(broken map[int64]error) []op {
	return h.part(func(id int64) bool { _, ok := broken[id]; return ok })
}

// take takes out those with these ids.
func (h *handful) take(ids []int64) []op {
	is := make(map[int64]struct{}, len(ids))
	for _, id := range ids {
		is[id] = struct{}{}
	}
	return h.part(func(id int64) bool { _, ok := is[id]; return ok })
}

// part takes out what out says.
func (h *handful) part(out func(int64) bool) (taken []op) {
	var kept []op
	for _, o := range h.ops {
		if out(o.id) {
			taken = append(taken, o)
		} else {
			kept = append(kept, o)
		}
	}
	h.ops = kept
	return taken
}
