package slotpool_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/lease"
	"github.com/cabine-pix/cabine/libs/slotpool"
	"github.com/cabine-pix/cabine/libs/transport"
)

func TestCallCarriesThePermitOfTheLease(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := b.slot(t)
	var permits []transport.Permit
	var timeouts []time.Duration
	b.wire.do = func(ctx context.Context, p transport.Permit, timeout time.Duration) (transport.Exchange, error) {
		permits, timeouts = append(permits, p), append(timeouts, timeout)
		return b.complete(ctx, p, timeout)
	}
	_, err := s.Pull(t.Context(), "", 0)
	require.NoError(t, err)
	b.clk.Advance(time.Second)
	b.lease.renew(b.clk.Now().Deadline(horizon))
	require.NoError(t, s.CloseStream(t.Context(), "c", 2*time.Second))
	_, err = s.Send(t.Context(), [][]byte{[]byte("x")}, time.Hour)
	require.NoError(t, err)

	start := clock.NewFake().Now()
	require.Equal(t, []transport.Permit{
		{Slot: transport.SlotID{Channel: "cpm", ISPB: "12345678", Slot: 3}, Grant: "g1", NotAfter: start.Deadline(horizon)},
		{Slot: transport.SlotID{Channel: "cpm", ISPB: "12345678", Slot: 3}, Grant: "g1", NotAfter: start.Deadline(horizon + time.Second)},
		{Slot: transport.SlotID{Channel: "cpm", ISPB: "12345678", Slot: 3}, Grant: "g1", NotAfter: start.Deadline(horizon + time.Second)},
	}, permits)
	require.Equal(t, []time.Duration{receiveTimeout, 2 * time.Second, receiveTimeout}, timeouts, "a timeout above the pool's is cut")
	require.Equal(t, 3, b.lease.served)
	require.EqualValues(t, 3, b.count(t, "cabine_slot_start_margin_seconds"))
	require.EqualValues(t, 1, b.count(t, "cabine_slot_calls_total", "pull", "ok"))
}

func TestNoCallAfterTheStartDeadline(t *testing.T) {
	t.Parallel()
	for name, pass := range map[string]func(*bench){
		"boot time":  func(b *bench) { b.clk.Advance(horizon) },
		"suspended":  func(b *bench) { b.clk.Suspend(horizon) },
		"wall clock": func(b *bench) { b.clk.StepWall(horizon) },
		"lost":       func(b *bench) { b.lease.lose() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			s := b.slot(t)
			b.wire.do = func(context.Context, transport.Permit, time.Duration) (transport.Exchange, error) {
				t.Error("the transport was called")
				return transport.Exchange{}, nil
			}
			require.True(t, s.Startable())
			pass(b)
			_, err := s.Pull(t.Context(), "", 0)
			require.ErrorIs(t, err, transport.NotSent)
			require.False(t, s.Tainted(), "nothing was written")
			require.False(t, s.Startable())
			require.Zero(t, b.lease.served, "a grant that has served nothing does not yield")
			require.EqualValues(t, 1, b.count(t, "cabine_slot_stale_starts_blocked_total", "host"))
		})
	}
}

