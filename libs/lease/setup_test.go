package lease

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/devstack"
	"github.com/cabine-pix/cabine/libs/devstack/devtest"
)

func TestMain(m *testing.M) { os.Exit(devtest.Main(m, devtest.WithRedis())) }

// short is the shortest timing that the guard accepts with room for a busy machine:
// eps 90 ms, horizon 1.01 s, trust 1.91 s, quarantine 2.09 s.
func short() Timing {
	return Timing{
		TTL:            2 * time.Second,
		BankHold:       900 * time.Millisecond,
		Heartbeat:      100 * time.Millisecond,
		RenewTimeout:   300 * time.Millisecond,
		ReceiveTimeout: 700 * time.Millisecond,
		UserTimeout:    100 * time.Millisecond,
		LongestTTL:     2 * time.Second,
		NoReplicas:     true,
	}
}

// world is one Redis, one set name and as many replicas as a test wants.
type world struct {
	t    testing.TB
	addr string
	rdb  *redis.Client
	name string
	made atomic.Int32
}

func newWorld(t testing.TB, r *devstack.Redis) *world {
	t.Helper()
	w := &world{t: t, addr: r.Addr(), name: uniqueName(t.Name())}
	w.rdb = redis.NewClient(&redis.Options{Addr: r.Addr(), MaxRetries: -1})
	t.Cleanup(func() { require.NoError(t, w.rdb.Close()) })
	return w
}

// uniqueName returns a set name that no other test, nor another run of this one, uses.
func uniqueName(what string) string {
	what = strings.NewReplacer("/", "-", "=", "-", ",", "-").Replace(what)
	return fmt.Sprintf("sem:icom:{%s:%08x}", what, rand.Uint32())
}

// settled says that this server's state is known, so that a test need not sit out the first quarantine.
func (w *world) settled() *world {
	w.t.Helper()
	ctx := w.t.Context()
	info, err := w.rdb.Info(ctx).Result()
	require.NoError(w.t, err)
	field := func(name string) string {
		_, rest, _ := strings.Cut(info, name+":")
		v, _, _ := strings.Cut(rest, "\r\n")
		return v
	}
	require.NoError(w.t, w.rdb.HSet(ctx, w.name+":state",
		"incarnation", field("master_replid"), "quarantine_until", 0).Err())
	return w
}

type option func(*replicaOptions)

type replicaOptions struct {
	timing Timing
	clk    clock.Clock
	addr   string
	name   string
	idle   bool
	slots  int
	alter  func(*scripts)
}

func withTiming(t Timing) option           { return func(o *replicaOptions) { o.timing = t } }
func withClock(c clock.Clock) option       { return func(o *replicaOptions) { o.clk = c } }
func via(p *devstack.Proxy) option         { return func(o *replicaOptions) { o.addr = p.Addr() } }
func notRunning() option                   { return func(o *replicaOptions) { o.idle = true } }
func mutated(alter func(*scripts)) option  { return func(o *replicaOptions) { o.alter = alter } }
func icom(_, poll, send int) map[Class]int { return map[Class]int{Poll: poll, Send: send} }

// replica returns a running keeper with the world's set.
func (w *world) replica(cfg SetConfig, options ...option) (*Set, *Keeper) {
	w.t.Helper()
	o := replicaOptions{timing: short(), clk: clock.System(), addr: w.addr, name: w.name}
	for _, opt := range options {
		opt(&o)
	}
	client, err := NewClient(ClientConfig{Addr: o.addr, Timeout: o.timing.RenewTimeout})
	require.NoError(w.t, err)
	k, err := NewKeeper(Config{Replica: fmt.Sprintf("r%d", w.made.Add(1)), Owner: "test", Timing: o.timing},
		client, o.clk, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	require.NoError(w.t, err)
	if o.alter != nil {
		o.alter(&k.scripts)
	}
	cfg.Name = o.name
	s, err := k.NewSet(cfg)
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	if o.idle {
		done <- nil
	} else {
		go func() { done <- k.Run(ctx) }()
	}
	w.t.Cleanup(func() {
		cancel()
		require.NoError(w.t, <-done)
		if !k.closed() {
			k.stop()
		}
		require.NoError(w.t, client.Close())
	})
	return s, k
}

// polls is a set of n slots of which every one may poll.
func polls(n int) SetConfig { return SetConfig{Slots: n, Floors: map[Class]int{Poll: n}} }

func (w *world) acquire(s *Set, c Class) *Lease {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 15*time.Second)
	defer cancel()
	l, err := s.Acquire(ctx, c)
	require.NoError(w.t, err)
	return l
}

func (w *world) ttl(slot int) time.Duration {
	w.t.Helper()
	d, err := w.rdb.PTTL(w.t.Context(), fmt.Sprintf("%s:%d", w.name, slot)).Result()
	require.NoError(w.t, err)
	return d
}

// refusedFor requires that nobody is granted a slot for at least d from now, by asking all the time.
func (w *world) refusedFor(s *Set, c Class, d time.Duration) {
	w.t.Helper()
	start := time.Now()
	l, err := s.TryAcquire(w.t.Context(), c)
	for ; time.Since(start) < d; l, err = s.TryAcquire(w.t.Context(), c) {
		if err == nil {
			w.t.Fatalf("slot %d granted after %v, want none for %v", l.Slot(), time.Since(start), d)
		}
	}
	if err == nil {
		require.NoError(w.t, l.Release(w.t.Context()))
	}
}

func eventually(t *testing.T, cond func() bool, msg string) {
	t.Helper()
	require.Eventually(t, cond, 10*time.Second, 5*time.Millisecond, msg)
}

// replace returns a script with one part of its text replaced, to show that the part matters.
func replace(s *script, old, with string) {
	text := s.text
	if !strings.Contains(text, old) {
		panic("mutation does not apply: " + old)
	}
	*s = newScript(strings.ReplaceAll(text, old, with))
}

// redisOptions are those of a private server that keeps what it was told.
func redisOptions() devstack.RedisOptions {
	return devstack.RedisOptions{AppendOnly: true, AppendFsync: "always"}
}

// commandCalls returns how often Redis executed a command.
func commandCalls(t *testing.T, w *world, command string) int {
	t.Helper()
	info, err := w.rdb.Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	_, rest, ok := strings.Cut(info, "cmdstat_"+command+":calls=")
	if !ok {
		return 0
	}
	n, _, _ := strings.Cut(rest, ",")
	calls, err := strconv.Atoi(n)
	require.NoError(t, err)
	return calls
}
