// Package clock is the only source of time for everything that must not act too
// late: leases, start deadlines, cool-downs.
//
// Two clocks are read at once. CLOCK_BOOTTIME counts suspend (Go's own monotonic
// clock, CLOCK_MONOTONIC, stops while a machine sleeps) and is the same number in
// every process of one kernel, so that a deadline can be handed to a plugin
// process. The wall clock is the second witness: a machine that was frozen where
// boot time does not see it wakes with a wall clock that has moved. Elapsed time is
// the larger of both; a wall clock that stepped back is ignored. CLOCK_MONOTONIC
// needs no third reading: it never advances faster than boot time.
//
// Timers run on Go's monotonic clock and only make things prompt. What is allowed is
// always decided by comparing a fresh Reading with a Deadline.
package clock

import (
	"context"
	"time"
)

// Instant is a point on CLOCK_BOOTTIME, in nanoseconds since the machine booted.
// The zero Instant means "never".
type Instant int64

// IsZero reports whether i is the zero Instant.
func (i Instant) IsZero() bool { return i == 0 }

// Add returns the instant d later.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Sub returns i - j.
func (i Instant) Sub(j Instant) time.Duration { return time.Duration(i - j) }

// Reading is one look at both clocks.
type Reading struct {
	// Boot is CLOCK_BOOTTIME.
	Boot Instant
	// Wall is the wall clock without Go's monotonic part.
	Wall time.Time
}

// Elapsed returns how much time has passed since an earlier reading, by the clock
// that moved more. It is never negative.
func (r Reading) Elapsed(since Reading) time.Duration {
	return max(0, r.Boot.Sub(since.Boot), r.Wall.Sub(since.Wall))
}

// Deadline returns the deadline d after r.
func (r Reading) Deadline(d time.Duration) Deadline {
	return Deadline{Boot: r.Boot.Add(d), Wall: r.Wall.Add(d)}
}

// Deadline is an absolute end of permission on both clocks. The zero Deadline has
// always passed: forgetting to set one forbids.
type Deadline struct {
	Boot Instant
	Wall time.Time
}

// Passed reports whether either clock has reached the deadline.
func (d Deadline) Passed(now Reading) bool { return d.Remaining(now) <= 0 }

// Remaining returns the time left by the clock that has less of it; zero or less
// once the deadline has passed.
func (d Deadline) Remaining(now Reading) time.Duration {
	return min(d.Boot.Sub(now.Boot), d.Wall.Sub(now.Wall))
}

// Timer is a one-shot timer.
type Timer interface {
	// C delivers once when the timer fires.
	C() <-chan time.Time
	// Stop prevents the timer from firing; false if it has fired or was stopped.
	Stop() bool
	// Reset arms the timer again, as if new. A value not yet received is discarded.
	Reset(d time.Duration)
}

// Clock reads time and makes timers. System is the real one, Fake the tests'.
type Clock interface {
	Now() Reading
	NewTimer(d time.Duration) Timer
}

// Sleep waits for d or until ctx ends, whichever comes first, and returns ctx's error in the latter case.
func Sleep(ctx context.Context, c Clock, d time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if d <= 0 {
		return nil
	}
	t := c.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C():
		return nil
	}
}
