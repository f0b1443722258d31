package inbound

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/slotpool"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/libs/transport"
)

// why a stint ended.
type why string

const (
	stopped   why = "stop"
	yielded   why = "yield"
	lost      why = "lease lost"
	aborted   why = "abort"
	unknown   why = "outcome unknown"
	failing   why = "errors"
	staleTerm why = "stale term"
	storeAway why = "store away"
	goOn      why = ""
)

// orderly endings delete the stream: everything delivered is stored, and nobody else has it.
func (w why) orderly() bool { return w == stopped || w == yielded }

// stint is one worker's time with one slot. Only its worker writes; mu guards what held reads.
type stint struct {
	c      *channel
	slot   *slotpool.Slot
	taking context.Context //nolint:containedctx // the stint is bounded by it and outlives no call
	retry  *clock.Backoff
	log    *slog.Logger

	session   store.Session
	failures  int // errors in a row
	malformed int // unreadable answers in a row
	last      Poll
	// durable: the last read of this stint was answered, and what it brought is stored, so that a
	// DELETE, which acknowledges, is allowed. A cursor that was only resumed is not: what the last
	// owner was brought on it may be stored nowhere.
	durable bool

	mu       sync.Mutex
	polls    int64
	messages int64
	pollAt   time.Time
	lastErr  string
}

// run polls until something ends the stint, and says what, and how long the worker should pause after it.
func (s *stint) run(ctx context.Context) (why, time.Duration) {
	if w := s.openSession(ctx); w != goOn {
		return w, 0
	}
	s.last = Poll{Slot: s.slot.ID().Slot, First: true}
	for {
		if w := s.over(ctx); w != goOn {
			return w, 0
		}
		s.last.Now = s.now().Wall
		if w := s.pause(ctx, s.c.cfg.Schedule.Wait(s.last)); w != goOn {
			return w, 0
		}
		if w := s.startable(ctx); w != goOn {
			return w, 0
		}
		began := s.now()
		res, err := s.pull(ctx, began)
		s.last = Poll{Slot: s.last.Slot, Took: s.now().Elapsed(began), Messages: len(res.Messages), Failed: err != nil}
		if err != nil {
			if w, pause := s.failed(ctx, err); w != goOn {
				return w, pause
			}
			continue
		}
		s.failures, s.malformed = 0, 0
		s.retry.Reset()
		if w := s.receive(ctx, res); w != goOn {
			return w, 0
		}
	}
}

// over looks at everything that ends a stint between two polls.
func (s *stint) over(ctx context.Context) why {
	switch {
	case ctx.Err() != nil:
		return aborted
	case s.slot.Err() != nil:
		return lost
	case s.taking.Err() != nil:
		return stopped
	}
	select {
	case <-s.slot.Yield():
		return yielded
	default:
	}
	return goOn
}

// renewalPause is the pause between two looks at a lease that waits for its renewal.
const renewalPause = 100 * time.Millisecond

// startable waits while renewals fail and the lease is past its start deadline. The slot is
// kept: either the next renewal succeeds, or the lease is lost within seconds.
func (s *stint) startable(ctx context.Context) why {
	for said := false; !s.slot.Startable(); {
		if !said {
			said = true
			s.log.Warn("no poll until the lease is renewed")
		}
		if w := s.pause(ctx, renewalPause); w != goOn {
			return w
		}
	}
	return goOn
}

// pause waits for d, or less when something ends the stint.
func (s *stint) pause(ctx context.Context, d time.Duration) why {
	if d <= 0 {
		return goOn
	}
	timer := s.c.deps.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-ctx.Done():
	case <-s.taking.Done():
	case <-s.slot.Lost():
	case <-s.slot.Yield():
	}
	return s.over(ctx)
}

func (s *stint) now() clock.Reading { return s.c.deps.Clock.Now() }

// openSession takes the term. Without it nothing is read: the cursor is not ours.
func (s *stint) openSession(ctx context.Context) why {
	id := s.slot.ID()
	return s.insist(ctx, func(ctx context.Context) error {
		session, err := s.c.deps.Inbox.OpenSession(ctx, id.Channel, id.ISPB, id.Slot, s.c.cfg.Owner)
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.session = session
		s.mu.Unlock()
		s.log = s.log.With(slog.Int64("term", session.Term))
		s.log.Info("slot granted", slog.Bool("resumed", session.Cursor != ""))
		// What the previous owner stored and did not publish goes out before what we receive.
		s.c.pub.gap(streamOf(session))
		return nil
	})
}

