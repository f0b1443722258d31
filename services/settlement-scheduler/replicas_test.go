package main

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/fx"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/devstack"
	"github.com/cabine-pix/cabine/libs/devstack/devtest"
	"github.com/cabine-pix/cabine/libs/leader"
	"github.com/cabine-pix/cabine/services/internal/core"
)

// reign is a leadership as somebody under it saw it, by the database's clock.
type reign struct {
	name       string
	term       int64
	begin, end time.Time // end is zero while it lasts
}

// court hears of all reigns and of everything that replicas warn of.
type court struct {
	w *world

	mu     sync.Mutex
	reigns []reign
	warned []string
}

// witness is a guest of each leadership of a replica: what it sees ends before the lease is given back.
func (c *court) witness(ctx context.Context, name string, e *leader.Elector) {
	for ctx.Err() == nil {
		_ = e.While(ctx, func(ctx context.Context, term int64) error {
			c.mu.Lock()
			c.reigns = append(c.reigns, reign{name: name, term: term, begin: c.w.now()})
			c.mu.Unlock()
			<-ctx.Done()
			end := c.w.now()
			c.mu.Lock()
			defer c.mu.Unlock()
			for i := range c.reigns {
				if c.reigns[i].term == term {
					c.reigns[i].end = end
				}
			}
			return nil
		})
	}
}

func (c *court) all() []reign {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.reigns)
}

// leads waits for a reign whose term is newer than one, and returns it.
func (c *court) leads(after int64) reign {
	c.w.t.Helper()
	var found reign
	c.w.eventually("a leader", func() bool {
		for _, r := range c.all() {
			if r.term > after && r.end.IsZero() {
				found = r
				return true
			}
		}
		return false
	})
	return found
}

// one requires that at each instant of the database's clock at most one led, and that terms grew.
func (c *court) one() {
	c.w.t.Helper()
	all := slices.SortedFunc(slices.Values(c.all()), func(a, b reign) int { return a.begin.Compare(b.begin) })
	for i := 1; i < len(all); i++ {
		require.False(c.w.t, all[i-1].end.IsZero(), "%v has not ended before %v", all[i-1], all[i])
		require.False(c.w.t, all[i].begin.Before(all[i-1].end), "%v and %v at once", all[i-1], all[i])
		require.Greater(c.w.t, all[i].term, all[i-1].term)
	}
}

// Handle keeps warnings of the bus.
func (c *court) Handle(_ context.Context, r slog.Record) error {
	line := r.Message
	r.Attrs(func(a slog.Attr) bool { line += fmt.Sprintf(" %s=%v", a.Key, a.Value); return true })
	c.mu.Lock()
	defer c.mu.Unlock()
	c.warned = append(c.warned, line)
	return nil
}

func (c *court) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }
func (c *court) WithAttrs([]slog.Attr) slog.Handler           { return c }
func (c *court) WithGroup(string) slog.Handler                { return c }

