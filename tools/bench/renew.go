package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cabine-pix/cabine/libs/devstack"
	"github.com/cabine-pix/cabine/libs/lease"
)

// Renewal is what keeping a number of slots costs.
type Renewal struct {
	// RedisCommandsPerS is how many renewal commands Redis executed per second.
	RedisCommandsPerS float64 `json:"redis_commands_per_s"`
	// RedisCPUShare is the share of one core that Redis spent on them.
	RedisCPUShare float64 `json:"redis_cpu_share"`
	// SlotsRenewedPerS is how many leases were renewed per second.
	SlotsRenewedPerS float64 `json:"slots_renewed_per_s"`
}

// renewals holds 12, 120 and 1,200 slots in one replica, in sets of six as a channel
// and ISPB have, and counts what Redis executes while nothing else happens.
func renewals(ctx context.Context, c config, s *devstack.Stack, r *Report, out io.Writer) error {
	r.Renew = make(map[string]Renewal)
	for _, slots := range []int{12, 120, 1200} {
		v, err := renewal(ctx, c, s, slots)
		if err != nil {
			return err
		}
		r.Renew[strconv.Itoa(slots)] = v
		_, _ = fmt.Fprintf(out, "renew %5d slots: %.2f commands/s, %.0f leases/s, %.2f %% of a core in Redis\n",
			slots, v.RedisCommandsPerS, v.SlotsRenewedPerS, 100*v.RedisCPUShare)
	}
	return nil
}

func renewal(ctx context.Context, c config, s *devstack.Stack, slots int) (r Renewal, err error) {
	rdb := client(s.Redis.Addr())
	defer rdb.Close() //nolint:errcheck // read-only use
	k, leaseClient, err := keeper(s.Redis.Addr())
	if err != nil {
		return Renewal{}, err
	}
	defer leaseClient.Close() //nolint:errcheck // nothing to lose
	var sets []*lease.Set
	for i := range slots / 6 {
		name := fmt.Sprintf("sem:icom:{bench:%d:%d}", slots, i)
		if err := settle(ctx, rdb, name); err != nil {
			return Renewal{}, err
		}
		set, err := k.NewSet(lease.SetConfig{Name: name, Slots: 6, Floors: map[lease.Class]int{lease.Poll: 6}})
		if err != nil {
			return Renewal{}, err
		}
		sets = append(sets, set)
	}
	runCtx, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- k.Run(runCtx) }()
	defer func() { stop(); err = errors.Join(err, <-done) }()
	var held []*lease.Lease
	for _, set := range sets {
		for range set.Slots() {
			l, err := set.TryAcquire(ctx, lease.Poll)
			if err != nil {
				return Renewal{}, err
			}
			held = append(held, l)
		}
	}
	callsBefore, usBefore, err := evals(ctx, rdb)
	if err != nil {
		return Renewal{}, err
	}
	start := time.Now()
	if err := sleep(ctx, c.window); err != nil {
		return Renewal{}, err
	}
	calls, us, err := evals(ctx, rdb)
	if err != nil {
		return Renewal{}, err
	}
	took := time.Since(start).Seconds()
	for _, l := range held {
		if err := l.Err(); err != nil {
			return Renewal{}, fmt.Errorf("slot %d was lost while it was measured: %w", l.Slot(), err)
		}
		if err := l.Release(ctx); err != nil {
			return Renewal{}, err
		}
	}
	perS := float64(calls-callsBefore) / took
	return Renewal{
		RedisCommandsPerS: perS,
		RedisCPUShare:     float64(us-usBefore) / 1e6 / took,
		SlotsRenewedPerS:  perS * float64(slots) / max(1, float64((len(sets)+255)/256)),
	}, nil
}

// evals returns how many scripts the server has executed and the microseconds spent in them.
func evals(ctx context.Context, rdb *redis.Client) (calls, us int64, err error) {
	info, err := rdb.Info(ctx, "commandstats").Result()
	if err != nil {
		return 0, 0, err
	}
	_, rest, _ := strings.Cut(info, "cmdstat_evalsha:")
	_, err = fmt.Sscanf(rest, "calls=%d,usec=%d", &calls, &us)
	return calls, us, err
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
