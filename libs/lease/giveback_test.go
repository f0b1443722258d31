package lease

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/devstack"
	"github.com/cabine-pix/cabine/libs/devstack/devtest"
)

// proxied is a world with a Redis of its own and a proxy before it. Its scripts are known there.
func proxied(t *testing.T, cfg SetConfig, options ...option) (*world, *Set, *Keeper, *devstack.Proxy) {
	t.Helper()
	r := devtest.OwnRedis(t, redisOptions())
	p := devtest.Proxy(t, r.Addr())
	w := newWorld(t, r).settled()
	s, k := w.replica(cfg, append(options, via(p))...)
	require.NoError(t, w.acquire(s, Poll).Release(t.Context()))
	require.NoError(t, s.Flush(t.Context()))
	return w, s, k, p
}

// isRelease tells a release, alone, from an acquire, which names its class and record.
func isRelease(b []byte) bool { return containsWord(b, "evalsha") && !containsWord(b, "schema=1") }

// A release that no acquire follows goes out by itself.
func TestReleaseGoesOutAlone(t *testing.T) {
	t.Parallel()
	for _, asked := range []bool{false, true} {
		w := newWorld(t, devtest.Redis(t)).settled()
		s, _ := w.replica(polls(1))
		l := w.acquire(s, Poll)
		if asked {
			l.want()
		}
		require.NoError(t, l.Release(t.Context()))
		eventually(t, func() bool { return w.rdb.Exists(t.Context(), w.name+":1").Val() == 0 }, "freed")
		require.Empty(t, w.rdb.HGet(t.Context(), w.name+":state", "until:1").Val())
	}
}

// A slot that somebody was seen to wait for is given back without a breath's delay.
func TestAskedForSlotGoesOutAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, devtest.Redis(t)).settled()
	s, k := w.replica(polls(1), withClock(clock.NewFake()), notRunning())
	l := w.acquire(s, Poll)
	l.want()
	require.NoError(t, l.Release(t.Context()))
	k.asides.Wait() // on a clock that stands still
	require.Zero(t, w.rdb.Exists(t.Context(), w.name+":1").Val())
}

// Giving back and taking again is one command.
func TestAcquireTakesReleasesAlong(t *testing.T) {
	t.Parallel()
	w := newWorld(t, devtest.OwnRedis(t, redisOptions())).settled()
	s, k := w.replica(polls(2), withClock(clock.NewFake()), notRunning())
	first, second := w.acquire(s, Poll), w.acquire(s, Poll)
	before := commandCalls(t, w, "evalsha")
	require.NoError(t, first.Release(t.Context()))
	require.NoError(t, second.Release(t.Context()))
	l, err := s.TryAcquire(t.Context(), Poll)
	require.NoError(t, err)
	require.Equal(t, before+1, commandCalls(t, w, "evalsha"))
	require.Equal(t, first.Slot(), l.Slot(), "what was given back is tried first")
	require.Zero(t, w.rdb.Exists(t.Context(), fmt.Sprintf("%s:%d", w.name, second.Slot())).Val())
	k.stop()
	require.Equal(t, before+1, commandCalls(t, w, "evalsha"), "nothing was left to send")
}

// An acquire waits for the releases of its own process that are on their way.
func TestAcquireNeverOvertakesARelease(t *testing.T) {
	t.Parallel()
	_, s, _, p := proxied(t, polls(1))
	l, err := s.TryAcquire(t.Context(), Poll)
	require.NoError(t, err)
	held := p.HoldRequest(isRelease)
	require.NoError(t, l.Release(t.Context()))
	<-held.Arrived()
	got := make(chan error, 1)
	go func() { _, err := s.TryAcquire(t.Context(), Poll); got <- err }()
	select {
	case err := <-got:
		require.Fail(t, "the acquire did not wait", "%v", err)
	case <-time.After(50 * time.Millisecond):
	}
	held.Deliver()
	require.NoError(t, <-got, "the slot is free when it is asked for")
}

// Nobody is refused a slot because of his own release, whichever way it takes.
func TestReleaseThenAcquireIsGranted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, devtest.Redis(t)).settled()
	s, _ := w.replica(polls(1))
	for i := range 300 {
		l, err := s.TryAcquire(t.Context(), Poll)
		require.NoError(t, err)
		if i%2 == 1 {
			l.want()
		}
		require.NoError(t, l.Release(t.Context()))
	}
}

