package lease

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"strings"
	"sync"

	"github.com/cabine-pix/cabine/libs/clock"
)

// LostError is why a lease is no longer held.
type LostError struct{ Cause Cause }

// Cause names a way to lose a lease.
type Cause string

// The causes.
const (
	// Expired: no renewal was confirmed in time. Redis may still hold the key for a moment; we do not trust it.
	Expired Cause = "expired"
	// Taken: Redis no longer knows the grant.
	Taken Cause = "taken"
	// Stopped: the keeper ended while the lease was held; its key ends by itself.
	Stopped Cause = "stopped"
	// GivenBack: Release or CoolDown was called.
	GivenBack Cause = "given back"
)

// Error implements error.
func (e *LostError) Error() string { return "lease: no longer held: " + string(e.Cause) }

// cooling stands where a token would, in the value of a slot that cools down.
const cooling = "cooling"

// Lease is one granted slot. It is safe for concurrent use.
type Lease struct {
	set   *Set
	class Class
	token string
	value string // what the slot's key holds
	slot  int    // fixed once adopted

	mu sync.Mutex
	// sentAt is the reading taken just before the last confirmed acquire or renewal was sent.
	sentAt clock.Reading
	ended  Cause // empty while held
	served bool
	wanted bool

	lost  chan struct{} // closed when ended is set
	yield chan struct{} // closed when wanted and served
}

func newLease(s *Set, class Class) *Lease {
	var b [16]byte
	rand.Read(b[:]) // never fails since Go 1.24
	value := make([]byte, 0, 128)
	value = hex.AppendEncode(value, b[:])
	value = append(append(value, ' '), class...)
	value = append(append(value, ' '), s.k.cfg.Replica...)
	value = append(append(value, ' '), s.k.cfg.Owner...)
	text := string(value)
	return &Lease{
		set:   s,
		class: class,
		token: text[:2*len(b)],
		value: text,
		lost:  make(chan struct{}),
		yield: make(chan struct{}),
	}
}

// splitValue reads a slot's value; a value that is not ours has an empty token.
func splitValue(v string) (token string, class Class, replica string) {
	f := strings.SplitN(v, " ", 4)
	if len(f) < 3 {
		return "", "", ""
	}
	return f[0], Class(f[1]), f[2]
}

// Slot returns the slot's number, from 1.
func (l *Lease) Slot() int { return l.slot }

// Class returns the class the slot was granted to.
func (l *Lease) Class() Class { return l.class }

// Grant names this grant in logs and to transports. It is a part of the token that
// does not let anybody act in its name.
func (l *Lease) Grant() string { return l.token[:12] }

// StartDeadline returns D: the first byte of a request may be written only before it.
// It moves forward with each confirmed renewal. Once the lease is lost it is zero, which
// has always passed.
func (l *Lease) StartDeadline() clock.Deadline {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.endedLocked() != "" {
		return clock.Deadline{}
	}
	return l.sentAt.Deadline(l.set.k.cfg.Timing.Horizon())
}

// AbortDeadline returns the instant, by the renewals confirmed so far, at which the
// slot's key may end: whatever was started must be over by then.
func (l *Lease) AbortDeadline() clock.Deadline {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.set.k.cfg.Timing
	return l.sentAt.Deadline(t.TTL - t.Eps())
}

// Lost is closed when the lease is no longer held.
func (l *Lease) Lost() <-chan struct{} { return l.lost }

// Err returns nil while the lease is held and a *LostError afterwards.
func (l *Lease) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.endedLocked(); c != "" {
		return &LostError{Cause: c}
	}
	return nil
}

// Served records that the lease has served a request: from now on it may be asked to yield.
func (l *Lease) Served() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.served = true
	l.yieldLocked()
}

// Yield is closed when somebody else should have the slot: end the request in hand
// and give the slot back. A grant is asked only after it has served one request,
// otherwise two classes could hand a slot to and fro for ever (F10).
func (l *Lease) Yield() <-chan struct{} { return l.yield }

func (l *Lease) asked() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.wanted
}

func (l *Lease) want() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wanted = true
	l.yieldLocked()
}

func (l *Lease) yieldLocked() {
	if !l.wanted || !l.served {
		return
	}
	select {
	case <-l.yield:
	default:
		close(l.yield)
	}
}

// Release gives the slot back at once. Call it only when the bank certainly has nothing
// in progress: the response was read to its end or nothing was written. A lease
// that is already lost or given back is left alone: its token is never used again.
//
// It does not wait for Redis: the lease is over here, and Redis is told in the background or
// by this process' next acquire, which never comes before. If Redis does not hear of it the slot
// returns when its key expires; that is counted and logged. Only after the keeper has
// stopped does Release wait, and returns that error.
func (l *Lease) Release(ctx context.Context) error {
	if !l.end(GivenBack) {
		return nil
	}
	l.set.k.drop(l)
	return l.set.giveBack(ctx, l)
}

// CoolDown gives the slot to nobody until last + B + eps, when the bank is certainly done.
// last is s+, the last instant at which a first byte of a request was or may still be
// written. Leases already lost are left alone: their key outlives the bank's hold by
// construction of the start deadline.
func (l *Lease) CoolDown(ctx context.Context, last clock.Instant) error {
	if !l.end(GivenBack) {
		return nil
	}
	s := l.set
	s.k.drop(l)
	return s.k.cool(ctx, l, last)
}

// end records why the lease is over; false if it was already.
func (l *Lease) end(c Cause) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.endedLocked() != "" {
		return false
	}
	l.endLocked(c)
	return true
}

func (l *Lease) endLocked(c Cause) {
	l.ended = c
	close(l.lost)
}

// endedLocked notices by the clock that the lease is past trust, even where the timer
// that should have said so has not run yet.
func (l *Lease) endedLocked() Cause {
	if l.ended == "" {
		k := l.set.k
		if k.clk.Now().Elapsed(l.sentAt) >= k.cfg.Timing.Trust() {
			l.endLocked(Expired)
			l.set.met.losses[Expired].Inc()
		}
	}
	return l.ended
}

// confirm takes a renewal's answer: it counts only if the lease is still trusted when
// it arrives, whatever incarnation it comes from (F14).
func (l *Lease) confirm(sentAt clock.Reading, renewed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.endedLocked() != "" {
		return
	}
	if !renewed {
		l.endLocked(Taken)
		l.set.met.losses[Taken].Inc()
		return
	}
	l.sentAt = sentAt
}
