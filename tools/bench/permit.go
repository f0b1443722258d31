package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/devstack"
	"github.com/cabine-pix/cabine/libs/lease"
)

const ttl = 20 * time.Second // the lease of all contenders

// client has the settings that the lease's own client has.
func client(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: addr, MaxRetries: -1, ContextTimeoutEnabled: true, PoolSize: 4,
		DialTimeout: time.Second, ReadTimeout: time.Second, WriteTimeout: time.Second,
	})
}

// keeper returns a lease keeper with the default timing on a Redis without replicas.
func keeper(addr string) (*lease.Keeper, *lease.Client, error) {
	c, err := lease.NewClient(lease.ClientConfig{Addr: addr})
	if err != nil {
		return nil, nil, err
	}
	k, err := lease.NewKeeper(lease.Config{Replica: "bench", Owner: "bench", Timing: lease.Timing{NoReplicas: true}},
		c, clock.System(), slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	return k, c, err
}

// settle writes the server's incarnation into a set's state, so that a measurement need
// not sit out the quarantine of an unknown server. Everything else is left to the scripts.
func settle(ctx context.Context, rdb *redis.Client, set string) error {
	info, err := rdb.Info(ctx, "replication").Result()
	if err != nil {
		return err
	}
	_, rest, _ := strings.Cut(info, "master_replid:")
	replid, _, _ := strings.Cut(rest, "\r\n")
	return rdb.HSet(ctx, set+":state", "incarnation", replid, "quarantine_until", 0).Err()
}

// contender is one way to take and give back exclusive use of something.
type contender struct {
	name string
	do   func(context.Context) error
	// settle ends a turn, within its time: it waits for what do left to be done later. Nil: nothing.
	settle func(context.Context) error
}

// turn runs n operations and returns microseconds per operation.
func (x contender) turn(ctx context.Context, n int) (float64, error) {
	start := time.Now()
	for range n {
		if err := x.do(ctx); err != nil {
			return 0, fmt.Errorf("%s: %w", x.name, err)
		}
	}
	if x.settle != nil {
		if err := x.settle(ctx); err != nil {
			return 0, fmt.Errorf("%s: %w", x.name, err)
		}
	}
	return float64(time.Since(start).Nanoseconds()) / 1e3 / float64(n), nil
}

// permits measures acquire and release against a PING and against the locks in use
// elsewhere: in each round every contender has its turn, so that a slow moment of the
// machine meets all of them.
func permits(ctx context.Context, c config, s *devstack.Stack, r *Report, out io.Writer) error {
	rdb := client(s.Redis.Addr())
	defer rdb.Close() //nolint:errcheck // read-only use
	k, leaseClient, err := keeper(s.Redis.Addr())
	if err != nil {
		return err
	}
	defer leaseClient.Close() //nolint:errcheck // nothing to lose
	const name = "sem:icom:{cpm:bench}"
	if err := settle(ctx, rdb, name); err != nil {
		return err
	}
	set, err := k.NewSet(lease.SetConfig{Name: name, Slots: 6, Floors: map[lease.Class]int{lease.Poll: 4, lease.Send: 2}})
	if err != nil {
		return err
	}
	contenders, end, err := rivals(rdb, s.Redis.Addr(), set)
	if err != nil {
		return err
	}
	defer end()
	medians, ratios, err := rounds(ctx, c, contenders)
	if err != nil {
		return err
	}
	r.PingUS = medians["ping"]
	delete(medians, "ping")
	r.AcquireReleaseUS = medians
	_, _ = fmt.Fprintf(out, "PING                     %7.1f us\n", r.PingUS)
	for _, x := range contenders[1:] {
		_, _ = fmt.Fprintf(out, "acquire+release %-12s %5.1f us   %.2f PINGs\n", x.name, medians[x.name], ratios[x.name])
	}
	r.HeldRequestRedisCalls, err = heldRequest(ctx, rdb, set)
	_, _ = fmt.Fprintf(out, "request under a held lease: %g Redis commands\n", r.HeldRequestRedisCalls)
	return err
}

// rivals returns all that are measured, a PING first. end releases what they hold.
func rivals(rdb *redis.Client, addr string, set *lease.Set) (all []contender, end func(), err error) {
	locker := redislock.New(rdb)
	sync := redsync.New(redsyncredis.NewPool(rdb))
	rueidisLocker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{addr}}, KeyValidity: ttl, KeyMajority: 1,
	})
	if err != nil {
		return nil, nil, err
	}
	// Release does not wait for Redis: it rides along with the next acquire. The last of a turn is waited for.
	ours := func(ctx context.Context) error {
		l, err := set.TryAcquire(ctx, lease.Poll)
		if err != nil {
			return err
		}
		return l.Release(ctx)
	}
	return []contender{
		{name: "ping", do: func(ctx context.Context) error { return rdb.Ping(ctx).Err() }},
		{name: "ours", do: ours, settle: set.Flush},
		// Nothing rides along: the slot is free in Redis before the next operation begins.
		{name: "ours_waiting", do: func(ctx context.Context) error { return errors.Join(ours(ctx), set.Flush(ctx)) }},
		{name: "redislock", do: func(ctx context.Context) error {
			l, err := locker.Obtain(ctx, "bench:redislock", ttl, nil)
			if err != nil {
				return err
			}
			return l.Release(ctx)
		}},
		{name: "redsync", do: func(ctx context.Context) error {
			m := sync.NewMutex("bench:redsync", redsync.WithExpiry(ttl))
			if err := m.LockContext(ctx); err != nil {
				return err
			}
			_, err := m.UnlockContext(ctx)
			return err
		}},
		{name: "rueidislock", do: func(ctx context.Context) error {
			_, release, err := rueidisLocker.WithContext(ctx, "bench:rueidislock")
			if err != nil {
				return err
			}
			release()
			return nil
		}},
	}, rueidisLocker.Close, nil
}

