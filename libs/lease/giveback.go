package lease

import (
	"context"
	"sync"
	"time"
)

// breath is how long a slot that was given back, and that nobody was seen to wait for, may wait
// for an acquire of this process that takes the news along. A release of its own wakes a
// thread on each side.
const breath = 5 * time.Millisecond

// backlog holds which slots of a set were given back and Redis has not heard of, as the
// scripts want it: per slot its number and value.
//
// Nobody waits for Redis to hear of it: the token is dead here, and a key that is not
// deleted ends by itself. Only the order counts. Whoever sends, be it a release or an
// acquire that takes the backlog along, stands in line until Redis has answered for what
// was sent; an acquire that finds nothing to take along leaves the line at once. So no
// acquire overtakes what this process gave back before.
type backlog struct {
	line chan struct{} // one place

	mu      sync.Mutex
	slots   []any
	sending bool // somebody will send them within a breath
}

// add reports whether the caller must see to it that the backlog is sent.
func (b *backlog) add(slot int, value string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.slots = append(b.slots, slot, value)
	alone := !b.sending
	b.sending = true
	return alone
}

// send reports whether there is anything to send, for whoever add told to: what is added
// later is not his any more.
func (b *backlog) send() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sending = false
	return len(b.slots) > 0
}

// take waits until nothing is on its way and returns what is to be sent now. Unless that is
// nothing, done must follow once Redis has answered, or will not.
func (b *backlog) take(ctx context.Context) ([]any, error) {
	select {
	case b.line <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	b.mu.Lock()
	slots := b.slots
	b.slots = nil
	b.mu.Unlock()
	if len(slots) == 0 {
		<-b.line
	}
	return slots, nil
}

func (b *backlog) done(taken []any) {
	if len(taken) > 0 {
		<-b.line
	}
}

// giveBack tells Redis that the slot of a lease that has ended here is free, without waiting
// for the answer: at once if somebody waits for it, otherwise within a breath, or sooner with
// an acquire that takes it along.
func (s *Set) giveBack(ctx context.Context, l *Lease) error {
	asked := l.asked()
	if !s.back.add(l.slot, l.value) && !asked {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	send := func() error {
		if !s.back.send() { // taken along: no reason to stand in line
			return nil
		}
		return s.Flush(ctx)
	}
	if s.k.aside(func() {
		if !asked {
			s.k.pause(breath)
		}
		_ = send() // counted and logged
	}) {
		return nil
	}
	return send()
}

// Flush returns when Redis has heard of everything that was given back before the call, or
// never will: those slots come back when their keys end. Nobody needs it for safety, and
// Keeper.Run does the same before it returns.
func (s *Set) Flush(ctx context.Context) error {
	slots, err := s.back.take(ctx)
	if err != nil || len(slots) == 0 {
		return err
	}
	defer s.back.done(slots)
	if err := s.free(ctx, slots); err != nil {
		s.unheard(ctx, slots, err)
		return err
	}
	return nil
}

// unheard notes that Redis did not hear of slots that were given back.
func (s *Set) unheard(ctx context.Context, slots []any, err error) {
	s.met.unreleased.Add(float64(len(slots) / 2))
	s.k.log.WarnContext(ctx, "slots not given back, they end by themselves", "set", s.cfg.Name, "slots", len(slots)/2, "err", err)
}

// free runs the release script on a context of its own: giving back must not fail
// because the caller was cancelled.
func (s *Set) free(ctx context.Context, slots []any) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.k.cfg.Timing.RenewTimeout)
	defer cancel()
	_, err := s.k.redis.run(ctx, s.k.scripts.release, s.keyArgs, slots...)
	return err
}

// undo takes back an acquire whose outcome is not known, and with it what the acquire took
// along. It runs beside the caller: Redis may be the reason why the caller is in trouble.
func (s *Set) undo(ctx context.Context, l *Lease, taken []any) {
	s.met.undos.Inc()
	slots := make([]any, 0, len(taken)+2*s.cfg.Slots)
	slots = append(slots, taken...)
	for n := 1; n <= s.cfg.Slots; n++ {
		slots = append(slots, n, l.value)
	}
	if !s.k.aside(func() {
		defer s.back.done(taken)
		// Of the acquire alone an error is no news: its key, if there is one, ends by itself after T.
		if err := s.free(ctx, slots); err != nil && len(taken) > 0 {
			s.unheard(ctx, taken, err)
		}
	}) {
		s.back.done(taken)
	}
}