// insist repeats an operation of the store for as long as the slot may be kept without it.
func (s *stint) insist(ctx context.Context, do func(context.Context) error) why {
	began := s.now()
	pause := clock.Backoff{First: s.c.cfg.BackoffFirst, Most: time.Second}
	for {
		tryCtx, cancel := context.WithTimeout(ctx, s.c.cfg.StoreTimeout)
		err := do(tryCtx)
		cancel()
		switch {
		case err == nil:
			return goOn
		case errors.Is(err, store.ErrStaleTerm):
			s.log.Warn("another owner reads this stream")
			return staleTerm
		}
		s.note(err)
		s.log.Warn("store does not answer, no further poll", slog.Any("error", err))
		d := pause.Next()
		if s.now().Elapsed(began)+d > s.c.cfg.StoreHold {
			s.c.gate.suspect(err)
			return storeAway
		}
		if w := s.pause(ctx, d); w != goOn {
			// Not orderly: what was delivered is not stored, so the stream must not be deleted.
			if w == lost || w == aborted {
				return w
			}
			return storeAway
		}
	}
}

func (s *stint) pull(ctx context.Context, began clock.Reading) (transport.PullResult, error) {
	s.mu.Lock()
	first := s.polls == 0
	s.polls++
	s.pollAt = began.Wall
	s.mu.Unlock()
	if first {
		s.log.Info("first poll", slog.Time("at", began.Wall))
	}
	opening := s.session.Cursor == ""
	before := s.durable
	s.durable = false // until receive says so
	res, err := s.slot.Pull(ctx, s.session.Cursor, 0)
	if errors.Is(err, transport.NotSent) {
		s.durable = before
	}
	s.c.m.polls.WithLabelValues(string(s.c.name), pollOutcome(len(res.Messages), err)).Inc()
	if err == nil && opening {
		s.log.Info("stream opened")
	}
	return res, err
}

// failed decides what an error of a poll means.
func (s *stint) failed(ctx context.Context, err error) (why, time.Duration) {
	s.note(err)
	if ctx.Err() != nil {
		return aborted, 0
	}
	var e *transport.Error
	if !errors.As(err, &e) {
		e = &transport.Error{Kind: transport.OutcomeUnknown}
	}
	if s.slot.Tainted() {
		s.log.Warn("poll without a known outcome", transport.LogAttr(err))
		if e.Kind == transport.PluginGone {
			s.c.gate.suspect(err)
		}
		s.failures++
		if s.retry.Fresh() {
			s.retry.Next()
			return unknown, 0 // another slot at once; with back-off only if it goes on
		}
		return unknown, s.retry.Next()
	}
	switch e.Kind {
	case transport.Throttled:
		return s.throttled(ctx, err, e.RetryAfter), 0
	case transport.Gone:
		if s.session.Cursor != "" {
			s.log.Warn("stream is gone at the bank, opening a new one", transport.LogAttr(err))
			return s.resetCursor(ctx), 0
		}
	case transport.Malformed:
		return s.unreadable(ctx, err), 0
	case transport.NotSent:
		if w := s.over(ctx); w != goOn {
			return w, 0
		}
		s.c.gate.suspect(err)
	case transport.Rejected, transport.Unavailable:
	case transport.OutcomeUnknown, transport.PluginGone: // tainted, see above
	}
	s.failures++
	pause := s.retry.Next()
	s.log.Warn("poll failed", transport.LogAttr(err), slog.Int("failures", s.failures))
	if s.failures >= s.c.cfg.FailuresPerStint {
		return failing, pause
	}
	return s.pause(ctx, pause), 0
}

// throttled keeps the slot: the stream is ours, and another replica would be throttled as well.
func (s *stint) throttled(ctx context.Context, err error, after time.Duration) why {
	pause := min(max(after, s.retry.Next()), s.c.cfg.ThrottleMost)
	s.c.m.throttled.WithLabelValues(string(s.c.name)).Inc()
	s.log.Error("throttled by the bank", transport.LogAttr(err), slog.Duration("pause", pause))
	return s.pause(ctx, pause)
}

