package leader_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/leader"
	"github.com/cabine-pix/cabine/libs/lease"
)

// The fake lease's times: D is 12 s and A is 20 s after the last confirmed renewal.
const (
	horizon = 12 * time.Second
	abortIn = 20 * time.Second
)

// fakeLease is a lease on a fake clock.
type fakeLease struct {
	clk *clock.Fake

	mu       sync.Mutex
	sent     clock.Reading
	err      error
	lost     chan struct{}
	released int
}

func newFakeLease(clk *clock.Fake) *fakeLease {
	return &fakeLease{clk: clk, sent: clk.Now(), lost: make(chan struct{})}
}

func (l *fakeLease) Grant() string { return "grant" }

func (l *fakeLease) StartDeadline() clock.Deadline {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return clock.Deadline{}
	}
	return l.sent.Deadline(horizon)
}

func (l *fakeLease) AbortDeadline() clock.Deadline {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sent.Deadline(abortIn)
}

func (l *fakeLease) Lost() <-chan struct{} { return l.lost }

func (l *fakeLease) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *fakeLease) Release(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.released++
	if l.err == nil {
		l.err = &lease.LostError{Cause: lease.GivenBack}
		close(l.lost)
	}
	return nil
}

func (l *fakeLease) releases() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.released
}

func (l *fakeLease) renew() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent = l.clk.Now()
}

func (l *fakeLease) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = &lease.LostError{Cause: lease.Taken}
	close(l.lost)
}

// bundle is one elector with one child on fakes.
type bundle struct {
	t      *testing.T
	clk    *clock.Fake
	grants chan *fakeLease
	terms  chan any // int64 or error
	// began gets each term the child was started with, ended the cause of its end.
	began chan int64
	ended chan error
	// stay keeps the child from returning when it is told to.
	stay chan struct{}
	// fail makes the child return by itself.
	fail    chan error
	elector *leader.Elector
	reg     *prometheus.Registry
	result  chan error
	stop    context.CancelFunc
}

func setup(t *testing.T) *bundle {
	t.Helper()
	b := &bundle{
		t: t, clk: clock.NewFake(), grants: make(chan *fakeLease, 10), terms: make(chan any, 10),
		began: make(chan int64, 10), ended: make(chan error, 10), fail: make(chan error, 1),
		reg: prometheus.NewRegistry(), result: make(chan error, 1),
	}
	var err error
	b.elector, err = leader.New(leader.Config{Name: "settlement", Owner: "a"}, leader.Deps{
		Acquire: b.acquire, Terms: b, Clock: b.clk, Metrics: b.reg, Log: slog.New(slog.DiscardHandler),
	}, leader.Child{Name: "scheduler", Run: b.child})
	require.NoError(t, err)
	return b
}

func (b *bundle) start() {
	ctx, cancel := context.WithCancel(b.t.Context())
	b.stop = cancel
	go func() { b.result <- b.elector.Run(ctx) }()
	b.t.Cleanup(cancel)
}

func (b *bundle) acquire(ctx context.Context) (leader.Lease, error) {
	select {
	case l := <-b.grants:
		if l == nil {
			return nil, lease.ErrClosed
		}
		return l, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (b *bundle) Mint(ctx context.Context, name, owner string) (int64, error) {
	if name != "settlement" || owner != "a" {
		return 0, errors.New("wrong names")
	}
	select {
	case v := <-b.terms:
		if err, ok := v.(error); ok {
			return 0, err
		}
		return v.(int64), nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (b *bundle) child(ctx context.Context, term int64) error {
	b.began <- term
	select {
	case <-ctx.Done():
	case err := <-b.fail:
		return err
	}
	if b.stay != nil {
		<-b.stay
	}
	b.ended <- context.Cause(ctx)
	return ctx.Err()
}

// lead grants a lease and a term and waits until the child runs.
func (b *bundle) lead(term int64) *fakeLease {
	b.t.Helper()
	l := newFakeLease(b.clk)
	b.terms <- term
	b.grants <- l
	require.Equal(b.t, term, <-b.began)
	return l
}

// advance moves the clock in small steps, letting timers be set again between them, until done says so.
func (b *bundle) advance(step time.Duration, done func() bool) time.Duration {
	b.t.Helper()
	var moved time.Duration
	require.Eventually(b.t, func() bool {
		if done() {
			return true
		}
		if n, _ := b.clk.Timers(); n > 0 {
			b.clk.Advance(step)
			moved += step
		}
		return false
	}, 10*time.Second, time.Millisecond)
	return moved
}
