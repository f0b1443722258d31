package main

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/clock"
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

// leadersAreKilledAndStopped: a leader is killed, the next is told to stop, and the third goes on: what settles meanwhile is
// netted, once.
func leadersAreKilledAndStopped(t *testing.T) {
	t.Helper()
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
	require.Less(t, took, takeover)
	w.written()

	began = time.Now()
	second.signal(syscall.SIGTERM)
	replicas = without(replicas, second)
	w.leader(replicas, led)
	took = time.Since(began)
	t.Logf("after a clean stop the next leads after %v", took)
	require.Less(t, took, handover)
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

// The leader is gone after it sealed a cycle and while its netting waits for a lock: killed, or standing still for longer
// than its lease with its transaction open. The next leader closes the cycle, once and with the same lines; what the old one
// finds when it wakes is that its time is over.
func TestALeaderIsGoneInTheMiddleOfClosing(t *testing.T) {
	t.Parallel()
	for name, gone := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "paused": syscall.SIGSTOP} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.settle(25, w.first[0].OpensAt.Add(time.Minute))
			unlock := w.lock("nettings")
			replicas, led := three(w, nil), map[string]int{}
			first := w.leader(replicas, led)
			w.waits("nettings")
			require.Equal(t, store.CycleSealed, w.cycle(w.first[0].ID).State)
			began := time.Now()
			first.signal(gone)
			w.leader(without(replicas, first), led)
			took := time.Since(began)
			t.Logf("the next leads after %v", took)
			require.Less(t, took, ttl+2*time.Second, "it does not wait for the transaction of the one before")
			unlock()
			if gone == syscall.SIGSTOP {
				first.signal(syscall.SIGCONT)
				w.eventually("it to know", func() bool { return first.said("leadership lost") == 1 })
			}
			require.EqualValues(t, 25, w.closed(w.first[0].ID).Obligations)
			w.lines(w.first[0].ID, store.Line{Party: "87654321", Credits: 2500, CreditCount: 25})
			require.Zero(t, first.said("cycle closed"), "the old one closed nothing")
			w.sound()
		})
	}
}

// A leader was killed between sealing a cycle and closing it, and left nothing but the seal.
func TestALeaderIsKilledBetweenSealingAndClosing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.settle(25, w.first[0].OpensAt.Add(time.Minute))
	_, err := w.obligations.Book(t.Context(), ids)
	require.NoError(t, err)
	dead := w.mint()
	sealed, err := w.cycles.Seal(t.Context(), dead, w.first[0].ID, store.Patience{Grace: time.Millisecond, Most: time.Minute})
	require.NoError(t, err)
	require.True(t, sealed)
	three(w, nil)
	require.EqualValues(t, 25, w.closed(w.first[0].ID).Obligations)
	w.lines(w.first[0].ID, store.Line{Party: "87654321", Credits: 2500, CreditCount: 25})
	_, err = w.cycles.Close(t.Context(), dead, w.first[0].ID)
	require.ErrorIs(t, err, store.ErrStaleTerm, "were it alive after all, its next write is refused")
	w.sound()
}

// PostgreSQL dies while a cycle is being closed and obligations are being written, and again and again while both go on. It
// comes back with what was committed, and with that alone: no obligation is lost or there twice, and no cycle is netted twice.
func TestPostgresDiesInTheMiddleOfClosingAndOfWriting(t *testing.T) {
	t.Parallel()
	postgres, rand := devtest.OwnPostgres(t), devtest.Rand(t)
	require.NoError(t, postgres.CreateDatabase(t.Context(), "cabine"))
	w := newWorldOn(t, postgres, postgres.DSN("cabine"))
	replicas := three(w, map[string]string{"CABINE_CYCLES_DRILL": "1s"})
	enough := w.settling()
	w.closes(0)

	w.lock("nettings")
	w.waits("nettings")
	w.lock("obligations") // not before: a cycle is sealed when all of it is written
	w.waits("nettings", "obligations")
	for crash := range 2 {
		if crash > 0 {
			w.closes(5)
			require.NoError(t, clock.Sleep(t.Context(), clock.System(), time.Duration(rand.Int64N(int64(time.Second)))))
		}
		require.NoError(t, postgres.Kill())
		require.NoError(t, postgres.Start(t.Context()))
		w.eventually("the database to answer", func() bool { return w.db.Ping(t.Context()) == nil })
	}
	w.closes(5)
	enough()
	w.netsAll()
	w.sound()
	for _, p := range replicas {
		p.signal(syscall.SIGTERM)
	}
	for _, p := range replicas {
		require.Zero(t, p.wait())
	}
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
	c := w.cycle(o.CycleID)
	require.Equal(t, store.CycleOpen, c.State)
	require.Equal(t, "dia", c.Type, fmt.Sprint(c))
	w.sound()
}
