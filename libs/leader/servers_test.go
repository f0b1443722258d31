package leader_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/devstack"
	"github.com/cabine-pix/cabine/libs/devstack/devtest"
	"github.com/cabine-pix/cabine/libs/leader"
	"github.com/cabine-pix/cabine/libs/lease"
	"github.com/cabine-pix/cabine/libs/store"
)

// timing is short and leaves a busy machine room: D 1.01 s, trust 1.91 s, abort 1.91 s after a renewal.
func timing() lease.Timing {
	return lease.Timing{
		TTL: 2 * time.Second, BankHold: 900 * time.Millisecond, Heartbeat: 100 * time.Millisecond,
		RenewTimeout: 300 * time.Millisecond, ReceiveTimeout: 700 * time.Millisecond, UserTimeout: 100 * time.Millisecond,
		LongestTTL: 2 * time.Second, NoReplicas: true,
	}
}

// court sees who leads: it is told by the children themselves.
type court struct {
	mu      sync.Mutex
	now     map[string]int64
	peak    int
	terms   []int64
	changes atomic.Int64
}

func (c *court) child(name string) leader.Child {
	return leader.Child{Name: "child", Run: func(ctx context.Context, term int64) error {
		c.enter(name, term)
		<-ctx.Done()
		c.leave(name)
		return ctx.Err()
	}}
}

func (c *court) enter(name string, term int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now[name] = term
	c.peak = max(c.peak, len(c.now))
	c.terms = append(c.terms, term)
	c.changes.Add(1)
}

func (c *court) leave(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.now, name)
	c.changes.Add(1)
}

func (c *court) leader() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.now {
		return name
	}
	return ""
}

// replica is one elector with its own keeper and its own way to Redis.
type replica struct {
	name  string
	proxy *devstack.Proxy
	stop  context.CancelFunc
	// kill ends the renewals and gives nothing back.
	kill context.CancelFunc
	done chan error
}

type world struct {
	t        *testing.T
	redis    *devstack.Redis
	db       *store.DB
	court    *court
	replicas map[string]*replica
}

// three starts three replicas on a Redis of their own and waits for the first leader.
func three(t *testing.T) *world {
	t.Helper()
	dsn := devtest.Postgres(t)
	require.NoError(t, store.Migrate(t.Context(), dsn))
	db, err := store.Open(t.Context(), store.Config{URL: dsn})
	require.NoError(t, err)
	w := &world{
		t: t, redis: devtest.OwnRedis(t, devstack.RedisOptions{}), db: db,
		court: &court{now: make(map[string]int64)}, replicas: make(map[string]*replica),
	}
	t.Cleanup(func() {
		for _, r := range w.replicas {
			r.stop()
		}
		for _, r := range w.replicas {
			require.NoError(t, <-r.done)
		}
		db.Close()
		require.Equal(t, 1, w.court.peak, "exactly one at each instant")
		for i := 1; i < len(w.court.terms); i++ {
			require.Greater(t, w.court.terms[i], w.court.terms[i-1], "terms only grow")
		}
	})
	for i := range 3 {
		w.start(fmt.Sprintf("r%d", i))
	}
	w.leads(func(name string) bool { return name != "" })
	return w
}

func (w *world) start(name string) {
	w.t.Helper()
	r := &replica{name: name, proxy: devtest.Proxy(w.t, w.redis.Addr()), done: make(chan error, 1)}
	client, err := lease.NewClient(lease.ClientConfig{Addr: r.proxy.Addr(), Timeout: timing().RenewTimeout})
	require.NoError(w.t, err)
	log := slog.New(slog.DiscardHandler)
	reg := prometheus.NewRegistry()
	keeper, err := lease.NewKeeper(lease.Config{Replica: name, Timing: timing()}, client, clock.System(), log, reg)
	require.NoError(w.t, err)
	set, err := keeper.NewSet(leader.SetConfig("settlement"))
	require.NoError(w.t, err)
	e, err := leader.New(leader.Config{Name: "settlement", Owner: name, StopBudget: 500 * time.Millisecond, Pause: 100 * time.Millisecond},
		leader.Deps{Acquire: leader.From(set), Terms: store.NewTerms(w.db), Clock: clock.System(), Log: log, Metrics: reg}, w.court.child(name))
	require.NoError(w.t, err)
	renew, stopRenewing := context.WithCancel(context.Background())
	ctx, stop := context.WithCancel(context.Background())
	r.stop, r.kill = stop, stopRenewing
	go func() {
		renewing := make(chan error, 1)
		go func() { renewing <- keeper.Run(renew) }()
		err := e.Run(ctx)
		stopRenewing()
		r.done <- errors.Join(err, <-renewing)
		_ = client.Close()
	}()
	w.replicas[name] = r
}

