package lease

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/devstack/devtest"
)

func TestFloorsAreTheirOwnersAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, devtest.Redis(t)).settled()
	poller, _ := w.replica(SetConfig{Slots: 6, Floors: icom(6, 3, 1)})
	sender, _ := w.replica(SetConfig{Slots: 6, Floors: icom(6, 3, 1)})
	var slots []int
	for range 5 {
		l, err := poller.TryAcquire(t.Context(), Poll)
		require.NoError(t, err)
		slots = append(slots, l.Slot())
	}
	require.ElementsMatch(t, []int{1, 2, 3, 5, 6}, slots, "own first, then shared, never the senders' floor")
	require.ElementsMatch(t, []int{1, 2, 3}, slots[:3])
	_, err := poller.TryAcquire(t.Context(), Poll)
	require.ErrorIs(t, err, ErrNoSlot)
	l, err := sender.TryAcquire(t.Context(), Send)
	require.NoError(t, err)
	require.Equal(t, 4, l.Slot())
	_, err = sender.TryAcquire(t.Context(), Send)
	require.ErrorIs(t, err, ErrNoSlot)
}

// F10: on one shared slot two classes alternate; neither starves and neither gives back before it has served.
func TestSharedSlotAlternates(t *testing.T) {
	t.Parallel()
	w := newWorld(t, devtest.Redis(t)).settled()
	cfg := SetConfig{Slots: 1, Floors: icom(1, 0, 0)}
	var served [2]atomic.Int32
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i, class := range []Class{Poll, Send} {
		s, _ := w.replica(cfg)
		wg.Go(func() {
			for ctx.Err() == nil {
				l, err := s.Acquire(ctx, class)
				if err != nil {
					return
				}
				select {
				case <-l.Yield():
					t.Error("asked to yield before it served")
				default:
				}
				served[i].Add(1)
				l.Served()
				select {
				case <-l.Yield():
				case <-l.Lost():
					t.Error(l.Err())
				case <-ctx.Done():
				}
				if err := l.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	eventually(t, func() bool { return served[0].Load() >= 3 && served[1].Load() >= 3 }, "both classes are served")
	cancel()
	wg.Wait()
	require.InDelta(t, served[0].Load(), served[1].Load(), 1, "they alternate")
}

// The class that had a shared slot last leaves it to the class that waits, and takes it again when nobody does.
func TestLastClassLeavesASharedSlot(t *testing.T) {
	t.Parallel()
	w := newWorld(t, devtest.Redis(t)).settled()
	s, _ := w.replica(SetConfig{Slots: 1, Floors: icom(1, 0, 0)})
	require.NoError(t, w.acquire(s, Poll).Release(t.Context()))
	mark := time.Now().Add(markFor).UnixMilli()
	require.NoError(t, w.rdb.Do(t.Context(), "ZADD", w.name+":waiting", mark, "send r9").Err())
	_, err := s.TryAcquire(t.Context(), Poll)
	require.ErrorIs(t, err, ErrNoSlot, "a sender's mark stands")
	start := time.Now()
	w.acquire(s, Poll)
	require.Greater(t, time.Since(start), time.Second, "the mark has an end")
}

// F11: replicas of one class share its slots evenly, also those that start later, and each gets what is left when one goes.
func TestReplicasSpread(t *testing.T) {
	t.Parallel()
	w := newWorld(t, devtest.Redis(t)).settled()
	// A sender that waits all the time must not count among the pollers.
	sender, _ := w.replica(SetConfig{Slots: 6, Floors: icom(6, 5, 1)})
	w.acquire(sender, Send)
	background, stopSender := context.WithCancel(t.Context())
	defer stopSender()
	go func() {
		if _, err := sender.Acquire(background, Send); err == nil {
			t.Error("the senders' floor is one slot")
		}
	}()

	var held [3]atomic.Int32
	start := func(i int) (stop func()) {
		s, _ := w.replica(SetConfig{Slots: 6, Floors: icom(6, 5, 1)})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() { w.hold(ctx, s, &held[i]) })
		}
		return func() { cancel(); wg.Wait() }
	}
	counts := func() []int32 { return []int32{held[0].Load(), held[1].Load(), held[2].Load()} }
	stop0 := start(0)
	eventually(t, func() bool { return held[0].Load() == 5 }, "alone it has all")
	stop1 := start(1)
	eventually(t, func() bool { return held[1].Load() >= 2 && held[0].Load()+held[1].Load() == 5 }, "two share")
	stop2 := start(2)
	eventually(t, func() bool {
		c := counts()
		return min(c[0], c[1], c[2]) >= 1 && max(c[0], c[1], c[2]) <= 2 && c[0]+c[1]+c[2] == 5
	}, "three share")
	stop0()
	stop1()
	eventually(t, func() bool { return held[2].Load() == 5 }, "the last has all again")
	stop2()
}

// F11: with more replicas than a fair share allows, as many as there are slots have one: whoever waits with
// two fewer than another gets one of his.
func TestNobodyIdlesWhereAnotherHasTwo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, devtest.Redis(t)).settled()
	var held [3]atomic.Int32
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range held {
		s, _ := w.replica(polls(4))
		for range 4 {
			wg.Go(func() { w.hold(ctx, s, &held[i]) })
		}
		if i == 1 {
			eventually(t, func() bool { return held[0].Load() == 2 && held[1].Load() == 2 }, "two share")
		}
	}
	eventually(t, func() bool {
		return min(held[0].Load(), held[1].Load(), held[2].Load()) >= 1 && held[0].Load()+held[1].Load()+held[2].Load() == 4
	}, "the third has one")
	cancel()
	wg.Wait()
}