// The keeper's end waits for what was given back, and does not wait for an acquire to take it along.
func TestKeeperEndsWhenRedisHasHeard(t *testing.T) {
	t.Parallel()
	w := newWorld(t, devtest.Redis(t)).settled()
	s, k := w.replica(polls(1), withClock(clock.NewFake()), notRunning())
	l := w.acquire(s, Poll)
	require.NoError(t, l.Release(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, k.Run(ctx))
	require.Zero(t, w.rdb.Exists(t.Context(), w.name+":1").Val())
}

// Once the keeper has ended nothing runs beside the caller any more.
func TestGivingBackAfterTheEndWaits(t *testing.T) {
	t.Parallel()
	w, s, k, p := proxied(t, polls(1), notRunning())
	l := w.acquire(s, Poll)
	require.True(t, l.end(GivenBack)) // Release began just before the end
	k.drop(l)
	k.stop()
	p.Refuse()
	p.Cut()
	require.ErrorIs(t, s.giveBack(t.Context(), l), ErrStoreUnavailable)
	p.Pass()
	require.NoError(t, s.giveBack(t.Context(), l))
	require.Zero(t, w.rdb.Exists(t.Context(), w.name+":1").Val())
}

// A release of which Redis does not hear costs its caller nothing and is counted; the key ends by itself.
func TestUnheardReleaseIsCounted(t *testing.T) {
	t.Parallel()
	w, s, _, p := proxied(t, polls(1))
	l := w.acquire(s, Poll)
	p.Blackhole(devstack.Both)
	start := time.Now()
	require.NoError(t, l.Release(t.Context()))
	require.Less(t, time.Since(start), short().RenewTimeout/2, "nobody waits for Redis")
	eventually(t, func() bool { return testutil.ToFloat64(s.met.unreleased) == 1 }, "counted")
	require.Positive(t, w.ttl(1))
	p.Pass()
	w.acquire(s, Poll)
}

// What an acquire took along is told again by its undo when no answer came.
func TestUndoTellsWhatTheAcquireTookAlong(t *testing.T) {
	t.Parallel()
	w, s, _, p := proxied(t, polls(2), withClock(clock.NewFake()), notRunning())
	l := w.acquire(s, Poll)
	require.NoError(t, l.Release(t.Context()))
	lost := p.HoldRequest(func(b []byte) bool { return containsWord(b, l.value) && containsWord(b, "schema=1") })
	_, err := s.TryAcquire(t.Context(), Poll)
	require.ErrorIs(t, err, ErrStoreUnavailable)
	<-lost.Arrived()
	eventually(t, func() bool { return w.rdb.Exists(t.Context(), w.name+":1", w.name+":2").Val() == 0 }, "freed by the undo")
	require.Zero(t, testutil.ToFloat64(s.met.unreleased))
	_, err = s.TryAcquire(t.Context(), Poll)
	require.NoError(t, err, "the line is free again")
}

// Whoever waits elsewhere gets the hint, also when an acquire brings the news.
func TestAcquireThatTakesAlongGivesTheHint(t *testing.T) {
	t.Parallel()
	w := newWorld(t, devtest.Redis(t)).settled()
	s, _ := w.replica(polls(1), withClock(clock.NewFake()), notRunning())
	l := w.acquire(s, Poll)
	sub := w.rdb.Subscribe(t.Context(), w.name+":state")
	defer func() { require.NoError(t, sub.Close()) }()
	_, err := sub.Receive(t.Context())
	require.NoError(t, err)
	mark := time.Now().Add(time.Second).UnixMilli()
	require.NoError(t, w.rdb.Do(t.Context(), "ZADD", w.name+":waiting", mark, "poll r9").Err())
	require.NoError(t, l.Release(t.Context()))
	_, err = s.TryAcquire(t.Context(), Poll)
	require.True(t, err == nil || errors.Is(err, ErrNoSlot), "%v", err)
	m, err := sub.ReceiveMessage(t.Context())
	require.NoError(t, err)
	require.Equal(t, "free", m.Payload)
}
