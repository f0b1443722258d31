package leader_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/leader"
	"github.com/cabine-pix/cabine/libs/lease"
)

func TestGracefulStop(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.stay = make(chan struct{})
	b.start()
	l := b.lead(7)
	require.Eventually(t, func() bool { _, ok := b.elector.Term(); return ok }, 5*time.Second, time.Millisecond)
	term, _ := b.elector.Term()
	require.EqualValues(t, 7, term)
	b.stop()
	require.Eventually(t, func() bool { _, ok := b.elector.Term(); return !ok }, 5*time.Second, time.Millisecond)
	require.Zero(t, l.releases(), "not before the child has returned")
	close(b.stay)
	require.ErrorIs(t, <-b.ended, context.Canceled)
	require.NoError(t, <-b.result)
	require.Equal(t, 1, l.releases())
}

func TestLostLeaseStopsChildrenAndElectsAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.start()
	l := b.lead(1)
	l.lose()
	var lost *lease.LostError
	require.ErrorAs(t, <-b.ended, &lost)
	require.Equal(t, lease.Taken, lost.Cause)

	next := newFakeLease(b.clk)
	b.terms <- int64(2)
	b.grants <- next
	b.advance(100*time.Millisecond, func() bool { return len(b.began) == 1 })
	next.renew()
	require.EqualValues(t, 2, <-b.began, "a new leadership has a new term")
	require.NoError(t, testutil.GatherAndCompare(b.reg, strings.NewReader(`
# HELP cabine_leader_ends_total Leaderships that ended, by cause: stopped, deadline, lost, child.
# TYPE cabine_leader_ends_total counter
cabine_leader_ends_total{cause="child",leadership="settlement"} 0
cabine_leader_ends_total{cause="deadline",leadership="settlement"} 0
cabine_leader_ends_total{cause="lost",leadership="settlement"} 1
cabine_leader_ends_total{cause="stopped",leadership="settlement"} 0
`), "cabine_leader_ends_total"))
	b.stop()
	require.NoError(t, <-b.result)
}

func TestDeadlineStopsChildrenBeforeTheKeyEnds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.start()
	l := b.lead(1)
	moved := b.advance(100*time.Millisecond, func() bool { return len(b.ended) == 1 })
	require.ErrorIs(t, <-b.ended, leader.ErrDeadline)
	require.GreaterOrEqual(t, moved, horizon)
	require.Less(t, moved, abortIn, "the key still lives")
	require.Eventually(t, func() bool { return l.releases() == 1 }, 5*time.Second, time.Millisecond)
	b.stop()
	require.NoError(t, <-b.result)
}

func TestRenewalsKeepTheLeadership(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.start()
	l := b.lead(1)
	steps := 0
	b.advance(time.Second, func() bool { l.renew(); steps++; return steps > 60 })
	require.Empty(t, b.ended)
	b.stop()
	require.NoError(t, <-b.result)
}

// A machine that slept wakes with its timers late: the clock decides.
func TestPausedLeaderStopsOnWaking(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.start()
	b.lead(1)
	b.clk.Suspend(time.Hour)
	moved := b.advance(10*time.Millisecond, func() bool { return len(b.ended) == 1 })
	require.ErrorIs(t, <-b.ended, leader.ErrDeadline)
	require.LessOrEqual(t, moved, time.Second)
	b.stop()
	require.NoError(t, <-b.result)
}

