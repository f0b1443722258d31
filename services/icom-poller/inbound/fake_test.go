package inbound

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/bus"
	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/lease"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/slotpool"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/libs/transport"
)

const ispb = pix.ISPB("12345678")

// bubbleClock is the clock of a synctest bubble, in which time passes when everybody waits.
type bubbleClock struct{ base time.Time }

func (c bubbleClock) Now() clock.Reading {
	now := time.Now()
	return clock.Reading{Boot: clock.Instant(time.Hour).Add(now.Sub(c.base)), Wall: now.Round(0)}
}

func (bubbleClock) NewTimer(d time.Duration) clock.Timer { return bubbleTimer{time.NewTimer(d)} }

type bubbleTimer struct{ t *time.Timer }

func (t bubbleTimer) C() <-chan time.Time   { return t.t.C }
func (t bubbleTimer) Stop() bool            { return t.t.Stop() }
func (t bubbleTimer) Reset(d time.Duration) { t.t.Reset(d) }

// story is what happened, in order.
type story struct {
	mu    sync.Mutex
	lines []string
}

func (s *story) add(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, fmt.Sprintf(format, args...))
}

func (s *story) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.lines)
}

// fakeLeases grants numbered slots as the lease library does, always renewed.
type fakeLeases struct {
	clk   clock.Clock
	story *story
	mu    sync.Mutex
	free  []int
	held  map[int]*fakeLease
	freed chan struct{}
	count int

	redisAway bool
}

type fakeLease struct {
	set         *fakeLeases
	slot        int
	grant       string
	lost, yield chan struct{}
	err         error
}

func newLeases(clk clock.Clock, st *story, slots int) *fakeLeases {
	l := &fakeLeases{clk: clk, story: st, held: map[int]*fakeLease{}, freed: make(chan struct{}, 100)}
	for n := 1; n <= slots; n++ {
		l.free = append(l.free, n)
	}
	return l
}

func (l *fakeLeases) acquire(ctx context.Context, _ lease.Class) (*fakeLease, error) {
	for {
		l.mu.Lock()
		if len(l.free) > 0 {
			l.count++
			g := &fakeLease{set: l, slot: l.free[0], grant: fmt.Sprintf("g%d", l.count), lost: make(chan struct{}), yield: make(chan struct{})}
			l.free, l.held[g.slot] = l.free[1:], g
			l.mu.Unlock()
			l.story.add("grant %d", g.slot)
			return g, nil
		}
		l.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-l.freed:
		}
	}
}

func (l *fakeLeases) holder(slot int) *fakeLease {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held[slot]
}

func (l *fakeLeases) holders(context.Context) ([]lease.Holder, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []lease.Holder
	for n := range l.held {
		out = append(out, lease.Holder{Slot: n, Class: lease.Poll, Replica: "r"})
	}
	return out, nil
}

func (g *fakeLease) Slot() int              { return g.slot }
func (g *fakeLease) Class() lease.Class     { return lease.Poll }
func (g *fakeLease) Grant() string          { return g.grant }
func (g *fakeLease) Lost() <-chan struct{}  { return g.lost }
func (g *fakeLease) Served()                {}
func (g *fakeLease) Yield() <-chan struct{} { return g.yield }

func (g *fakeLease) StartDeadline() clock.Deadline {
	g.set.mu.Lock()
	defer g.set.mu.Unlock()
	if g.set.redisAway {
		return clock.Deadline{}
	}
	return g.set.clk.Now().Deadline(11 * time.Second)
}

// away says whether renewals fail.
func (l *fakeLeases) away(yes bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.redisAway = yes
}

func (g *fakeLease) Err() error {
	g.set.mu.Lock()
	defer g.set.mu.Unlock()
	return g.err
}

func (g *fakeLease) lose() {
	g.set.mu.Lock()
	g.err = errors.New("lost")
	delete(g.set.held, g.slot)
	g.set.mu.Unlock()
	close(g.lost)
}

func (g *fakeLease) Release(context.Context) error {
	g.set.story.add("release %d", g.slot)
	g.end(0)
	return nil
}

func (g *fakeLease) CoolDown(context.Context, clock.Instant) error {
	g.set.story.add("cool down %d", g.slot)
	g.end(8 * time.Second)
	return nil
}

func (g *fakeLease) end(after time.Duration) {
	g.set.mu.Lock()
	delete(g.set.held, g.slot)
	g.set.mu.Unlock()
	time.AfterFunc(after, func() {
		g.set.mu.Lock()
		g.set.free = append(g.set.free, g.slot)
		g.set.mu.Unlock()
		g.set.freed <- struct{}{}
	})
}

