package slotpool_test

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
	"github.com/cabine-pix/cabine/libs/lease"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/slotpool"
	"github.com/cabine-pix/cabine/libs/transport"
)

const (
	bankHold       = 8 * time.Second
	receiveTimeout = 6500 * time.Millisecond
	horizon        = 11 * time.Second
)

// fakeLease records how it was given back.
type fakeLease struct {
	mu        sync.Mutex
	deadline  clock.Deadline
	err       error
	lost      chan struct{}
	yield     chan struct{}
	events    *[]string
	cooled    []clock.Instant
	released  int
	served    int
	giveError error
}

func (l *fakeLease) Slot() int              { return 3 }
func (l *fakeLease) Class() lease.Class     { return lease.Poll }
func (l *fakeLease) Grant() string          { return "g1" }
func (l *fakeLease) Lost() <-chan struct{}  { return l.lost }
func (l *fakeLease) Served()                { l.mu.Lock(); defer l.mu.Unlock(); l.served++ }
func (l *fakeLease) Yield() <-chan struct{} { return l.yield }
func (l *fakeLease) StartDeadline() clock.Deadline {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline
}
func (l *fakeLease) Err() error { l.mu.Lock(); defer l.mu.Unlock(); return l.err }

func (l *fakeLease) renew(d clock.Deadline) { l.mu.Lock(); defer l.mu.Unlock(); l.deadline = d }

func (l *fakeLease) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err, l.deadline = errors.New("lost: expired"), clock.Deadline{}
	close(l.lost)
}

func (l *fakeLease) Release(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	*l.events = append(*l.events, "release")
	l.released++
	return errors.Join(ctx.Err(), l.giveError)
}

func (l *fakeLease) CoolDown(ctx context.Context, last clock.Instant) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	*l.events = append(*l.events, "cool down")
	l.cooled = append(l.cooled, last)
	return errors.Join(ctx.Err(), l.giveError)
}

// fakeTransport answers every call through one function.
type fakeTransport struct {
	events     *[]string
	do         func(ctx context.Context, p transport.Permit, timeout time.Duration) (transport.Exchange, error)
	disconnect func(ctx context.Context) error
}

func (t *fakeTransport) Capabilities(context.Context) (transport.Capabilities, error) {
	return transport.Capabilities{Name: "fake", Pull: true, Send: true}, nil
}

func (t *fakeTransport) Ready(context.Context, pix.Channel, pix.ISPB) error { return nil }

func (t *fakeTransport) Pull(ctx context.Context, r transport.PullRequest) (transport.PullResult, error) {
	x, err := t.do(ctx, r.Permit, r.Timeout)
	return transport.PullResult{Exchange: x, Cursor: "next"}, err
}

func (t *fakeTransport) Send(ctx context.Context, r transport.SendRequest) (transport.SendResult, error) {
	x, err := t.do(ctx, r.Permit, r.Timeout)
	return transport.SendResult{Exchange: x}, err
}

func (t *fakeTransport) CloseStream(ctx context.Context, r transport.CloseRequest) (transport.CloseResult, error) {
	x, err := t.do(ctx, r.Permit, r.Timeout)
	return transport.CloseResult{Exchange: x}, err
}

func (t *fakeTransport) Disconnect(ctx context.Context, _ transport.SlotID) error {
	*t.events = append(*t.events, "disconnect")
	if t.disconnect != nil {
		return t.disconnect(ctx)
	}
	return nil
}

// bench is one pool over fakes.
type bench struct {
	clk    *clock.Fake
	lease  *fakeLease
	wire   *fakeTransport
	reg    *prometheus.Registry
	pool   *slotpool.Pool
	events []string
}

func newBench(t *testing.T, mutate ...func(*slotpool.Config)) *bench {
	t.Helper()
	b := &bench{clk: clock.NewFake(), reg: prometheus.NewRegistry()}
	b.lease = &fakeLease{
		lost: make(chan struct{}), yield: make(chan struct{}), events: &b.events,
		deadline: b.clk.Now().Deadline(horizon),
	}
	b.wire = &fakeTransport{events: &b.events, do: b.complete}
	cfg := slotpool.Config{Channel: pix.CPM, ISPB: "12345678", BankHold: bankHold, ReceiveTimeout: receiveTimeout, Linger: -1}
	for _, f := range mutate {
		f(&cfg)
	}
	pool, err := slotpool.New(cfg, slotpool.Deps{
		Acquire:   slotpool.From(func(context.Context, lease.Class) (*fakeLease, error) { return b.lease, nil }),
		Transport: b.wire, Clock: b.clk, Metrics: b.reg,
		Log: discard(),
	})
	require.NoError(t, err)
	b.pool = pool
	return b
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func (b *bench) slot(t *testing.T) *slotpool.Slot {
	t.Helper()
	s, err := b.pool.Acquire(t.Context(), lease.Poll)
	require.NoError(t, err)
	return s
}

// complete is an answer that was read to its end.
func (b *bench) complete(context.Context, transport.Permit, time.Duration) (transport.Exchange, error) {
	return transport.Exchange{FirstByte: b.clk.Now().Boot, Complete: true}, nil
}

// count sums a metric over the label values given, in any order.
func (b *bench) count(t *testing.T, name string, values ...string) float64 {
	t.Helper()
	families, err := b.reg.Gather()
	require.NoError(t, err)
	var sum float64
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			have := map[string]bool{}
			for _, l := range m.GetLabel() {
				have[l.GetValue()] = true
			}
			match := true
			for _, v := range values {
				match = match && have[v]
			}
			if match {
				sum += m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}
