package spitest

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/pix"
)

// maxOperations is the most operations of one message (AM18).
const maxOperations = 10

// backlog is an unbounded queue of what waits for a worker. The bank's own queues have no bound either.
type backlog[T any] struct {
	mu    sync.Mutex
	items []T
	wake  chan struct{}
}

func newBacklog[T any]() *backlog[T] { return &backlog[T]{wake: make(chan struct{}, 1)} }

func (b *backlog[T]) push(item T) {
	b.mu.Lock()
	b.items = append(b.items, item)
	b.mu.Unlock()
	signal(b.wake)
}

// pop waits for an item; false when ctx ends first.
func (b *backlog[T]) pop(ctx context.Context) (item T, ok bool) {
	for {
		b.mu.Lock()
		if len(b.items) > 0 {
			item = b.items[0]
			var none T
			b.items[0] = none
			if b.items = b.items[1:]; len(b.items) > 0 {
				signal(b.wake)
			} else {
				b.items = nil
			}
			b.mu.Unlock()
			return item, true
		}
		b.mu.Unlock()
		select {
		case <-ctx.Done():
			return item, false
		case <-b.wake:
		}
	}
}

func signal(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// envelope is what operations must share to travel in one message.
type envelope struct {
	to      pix.ISPB
	channel pix.Channel
	group   string
}

// outbox gathers notices by envelope. A tray that holds something stands in the backlog: what arrives while the
// workers write other messages fills it.
type outbox struct {
	// linger calls due after the time that a tray may wait for more; nil: there is none.
	linger func(due func())

	mu    sync.Mutex
	trays map[envelope][]notice
	full  *backlog[envelope]
}

func newOutbox() *outbox {
	return &outbox{trays: make(map[envelope][]notice), full: newBacklog[envelope]()}
}

func (b *outbox) put(n notice) {
	e := envelope{n.to, n.channel, groupStatus}
	if n.verdict == nil {
		e.group = n.order.group
	}
	b.mu.Lock()
	b.trays[e] = append(b.trays[e], n)
	waiting := len(b.trays[e])
	b.mu.Unlock()
	switch {
	case waiting == 1 && b.linger != nil:
		b.linger(func() { b.full.push(e) })
	case waiting == 1, waiting == maxOperations && b.linger != nil:
		b.full.push(e)
	}
}

// take waits for the operations of one message; false when ctx ends first.
func (b *outbox) take(ctx context.Context) (envelope, []notice, bool) {
	for {
		e, ok := b.full.pop(ctx)
		if !ok {
			return e, nil, false
		}
		// A tray that filled up before its time is found empty when its time comes.
		if taken := b.empty(e); len(taken) > 0 {
			return e, taken, true
		}
	}
}

// empty takes out of a tray what one message may carry.
func (b *outbox) empty(e envelope) []notice {
	b.mu.Lock()
	tray := b.trays[e]
	n := min(maxOperations, len(tray))
	rest := tray[n:]
	if len(rest) > 0 {
		b.trays[e] = rest
	} else {
		delete(b.trays, e)
	}
	b.mu.Unlock()
	if len(rest) > 0 {
		b.full.push(e)
	}
	return tray[:n:n]
}

// appointment is something that happens at a time.
type appointment struct {
	at time.Time
	do func(now time.Time)
}

type appointments []appointment

func (a appointments) Len() int           { return len(a) }
func (a appointments) Less(i, j int) bool { return a[i].at.Before(a[j].at) }
func (a appointments) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }

// Push implements heap.Interface.
func (a *appointments) Push(x any) { *a = append(*a, x.(appointment)) }

// Pop implements heap.Interface.
func (a *appointments) Pop() any {
	old := *a
	last := old[len(old)-1]
	old[len(old)-1] = appointment{}
	*a = old[:len(old)-1]
	return last
}

// agenda does things at their time, by the wall clock, since limits are told as wall time.
type agenda struct {
	clock clock.Clock
	wake  chan struct{}

	mu   sync.Mutex
	heap appointments
}

func newAgenda(c clock.Clock) *agenda { return &agenda{clock: c, wake: make(chan struct{}, 1)} }

func (a *agenda) add(at time.Time, do func(now time.Time)) {
	a.mu.Lock()
	heap.Push(&a.heap, appointment{at, do})
	first := a.heap[0].at.Equal(at)
	a.mu.Unlock()
	if first {
		signal(a.wake)
	}
}

// run keeps the appointments until ctx ends.
func (a *agenda) run(ctx context.Context) {
	timer := a.clock.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.wake:
		case <-timer.C():
		}
		for {
			now := a.clock.Now().Wall
			due, next, more := a.due(now)
			if due == nil {
				if more {
					timer.Reset(next.Sub(now))
				}
				break
			}
			due(now)
		}
	}
}

// due takes the first appointment that is due, or tells when the next one is.
func (a *agenda) due(now time.Time) (do func(time.Time), next time.Time, more bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.heap) == 0 {
		return nil, time.Time{}, false
	}
	if at := a.heap[0].at; at.After(now) {
		return nil, at, true
	}
	return heap.Pop(&a.heap).(appointment).do, time.Time{}, false
}
