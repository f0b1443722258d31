package drain_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/drain"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bundle is a drain on a fake clock whose phases write their story down.
type bundle struct {
	t     *testing.T
	clk   *clock.Fake
	log   *slog.Logger
	out   *syncBuffer
	mu    sync.Mutex
	story []string
	exits chan int
}

func setup(t *testing.T) *bundle {
	t.Helper()
	out := &syncBuffer{}
	return &bundle{t: t, clk: clock.NewFake(), out: out, log: slog.New(slog.NewTextHandler(out, nil)), exits: make(chan int, 1)}
}

func (b *bundle) drain(phases ...drain.Phase) *drain.Drain {
	d := drain.New(b.log, b.clk, phases...).WithExit(func(code int) { b.exits <- code })
	b.t.Cleanup(d.Disarm)
	return d
}

func (b *bundle) tell(s string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.story = append(b.story, s)
}

func (b *bundle) told() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.story...)
}

func (b *bundle) quick(name string) drain.Phase {
	return drain.Phase{Name: name, Budget: time.Second, Run: func(context.Context) error {
		b.tell(name)
		return nil
	}}
}

// waiting tells its name and waits for the end of its context.
func (b *bundle) waiting(name string) drain.Phase {
	return drain.Phase{Name: name, Budget: time.Second, Run: func(ctx context.Context) error {
		b.tell(name)
		<-ctx.Done()
		b.tell(context.Cause(ctx).Error())
		return ctx.Err()
	}}
}

func (b *bundle) start(d *drain.Drain) <-chan error {
	done := make(chan error, 1)
	go func() { done <- d.Run(context.Background()) }()
	return done
}

// until waits until the story has n parts and the given number of timers is armed.
func (b *bundle) until(n, timers int) {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		armed, _ := b.clk.Timers()
		return len(b.told()) >= n && armed >= timers
	}, 5*time.Second, time.Millisecond)
}

func TestPhasesRunInOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := b.drain(b.quick("take no more"), b.quick("let it end"), b.quick("release"))
	require.Equal(t, 3*time.Second, d.Total())
	require.NoError(t, d.Run(t.Context()))
	require.Equal(t, []string{"take no more", "let it end", "release"}, b.told())
	require.NoError(t, d.Run(t.Context()), "a second call waits and runs nothing")
	require.Len(t, b.told(), 3)
}

func TestOverrunIsCancelledAtItsBudget(t *testing.T) {
	t.Parallel()
	b := setup(t)
	done := b.start(b.drain(b.waiting("slow"), b.quick("release")))
	b.until(1, 2)
	b.clk.Advance(999 * time.Millisecond)
	require.Equal(t, []string{"slow"}, b.told())
	b.clk.Advance(time.Millisecond)
	err := <-done
	require.ErrorIs(t, err, drain.ErrOverrun)
	require.ErrorContains(t, err, "stopping, slow")
	require.Equal(t, []string{"slow", drain.ErrOverrun.Error(), "release"}, b.told())
	require.Contains(t, b.out.String(), "phase failed")
}

// What a phase waited for is ended by a later one, which alone knows whether that cost something.
func TestAWaitThatSpendsItsBudgetIsNoFailure(t *testing.T) {
	t.Parallel()
	b := setup(t)
	wait := b.waiting("wait")
	wait.Waits = true
	done := b.start(b.drain(wait, b.quick("cut")))
	b.until(1, 2)
	b.clk.Advance(time.Second)
	require.NoError(t, <-done)
	require.Equal(t, []string{"wait", drain.ErrOverrun.Error(), "cut"}, b.told())
	require.Contains(t, b.out.String(), "phase not over in its budget")
}

// What failed by itself has failed, also at the end of its budget.
func TestAWaitThatFailsAtItsBudgetIsAFailure(t *testing.T) {
	t.Parallel()
	b := setup(t)
	broken := errors.New("broken")
	done := b.start(b.drain(drain.Phase{Name: "wait", Budget: time.Second, Waits: true, Run: func(ctx context.Context) error {
		b.tell("wait")
		<-ctx.Done()
		return broken
	}}))
	b.until(1, 2)
	b.clk.Advance(time.Second)
	require.ErrorIs(t, <-done, broken)
}

func TestPhaseThatIgnoresItsContextIsLeftBehind(t *testing.T) {
	t.Parallel()
	b := setup(t)
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	done := b.start(b.drain(drain.Phase{Name: "deaf", Budget: time.Second, Run: func(context.Context) error {
		b.tell("deaf")
		<-release
		return nil
	}}, b.quick("release")))
	b.until(1, 2)
	b.clk.Advance(time.Second)
	b.until(1, 2) // watchdog and linger
	require.Eventually(t, func() bool { b.clk.Advance(drain.Linger); return len(b.told()) == 2 }, 5*time.Second, time.Millisecond)
	err := <-done
	require.ErrorContains(t, err, "left behind")
	require.ErrorIs(t, err, drain.ErrOverrun)
}

