package slotpool

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/lease"
	"github.com/cabine-pix/cabine/libs/transport"
)

// Invariants of a slot:
//   - at most one call of the transport is under way;
//   - no call starts at or after D, none after an unsettled one, none after Give began;
//   - the lease is given back exactly once, after the last call's ending is known or counted as unknown.

// Ending says how a slot was given back.
type Ending string

// The endings.
const (
	// Released: free at once, the bank has nothing of ours in progress.
	Released Ending = "released"
	// Cooled: closed until the bank has certainly finished.
	Cooled Ending = "cooled"
	// Lost: the lease had died before; it ends by itself in Redis.
	Lost Ending = "lost"
)

// Slot is one granted lease with its connection. It is safe for concurrent use.
type Slot struct {
	pool  *Pool
	lease Lease
	id    transport.SlotID
	since clock.Reading

	mu      sync.Mutex
	running clock.Deadline // D of the call under way
	busy    bool
	closed  bool          // Give has begun
	taint   clock.Instant // s+ of the call that did not settle; zero: clean
	cause   string        // why it is tainted
	settled clock.Reading // when the last settled call ended

	once   sync.Once
	given  chan struct{} // closed when Give is over
	ending Ending
	err    error
}

// ID names the slot.
func (s *Slot) ID() transport.SlotID { return s.id }

// Grant is the opaque name of the lease's grant.
func (s *Slot) Grant() string { return s.lease.Grant() }

// Class is the class that the slot was granted to.
func (s *Slot) Class() lease.Class { return s.lease.Class() }

// Since is when the slot was granted.
func (s *Slot) Since() clock.Reading { return s.since }

// Yield is closed when the slot should go to somebody else: end the current request, then Give.
func (s *Slot) Yield() <-chan struct{} { return s.lease.Yield() }

// Lost is closed when the lease is over: make no request and Give.
func (s *Slot) Lost() <-chan struct{} { return s.lease.Lost() }

// Err is nil while the lease is held and the cause after it was lost.
func (s *Slot) Err() error { return s.lease.Err() }

func (s *Slot) dead() bool { return s.lease.Err() != nil }

// Startable reports whether a request could start now as far as the lease is concerned. While
// renewals fail a lease passes its start deadline some seconds before it is lost, and a
// renewal that succeeds after all makes it startable again: until then a holder waits.
func (s *Slot) Startable() bool {
	return !s.dead() && !s.lease.StartDeadline().Passed(s.pool.deps.Clock.Now())
}

// Tainted reports that a call did not settle, so that the slot serves no further request.
func (s *Slot) Tainted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.taint.IsZero()
}

// Pull reads from the slot's stream; see transport.PullRequest. A timeout of zero, or one
// above the pool's ReceiveTimeout, means the pool's. Errors are the transport's; NotSent
// also covers a start deadline that has passed, a slot in use, tainted or given back.
func (s *Slot) Pull(ctx context.Context, cursor string, timeout time.Duration) (transport.PullResult, error) {
	return call(ctx, s, "pull", timeout, func(ctx context.Context, p transport.Permit, t time.Duration) (transport.PullResult, transport.Exchange, error) {
		res, err := s.pool.deps.Transport.Pull(ctx, transport.PullRequest{Permit: p, Cursor: cursor, Timeout: t})
		return res, res.Exchange, err
	})
}

// Send posts messages; see transport.SendRequest. Timeout and errors as in Pull.
func (s *Slot) Send(ctx context.Context, messages [][]byte, timeout time.Duration) (transport.SendResult, error) {
	return call(ctx, s, "send", timeout, func(ctx context.Context, p transport.Permit, t time.Duration) (transport.SendResult, transport.Exchange, error) {
		res, err := s.pool.deps.Transport.Send(ctx, transport.SendRequest{Permit: p, Messages: messages, Timeout: t})
		return res, res.Exchange, err
	})
}

// CloseStream ends the stream at cursor, which acknowledges its last delivery. Timeout and errors as in Pull.
func (s *Slot) CloseStream(ctx context.Context, cursor string, timeout time.Duration) error {
	_, err := call(ctx, s, "close", timeout, func(ctx context.Context, p transport.Permit, t time.Duration) (transport.CloseResult, transport.Exchange, error) {
		res, err := s.pool.deps.Transport.CloseStream(ctx, transport.CloseRequest{Permit: p, Cursor: cursor, Timeout: t})
		return res, res.Exchange, err
	})
	return err
}

type request[R any] func(context.Context, transport.Permit, time.Duration) (R, transport.Exchange, error)

// call is the path of every request: permit, call, outcome.
func call[R any](ctx context.Context, s *Slot, kind string, timeout time.Duration, do request[R]) (R, error) {
	cfg := s.pool.cfg
	if timeout <= 0 || timeout > cfg.ReceiveTimeout {
		timeout = cfg.ReceiveTimeout
	}
	permit, started, err := s.begin()
	if err != nil {
		s.pool.m.calls.WithLabelValues(kind, outcomeOf(err)).Inc()
		var none R
		return none, err
	}
	ctx, stop := s.limit(ctx, permit.NotAfter.Remaining(started)+timeout+cfg.Margin)
	res, x, err := do(ctx, permit, timeout)
	stop()
	s.end(kind, permit, x, err)
	if !errors.Is(err, transport.NotSent) {
		s.lease.Served()
	}
	s.pool.m.calls.WithLabelValues(kind, outcomeOf(err)).Inc()
	return res, err
}

