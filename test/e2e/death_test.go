package e2e_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/icom/icomtest"
)

// firstByte returns when a slot was next used after an instant, by the bank's timeline:
// the first byte on a connection that one of the replicas opened after it was granted the slot.
func (w *world) firstByte(slot int, since time.Time, replicas ...*replica) (at time.Time) {
	w.t.Helper()
	w.eventually("another replica to poll the slot", func() bool {
		for _, r := range replicas {
			polls := r.logs(since, "first poll", "slot", slot)
			if len(polls) == 0 {
				continue
			}
			seen := map[uint64]bool{}
			for _, q := range w.asked(r, time.Time{}) {
				if !seen[q.Conn] && q.FirstByte.After(polls[0].at) {
					at = q.FirstByte
					return true
				}
				seen[q.Conn] = true
			}
		}
		return false
	})
	return at
}

// Goal: SIGKILL of a host takes its plugin along within a second and costs its slots
// T + 1 s at most; after a clean stop the next owner polls within 500 ms.
//
// Method: three replicas under traffic, one killed, then one stopped. The bank's timeline
// measures: the kill, or the end of the DELETE of a stream, to the first byte on a
// connection that another replica opened since. Not parallel: it measures half a second.
func TestTakeoverAfterKillAndAfterStop(t *testing.T) { //nolint:paralleltest // it measures half a second
	w := newWorld(t, options{})
	w.consume()
	w.traffic(20)
	a, b, c := w.three()

	plugin, held := a.plugin(), a.held()
	killed := time.Now()
	a.signal(syscall.SIGKILL)
	require.Eventually(t, func() bool { return gone(plugin) }, time.Second, time.Millisecond, "the plugin goes with its host")
	t.Logf("plugin gone after %v", time.Since(killed))
	for _, slot := range held {
		took := w.firstByte(slot, killed, b, c).Sub(killed)
		t.Logf("slot %d polled %v after its owner was killed, T is %v", slot, took, w.timing.TTL)
		require.Less(t, took, w.timing.TTL+time.Second)
		require.Greater(t, took, w.timing.BankHold, "the bank may still be at the last request")
	}
	require.Empty(t, w.asked(a, killed.Add(time.Second)), "nothing more from the killed replica")

	w.settled(3, b, c)
	held = b.held()
	stopped := time.Now()
	require.Zero(t, b.stop())
	for _, slot := range held {
		closed := b.logged(stopped, "stream closed", "slot", slot).at
		var end time.Time // of the DELETE
		for _, q := range w.asked(b, stopped) {
			if q.Kind == icomtest.KindDelete && q.End.Before(closed) {
				end = later(end, q.End)
			}
		}
		require.False(t, end.IsZero(), "the stream of slot %d was deleted", slot)
		took := w.firstByte(slot, end, c).Sub(end)
		t.Logf("slot %d polled %v after its owner had closed the stream", slot, took)
		require.Less(t, took, 500*time.Millisecond)
	}
	w.booksAgree()
	require.Zero(t, c.stop())
}

// Goal: a plugin that is killed alone is missed at once and replaced; until then and for
// B + eps after its death nobody polls a slot at which it may have been.
//
// Method: the bank takes its longest time for every request, so that each slot of the
// victim is in use. Redis is asked for the slots' keys all the while: after the grant
// of the dead plugin comes a cool-down, and no other grant before its end.
func TestSlotsOfAKilledPluginCoolDown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	w.consume()
	w.traffic(20)
	a, b, c := w.three()
	require.NoError(t, w.bank.SetFaults("cpm", icomtest.Fault{Delay: bankCounts - bankHold}))
	held := a.held()
	inUse := func() bool {
		n := 0
		for _, q := range w.asked(a, time.Time{}) {
			if q.End.IsZero() {
				n++
			}
		}
		return n == len(held)
	}
	// A plugin that stands still reads no answer to its end: what is in use now is in use when it dies.
	w.eventually("each slot of the victim to be in use", func() bool {
		if !inUse() {
			return false
		}
		require.NoError(t, syscall.Kill(a.plugin(), syscall.SIGSTOP))
		if inUse() {
			return true
		}
		require.NoError(t, syscall.Kill(a.plugin(), syscall.SIGCONT))
		return false
	})
	grants := map[int]string{}
	for _, slot := range held {
		grants[slot] = token(w.keyOf(slot))
	}
	killed := time.Now()
	require.NoError(t, syscall.Kill(a.plugin(), syscall.SIGKILL))
	cooling, next := map[int]time.Time{}, map[int]time.Time{}
	require.Eventually(t, func() bool {
		for _, slot := range held {
			switch v := token(w.keyOf(slot)); {
			case v == "cooling" && cooling[slot].IsZero():
				cooling[slot] = time.Now()
			case v != "" && v != "cooling" && v != grants[slot] && next[slot].IsZero():
				next[slot] = time.Now()
			}
		}
		return len(next) == len(held)
	}, long, 5*time.Millisecond, "each slot to be granted again")
	for _, slot := range held {
		require.False(t, cooling[slot].IsZero(), "slot %d cooled down", slot)
		t.Logf("slot %d: cooling after %v, granted again after %v; B + eps is %v", slot,
			cooling[slot].Sub(killed), next[slot].Sub(killed), w.timing.BankHold+w.timing.Eps())
		require.Less(t, cooling[slot].Sub(killed), time.Second, "missed at once")
		require.GreaterOrEqual(t, next[slot].Sub(killed), w.timing.BankHold)
	}
	ended := a.logged(killed, "transport process ended")
	started := a.logged(ended.at, "transport process started")
	t.Logf("noticed after %v, replaced after %v", ended.at.Sub(killed), started.at.Sub(killed))
	require.Less(t, ended.at.Sub(killed), time.Second)
	require.GreaterOrEqual(t, started.at.Sub(ended.at), 100*time.Millisecond, "with back-off")
	w.eventually("the victim to poll again", func() bool { return len(w.asked(a, started.at)) > 0 })
	w.booksAgree()
	for _, r := range []*replica{a, b, c} {
		require.Zero(t, r.stop())
	}
}

// token is the first word of a slot's key: a grant, or "cooling".
func token(value string) string {
	first, _, _ := strings.Cut(value, " ")
	return first
}