func TestStuckChildKeepsTheLeaseAndEndsTheProcess(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		begin       func(*bundle, *fakeLease)
		least, most time.Duration
	}{
		"told to stop":   {func(b *bundle, _ *fakeLease) { b.stop() }, 4 * time.Second, 5 * time.Second},
		"lease lost":     {func(_ *bundle, l *fakeLease) { l.lose() }, abortIn, abortIn + time.Second},
		"deadline":       {func(*bundle, *fakeLease) {}, abortIn, abortIn + time.Second},
		"another failed": {func(b *bundle, _ *fakeLease) { b.fail <- errors.New("broken") }, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.stay = make(chan struct{})
			b.start()
			l := b.lead(1)
			c.begin(b, l)
			if name == "another failed" { // its only child: nothing is stuck
				require.Eventually(t, func() bool { return l.releases() == 1 }, 5*time.Second, time.Millisecond)
				b.stop()
				require.NoError(t, <-b.result)
				return
			}
			moved := b.advance(100*time.Millisecond, func() bool { return len(b.result) == 1 })
			require.ErrorIs(t, <-b.result, leader.ErrStuck)
			require.Zero(t, l.releases())
			require.GreaterOrEqual(t, moved, c.least)
			require.LessOrEqual(t, moved, c.most)
			close(b.stay)
			require.Error(t, <-b.ended)
		})
	}
}

func TestChildThatEndsGivesOthersAChance(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{"error": errors.New("broken"), "nil": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.start()
			l := b.lead(1)
			b.fail <- err
			require.Eventually(t, func() bool { return l.releases() == 1 }, 5*time.Second, time.Millisecond)
			b.terms <- int64(2)
			next := newFakeLease(b.clk)
			b.grants <- next
			require.Len(t, b.grants, 1, "it pauses before it competes again")
			moved := b.advance(100*time.Millisecond, func() bool { return len(b.began) == 1 })
			require.GreaterOrEqual(t, moved, 2*time.Second)
			b.stop()
			require.NoError(t, <-b.result)
		})
	}
}

func TestNoTermNoLeader(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.start()
	b.terms <- errors.New("postgres is down")
	l := newFakeLease(b.clk)
	b.grants <- l
	require.Eventually(t, func() bool { return l.releases() == 1 }, 5*time.Second, time.Millisecond)
	require.Empty(t, b.began)
	b.stop()
	require.NoError(t, <-b.result)
}

func TestTermThatCameTooLateIsNotUsed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.start()
	l := newFakeLease(b.clk)
	b.grants <- l
	b.clk.Advance(horizon)
	b.terms <- int64(1)
	require.Eventually(t, func() bool { return l.releases() == 1 }, 5*time.Second, time.Millisecond)
	require.Empty(t, b.began)
	b.stop()
	require.NoError(t, <-b.result)
}

func TestKeeperStopped(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.start()
	b.grants <- nil
	require.ErrorIs(t, <-b.result, lease.ErrClosed)
}

func TestWhile(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.start()
	ended := make(chan error, 2)
	began := make(chan int64, 2)
	stay := make(chan struct{})
	for range 2 {
		go func() {
			ended <- b.elector.While(t.Context(), func(ctx context.Context, term int64) error {
				began <- term
				<-ctx.Done()
				<-stay
				return context.Cause(ctx)
			})
		}()
	}
	l := b.lead(5)
	require.EqualValues(t, 5, <-began)
	require.EqualValues(t, 5, <-began)
	b.stop()
	require.ErrorIs(t, <-b.ended, context.Canceled)
	require.Zero(t, l.releases(), "it waits for guests too")
	close(stay)
	require.ErrorIs(t, <-ended, context.Canceled)
	require.ErrorIs(t, <-ended, context.Canceled)
	require.NoError(t, <-b.result)
	require.Equal(t, 1, l.releases())

	over, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, b.elector.While(over, nil), context.Canceled)
}

func TestGuestsEndWithTheirOwnContext(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.start()
	b.lead(1)
	broken := errors.New("broken")
	require.ErrorIs(t, b.elector.While(t.Context(), func(context.Context, int64) error { return broken }), broken)
	require.Empty(t, b.ended, "a guest's error is its caller's affair")
	b.stop()
	require.NoError(t, <-b.result)
}

func TestConfigIsJudged(t *testing.T) {
	t.Parallel()
	_, err := leader.New(leader.Config{Name: "a b", StopBudget: time.Microsecond}, leader.Deps{
		Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
	})
	require.ErrorContains(t, err, `name is "a b"`)
	require.ErrorContains(t, err, "owner is empty")
	require.ErrorContains(t, err, "StopBudget is 1µs")
	require.NoError(t, leader.SetConfig("settlement").Validate())
}