// begin decides whether a request may start now and marks the slot busy.
func (s *Slot) begin() (transport.Permit, clock.Reading, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	refuse := func(reason string) (transport.Permit, clock.Reading, error) {
		return transport.Permit{}, clock.Reading{}, &transport.Error{Kind: transport.NotSent, Reason: reason}
	}
	switch {
	case s.closed:
		return refuse("the slot was given back")
	case s.busy:
		return refuse("the slot has a request under way")
	case !s.taint.IsZero():
		return refuse("the slot must cool down: " + s.cause)
	}
	d := s.lease.StartDeadline()
	now := s.pool.deps.Clock.Now()
	if s.dead() || d.Passed(now) {
		s.pool.m.stale.WithLabelValues("host").Inc()
		return refuse("the start deadline has passed")
	}
	s.pool.m.margin.Observe(d.Remaining(now).Seconds())
	s.busy, s.running = true, d
	return transport.Permit{Slot: s.id, Grant: s.lease.Grant(), NotAfter: d}, now, nil
}

// errLimit is the cause of a call that was cancelled because the transport did not end it in time.
var errLimit = errors.New("slotpool: the transport did not end the call in time")

// limit returns a context that ends d from now, by the pool's clock.
func (s *Slot) limit(ctx context.Context, d time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := s.pool.deps.Clock.NewTimer(d)
	over := make(chan struct{})
	go func() {
		select {
		case <-timer.C():
			cancel(errLimit)
		case <-over:
		}
	}()
	return ctx, func() {
		timer.Stop()
		close(over)
		cancel(nil)
	}
}

// end judges what the call left at the bank.
func (s *Slot) end(kind string, permit transport.Permit, x transport.Exchange, err error) {
	at, open := lastFirstByte(x, err, permit.NotAfter)
	now := s.pool.deps.Clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy, s.running = false, clock.Deadline{}
	if wrote := firstByte(x, err); wrote >= permit.NotAfter.Boot && !wrote.IsZero() {
		s.pool.m.lateWrites.Inc()
		s.pool.log.Error("first byte written past the start deadline", slog.String("call", kind), slog.Int("slot", s.id.Slot),
			slog.Duration("late", wrote.Sub(permit.NotAfter.Boot)))
	}
	if errors.Is(err, transport.NotSent) && permit.NotAfter.Passed(now) {
		s.pool.m.stale.WithLabelValues("transport").Inc()
	}
	if !open {
		s.settled = now
		return
	}
	s.taint, s.cause = max(s.taint, at), outcomeOf(err)
}

// lastFirstByte is transport.LastFirstByte, made safe against answers that contradict themselves.
func lastFirstByte(x transport.Exchange, err error, notAfter clock.Deadline) (clock.Instant, bool) {
	if err == nil {
		if x.Complete {
			return 0, false
		}
		return max(x.FirstByte, notAfter.Boot), true
	}
	at, open := transport.LastFirstByte(err, notAfter)
	if !open && errors.Is(err, transport.OutcomeUnknown) && firstByte(x, err).IsZero() {
		return notAfter.Boot, true
	}
	return at, open
}

func firstByte(x transport.Exchange, err error) clock.Instant {
	var e *transport.Error
	if errors.As(err, &e) {
		return e.Exchange.FirstByte
	}
	return x.FirstByte
}

// Give gives the slot back: the connection is closed, then the lease is released, cooled
// down or, if it was lost, left alone. It works even when ctx has ended, bounded by the
// pool's GiveTimeout. It is idempotent: later calls wait for the first and return what it
// returned. A call still under way counts as one whose outcome is unknown. The error says
// that Redis could not be told; the lease then ends by itself.
func (s *Slot) Give(ctx context.Context) (Ending, error) {
	s.once.Do(func() {
		defer close(s.given)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.pool.cfg.GiveTimeout)
		defer cancel()
		s.ending, s.err = s.give(ctx)
		s.pool.m.given.WithLabelValues(string(s.ending)).Inc()
	})
	<-s.given
	return s.ending, s.err
}

// midCall is the cause of a slot that was given back while a call was under way.
const midCall = "given back in mid-call"

func (s *Slot) give(ctx context.Context) (Ending, error) {
	s.mu.Lock()
	s.closed = true
	if s.busy {
		s.taint, s.cause = max(s.taint, s.running.Boot), midCall
	}
	last, cause, settled := s.taint, s.cause, s.settled
	s.mu.Unlock()

	s.disconnect(ctx)
	if s.dead() {
		return Lost, nil
	}
	if !last.IsZero() {
		s.pool.m.coolDowns.WithLabelValues(cause).Inc()
		return Cooled, s.lease.CoolDown(ctx, last)
	}
	if rest := s.pool.cfg.Linger - s.pool.deps.Clock.Now().Elapsed(settled); settled != (clock.Reading{}) && rest > 0 {
		// The wait ends early only with Give's own budget; the release is due all the same.
		_ = clock.Sleep(ctx, s.pool.deps.Clock, rest)
	}
	return Released, s.lease.Release(ctx)
}

func (s *Slot) disconnect(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.pool.cfg.DisconnectTimeout)
	defer cancel()
	if err := s.pool.deps.Transport.Disconnect(ctx, s.id); err != nil {
		s.pool.log.Warn("connection not closed", slog.Int("slot", s.id.Slot), slog.Any("error", err))
	}
}
