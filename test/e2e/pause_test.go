package e2e_test

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/icom/icomtest"
)

// pause is one replica that stood still for longer than its lease.
type pause struct {
	victim, b, c *replica
	slots        []int     // that the victim polled when it was stopped
	at, over     time.Time // just before SIGSTOP, just before SIGCONT
}

// who is stopped.
type who struct{ host, plugin bool }

// stopAndContinue stops one of three replicas in the middle of traffic with a busy bank, for T + 1 s.
func (w *world) stopAndContinue(stopped who) pause {
	w.t.Helper()
	w.busy()
	w.consume()
	w.traffic(30)
	p := pause{}
	p.victim, p.b, p.c = w.three()
	require.Len(w.t, p.victim.held(), 2)
	p.slots = p.victim.held()
	var pids []int
	if stopped.host {
		pids = append(pids, p.victim.cmd.Process.Pid)
	}
	if stopped.plugin {
		pids = append(pids, p.victim.plugin())
	}
	p.at = time.Now()
	w.freeze(pids...)
	w.until(p.at.Add(w.timing.TTL + time.Second))
	p.over = time.Now()
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGCONT) // a host may have killed and replaced a silent plugin
	}
	return p
}

// Goal: a replica that stood still for longer than its lease, host, plugin or both, writes
// not one byte under it on waking; meanwhile the others poll its slots, and nothing is lost.
//
// Method: SIGSTOP, T + 1 s, SIGCONT, with B exactly what the bank may count plus u. The
// bank's timeline shows what the victim asked: nothing from the latest start deadline that
// its lease may have had, S + T - eps - B, until it was granted a slot again.
func TestPausedReplicaWritesNothingUnderItsOldLease(t *testing.T) {
	t.Parallel()
	for name, stopped := range map[string]who{
		"host": {host: true}, "plugin": {plugin: true}, "both": {host: true, plugin: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, options{})
			p := w.stopAndContinue(stopped)

			p.takenOver(t, w, stopped)
			again := p.victim.logged(p.over, "slot granted")
			require.Empty(t, w.askedBetween(p.victim, p.at.Add(w.timing.Horizon()), again.at), "not one byte under the old lease")
			w.eventually("the woken replica to poll", func() bool { return len(w.asked(p.victim, again.at)) > 0 })
			if stopped.host {
				require.NotEmpty(t, p.victim.logs(p.over, "slot given", "how", "lost"), "it noticed")
			}
			w.booksAgree()
			for _, r := range []*replica{p.victim, p.b, p.c} {
				require.Zero(t, r.stop())
			}
		})
	}
}

// takenOver checks who polled the slots of the victim while it stood still: another replica,
// by T + 1 s after the stop. A host with a silent plugin renews its leases, so it has them until
// its calls are over; from the moment it calls itself not ready it takes none, and once its plugin is awake it may be
// the next owner of what it gave.
func (p pause) takenOver(t *testing.T, w *world, stopped who) {
	t.Helper()
	limit := w.timing.TTL + time.Second
	since := map[*replica]time.Time{p.b: p.at, p.c: p.at}
	if !stopped.host {
		limit = w.timing.Horizon() + w.timing.ReceiveTimeout + 3*time.Second // the wait for an answer, a disconnect that gets none either, and the next try
		shut := p.victim.logged(p.at, "not ready to poll").at
		open := p.victim.logged(shut, "ready to poll").at
		since[p.victim] = open
		for _, l := range p.victim.logs(shut, "slot granted") {
			require.False(t, l.at.Before(open), "slot %d was granted at %v, between %v and %v", l.slot(), l.at, shut, open)
		}
	}
	for _, slot := range p.slots {
		var first time.Time
		w.eventually("the slot's next owner to poll", func() bool {
			for r, at := range since {
				if polls := r.logs(at, "first poll", "slot", slot); len(polls) > 0 && (first.IsZero() || polls[0].at.Before(first)) {
					first = polls[0].at
				}
			}
			return !first.IsZero()
		})
		t.Logf("slot %d polled again %v after the stop, T is %v", slot, first.Sub(p.at), w.timing.TTL)
		require.Less(t, first.Sub(p.at), limit)
	}
}

// Goal: the judge of the test above can fail.
//
// Method: the same with a poller whose acquire script grants every slot to everybody.
func TestPausedReplicaWithoutTheCapIsFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{bank: icomtest.Config{AllowViolations: true}, program: program(withoutCap)})
	w.consume()
	w.traffic(30)
	w.busy()
	a, b, c := w.start("a", settings{}), w.start("b", settings{}), w.start("c", settings{})
	w.eventually("a replica to poll a slot that another polls", func() bool {
		return len(a.held())+len(b.held())+len(c.held()) > slots
	})
	at := time.Now()
	w.freeze(a.cmd.Process.Pid, a.plugin())
	w.until(at.Add(w.timing.TTL + time.Second))
	a.signal(syscall.SIGCONT)
	_ = syscall.Kill(a.plugin(), syscall.SIGCONT)
	w.overCap()
}

// Goal: the judge sees a B that is too short, so the times above are as tight as they say.
//
// Method: replicas are told a B of half of what this bank counts; they give up a request
// and poll the slot again while the bank still has it.
func TestBankHoldTooShortIsFound(t *testing.T) {
	t.Parallel()
	short := timing()
	short.BankHold, short.ReceiveTimeout = bankCounts/2, bankCounts/2-200*time.Millisecond
	w := newWorld(t, options{bank: icomtest.Config{AllowViolations: true}, timing: short})
	require.NoError(t, w.bank.SetFaults("cpm", icomtest.Fault{Delay: bankCounts - bankHold}))
	w.start("a", settings{})
	w.overCap()
}

// overCap waits until the judge has found more requests than the cap.
func (w *world) overCap() {
	w.t.Helper()
	w.eventually("the judge to find requests above the cap", func() bool {
		return slices.ContainsFunc(w.bank.Violations(), func(v icomtest.Violation) bool { return v.Kind == icomtest.OverCap })
	})
	p := w.count()
	w.t.Logf("bank: peak %d of %d, %d violations", p.PeakRequests, slots, p.Violations)
	require.Greater(w.t, p.PeakRequests, slots)
}
