package lease

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/devstack"
	"github.com/cabine-pix/cabine/libs/devstack/devtest"
)

func quarantined(err error) bool {
	var q *QuarantineError
	return errors.As(err, &q)
}

// F4: a server that knows nothing is in quarantine for Q, counted with the longest lease of the schema, not the caller's.
func TestUnknownServerIsQuarantined(t *testing.T) {
	t.Parallel()
	w := newWorld(t, devtest.Redis(t))
	tm := short()
	tm.LongestTTL = 10 * time.Second
	tm.NoReplicas, tm.MaxLag, tm.TTL = false, 500*time.Millisecond, 4*time.Second
	s, _ := w.replica(polls(1), withTiming(tm))
	_, err := s.TryAcquire(t.Context(), Poll)
	var q *QuarantineError
	require.ErrorAs(t, err, &q)
	require.Equal(t, tm.LongestTTL+tm.Eps()+tm.MaxLag+time.Second, q.Remaining)
	_, err = s.TryAcquire(t.Context(), Poll)
	require.ErrorAs(t, err, &q)
}

// ways in which Redis loses the last grants. Each leaves the world's address on a server that answers.
func lossOfState() map[string]func(*testing.T, *world, *devstack.Redis, *devstack.Proxy) {
	return map[string]func(*testing.T, *world, *devstack.Redis, *devstack.Proxy){
		"flushed": func(t *testing.T, w *world, _ *devstack.Redis, _ *devstack.Proxy) {
			require.NoError(t, w.rdb.FlushAll(t.Context()).Err())
		},
		"restarted empty": func(t *testing.T, _ *world, r *devstack.Redis, _ *devstack.Proxy) {
			require.NoError(t, r.RestartEmpty(t.Context()))
		},
		"restarted with its file": func(t *testing.T, _ *world, r *devstack.Redis, _ *devstack.Proxy) {
			require.NoError(t, r.Restart(t.Context()))
		},
		"replica promoted": func(t *testing.T, _ *world, r *devstack.Redis, p *devstack.Proxy) {
			replica, err := r.AddReplica(t.Context())
			require.NoError(t, err)
			require.NoError(t, r.Kill())
			require.NoError(t, replica.Promote(t.Context()))
			p.Target(replica.Addr())
			p.Cut()
		},
	}
}

// Goal: whatever way state is lost, a holder keeps its slot (grace) and nobody else is
// granted one for the quarantine; then all goes on without a hand.
func TestLostStateQuarantinesOthersAndSparesHolders(t *testing.T) {
	t.Parallel()
	for name, lose := range lossOfState() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := devtest.OwnRedis(t, redisOptions())
			p := devtest.Proxy(t, r.Addr())
			w := newWorld(t, r).settled()
			holder, _ := w.replica(polls(2), via(p))
			other, _ := w.replica(polls(2), via(p))
			l := w.acquire(holder, Poll)
			lose(t, w, r, p)
			var over time.Time
			eventually(t, func() bool {
				asked := time.Now()
				_, err := other.TryAcquire(t.Context(), Poll)
				var q *QuarantineError
				if errors.As(err, &q) {
					over = asked.Add(q.Remaining)
				}
				return quarantined(err)
			}, "quarantine")
			before := l.StartDeadline().Boot
			eventually(t, func() bool { return l.StartDeadline().Boot > before || l.Err() != nil }, "renewed under grace")
			require.NoError(t, l.Err())
			w.refusedFor(other, Poll, time.Until(over))
			second := w.acquire(other, Poll)
			require.NotEqual(t, l.Slot(), second.Slot())
			require.NoError(t, l.Err())
		})
	}
}

// F5: the old primary is promoted back as the same process, with the incarnation it wrote itself when it was primary before.
func TestFailoverAndBackIsQuarantined(t *testing.T) {
	t.Parallel()
	r := devtest.OwnRedis(t, redisOptions())
	w := newWorld(t, r).settled()
	s, _ := w.replica(polls(1), notRunning())
	replica, err := r.AddReplica(t.Context())
	require.NoError(t, err)
	// Attaching a first replica changes the incarnation by itself; settle again so that the failover alone is seen.
	w.settled()
	require.NoError(t, w.acquire(s, Poll).Release(t.Context()))
	require.NoError(t, replica.Promote(t.Context()))
	require.NoError(t, r.Follow(t.Context(), replica))
	require.NoError(t, r.Promote(t.Context()))
	_, err = s.TryAcquire(t.Context(), Poll)
	require.True(t, quarantined(err), "%v", err)
}

