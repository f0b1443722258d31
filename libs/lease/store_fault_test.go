package lease

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/devstack"
	"github.com/cabine-pix/cabine/libs/devstack/devtest"
)

func containsWord(b []byte, word string) bool { return bytes.Contains(b, []byte(word)) }

// If Redis cannot decide, there is no grant.
func TestNoDecisionNoGrant(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(*testing.T, *world, *devstack.Redis, *devstack.Proxy){
		"unreachable": func(_ *testing.T, _ *world, _ *devstack.Redis, p *devstack.Proxy) { p.Refuse(); p.Cut() },
		"silent":      func(_ *testing.T, _ *world, _ *devstack.Redis, p *devstack.Proxy) { p.Blackhole(devstack.Both) },
		"stopped":     func(t *testing.T, _ *world, r *devstack.Redis, _ *devstack.Proxy) { require.NoError(t, r.Pause()) },
		"read-only": func(t *testing.T, w *world, _ *devstack.Redis, _ *devstack.Proxy) {
			require.NoError(t, w.rdb.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err())
		},
		"out of memory": func(t *testing.T, w *world, _ *devstack.Redis, _ *devstack.Proxy) {
			require.NoError(t, w.rdb.ConfigSet(t.Context(), "maxmemory", "1mb").Err())
		},
		"too few replicas": func(t *testing.T, w *world, _ *devstack.Redis, _ *devstack.Proxy) {
			require.NoError(t, w.rdb.ConfigSet(t.Context(), "min-replicas-to-write", "1").Err())
		},
		"INFO forbidden": func(t *testing.T, w *world, _ *devstack.Redis, _ *devstack.Proxy) {
			require.NoError(t, w.rdb.Do(t.Context(), "ACL", "SETUSER", "default", "-info").Err())
		},
		"state of another type": func(t *testing.T, w *world, _ *devstack.Redis, _ *devstack.Proxy) {
			require.NoError(t, w.rdb.Del(t.Context(), w.name+":state").Err())
			require.NoError(t, w.rdb.Set(t.Context(), w.name+":state", "x", 0).Err())
		},
		"impossible answer": func(_ *testing.T, _ *world, _ *devstack.Redis, p *devstack.Proxy) {
			p.LoseReply(func([]byte) bool { return true })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := devtest.OwnRedis(t, redisOptions())
			p := devtest.Proxy(t, r.Addr())
			w := newWorld(t, r).settled()
			s, _ := w.replica(polls(2), via(p))
			require.NoError(t, w.acquire(s, Poll).Release(t.Context()))
			require.NoError(t, s.Flush(t.Context())) // or the harm would strike the news of the release
			harm(t, w, r, p)
			start := time.Now()
			_, err := s.TryAcquire(t.Context(), Poll)
			require.ErrorIs(t, err, ErrStoreUnavailable)
			require.Less(t, time.Since(start), time.Second, "bounded by the renew timeout")
			if name == "stopped" {
				require.NoError(t, r.Resume())
			}
			p.Pass()
		})
	}
}

// F12: an acquire that Redis executed but did not answer holds its slot only until the undo, and its token is used once.
func TestUnansweredAcquireIsUndone(t *testing.T) {
	t.Parallel()
	r := devtest.OwnRedis(t, redisOptions())
	p := devtest.Proxy(t, r.Addr())
	w := newWorld(t, r).settled()
	s, k := w.replica(polls(1), via(p))
	require.NoError(t, w.acquire(s, Poll).Release(t.Context())) // scripts are known
	require.NoError(t, s.Flush(t.Context()))
	lost := p.LoseReply(func(b []byte) bool { return containsWord(b, " poll ") && containsWord(b, "schema=1") })
	_, err := s.TryAcquire(t.Context(), Poll)
	require.ErrorIs(t, err, ErrStoreUnavailable)
	<-lost.Arrived()
	k.asides.Wait()
	require.Zero(t, w.rdb.Exists(t.Context(), w.name+":1").Val(), "undone")
	start := time.Now()
	w.acquire(s, Poll)
	require.Less(t, time.Since(start), time.Second)
}

// An acquire delivered long after it was given up takes the slot for T at most, and nobody believes it has it.
func TestAcquireDeliveredLate(t *testing.T) {
	t.Parallel()
	r := devtest.OwnRedis(t, redisOptions())
	p := devtest.Proxy(t, r.Addr())
	w := newWorld(t, r).settled()
	s, k := w.replica(polls(1), via(p))
	other, _ := w.replica(polls(1))
	require.NoError(t, w.acquire(s, Poll).Release(t.Context()))
	require.NoError(t, s.Flush(t.Context()))
	held := p.HoldRequest(func(b []byte) bool { return containsWord(b, "schema=1") })
	_, err := s.TryAcquire(t.Context(), Poll)
	require.ErrorIs(t, err, ErrStoreUnavailable)
	k.asides.Wait()
	l := w.acquire(other, Poll)
	held.Deliver()
	require.NoError(t, l.Err())
	require.Equal(t, l.value, w.rdb.Get(t.Context(), w.name+":1").Val())
}

// A silent black hole: the holder stops by its own timer before Redis ends the key.
func TestBlackholeEndsTheLeaseBeforeTheKey(t *testing.T) {
	t.Parallel()
	r := devtest.OwnRedis(t, redisOptions())
	p := devtest.Proxy(t, r.Addr())
	w := newWorld(t, r).settled()
	s, _ := w.replica(polls(1), via(p))
	l := w.acquire(s, Poll)
	p.Blackhole(devstack.Both)
	<-l.Lost()
	require.Positive(t, w.ttl(1), "lost locally while the key still lives")
	require.True(t, l.StartDeadline().Passed(clock.System().Now()))
	require.NoError(t, l.Release(t.Context()), "a dead token is not sent")
	require.Positive(t, w.ttl(1))
	p.Pass()
}

// SCRIPT FLUSH, or a promoted server, has no scripts; they are sent whole.
func TestScriptsAreSentAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, devtest.OwnRedis(t, redisOptions())).settled()
	s, k := w.replica(polls(1), notRunning())
	l := w.acquire(s, Poll)
	for _, use := range []func() error{
		func() error { return k.renewAll(t.Context()) },
		func() error { return l.CoolDown(t.Context(), clock.System().Now().Boot.Add(-2*time.Second)) },
		func() error { _, err := s.TryAcquire(t.Context(), Poll); return err },
	} {
		require.NoError(t, w.rdb.ScriptFlush(t.Context()).Err())
		require.NoError(t, use())
	}
}

func FuzzAnswers(f *testing.F) {
	f.Add("granted", int64(1), "x")
	f.Add("conflict", int64(-1), "schema=1")
	f.Fuzz(func(t *testing.T, word string, n int64, text string) {
		s := &Set{cfg: SetConfig{Slots: 6}}
		for _, v := range []any{word, n, nil, []any{}, []any{word}, []any{word, n}, []any{word, text}, []any{n, word}} {
			slot, err := s.verdict(v)
			if err == nil && (slot < 1 || slot > 6) {
				t.Fatalf("slot %d", slot)
			}
			parseRenewal(v, int(n))
			parseRenewal([]any{n, word, v, v, []any{n, word}}, 2)
		}
		splitValue(text)
	})
}