// Each row is one way a call can end and what the slot owes the bank for it.
func TestEndingDecidesHowTheSlotIsGivenBack(t *testing.T) {
	t.Parallel()
	start := clock.NewFake().Now()
	wrote, reaped, deadline := start.Boot.Add(time.Second), start.Boot.Add(4*time.Second), start.Boot.Add(horizon)
	for name, tt := range map[string]struct {
		x    transport.Exchange
		err  error
		how  slotpool.Ending
		last clock.Instant
	}{
		"read to the end":                     {x: transport.Exchange{FirstByte: wrote, Complete: true}, how: slotpool.Released},
		"5xx read to the end":                 {err: &transport.Error{Kind: transport.Unavailable, Exchange: transport.Exchange{FirstByte: wrote, Complete: true}}, how: slotpool.Released},
		"nothing written":                     {err: &transport.Error{Kind: transport.NotSent}, how: slotpool.Released},
		"first byte reported, no answer":      {err: &transport.Error{Kind: transport.OutcomeUnknown, Exchange: transport.Exchange{FirstByte: wrote}}, how: slotpool.Cooled, last: wrote},
		"silent plugin":                       {err: context.DeadlineExceeded, how: slotpool.Cooled, last: deadline},
		"plugin reaped":                       {err: &transport.Error{Kind: transport.PluginGone, LastWrite: reaped}, how: slotpool.Cooled, last: reaped},
		"plugin gone, reaping unknown":        {err: &transport.Error{Kind: transport.PluginGone}, how: slotpool.Cooled, last: deadline},
		"unknown without a first byte":        {err: &transport.Error{Kind: transport.OutcomeUnknown}, how: slotpool.Cooled, last: deadline},
		"success that was not read to an end": {x: transport.Exchange{FirstByte: wrote}, how: slotpool.Cooled, last: deadline},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			s := b.slot(t)
			b.wire.do = func(context.Context, transport.Permit, time.Duration) (transport.Exchange, error) {
				return tt.x, tt.err
			}
			_, _ = s.Pull(t.Context(), "", 0)
			require.Equal(t, tt.how == slotpool.Cooled, s.Tainted())

			how, err := s.Give(t.Context())
			require.NoError(t, err)
			require.Equal(t, tt.how, how)
			if tt.how == slotpool.Cooled {
				require.Equal(t, []string{"disconnect", "cool down"}, b.events)
				require.Equal(t, []clock.Instant{tt.last}, b.lease.cooled)
			} else {
				require.Equal(t, []string{"disconnect", "release"}, b.events)
			}
		})
	}
}

func TestTaintedSlotServesNoFurtherRequest(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := b.slot(t)
	wrote := b.clk.Now().Boot
	calls := 0
	b.wire.do = func(context.Context, transport.Permit, time.Duration) (transport.Exchange, error) {
		calls++
		return transport.Exchange{}, &transport.Error{Kind: transport.OutcomeUnknown, Exchange: transport.Exchange{FirstByte: wrote}}
	}
	_, err := s.Pull(t.Context(), "", 0)
	require.ErrorIs(t, err, transport.OutcomeUnknown)
	require.ErrorIs(t, s.CloseStream(t.Context(), "c", 0), transport.NotSent)
	require.Equal(t, 1, calls)
}

func TestSilentTransportIsCutAfterTheLatestFirstByteAndItsTimeout(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *slotpool.Config) { c.Margin = 500 * time.Millisecond })
	s := b.slot(t)
	entered := make(chan struct{})
	b.wire.do = func(ctx context.Context, _ transport.Permit, _ time.Duration) (transport.Exchange, error) {
		close(entered)
		<-ctx.Done()
		return transport.Exchange{}, context.Cause(ctx)
	}
	done := make(chan error, 1)
	go func() { _, err := s.Pull(t.Context(), "", 2*time.Second); done <- err }()
	<-entered
	b.lease.lose() // in mid-call: the request was started in time and may end
	b.clk.Advance(horizon + 2*time.Second + 499*time.Millisecond)
	select {
	case err := <-done:
		t.Fatalf("cut too early: %v", err)
	default:
	}
	b.clk.Advance(time.Millisecond)
	require.ErrorContains(t, <-done, "did not end the call in time")
	how, err := s.Give(t.Context())
	require.NoError(t, err)
	require.Equal(t, slotpool.Lost, how)
	require.Equal(t, []string{"disconnect"}, b.events, "redis is not asked with a dead token")
}

func TestCallEndsBeforeTheAbortLimit(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	cfg := slotpool.Config{Channel: "cpm", ISPB: "12345678", BankHold: bankHold, ReceiveTimeout: receiveTimeout}.WithDefaults()
	require.LessOrEqual(t, cfg.ReceiveTimeout+cfg.Margin, bankHold)
	cfg.Margin = bankHold - receiveTimeout + 1
	require.ErrorContains(t, cfg.Validate(), "want at most BankHold 8s")
	require.NotNil(t, b.pool)
}

