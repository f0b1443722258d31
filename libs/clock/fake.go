package clock

import (
	"sync"
	"time"
)

// Fake is a clock that moves only when told. It is safe for concurrent use.
type Fake struct {
	mu     sync.Mutex
	now    Reading
	timers map[*fakeTimer]struct{}
	// changed is closed and replaced whenever a timer is made, reset or stopped.
	changed chan struct{}
}

// NewFake returns a fake that stands at an hour after boot, on a fixed day.
func NewFake() *Fake {
	return &Fake{
		now:     Reading{Boot: Instant(time.Hour), Wall: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)},
		timers:  make(map[*fakeTimer]struct{}),
		changed: make(chan struct{}),
	}
}

// Now implements Clock.
func (f *Fake) Now() Reading {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

// Advance moves both clocks forward by d and fires the timers that became due, in the order of their time.
func (f *Fake) Advance(d time.Duration) { f.AdvanceTo(f.Now().Boot.Add(d)) }

// AdvanceTo moves both clocks to the boot-time instant to.
func (f *Fake) AdvanceTo(to Instant) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		var next *fakeTimer
		for t := range f.timers {
			if t.at <= to && (next == nil || t.at < next.at) {
				next = t
			}
		}
		if next == nil {
			break
		}
		f.step(next.at)
		delete(f.timers, next)
		next.c <- f.now.Wall
	}
	f.step(to)
}

func (f *Fake) step(to Instant) {
	if d := to.Sub(f.now.Boot); d > 0 {
		f.now = Reading{Boot: to, Wall: f.now.Wall.Add(d)}
	}
}

// Suspend moves boot time and the wall clock without firing a timer, as a sleeping
// machine does: timers run on a clock that stands still meanwhile.
func (f *Fake) Suspend(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for t := range f.timers {
		t.at = t.at.Add(d)
	}
	f.step(f.now.Boot.Add(d))
}

// StepWall moves only the wall clock.
func (f *Fake) StepWall(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now.Wall = f.now.Wall.Add(d)
}

// Timers returns how many timers are armed and a channel that is closed at the next change of that set.
func (f *Fake) Timers() (int, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.timers), f.changed
}

// NewTimer implements Clock.
func (f *Fake) NewTimer(d time.Duration) Timer {
	t := &fakeTimer{f: f, c: make(chan time.Time, 1)}
	t.Reset(d)
	return t
}

type fakeTimer struct {
	f  *Fake
	at Instant
	c  chan time.Time
}

func (t *fakeTimer) C() <-chan time.Time { return t.c }

func (t *fakeTimer) Stop() bool {
	t.f.mu.Lock()
	defer t.f.mu.Unlock()
	_, armed := t.f.timers[t]
	delete(t.f.timers, t)
	t.drain()
	t.f.notify()
	return armed
}

func (t *fakeTimer) Reset(d time.Duration) {
	t.f.mu.Lock()
	defer t.f.mu.Unlock()
	t.drain()
	t.at = t.f.now.Boot.Add(d)
	if d <= 0 {
		delete(t.f.timers, t)
		t.c <- t.f.now.Wall
	} else {
		t.f.timers[t] = struct{}{}
	}
	t.f.notify()
}

func (t *fakeTimer) drain() {
	select {
	case <-t.c:
	default:
	}
}

func (f *Fake) notify() {
	close(f.changed)
	f.changed = make(chan struct{})
}