// pull is one request of the fake transport.
type pull struct {
	slot   int
	cursor string
	grant  string
	at     time.Time
}

// fakeBank is a transport whose answers a test scripts.
type fakeBank struct {
	clk   clock.Clock
	story *story
	mu    sync.Mutex
	pulls []pull
	ready error
	// loose is a transport that bounds delivery more loosely than the bank hold assumes.
	loose time.Duration
	// answer decides each pull, by its number from 1.
	answer func(ctx context.Context, n int, p pull) (transport.PullResult, error)
}

func (b *fakeBank) Capabilities(context.Context) (transport.Capabilities, error) {
	return transport.Capabilities{Name: "fake", Channels: pix.Channels(), Pull: true, Streams: true, UserTimeout: 1500*time.Millisecond + b.loose}, nil
}

func (b *fakeBank) Ready(context.Context, pix.Channel, pix.ISPB) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ready
}

func (b *fakeBank) setReady(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ready = err
}

func (b *fakeBank) Pull(ctx context.Context, r transport.PullRequest) (transport.PullResult, error) {
	b.mu.Lock()
	p := pull{slot: r.Permit.Slot.Slot, cursor: r.Cursor, grant: r.Permit.Grant, at: time.Now()}
	b.pulls = append(b.pulls, p)
	n := len(b.pulls)
	b.mu.Unlock()
	b.story.add("pull %d %q", p.slot, p.cursor)
	res, err := b.answer(ctx, n, p)
	res.Exchange = transport.Exchange{FirstByte: b.clk.Now().Boot, Complete: true}
	return res, err
}

func (b *fakeBank) Send(context.Context, transport.SendRequest) (transport.SendResult, error) {
	return transport.SendResult{}, &transport.Error{Kind: transport.NotSent}
}

func (b *fakeBank) CloseStream(_ context.Context, r transport.CloseRequest) (transport.CloseResult, error) {
	b.story.add("delete %d %q", r.Permit.Slot.Slot, r.Cursor)
	return transport.CloseResult{Exchange: transport.Exchange{FirstByte: b.clk.Now().Boot, Complete: true}}, nil
}

func (b *fakeBank) Disconnect(context.Context, transport.SlotID) error { return nil }

func (b *fakeBank) all() []pull {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.pulls)
}

// hold is the bank's long poll: nothing for five seconds.
func hold(ctx context.Context, cursor string) (transport.PullResult, error) {
	select {
	case <-time.After(5 * time.Second):
		return transport.PullResult{Cursor: cursor}, nil
	case <-ctx.Done():
		return transport.PullResult{}, ctx.Err()
	}
}

func brought(cursor string, ids ...string) (transport.PullResult, error) {
	res := transport.PullResult{Cursor: cursor}
	for _, id := range ids {
		res.Messages = append(res.Messages, transport.Message{ResourceID: id, Body: envelope("pacs.008.spi.1.16")})
	}
	return res, nil
}

func complete(kind transport.Kind) *transport.Error {
	return &transport.Error{Kind: kind, Exchange: transport.Exchange{FirstByte: 1, Complete: true}}
}

func envelope(msgDefIdr string) []byte {
	return []byte(`<?xml version="1.0" encoding="UTF-8"?><Envelope xmlns="https://www.bcb.gov.br/pi/x"><AppHdr><MsgDefIdr>` +
		msgDefIdr + `</MsgDefIdr></AppHdr><Document><A b="c">d &amp; e</A></Document></Envelope>`)
}

// fakeStore is the inbox in memory.
type fakeStore struct {
	story *story
	mu    sync.Mutex
	away  error
	rows  []*row
	dead  []store.Poison
	terms map[int]int64
	curs  map[int]string
	marks []int // how many rows each call marked as published
}

type row struct {
	store.Stored
	at, published time.Time
	done          bool
}

func newStore(st *story) *fakeStore {
	return &fakeStore{story: st, terms: map[int]int64{}, curs: map[int]string{}}
}

func (s *fakeStore) set(away error) { s.mu.Lock(); defer s.mu.Unlock(); s.away = away }

func (s *fakeStore) Ping(context.Context) error { s.mu.Lock(); defer s.mu.Unlock(); return s.away }

func (s *fakeStore) OpenSession(_ context.Context, c pix.Channel, i pix.ISPB, slot int, _ string) (store.Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away != nil {
		return store.Session{}, s.away
	}
	s.terms[slot]++
	return store.Session{Channel: c, ISPB: i, Slot: slot, Term: s.terms[slot], Cursor: s.curs[slot]}, nil
}