// timeouts returns what was said of JetStream, or of anything else on the bus, that did not answer.
func (c *court) timeouts() (lines []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, line := range c.warned {
		if strings.HasPrefix(line, "bus disconnected error=<nil>") { // closed by its replica
			continue
		}
		for _, about := range []string{
			"consumer unavailable", "pull interrupted", "subscription interrupted", "bus error", "bus disconnected",
			"answer to the bus failed", "obligations are not announced", "deliveries were not answered",
		} {
			if strings.HasPrefix(line, about) {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// replica is the service as it is wired, in this process, with its own way to Redis.
type replica struct {
	name  string
	proxy *devstack.Proxy
	stop  func() error
}

func (c *court) start(name string) *replica {
	w := c.w
	w.t.Helper()
	proxy := devtest.Proxy(w.t, w.redis.Addr())
	cfg, _, err := core.Load(Defaults(), core.Source{Environ: w.environ(name, proxy.Addr(), map[string]string{
		"CABINE_POSTGRES_MAX_CONNS": "4", "CABINE_CYCLES_EVERY": "300ms",
	})})
	require.NoError(w.t, err)
	require.NoError(w.t, cfg.Validate())
	log := slog.New(c)
	runner := core.NewRunner(cfg.Stop, clock.System(), log, func(code int) { w.t.Errorf("%s would exit with %d", name, code) })
	var elector *leader.Elector
	app := fx.New(core.App(core.NewIdentity("settlement-scheduler", "test", name), cfg, log, runner, wire), fx.Populate(&elector))
	require.NoError(w.t, app.Err())
	require.NoError(w.t, app.Start(w.t.Context()))
	watching, cancel := context.WithCancel(w.t.Context())
	var watch sync.WaitGroup
	watch.Go(func() { c.witness(watching, name, elector) })
	r := &replica{name: name, proxy: proxy, stop: sync.OnceValue(func() error {
		ctx, done := context.WithTimeout(context.WithoutCancel(w.t.Context()), long)
		defer done()
		err := app.Stop(ctx)
		runner.Disarm()
		cancel()
		watch.Wait()
		return err
	})}
	w.t.Cleanup(func() { _ = r.stop() })
	return r
}

// startAll starts replicas at once, as a deploy does.
func (c *court) startAll(n int) map[string]*replica {
	c.w.t.Helper()
	all := make(map[string]*replica, n)
	for i := range n {
		r := c.start(fmt.Sprintf("r%02d", i))
		all[r.name] = r
	}
	return all
}

// One leads at each instant of the database's clock, and another soon after it was killed or stopped. It measures times, so
// nothing else of this package runs beside it.
func TestLeadershipChangesHands(t *testing.T) {
	t.Run("processes", func(t *testing.T) { t.Parallel(); leadersAreKilledAndStopped(t) })
	for _, n := range []int{3, 50} {
		t.Run(fmt.Sprint(n), func(t *testing.T) { t.Parallel(); replicas(t, n) })
	}
}

func replicas(t *testing.T, n int) {
	t.Helper()
	w := newWorld(t)
	c := &court{w: w}
	w.settle(100, w.first[0].OpensAt.Add(time.Minute))
	all := c.startAll(n)
	leading := c.leads(0)
	w.closed(w.first[0].ID)
	enough := w.settling()

	// As dead as a replica in this process can be: nothing that it says to Redis arrives.
	killed, dead := w.now(), all[leading.name]
	dead.proxy.Blackhole(devstack.Both)
	leading = c.leads(leading.term)
	t.Logf("after a kill the next leads after %v, the lease is %v", leading.begin.Sub(killed), ttl)
	require.Less(t, leading.begin.Sub(killed), takeover)
	dead.proxy.Pass()

	var took []time.Duration
	for i := range 3 {
		stopped := w.now()
		require.NoError(t, all[leading.name].stop())
		delete(all, leading.name)
		leading = c.leads(leading.term)
		took = append(took, leading.begin.Sub(stopped))
		next := c.start(fmt.Sprintf("next%d", i))
		all[next.name] = next
	}
	t.Logf("after clean stops the next leads after %v", took)
	slices.Sort(took)
	require.Less(t, took[1], handover, "the median: others may have the processors once")

	enough()
	w.written()
	w.closed(w.first[1].ID)
	stopAll(t, all)
	c.one()
	w.sound()
	require.Empty(t, c.timeouts())
	require.Empty(t, w.creations.Subjects(), "services create no consumers")
	w.heard()
}

// Redis forgets everything under the leader: no second one begins beside it.
func TestRedisIsFlushedUnderTheLeader(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := &court{w: w}
	all := c.startAll(3)
	first := c.leads(0)
	for range 2 {
		_, err := w.redis.Do(t.Context(), "FLUSHALL")
		require.NoError(t, err)
		w.settle(20, w.now())
		w.written()
	}
	require.NoError(t, w.redis.Kill())
	require.NoError(t, w.redis.RestartEmpty(t.Context()))
	w.settle(20, w.now())
	next := c.leads(first.term - 1)
	w.written()
	t.Logf("led by %s, then by %s", first.name, next.name)
	stopAll(t, all)
	c.one()
	w.sound()
	require.Empty(t, c.timeouts())
}

func stopAll(t *testing.T, all map[string]*replica) {
	t.Helper()
	var stopping sync.WaitGroup
	for _, r := range all {
		stopping.Go(func() {
			if err := r.stop(); err != nil {
				t.Errorf("%s: %v", r.name, err)
			}
		})
	}
	stopping.Wait()
}