func TestFailureAndPanicDoNotKeepTheNextFromRunning(t *testing.T) {
	t.Parallel()
	b := setup(t)
	broken := errors.New("broken")
	err := b.drain(
		drain.Phase{Name: "a", Budget: time.Second, Run: func(context.Context) error { return broken }},
		drain.Phase{Name: "b", Budget: time.Second, Run: func(context.Context) error { panic("boom") }},
		b.quick("release")).Run(t.Context())
	require.ErrorIs(t, err, broken)
	require.ErrorContains(t, err, "stopping, b: panic: boom")
	require.Equal(t, []string{"release"}, b.told())
}

func TestAbortEndsWaitingAndStillReleases(t *testing.T) {
	t.Parallel()
	b := setup(t)
	gate := make(chan struct{})
	d := b.drain(b.waiting("let it end"), b.waiting("close streams"), drain.Phase{
		Name: "release", Budget: time.Second, Always: true, Run: func(ctx context.Context) error {
			<-gate
			b.tell("release")
			return ctx.Err()
		},
	})
	done := b.start(d)
	b.until(1, 2)
	d.Abort()
	<-d.Aborted()
	b.until(4, 2)
	require.Equal(t, []string{
		"let it end", drain.ErrAborted.Error(),
		"close streams", drain.ErrAborted.Error(),
	}, b.told())
	close(gate)
	require.NoError(t, <-done, "what stopped because it was told to did not fail")
	require.Equal(t, "release", b.told()[4])
}

func TestEndOfContextAborts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	d := b.drain(b.waiting("let it end"), drain.Phase{Name: "release", Budget: time.Second, Always: true, Run: func(ctx context.Context) error {
		return ctx.Err()
	}})
	require.NoError(t, d.Run(ctx))
	<-d.Aborted()
}

func TestWatchdogEndsTheProcess(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := b.drain(b.quick("a"), b.quick("b"))
	require.NoError(t, d.Run(t.Context()))
	b.clk.Advance(2*time.Second + drain.WatchdogSlack - time.Millisecond)
	require.Empty(t, b.exits)
	b.clk.Advance(time.Millisecond)
	require.Equal(t, 1, <-b.exits)
	require.Contains(t, b.out.String(), "ending the process")
}

func TestDisarmedWatchdogIsSilent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := b.drain(b.quick("a"))
	require.NoError(t, d.Run(t.Context()))
	d.Disarm()
	b.clk.Advance(time.Hour)
	require.Empty(t, b.exits)
}

func TestLimits(t *testing.T) {
	t.Parallel()
	require.NoError(t, drain.Limits{Phases: 40 * time.Second, Stop: 50 * time.Second, Platform: 60 * time.Second}.Validate())
	for name, c := range map[string]struct {
		l    drain.Limits
		want string
	}{
		"phases and watchdog": {
			drain.Limits{Phases: 45 * time.Second, Stop: 50 * time.Second, Platform: 60 * time.Second},
			"drain phases 45s + watchdog 5s = 50s, want less than the stop timeout 50s",
		},
		"platform": {
			drain.Limits{Phases: time.Second, Stop: 60 * time.Second, Platform: 60 * time.Second},
			"stop timeout is 1m0s, want less than the platform's stopTimeout 1m0s",
		},
		"fargate": {
			drain.Limits{Phases: time.Second, Stop: 60 * time.Second, Platform: 121 * time.Second},
			"the platform's stopTimeout is 2m1s, want at most 2m0s",
		},
		"nothing": {drain.Limits{Stop: 10 * time.Second, Platform: 20 * time.Second}, "drain phases take 0s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.ErrorContains(t, c.l.Validate(), c.want)
		})
	}
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// blocked is a log that nobody reads.
type blocked struct{ gate chan struct{} }

func (b blocked) Write(p []byte) (int, error) {
	<-b.gate
	return len(p), nil
}

func TestWatchdogEndsTheProcessThoughItsLogBlocks(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	clk := clock.NewFake()
	exits := make(chan int, 1)
	d := drain.New(slog.New(slog.NewTextHandler(blocked{gate}, nil)), clk, drain.Phase{
		Name: "a", Budget: time.Second, Run: func(context.Context) error { return nil },
	}).WithExit(func(code int) { exits <- code })
	d.Arm()
	done := make(chan error, 1)
	go func() { done <- d.Run(context.Background()) }()
	clk.Advance(time.Second + drain.WatchdogSlack)
	require.Equal(t, 1, <-exits)
	close(gate)
	require.NoError(t, <-done)
	d.Disarm()
}