// check is called with mu held.
func (s *fakeStore) check(session store.Session) error {
	if s.away != nil {
		return s.away
	}
	if s.terms[session.Slot] != session.Term {
		return store.ErrStaleTerm
	}
	return nil
}

func (s *fakeStore) Receive(_ context.Context, b store.Batch) (store.Receipt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.check(b.Session); err != nil {
		return store.Receipt{}, err
	}
	s.curs[b.Session.Slot] = b.NextCursor
	s.dead = append(s.dead, b.Poison...)
	var receipt store.Receipt
	for _, a := range b.Arrivals {
		if i := slices.IndexFunc(s.rows, func(r *row) bool { return r.MessageID == a.MessageID }); i >= 0 {
			if !bytes.Equal(s.rows[i].Payload, a.Payload) {
				receipt.Conflicts = append(receipt.Conflicts, a.MessageID)
			}
			continue
		}
		r := &row{at: time.Now()}
		r.ID, r.MessageID, r.MsgType, r.Payload = int64(len(s.rows)+1), a.MessageID, a.MsgType, a.Payload
		s.rows = append(s.rows, r)
		receipt.Fresh = append(receipt.Fresh, r.Stored)
	}
	s.story.add("stored %d, cursor %q", len(b.Arrivals), b.NextCursor)
	return receipt, nil
}

func (s *fakeStore) CloseSession(_ context.Context, session store.Session) error {
	return s.clearCursor(session, "session closed %d")
}

func (s *fakeStore) ResetCursor(_ context.Context, session store.Session) error {
	return s.clearCursor(session, "cursor reset %d")
}

func (s *fakeStore) clearCursor(session store.Session, line string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.check(session); err != nil {
		return err
	}
	s.curs[session.Slot] = ""
	s.story.add(line, session.Slot)
	return nil
}

// put stores rows as if another replica had, without offering them to a publisher.
func (s *fakeStore) put(ids ...string) []store.Stored {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []store.Stored
	for _, id := range ids {
		r := &row{at: time.Now()}
		r.ID, r.MessageID = int64(len(s.rows)+1), id
		s.rows = append(s.rows, r)
		out = append(out, r.Stored)
	}
	return out
}

func (s *fakeStore) find(limit int, want func(*row) bool) ([]store.Stored, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away != nil {
		return nil, s.away
	}
	var out []store.Stored
	for _, r := range s.rows {
		if len(out) < limit && !r.done && want(r) {
			out = append(out, r.Stored)
		}
	}
	return out, nil
}

func (s *fakeStore) Unpublished(_ context.Context, age time.Duration, limit int) ([]store.Stored, error) {
	return s.find(limit, func(r *row) bool { return r.published.IsZero() && time.Since(r.at) >= age })
}

func (s *fakeStore) Stuck(_ context.Context, first, most time.Duration, limit int) ([]store.Stored, error) {
	return s.find(limit, func(r *row) bool {
		return !r.published.IsZero() && time.Since(r.published) >= min(first<<min(r.Attempts, 20), most)
	})
}

func (s *fakeStore) mark(ids []int64, f func(*row)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away != nil {
		return s.away
	}
	for _, id := range ids {
		f(s.rows[id-1])
	}
	return nil
}

func (s *fakeStore) MarkPublished(_ context.Context, ids []int64) error {
	if err := s.mark(ids, func(r *row) { r.published = time.Now() }); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.marks = append(s.marks, len(ids))
	return nil
}

func (s *fakeStore) marked() []int { s.mu.Lock(); defer s.mu.Unlock(); return slices.Clone(s.marks) }

func (s *fakeStore) Republished(_ context.Context, stuck []store.Stored) error {
	var ids []int64
	for _, row := range stuck {
		ids = append(ids, row.ID)
	}
	return s.mark(ids, func(r *row) { r.published = time.Now(); r.Attempts++ })
}

func (s *fakeStore) Bury(_ context.Context, id int64, reason string) error {
	return s.mark([]int64{id}, func(r *row) {
		r.done = true
		s.dead = append(s.dead, store.Poison{MessageID: r.MessageID, Reason: reason})
	})
}

func (s *fakeStore) Backlog(context.Context) (store.Backlog, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var open store.Backlog
	for _, r := range s.rows {
		switch {
		case r.done:
			continue
		case r.published.IsZero():
			open.Received++
		default:
			open.Published++
		}
		open.Attempts = max(open.Attempts, int64(r.Attempts))
		open.Lag = max(open.Lag, time.Since(r.at))
	}
	return open, s.away
}

func (s *fakeStore) graves() []store.Poison {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.dead)
}