// unreadable asks again for an answer that could not be split into messages. The cursor
// stays, so the bank keeps the messages. After some attempts the stream is given up for a
// new one, on which the bank delivers again what nobody acknowledged.
func (s *stint) unreadable(ctx context.Context, err error) why {
	s.malformed++
	s.c.m.malformed.WithLabelValues(string(s.c.name)).Inc()
	s.log.Error("answer cannot be read", transport.LogAttr(err), slog.Int("attempt", s.malformed))
	if s.malformed%s.c.cfg.MalformedAttempts == 0 {
		s.c.m.abandoned.WithLabelValues(string(s.c.name)).Inc()
		s.log.Error("stream given up after unreadable answers", slog.String("cursor", s.session.Cursor))
		if w := s.resetCursor(ctx); w != goOn {
			return w
		}
	}
	return s.pause(ctx, s.retry.Next())
}

func (s *stint) resetCursor(ctx context.Context) why {
	return s.insist(ctx, func(ctx context.Context) error {
		if err := s.c.deps.Inbox.ResetCursor(ctx, s.session); err != nil {
			return err
		}
		s.session.Cursor = ""
		return nil
	})
}

// receive stores what a poll brought; only then is the next one allowed.
func (s *stint) receive(ctx context.Context, res transport.PullResult) why {
	if len(res.Messages) == 0 && res.Cursor == s.session.Cursor {
		s.durable = true
		return goOn
	}
	batch := s.examine(res)
	var receipt store.Receipt
	tries := 0
	w := s.insist(ctx, func(ctx context.Context) error {
		tries++
		if tries == 2 {
			// The first try may have been committed without our hearing of it: its rows are in
			// the table and will not be returned again.
			s.c.pub.gap(streamOf(s.session))
		}
		var err error
		receipt, err = s.c.deps.Inbox.Receive(ctx, batch)
		return err
	})
	if w != goOn {
		return w
	}
	s.durable = true
	s.session.Cursor = batch.NextCursor
	s.mu.Lock()
	s.messages += int64(len(res.Messages))
	s.lastErr = ""
	s.mu.Unlock()
	for _, id := range receipt.Conflicts {
		s.log.Error("message goes to the dead letters", slog.String("message_id", id),
			slog.String("reason", "its identifier was taken by other content"))
	}
	s.c.m.received(string(s.c.name), batch, receipt, s.now().Wall)
	s.c.pub.offer(streamOf(s.session), receipt.Fresh)
	return goOn
}

// examine sorts the messages into arrivals and dead letters.
func (s *stint) examine(res transport.PullResult) store.Batch {
	batch := store.Batch{Session: s.session, NextCursor: res.Cursor}
	for _, msg := range res.Messages {
		arrival, poison := examine(msg, s.c.cfg.MaxMessageBytes)
		if poison == nil {
			batch.Arrivals = append(batch.Arrivals, arrival)
			continue
		}
		s.log.Error("message goes to the dead letters", slog.String("message_id", poison.MessageID),
			slog.String("reason", poison.Reason), slog.Int("bytes", len(poison.Payload)))
		batch.Poison = append(batch.Poison, *poison)
	}
	return batch
}

// closeStream deletes the stream, which acknowledges its last delivery; so only what is
// stored is deleted. A failure is harmless: the next owner finds the cursor.
func (s *stint) closeStream(ctx context.Context) {
	if s.session.Cursor == "" || !s.durable || s.slot.Err() != nil || s.slot.Tainted() {
		return
	}
	if err := s.slot.CloseStream(ctx, s.session.Cursor, s.c.cfg.CloseTimeout); err != nil {
		s.log.Warn("stream not closed", transport.LogAttr(err))
		if errors.Is(err, transport.PluginGone) {
			s.c.gate.suspect(err)
		}
		return
	}
	s.log.Info("stream closed")
	ctx, cancel := context.WithTimeout(ctx, s.c.cfg.StoreTimeout)
	defer cancel()
	if err := s.c.deps.Inbox.CloseSession(ctx, s.session); err != nil && !errors.Is(err, store.ErrStaleTerm) {
		s.log.Warn("session not closed, the next owner will find its stream gone", slog.Any("error", err))
	}
}

func (s *stint) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastErr = err.Error()
}

func (s *stint) held() Held {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := s.slot.ID()
	h := Held{
		Channel: id.Channel, ISPB: id.ISPB, Slot: id.Slot, Term: s.session.Term, Grant: s.slot.Grant(),
		Since: s.slot.Since().Wall, Polls: s.polls, Messages: s.messages, LastError: s.lastErr,
	}
	if !s.pollAt.IsZero() {
		at := s.pollAt
		h.LastPoll = &at
	}
	return h
}
