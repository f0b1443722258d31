package main

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/devstack/devtest"
	"github.com/cabine-pix/cabine/libs/store"
)

func three(w *world, settings map[string]string) []*process {
	var all []*process
	for _, name := range []string{"a", "b", "c"} {
		all = append(all, w.start(name, settings))
	}
	return all
}

func without(all []*process, gone *process) []*process {
	return slices.DeleteFunc(slices.Clone(all), func(p *process) bool { return p == gone })
}

// A leader is killed, the next is told to stop, and the third goes on: what settles meanwhile is netted, once. It measures
// times, so nothing else of this package runs beside it.
func TestLeadersAreKilledAndStopped(t *testing.T) { //nolint:paralleltest // see above
	w := newWorld(t)
	w.settle(50, w.first[0].OpensAt.Add(time.Minute))
	w.settle(30, w.first[1].OpensAt.Add(time.Minute))
	replicas, led := three(w, nil), map[string]int{}
	first := w.leader(replicas, led)
	require.EqualValues(t, 50, w.closed(w.first[0].ID).Obligations)
	require.EqualValues(t, 30, w.closed(w.first[1].ID).Obligations)

	began := time.Now()
	first.kill()
	replicas = without(replicas, first)
	w.settle(40, w.now())
	second := w.leader(replicas, led)
	took := time.Since(began)
	t.Logf("after a kill the next leads after %v, the lease is %v", took, ttl)
	require.Less(t, took, ttl+500*time.Millisecond+w.handover())
	w.written()

	began = time.Now()
	second.signal(syscall.SIGTERM)
	replicas = without(replicas, second)
	w.leader(replicas, led)
	took = time.Since(began)
	t.Logf("after a clean stop the next leads after %v", took)
	require.Less(t, took, w.handover())
	require.Zero(t, second.wait())
	w.settle(10, w.now())
	w.written()
	w.sound()
	require.Empty(t, w.creations.Subjects(), "services create no consumers")
	replicas[0].signal(syscall.SIGTERM)
	require.Zero(t, replicas[0].wait())
}

// A leader stands still for longer than its lease and wakes beside its successor: what it writes then is refused.
func TestALeaderThatWasPausedWritesNothingMore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	replicas, led := three(w, nil), map[string]int{}
	first := w.leader(replicas, led)
	first.signal(syscall.SIGSTOP)
	w.leader(without(replicas, first), led)
	w.settle(20, w.now())
	first.signal(syscall.SIGCONT)
	w.eventually("it to know", func() bool { return first.said("leadership lost") == 1 })
	w.settle(20, w.now())
	w.written()
	w.sound()
	for _, p := range replicas {
		p.signal(syscall.SIGTERM)
	}
	for _, p := range replicas {
		require.Zero(t, p.wait())
	}
}

// The leader is killed after it sealed a cycle and while its netting waits for a lock: nothing of it is there, and the next
// leader closes the cycle.
func TestALeaderIsKilledInTheMiddleOfClosing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.settle(25, w.first[0].OpensAt.Add(time.Minute))
	locked := make(chan error, 1)
	server := devtest.PostgresServer(t)
	go func() {
		locked <- server.Exec(t.Context(), w.database, "BEGIN; LOCK TABLE nettings IN EXCLUSIVE MODE; SELECT pg_sleep(6); COMMIT")
	}()
	w.eventually("the table to be locked", func() bool {
		return server.Exec(t.Context(), w.database, "BEGIN; LOCK TABLE nettings IN ROW EXCLUSIVE MODE NOWAIT; ROLLBACK") != nil
	})
	replicas, led := three(w, nil), map[string]int{}
	first := w.leader(replicas, led)
	w.eventually("the cycle to be sealed", func() bool {
		c, err := w.cycles.Get(t.Context(), w.first[0].ID)
		return err == nil && c.State == store.CycleSealed
	})
	began := time.Now()
	first.kill()
	w.leader(without(replicas, first), led)
	took := time.Since(began)
	t.Logf("the next leads after %v", took)
	require.Less(t, took, ttl+500*time.Millisecond+w.handover(), "it does not wait for the transaction of the dead one")
	require.NoError(t, <-locked)
	require.EqualValues(t, 25, w.closed(w.first[0].ID).Obligations)
	lines, err := w.cycles.Lines(t.Context(), w.first[0].ID)
	require.NoError(t, err)
	require.Equal(t, []store.Line{{Party: "87654321", Credits: 2500, CreditCount: 25}}, lines)
	w.sound()
}

func TestAnObligationThatComesAfterItsCycleIsNettedInTheNext(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start("a", nil)
	w.closed(w.first[0].ID)
	w.closed(w.first[1].ID)
	id := w.settle(1, w.first[0].OpensAt.Add(time.Minute))[0]
	w.written()
	o, err := w.obligations.Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, w.first[0].ID, o.LateFrom)
	c, err := w.cycles.Get(t.Context(), o.CycleID)
	require.NoError(t, err)
	require.Equal(t, store.CycleOpen, c.State)
	require.Equal(t, "dia", c.Type, fmt.Sprint(c))
	w.sound()
}

func TestJetStreamIsAwayAndComesBackEmpty(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	replicas := three(w, nil)
	w.settle(20, w.now())
	w.written()
	require.NoError(t, w.nats.Stop())
	w.settle(20, w.now())
	require.NoError(t, w.nats.Start(t.Context()))
	w.written()
	w.settle(20, w.now())
	require.NoError(t, w.nats.RestartEmpty(t.Context()))
	// A consumer that is not there any more is a fault of operation: the service ends, to be started again.
	for _, p := range replicas {
		require.Equal(t, 1, p.wait())
	}
	w.provision()
	w.start("d", nil)
	w.settle(20, w.now())
	w.written()
	w.sound()
}