// rounds returns the median time of each contender and the median of its ratio to the PING of the same
// round: what disturbs the machine for longer than a round disturbs both.
func rounds(ctx context.Context, c config, contenders []contender) (us, ratios map[string]float64, err error) {
	for _, x := range contenders { // scripts and connections warm
		if _, err := x.turn(ctx, max(c.ops, 300)); err != nil {
			return nil, nil, err
		}
	}
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // for all alike: the subject is the round trips
	took, relative := make(map[string][]float64), make(map[string][]float64)
	for range c.rounds {
		var ping float64
		for i, x := range contenders {
			t, err := x.turn(ctx, c.ops)
			if err != nil {
				return nil, nil, err
			}
			if i == 0 {
				ping = t
			}
			took[x.name] = append(took[x.name], t)
			relative[x.name] = append(relative[x.name], t/ping)
		}
	}
	return medians(took), medians(relative), nil
}

func medians(of map[string][]float64) map[string]float64 {
	m := make(map[string]float64, len(of))
	for name, values := range of {
		slices.Sort(values)
		m[name] = values[len(values)/2]
	}
	return m
}

// heldRequest counts what Redis executes while requests are started under a lease
// that is held: what a request asks of the lease is its start deadline.
func heldRequest(ctx context.Context, rdb *redis.Client, set *lease.Set) (float64, error) {
	l, err := set.TryAcquire(ctx, lease.Poll)
	if err != nil {
		return 0, err
	}
	before, err := commands(ctx, rdb)
	if err != nil {
		return 0, err
	}
	const requests = 10_000
	clk := clock.System()
	for range requests {
		if l.StartDeadline().Passed(clk.Now()) {
			return 0, fmt.Errorf("the lease ended within the measurement: %w", l.Err())
		}
		l.Served()
	}
	after, err := commands(ctx, rdb)
	if err != nil {
		return 0, err
	}
	return float64(after-before-1) / requests, l.Release(ctx) // one command asked for the count
}

// commands returns how many commands the server has executed, this one excluded.
func commands(ctx context.Context, rdb *redis.Client) (int64, error) {
	info, err := rdb.Info(ctx, "stats").Result()
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(info, "total_commands_processed:")
	var n int64
	_, err = fmt.Sscanf(rest, "%d", &n)
	return n, err
}