// hold takes a slot, serves, keeps it until asked to yield, and begins again, until ctx ends.
func (w *world) hold(ctx context.Context, s *Set, held *atomic.Int32) {
	for ctx.Err() == nil {
		l, err := s.Acquire(ctx, Poll)
		if err != nil {
			return
		}
		held.Add(1)
		l.Served()
		select {
		case <-l.Yield():
		case <-l.Lost():
			w.t.Error(l.Err())
		case <-ctx.Done():
		}
		held.Add(-1)
		if err := l.Release(w.t.Context()); err != nil {
			w.t.Error(err)
		}
	}
}

// A waiter that gives up withdraws its mark, so that the others do not leave it its share.
func TestMarkGoesWithItsWaiter(t *testing.T) {
	t.Parallel()
	w := newWorld(t, devtest.Redis(t)).settled()
	a, _ := w.replica(polls(1))
	b, k := w.replica(polls(1))
	w.acquire(a, Poll)
	marks := func() int64 { return w.rdb.ZCard(t.Context(), w.name+":waiting").Val() }
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { _, err := b.Acquire(ctx, Poll); done <- err }()
	eventually(t, func() bool { return marks() == 1 }, "b waits")
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	k.asides.Wait()
	require.Zero(t, marks())
}

// Who was asked to yield and still ends its request counts: the next heartbeats ask no others.
func TestHeartbeatsAskTheSameLeases(t *testing.T) {
	t.Parallel()
	w := newWorld(t, devtest.Redis(t)).settled()
	s, k := w.replica(polls(6), notRunning())
	var held []*Lease
	for range 6 {
		l := w.acquire(s, Poll)
		l.Served()
		held = append(held, l)
	}
	mark := time.Now().Add(markFor).UnixMilli()
	require.NoError(t, w.rdb.Do(t.Context(), "ZADD", w.name+":waiting", mark, "poll r9").Err())
	for range 20 {
		require.NoError(t, k.renewAll(t.Context()))
	}
	asked := 0
	for _, l := range held {
		if l.asked() {
			asked++
		}
	}
	require.Equal(t, 3, asked, "half of six for the one that waits")
}
