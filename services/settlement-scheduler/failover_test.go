package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/devstack"
	"github.com/cabine-pix/cabine/libs/devstack/devtest"
	"github.com/cabine-pix/cabine/libs/store"
)

// Goal: the machine of PostgreSQL is lost while a cycle is being closed, obligations are being written and payments that settle
// wait for the standby to have them; the standby is promoted under the address that the replicas know. Nothing that was
// answered is lost, nothing is there twice, and terms go on growing.
func TestPostgresFailsOverInTheMiddleOfClosingAndOfWriting(t *testing.T) {
	t.Parallel()
	primary := devtest.OwnPostgresWith(t, devstack.PostgresOptions{Replication: true})
	require.NoError(t, primary.CreateDatabase(t.Context(), "cabine"))
	address := devtest.Proxy(t, primary.Addr())
	w := newWorldOn(t, primary, devstack.DSNThrough(address.Addr(), "cabine"))
	replicas, led := three(w, map[string]string{"CABINE_CYCLES_DRILL": "1s"}), map[string]int{}
	link := devtest.Proxy(t, primary.Addr())
	standby, err := primary.AddStandby(t.Context(), link.Addr())
	require.NoError(t, err)
	first := w.leader(replicas, led)
	answered, enough := w.answering()
	w.closes(0)

	w.lock("nettings")
	w.waits("nettings")
	w.lock("obligations") // not before: a cycle is sealed when all of it is written
	w.waits("nettings", "obligations")
	before := w.closedCycles()
	require.NotEmpty(t, before)
	link.Blackhole(devstack.Both)
	w.eventually("a commit to wait for the standby", func() bool {
		return primary.Exec(t.Context(), "postgres", `DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep')
			THEN RAISE EXCEPTION 'nobody waits'; END IF; END $$`) == nil
	})
	require.NoError(t, primary.Lose())
	address.Target(standby.Addr()) // before it takes writes: replicas meet a standby that does not
	met := address.Accepted()
	w.eventually("somebody to meet the standby", func() bool { return address.Accepted() > met })
	require.NoError(t, standby.Promote(t.Context()))
	w.postgres = standby

	w.closes(5)
	for id, lines := range before {
		require.Equal(t, store.CycleClosed, w.cycle(id).State)
		w.lines(id, lines...)
	}
	first.signal(syscall.SIGTERM)
	w.leader(without(replicas, first), led)
	enough()
	w.netsAll()
	w.sound()
	w.everyAnswer(answered())
	contradictions, err := w.payments.EndedTwice(t.Context())
	require.NoError(t, err)
	require.Empty(t, contradictions)
	for _, p := range without(replicas, first) {
		p.signal(syscall.SIGTERM)
	}
	for _, p := range replicas {
		require.Zero(t, p.wait(), "none exited by itself")
		for _, contradiction := range []string{"a closed cycle does not come to its lines any more", "announced and not settled in the books"} {
			require.Zero(t, p.said(contradiction), contradiction)
		}
	}
	termsGrow(t, replicas)
}

// answering is settling that keeps the identifiers whose commit was answered.
func (w *world) answering() (answered func() []string, stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	var settler sync.WaitGroup
	var all []string
	settler.Go(func() {
		for ctx.Err() == nil {
			ids, err := w.add(ctx, 5, time.Now())
			switch {
			case err == nil:
				all = append(all, ids...)
			case ctx.Err() == nil && !errors.Is(err, store.ErrUnavailable):
				w.t.Error(err)
			}
			_ = clock.Sleep(ctx, clock.System(), 20*time.Millisecond)
		}
	})
	stop = func() { cancel(); settler.Wait() }
	w.t.Cleanup(stop)
	return func() []string { stop(); return all }, stop
}

// closedCycles are those that are closed by now, and their lines.
func (w *world) closedCycles() map[int64][]store.Line {
	w.t.Helper()
	now := w.now()
	cycles, err := w.cycles.Between(w.t.Context(), now.AddDate(0, 0, -10), now.AddDate(0, 0, 10))
	require.NoError(w.t, err)
	closed := map[int64][]store.Line{}
	for _, c := range cycles {
		if c.State != store.CycleClosed {
			continue
		}
		closed[c.ID], err = w.cycles.Lines(w.t.Context(), c.ID)
		require.NoError(w.t, err)
	}
	return closed
}

// netsAll waits until everything that settled by now is in a closed cycle, and requires that it is in one only.
func (w *world) netsAll() {
	w.t.Helper()
	w.written()
	last := w.now()
	w.eventually("the last cycle to be closed", func() bool {
		unclosed, _, _, err := w.cycles.Unclosed(w.t.Context())
		return err == nil && !slices.ContainsFunc(unclosed, func(c store.Cycle) bool { return c.OpensAt.Before(last) })
	})
	settled, err := w.payments.Books(w.t.Context())
	require.NoError(w.t, err)
	require.Len(w.t, settled, 1)
	require.Equal(w.t, settled[0].Count, w.netted(), "each obligation in one closed cycle")
}

// everyAnswer requires that each payment whose commit was answered has its obligation in a closed cycle.
func (w *world) everyAnswer(ids []string) {
	w.t.Helper()
	var lost []string
	for _, id := range ids {
		o, err := w.obligations.Get(w.t.Context(), id)
		if errors.Is(err, store.ErrNotFound) {
			lost = append(lost, id)
			continue
		}
		require.NoError(w.t, err)
		require.Equal(w.t, store.CycleClosed, w.cycle(o.CycleID).State)
	}
	require.Empty(w.t, lost, "of %d", len(ids))
	w.t.Logf("%d payments were answered, none is lost", len(ids))
}

// termsGrow requires that each leader of ours had a greater term than the one before it.
func termsGrow(t *testing.T, replicas []*process) {
	t.Helper()
	type led struct {
		at   string
		term float64
	}
	var all []led
	for _, p := range replicas {
		p.mu.Lock()
		for _, line := range p.lines {
			if line["msg"] == "leading" {
				all = append(all, led{at: line["time"].(string), term: line["term"].(float64)})
			}
		}
		p.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b led) int { return cmp.Compare(a.at, b.at) })
	require.GreaterOrEqual(t, len(all), 2)
	for i := 1; i < len(all); i++ {
		require.Greater(t, all[i].term, all[i-1].term)
	}
	t.Logf("leaders: %v", all)
}