// F6: the renewal that is first to see a new incarnation opens the quarantine for all.
func TestRenewalOpensTheQuarantine(t *testing.T) {
	t.Parallel()
	w := newWorld(t, devtest.Redis(t)).settled()
	holder, k := w.replica(polls(2), notRunning())
	other, _ := w.replica(polls(2))
	w.acquire(holder, Poll)
	require.NoError(t, w.rdb.HSet(t.Context(), w.name+":state", "incarnation", "another").Err())
	require.NoError(t, k.renewAll(t.Context()))
	_, err := other.TryAcquire(t.Context(), Poll)
	require.True(t, quarantined(err), "%v", err)
}

// Outside a quarantine a missing key is a lost lease: renewing never re-creates it.
func TestRenewalNeverRecreatesALostSlot(t *testing.T) {
	t.Parallel()
	w := newWorld(t, devtest.Redis(t)).settled()
	s, k := w.replica(polls(1), notRunning())
	l := w.acquire(s, Poll)
	require.NoError(t, w.rdb.Del(t.Context(), w.name+":1").Err())
	require.NoError(t, k.renewAll(t.Context()))
	var lost *LostError
	require.ErrorAs(t, l.Err(), &lost)
	require.Equal(t, Taken, lost.Cause)
	require.Zero(t, w.rdb.Exists(t.Context(), w.name+":1").Val())
}

// A renewal never takes over what another holds, quarantine or not.
func TestRenewalNeverOverwrites(t *testing.T) {
	t.Parallel()
	for _, inQuarantine := range []bool{false, true} {
		t.Run(fmt.Sprintf("quarantine=%v", inQuarantine), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, devtest.Redis(t)).settled()
			s, k := w.replica(polls(1), notRunning())
			l := w.acquire(s, Poll)
			require.NoError(t, w.rdb.Set(t.Context(), w.name+":1", "theirs poll r9 x", time.Minute).Err())
			if inQuarantine {
				require.NoError(t, w.rdb.HSet(t.Context(), w.name+":state", "incarnation", "another").Err())
			}
			require.NoError(t, k.renewAll(t.Context()))
			require.Error(t, l.Err())
			require.Equal(t, "theirs poll r9 x", w.rdb.Get(t.Context(), w.name+":1").Val())
		})
	}
}

// F13: one deleted or evicted slot key is not a free slot.
func TestDeletedSlotKeyIsNotFree(t *testing.T) {
	t.Parallel()
	w := newWorld(t, devtest.Redis(t)).settled()
	a, _ := w.replica(polls(1), notRunning())
	b, _ := w.replica(polls(1))
	start := time.Now()
	w.acquire(a, Poll)
	require.NoError(t, w.rdb.Del(t.Context(), w.name+":1").Err())
	w.refusedFor(b, Poll, short().TTL-time.Since(start)-50*time.Millisecond)
	w.acquire(b, Poll)
}

// F7: a version with other numbers is refused, the running one unharmed, and let through once the old one is gone.
func TestOtherConfigWaitsForTheOldOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t, devtest.Redis(t)).settled()
	old, _ := w.replica(polls(2))
	tm := short()
	tm.BankHold -= 100 * time.Millisecond
	young, _ := w.replica(polls(2), withTiming(tm))
	fewer, _ := w.replica(polls(1))
	l := w.acquire(old, Poll)
	stop := time.Now().Add(short().LongestTTL + 500*time.Millisecond)
	for time.Now().Before(stop) { // longer than the record lives: renewals keep it alive
		var c *ConflictError
		_, err := young.TryAcquire(t.Context(), Poll)
		require.ErrorAs(t, err, &c)
		require.Contains(t, c.Theirs, "B=900ms")
		require.Contains(t, c.Ours, "B=800ms")
		_, err = fewer.TryAcquire(t.Context(), Poll)
		require.ErrorAs(t, err, &c)
	}
	require.NoError(t, l.Err())
	require.NoError(t, l.Release(t.Context()))
	released := time.Now()
	w.acquire(young, Poll)
	require.Less(t, time.Since(released), short().LongestTTL+time.Second)
}

