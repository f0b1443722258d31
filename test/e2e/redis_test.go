package e2e_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/devstack"
	"github.com/cabine-pix/cabine/libs/lease"
)

// lossOfState is one way in which Redis forgets who holds what.
type lossOfState struct {
	timing lease.Timing
	// prepare comes before the third replica goes, lose after it.
	prepare, lose func(*testing.T, *world)
	// away is how the third replica goes: killed, so that its slots are free for nobody
	// before T, or stopped, so that the others have them by then.
	away syscall.Signal
}

func lossesOfState() map[string]lossOfState {
	promotable := timing() // L_eff = 2 s, so that T - eps - L leaves time for the failover
	promotable.NoReplicas, promotable.MaxLag = false, time.Second
	var old devstack.Snapshot
	var replica *devstack.Redis
	nothing := func(*testing.T, *world) {}
	return map[string]lossOfState{
		"FLUSHALL": {timing(), nothing, func(t *testing.T, w *world) {
			_, err := w.redis.Do(t.Context(), "FLUSHALL")
			require.NoError(t, err)
		}, syscall.SIGKILL},
		"restarted empty": {timing(), nothing, func(t *testing.T, w *world) {
			require.NoError(t, w.redis.RestartEmpty(t.Context()))
		}, syscall.SIGKILL},
		"restarted from an old snapshot": {timing(), func(t *testing.T, w *world) {
			var err error
			old, err = w.redis.Snapshot(t.Context())
			require.NoError(t, err)
		}, func(t *testing.T, w *world) { require.NoError(t, w.redis.RestartFrom(t.Context(), old)) }, syscall.SIGTERM},
		"replica promoted": {promotable, func(t *testing.T, w *world) {
			var err error
			replica, err = w.redis.AddReplica(t.Context())
			require.NoError(t, err)
		}, func(t *testing.T, w *world) {
			require.NoError(t, w.redis.Kill())
			require.NoError(t, replica.Promote(t.Context()))
			w.way.Target(replica.Addr())
			w.way.Cut()
			w.redis = replica
		}, syscall.SIGKILL},
	}
}

// Goal: when Redis loses its state, whoever holds a slot goes on, nobody is granted one
// for Q, and then the free slots come back without a hand; nothing is lost.
//
// Method: of three replicas under traffic one goes, then Redis is flushed, restarted
// empty, restarted from a snapshot in which the third replica still holds its slots, or
// replaced by its replica. Without the quarantine the slots of the killed replica would be
// granted while the bank is still at its requests, and the judge would say so.
func TestRedisLosesItsState(t *testing.T) {
	t.Parallel()
	for name, loss := range lossesOfState() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, options{timing: loss.timing})
			w.busy()
			w.consume()
			w.traffic(20)
			a, b, c := w.three()
			loss.prepare(t, w)
			w.settled(2, a, b, c) // a replica of Redis is made by one that stands still meanwhile
			kept := map[*replica][]int{a: a.held(), b: b.held()}
			c.signal(loss.away)
			if loss.away == syscall.SIGTERM {
				<-c.done
				w.eventually("the others to poll its slots", func() bool { return len(a.held())+len(b.held()) == slots })
			}
			at := time.Now()
			loss.lose(t, w)
			took := time.Since(at)
			polls := func(r *replica) []line { return r.logs(at, "slot granted") }
			w.eventually("a slot to be granted again", func() bool { return len(polls(a))+len(polls(b)) > 0 })
			w.eventually("all slots to be polled", func() bool { return len(a.held())+len(b.held()) == slots })
			t.Logf("Redis was away for %v, all slots polled again %v after that; Q is %v", took, time.Since(at)-took, loss.timing.Quarantine())
			require.Less(t, time.Since(at)-took, loss.timing.Quarantine()+4*time.Second)

			for _, r := range []*replica{a, b} {
				for _, l := range polls(r) {
					require.GreaterOrEqual(t, l.at.Sub(at), loss.timing.Quarantine()-time.Millisecond, "%s: nobody is granted a slot during the quarantine", r.name)
				}
				for _, slot := range kept[r] {
					require.Empty(t, r.logs(at, "slot given", "slot", slot, "how", "lost"), "%s goes on with slot %d", r.name, slot)
				}
				require.NotEmpty(t, w.askedBetween(r, at.Add(took), at.Add(loss.timing.Quarantine())), "%s polls during the quarantine", r.name)
			}
			w.booksAgree()
			require.Zero(t, a.stop())
			require.Zero(t, b.stop())
		})
	}
}

// Goal: a Redis that answers and cannot write is no Redis: polling stops by the start
// deadline at the latest, and begins again without a hand.
//
// Method: three replicas under traffic. After Redis refused its first write no renewal can
// have been sent that succeeds, so after T - eps - B the bank's timeline must be empty.
func TestRedisThatCannotWrite(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ refuse, heal []string }{
		"read-only":     {[]string{"REPLICAOF", "127.0.0.1", "1"}, []string{"REPLICAOF", "NO", "ONE"}},
		"out of memory": {[]string{"CONFIG", "SET", "maxmemory", "1"}, []string{"CONFIG", "SET", "maxmemory", "0"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, options{})
			w.busy()
			w.consume()
			w.traffic(20)
			a, b, c := w.three()
			all := []*replica{a, b, c}
			asked := time.Now() // a replica can meet the refusal before we have the answer
			_, err := w.redis.Do(t.Context(), tt.refuse...)
			require.NoError(t, err)
			at := time.Now()
			for _, r := range all {
				r.logged(asked, "renewal failed, no new requests once the start deadline passes")
			}
			w.eventually("every slot to be lost", func() bool { return len(a.held())+len(b.held())+len(c.held()) == 0 })
			w.until(at.Add(w.timing.TTL + time.Second))
			healed := time.Now()
			_, err = w.redis.Do(t.Context(), tt.heal...)
			require.NoError(t, err)

			last := at
			for _, r := range all {
				for _, q := range w.askedBetween(r, at, healed) {
					last = later(last, q.FirstByte)
				}
			}
			t.Logf("last first byte %v after the fault; horizon %v", last.Sub(at), w.timing.Horizon())
			require.LessOrEqual(t, last.Sub(at), w.timing.Horizon(), "no request is started past the deadline")
			w.eventually("all slots to be polled again", func() bool { return len(a.held())+len(b.held())+len(c.held()) == slots })
			t.Logf("all slots polled again %v after the repair", time.Since(healed))
			w.booksAgree()
			for _, r := range all {
				require.Zero(t, r.stop())
			}
		})
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