// fakeCarrier keeps what was published, in order.
type fakeCarrier struct {
	mu      sync.Mutex
	down    error
	refuses string // the id of a message that it will never take
	sent    []string
	batches []int // how many messages each call had
}

func (c *fakeCarrier) PublishInbound(_ context.Context, messages []bus.Inbound) bus.Results {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.batches = append(c.batches, len(messages))
	out := make(bus.Results, len(messages))
	for i, m := range messages {
		switch {
		case c.down != nil:
			out[i] = c.down
		case m.MessageID == c.refuses:
			out[i] = bus.ErrRefused
		default:
			id := m.MessageID
			if m.Attempt > 0 {
				id = fmt.Sprintf("%s#%d", id, m.Attempt)
			}
			c.sent = append(c.sent, id)
		}
	}
	return out
}

func (c *fakeCarrier) set(down error) { c.mu.Lock(); defer c.mu.Unlock(); c.down = down }

func (c *fakeCarrier) sizes() []int { c.mu.Lock(); defer c.mu.Unlock(); return slices.Clone(c.batches) }

func (c *fakeCarrier) all() []string { c.mu.Lock(); defer c.mu.Unlock(); return slices.Clone(c.sent) }

// bench is a poller over fakes, inside a bubble.
type bench struct {
	t       *testing.T
	clk     bubbleClock
	story   *story
	leases  *fakeLeases
	bank    *fakeBank
	store   *fakeStore
	carrier *fakeCarrier
	reg     *prometheus.Registry
	log     *lockedWriter
	cfg     Config
	deps    Deps
	poller  *Poller
	stop    func()
}

// inBubble runs a test on a bench of one slot with time of its own.
func inBubble(t *testing.T, test func(*bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{t: t, clk: bubbleClock{base: time.Now()}, story: &story{}, reg: prometheus.NewRegistry(), log: &lockedWriter{}}
		b.bank = &fakeBank{clk: b.clk, story: b.story, answer: func(ctx context.Context, _ int, p pull) (transport.PullResult, error) {
			return hold(ctx, p.cursor)
		}}
		b.store, b.carrier = newStore(b.story), &fakeCarrier{}
		b.slots(1)
		b.cfg.ISPB, b.cfg.Owner = ispb, "test"
		test(b)
		if b.stop != nil {
			b.stop()
		}
	})
}

// slots sets how many slots there are and how many workers.
func (b *bench) slots(n int) {
	b.leases = newLeases(b.clk, b.story, n)
	b.cfg.Workers = map[pix.Channel]int{pix.CPM: n}
}

// lockedWriter lets many goroutines log into one buffer.
type lockedWriter struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (w *lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

func (w *lockedWriter) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

// start runs the poller until the test stops it or ends.
func (b *bench) start() {
	b.t.Helper()
	log := slog.New(slog.NewTextHandler(b.log, nil))
	pool, err := slotpool.New(slotpool.Config{Channel: pix.CPM, ISPB: ispb, BankHold: 8 * time.Second, ReceiveTimeout: 6500 * time.Millisecond, Linger: -1},
		slotpool.Deps{Acquire: slotpool.From(b.leases.acquire), Transport: b.bank, Clock: b.clk, Log: log, Metrics: b.reg})
	require.NoError(b.t, err)
	b.deps.Slots = map[pix.Channel]Slots{pix.CPM: pool}
	if b.deps.Holders == nil {
		b.deps.Holders = map[pix.Channel]func(context.Context) ([]lease.Holder, error){pix.CPM: b.leases.holders}
	}
	b.deps.Transport, b.deps.Inbox, b.deps.Ping, b.deps.Clock = b.bank, b.store, b.store.Ping, b.clk
	b.deps.Outlet = Outlet{Carrier: b.carrier, Backlog: b.store, Unfinished: b.store}
	b.deps.Log, b.deps.Metrics = log, b.reg
	b.poller, err = New(b.cfg, b.deps)
	require.NoError(b.t, err)
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = b.poller.Run(ctx) }()
	b.stop = func() { cancel(); <-done }
}

// after lets time pass and everything that it causes happen.
func (b *bench) after(d time.Duration) {
	// The bubble's own time: it passes only while all goroutines wait.
	_ = clock.Sleep(context.Background(), b.clk, d)
	synctest.Wait()
}

// metric sums a metric over all label values that include those given.
func (b *bench) metric(name string, values ...string) float64 {
	b.t.Helper()
	families, err := b.reg.Gather()
	require.NoError(b.t, err)
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
			if !slices.ContainsFunc(values, func(v string) bool { return !have[v] }) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}