func TestOneCallAtATime(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := b.slot(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	b.wire.do = func(ctx context.Context, p transport.Permit, d time.Duration) (transport.Exchange, error) {
		close(entered)
		<-leave
		return b.complete(ctx, p, d)
	}
	done := make(chan error, 1)
	go func() { _, err := s.Pull(t.Context(), "", 0); done <- err }()
	<-entered
	_, err := s.Pull(t.Context(), "", 0)
	require.ErrorIs(t, err, transport.NotSent)
	close(leave)
	require.NoError(t, <-done)
}

func TestGiveInMidCallCoolsDownFromItsDeadline(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := b.slot(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	b.wire.do = func(ctx context.Context, p transport.Permit, d time.Duration) (transport.Exchange, error) {
		close(entered)
		<-leave
		return b.complete(ctx, p, d)
	}
	done := make(chan error, 1)
	deadline := b.lease.StartDeadline()
	go func() { _, err := s.Pull(t.Context(), "", 0); done <- err }()
	<-entered
	b.lease.renew(b.clk.Now().Deadline(2 * horizon))
	how, err := s.Give(t.Context())
	require.NoError(t, err)
	require.Equal(t, slotpool.Cooled, how)
	require.Equal(t, []clock.Instant{deadline.Boot}, b.lease.cooled, "the deadline of the call, not of the lease")
	close(leave)
	require.NoError(t, <-done)
	_, err = s.Pull(t.Context(), "", 0)
	require.ErrorIs(t, err, transport.NotSent)
}

func TestGiveIsIdempotentAndOutlivesItsCaller(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := b.slot(t)
	b.lease.giveError = errors.New("redis is away")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 {
		how, err := s.Give(ctx)
		require.Equal(t, slotpool.Released, how)
		require.ErrorContains(t, err, "redis is away")
		require.NotErrorIs(t, err, context.Canceled)
	}
	require.Equal(t, 1, b.lease.released)
}

func TestFailingDisconnectDoesNotKeepTheSlot(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *slotpool.Config) { c.DisconnectTimeout = time.Millisecond })
	s := b.slot(t)
	b.wire.disconnect = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	how, err := s.Give(t.Context())
	require.NoError(t, err)
	require.Equal(t, slotpool.Released, how)
}

func TestReleaseLingersAfterTheLastAnswer(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *slotpool.Config) { c.Linger = 50 * time.Millisecond })
	s := b.slot(t)
	_, err := s.Pull(t.Context(), "", 0)
	require.NoError(t, err)
	b.clk.Advance(20 * time.Millisecond)
	done := make(chan slotpool.Ending, 1)
	go func() { how, _ := s.Give(t.Context()); done <- how }()
	require.Eventually(t, func() bool { n, _ := b.clk.Timers(); return n == 1 }, 5*time.Second, time.Millisecond)
	b.clk.Advance(29 * time.Millisecond)
	select {
	case <-done:
		t.Fatal("released before the linger was over")
	default:
	}
	b.clk.Advance(time.Millisecond)
	require.Equal(t, slotpool.Released, <-done)
}

func TestLateWriteIsCounted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := b.slot(t)
	b.wire.do = func(_ context.Context, p transport.Permit, _ time.Duration) (transport.Exchange, error) {
		return transport.Exchange{FirstByte: p.NotAfter.Boot, Complete: true}, nil
	}
	_, err := s.Pull(t.Context(), "", 0)
	require.NoError(t, err)
	require.EqualValues(t, 1, b.count(t, "cabine_slot_late_writes_total"))
}

func TestStartBlockedByTheTransportIsCounted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := b.slot(t)
	b.wire.do = func(context.Context, transport.Permit, time.Duration) (transport.Exchange, error) {
		b.clk.Advance(horizon)
		return transport.Exchange{}, &transport.Error{Kind: transport.NotSent, Reason: "past deadline"}
	}
	_, err := s.Pull(t.Context(), "", 0)
	require.ErrorIs(t, err, transport.NotSent)
	require.EqualValues(t, 1, b.count(t, "cabine_slot_stale_starts_blocked_total", "transport"))
}

func TestAcquireReportsTheLeaseLibrarysError(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	pool, err := slotpool.New(slotpool.Config{Channel: "csm", ISPB: "12345678", BankHold: bankHold, ReceiveTimeout: receiveTimeout},
		slotpool.Deps{
			Acquire:   func(context.Context, lease.Class) (slotpool.Lease, error) { return nil, lease.ErrNoSlot },
			Transport: b.wire, Clock: b.clk, Metrics: b.reg, Log: discard(),
		})
	require.NoError(t, err, "two channels share one registry")
	_, err = pool.Acquire(t.Context(), lease.Poll)
	require.ErrorIs(t, err, lease.ErrNoSlot)
}
