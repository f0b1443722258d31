package resilience_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/resilience"
)

var errBroken = errors.New("broken")

func newPolicy(t *testing.T, change func(*resilience.Config)) (*resilience.Policy, *prometheus.Registry) {
	t.Helper()
	cfg := resilience.Config{Name: "core", Timeout: 4 * time.Second, Attempts: 3}
	if change != nil {
		change(&cfg)
	}
	reg := prometheus.NewRegistry()
	p, err := resilience.New(cfg, resilience.Deps{Log: slog.New(slog.DiscardHandler), Metrics: reg})
	require.NoError(t, err)
	return p, reg
}

func TestItTriesAgainAndNoMoreOftenThanTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, reg := newPolicy(t, nil)
		n := 0
		require.NoError(t, p.Do(t.Context(), func(context.Context) error {
			if n++; n < 3 {
				return errBroken
			}
			return nil
		}))
		require.Equal(t, 3, n)
		n = 0
		require.ErrorIs(t, p.Do(t.Context(), func(context.Context) error { n++; return errBroken }), errBroken)
		require.Equal(t, 3, n)
		n = 0
		err := p.Do(t.Context(), func(context.Context) error { n++; return resilience.Permanent(errBroken) })
		require.Equal(t, errBroken, err, "the mark is taken off")
		require.Equal(t, 1, n)
		require.NoError(t, testutil.GatherAndCompare(reg, lines(`cabine_resilience_calls_total{outcome="abandoned",policy="core"} 0
cabine_resilience_calls_total{outcome="failed",policy="core"} 2
cabine_resilience_calls_total{outcome="ok",policy="core"} 1
cabine_resilience_calls_total{outcome="open",policy="core"} 0
cabine_resilience_calls_total{outcome="timeout",policy="core"} 0
`), "cabine_resilience_calls_total"))
	})
}

func TestWhatHangsIsCutAtItsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, _ := newPolicy(t, func(c *resilience.Config) { c.AttemptTimeout = time.Second; c.Attempts = 9 })
		began, n := time.Now(), 0
		err := p.Do(t.Context(), func(ctx context.Context) error { n++; <-ctx.Done(); return ctx.Err() })
		require.ErrorIs(t, err, resilience.ErrTimeout)
		require.Equal(t, 4*time.Second, time.Since(began))
		require.InDelta(t, 4, n, 1)

		short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		began = time.Now()
		require.ErrorIs(t, p.Do(short, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }), resilience.ErrTimeout)
		require.Equal(t, 100*time.Millisecond, time.Since(began), "the caller's own deadline is earlier")
	})
}

func TestTheBreakerOpensProbesAndCloses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, _ := newPolicy(t, func(c *resilience.Config) { c.Attempts = 1; c.WindowCalls = 4; c.Probes = 2 })
		n := 0
		fail := func(context.Context) error { n++; return errBroken }
		works := func(context.Context) error { n++; return nil }
		for range 4 {
			require.ErrorIs(t, p.Do(t.Context(), fail), errBroken)
		}
		require.True(t, p.Open())
		require.ErrorIs(t, p.Do(t.Context(), works), resilience.ErrOpen)
		require.Equal(t, 4, n, "nothing is called")

		<-time.After(5*time.Second + time.Millisecond)
		require.False(t, p.Open())
		require.ErrorIs(t, p.Do(t.Context(), fail), errBroken)
		require.True(t, p.Open(), "a probe that fails opens it again")
		<-time.After(5*time.Second + time.Millisecond)
		require.NoError(t, p.Do(t.Context(), works))
		require.NoError(t, p.Do(t.Context(), works))
		require.False(t, p.Open())
	})
}

func TestTimeoutsCountAsFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, _ := newPolicy(t, func(c *resilience.Config) { c.Attempts = 1; c.WindowCalls = 2; c.Window = time.Minute })
		for range 2 {
			require.ErrorIs(t, p.Do(t.Context(), func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }), resilience.ErrTimeout)
		}
		require.True(t, p.Open())
	})
}

func TestACallerWhoGivesUpIsNoFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, _ := newPolicy(t, func(c *resilience.Config) { c.WindowCalls = 1 })
		n := 0
		for range 5 {
			ctx, cancel := context.WithCancel(t.Context())
			err := p.Do(ctx, func(ctx context.Context) error { n++; cancel(); <-ctx.Done(); return ctx.Err() })
			require.ErrorIs(t, err, context.Canceled)
			require.NotErrorIs(t, err, resilience.ErrTimeout)
		}
		require.Equal(t, 5, n)
		require.False(t, p.Open())
		require.NoError(t, p.Do(t.Context(), func(context.Context) error { return nil }))
	})
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	for says, bad := range map[string]func(*resilience.Config){
		"no Name":                func(c *resilience.Config) { c.Name = "" },
		"-1 Attempts":            func(c *resilience.Config) { c.Attempts = -1 },
		"AttemptTimeout is 1m0s": func(c *resilience.Config) { c.AttemptTimeout = time.Minute },
		"FailureShare is 101":    func(c *resilience.Config) { c.FailureShare = 101 },
		"PauseMost is 1s, want at least Pause 2s": func(c *resilience.Config) { c.Pause = 2 * time.Second },
		"WindowCalls is -1":                       func(c *resilience.Config) { c.WindowCalls = -1 },
		"OpenFor is -1s":                          func(c *resilience.Config) { c.OpenFor = -time.Second },
	} {
		cfg := resilience.Config{Name: "x"}
		bad(&cfg)
		_, err := resilience.New(cfg, resilience.Deps{Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
		require.ErrorContains(t, err, says)
	}
}

func lines(s string) *strings.Reader {
	return strings.NewReader("# HELP cabine_resilience_calls_total Calls by how they ended, attempts not counted.\n" +
		"# TYPE cabine_resilience_calls_total counter\n" + s)
}