// leads waits until the leader is as wanted.
func (w *world) leads(wanted func(name string) bool) string {
	w.t.Helper()
	var name string
	require.Eventually(w.t, func() bool {
		name = w.court.leader()
		return wanted(name)
	}, 20*time.Second, time.Millisecond)
	return name
}

func TestHandover(t *testing.T) {
	t.Parallel()
	w := three(t)
	for range 2 {
		old := w.leads(func(name string) bool { return name != "" })
		began := time.Now()
		w.replicas[old].stop()
		w.leads(func(name string) bool { return name != "" && name != old })
		t.Logf("graceful takeover after %v", time.Since(began))
		require.Less(t, time.Since(began), timing().TTL, "the lease was given back, not waited out")
		require.NoError(t, <-w.replicas[old].done)
		delete(w.replicas, old)
	}
}

func TestKilledLeader(t *testing.T) {
	t.Parallel()
	w := three(t)
	old := w.leads(func(name string) bool { return name != "" })
	began := time.Now()
	w.replicas[old].kill()
	require.ErrorIs(t, <-w.replicas[old].done, lease.ErrClosed)
	delete(w.replicas, old)
	w.leads(func(name string) bool { return name != "" && name != old })
	t.Logf("takeover after %v, lease %v", time.Since(began), timing().TTL)
	require.Greater(t, time.Since(began), timing().TTL-timing().Heartbeat-timing().RenewTimeout, "not before the key ended")
}

func TestLeaderCutOffFromRedis(t *testing.T) {
	t.Parallel()
	w := three(t)
	old := w.leads(func(name string) bool { return name != "" })
	w.replicas[old].proxy.Blackhole(devstack.Both)
	w.leads(func(name string) bool { return name != "" && name != old })
	w.replicas[old].proxy.Pass()
}

func TestRedisPausedAndFlushed(t *testing.T) {
	t.Parallel()
	w := three(t)
	require.NoError(t, w.redis.Pause())
	w.leads(func(name string) bool { return name == "" })
	require.NoError(t, w.redis.Resume())
	w.leads(func(name string) bool { return name != "" })

	_, err := w.redis.Do(t.Context(), "FLUSHALL")
	require.NoError(t, err)
	w.leads(func(name string) bool { return name != "" })

	require.NoError(t, w.redis.Kill())
	w.leads(func(name string) bool { return name == "" })
	require.NoError(t, w.redis.RestartEmpty(t.Context()))
	w.leads(func(name string) bool { return name != "" })
}

// Two elections see different terms even when Redis forgot everything between them, and the older one may not write.
func TestOldTermIsRefused(t *testing.T) {
	t.Parallel()
	w := three(t)
	old := w.leads(func(name string) bool { return name != "" })
	w.court.mu.Lock()
	term := w.court.now[old]
	w.court.mu.Unlock()
	guard := func(term int64) error {
		return w.db.InTx(t.Context(), func(ctx context.Context, tx *store.Tx) error {
			return store.NewTerms(w.db).GuardTx(ctx, tx, "settlement", term)
		})
	}
	require.NoError(t, guard(term))
	w.replicas[old].stop()
	w.leads(func(name string) bool { return name != "" && name != old })
	require.ErrorIs(t, guard(term), store.ErrStaleTerm)
}