// F8: what a clock that stepped back left in the far future is cut to the longest lease.
func TestClockSteppedBackIsCut(t *testing.T) {
	t.Parallel()
	far := fmt.Sprint(time.Now().Add(time.Hour).UnixMilli())
	for name, leave := range map[string]func(*testing.T, *world){
		"slot key": func(t *testing.T, w *world) {
			require.NoError(t, w.rdb.Set(t.Context(), w.name+":1", "dead poll r9 x", time.Hour).Err())
		},
		"slot key without end": func(t *testing.T, w *world) {
			require.NoError(t, w.rdb.Set(t.Context(), w.name+":1", "dead poll r9 x", 0).Err())
		},
		"until": func(t *testing.T, w *world) {
			require.NoError(t, w.rdb.HSet(t.Context(), w.name+":state", "until:1", far).Err())
		},
		"quarantine": func(t *testing.T, w *world) {
			require.NoError(t, w.rdb.HSet(t.Context(), w.name+":state", "quarantine_until", far).Err())
		},
		"config record": func(t *testing.T, w *world) {
			require.NoError(t, w.rdb.HSet(t.Context(), w.name+":state", "config", "other", "config_until", far).Err())
		},
		"waiting mark of the other class": func(t *testing.T, w *world) {
			require.NoError(t, w.rdb.Do(t.Context(), "ZADD", w.name+":waiting", far, "send r9").Err())
			require.NoError(t, w.rdb.HSet(t.Context(), w.name+":state", "class:1", "poll").Err())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, devtest.Redis(t)).settled()
			s, _ := w.replica(SetConfig{Slots: 1, Floors: icom(1, 0, 0)})
			leave(t, w)
			start := time.Now()
			if l, err := s.TryAcquire(t.Context(), Poll); err == nil {
				require.Contains(t, name, "mark", "only a stale mark may be passed over at once")
				require.NoError(t, l.Release(t.Context()))
			}
			w.acquire(s, Poll)
			require.Less(t, time.Since(start), short().Quarantine()+time.Second)
		})
	}
}

// F14: an answer that arrives after trust has ended proves nothing, and its token is never sent again.
func TestLateRenewalAnswerIsWorthless(t *testing.T) {
	t.Parallel()
	r := devtest.OwnRedis(t, redisOptions())
	w := newWorld(t, r).settled()
	p := devtest.Proxy(t, r.Addr())
	fake := clock.NewFake()
	s, k := w.replica(polls(1), withClock(fake), notRunning(), via(p))
	l := w.acquire(s, Poll)
	held := p.HoldReply(func(b []byte) bool { return containsWord(b, l.token) })
	done := make(chan error, 1)
	go func() { done <- k.renewAll(t.Context()) }()
	<-held.Arrived()
	fake.Advance(short().Trust())
	held.Deliver()
	require.NoError(t, <-done, "Redis did renew")
	require.Error(t, l.Err())
	require.True(t, l.StartDeadline().Passed(fake.Now()))
	before := commandCalls(t, w, "evalsha")
	require.NoError(t, k.renewAll(t.Context()))
	require.Equal(t, before, commandCalls(t, w, "evalsha"), "a dead token was sent again")
}

// The deadline counts from before a renewal was sent, not from its answer.
func TestDeadlineCountsFromTheSend(t *testing.T) {
	t.Parallel()
	r := devtest.OwnRedis(t, redisOptions())
	w := newWorld(t, r).settled()
	p := devtest.Proxy(t, r.Addr())
	fake := clock.NewFake()
	s, k := w.replica(polls(1), withClock(fake), notRunning(), via(p))
	l := w.acquire(s, Poll)
	held := p.HoldReply(func(b []byte) bool { return containsWord(b, l.token) })
	fake.Advance(500 * time.Millisecond)
	sent := fake.Now()
	done := make(chan error, 1)
	go func() { done <- k.renewAll(t.Context()) }()
	<-held.Arrived()
	fake.Advance(200 * time.Millisecond)
	held.Deliver()
	require.NoError(t, <-done)
	require.Equal(t, sent.Deadline(short().Horizon()), l.StartDeadline())
}
