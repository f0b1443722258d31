package outbound

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/bus"
	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/drain"
	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/lease"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/slotpool"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/libs/transport"
)

const ispb = pix.ISPB("12345678")

// bench is one sender in a bubble, with a bank, leases and a store in memory that tell one story.
type bench struct {
	*testing.T
	clk    clock.Clock
	sender *Sender
	take   func(Delivery)
	cancel context.CancelFunc
	ended  chan struct{}
	began  time.Time
	// answer decides each POST, by its number from 1.
	answer func(ctx context.Context, n int) error
	slots  int

	mu       sync.Mutex
	lines    []string
	posts    int
	posted   []string // the messages of the latest POST
	storeErr error
	lost     error    // the answer of the next Withdraw, which is done
	settled  []string // payments that each refusal contradicts
	answers  []string // of deliveries
	messages map[pix.MsgID]*store.Message
	taken    map[int64]bool // operations that are in a message
	names    map[pix.MsgID]string
}

func (b *bench) tell(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, fmt.Sprintf(format, args...))
}

func (b *bench) story() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.lines)
}

// inBubble runs a test with a sender that was started and is ready, and ends it.
func inBubble(t *testing.T, cfg Config, test func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{
			T: t, clk: bubbleClock{time.Now()}, ended: make(chan struct{}), began: time.Now(), slots: 2,
			messages: map[pix.MsgID]*store.Message{}, taken: map[int64]bool{}, names: map[pix.MsgID]string{},
			answer: func(context.Context, int) error { return nil },
		}
		cfg.ISPB, cfg.Workers = ispb, map[pix.Channel]int{pix.CPM: 2}
		log, reg := slog.New(slog.DiscardHandler), prometheus.NewRegistry()
		pool, err := slotpool.New(slotpool.Config{Channel: pix.CPM, ISPB: ispb, BankHold: 8 * time.Second, ReceiveTimeout: 6500 * time.Millisecond},
			slotpool.Deps{Acquire: slotpool.From(b.acquire), Transport: b, Clock: b.clk, Log: log, Metrics: reg})
		require.NoError(t, err)
		b.sender, err = New(cfg, Deps{
			Slots: map[pix.Channel]Slots{pix.CPM: pool}, Transport: b, Store: b, Intake: b.intake,
			Versions: iso20022.DefaultVersions(), Signer: b, Clock: b.clk, Log: log, Metrics: reg,
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		b.cancel = cancel
		go func() {
			defer close(b.ended)
			_ = b.sender.Run(ctx) // never fails
		}()
		synctest.Wait()
		test(b)
		cancel()
		<-b.ended
	})
}

// stop ends the sender as the service does, phase by phase.
func (b *bench) stop() error {
	d := drain.New(slog.New(slog.DiscardHandler), b.clk, b.sender.StopPhases()...)
	defer d.Disarm()
	return d.Run(b.Context())
}

func (b *bench) after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (b *bench) at() time.Duration { return time.Since(b.began).Round(time.Millisecond) }

func (b *bench) intake(ctx context.Context, _ pix.Channel, take func(Delivery)) error {
	b.take = take
	<-ctx.Done()
	return nil
}

// deliver hands operations over, from and to.
func (b *bench) deliver(from, to int64) {
	for id := from; id <= to; id++ {
		note := func(what string) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.answers = append(b.answers, fmt.Sprintf("%s %d", what, id))
		}
		b.take(Delivery{
			Outbound: bus.Outbound{ISPB: ispb, Channel: pix.CPM, ID: id, MsgType: "pibr.001"},
			Ack:      func() { note("ack") }, Retry: func(after time.Duration) { note("retry " + after.String()) },
		})
	}
	synctest.Wait()
}

func (b *bench) answered() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.answers)
}

// The transport.

func (b *bench) Capabilities(context.Context) (transport.Capabilities, error) {
	return transport.Capabilities{Name: "fake", Channels: pix.Channels(), Send: true, UserTimeout: 1500 * time.Millisecond}, nil
}

func (b *bench) Ready(context.Context, pix.Channel, pix.ISPB) error { return nil }

func (b *bench) Send(ctx context.Context, r transport.SendRequest) (transport.SendResult, error) {
	b.mu.Lock()
	b.posts++
	n := b.posts
	b.posted = nil
	for _, payload := range r.Messages {
		for id, m := range b.messages {
			if string(m.Payload) == string(payload) {
				b.posted = append(b.posted, b.names[id])
			}
		}
	}
	b.mu.Unlock()
	b.tell("post %d at %v", len(r.Messages), b.at())
	x := transport.Exchange{FirstByte: b.clk.Now().Boot, Complete: true}
	err := b.answer(ctx, n)
	var e *transport.Error
	if errors.As(err, &e) && e.Kind != transport.NotSent {
		e.Exchange = transport.Exchange{FirstByte: x.FirstByte, Complete: e.Kind != transport.OutcomeUnknown}
	}
	return transport.SendResult{Exchange: x}, err
}

func (b *bench) Pull(context.Context, transport.PullRequest) (transport.PullResult, error) {
	return transport.PullResult{}, &transport.Error{Kind: transport.NotSent}
}

func (b *bench) CloseStream(context.Context, transport.CloseRequest) (transport.CloseResult, error) {
	return transport.CloseResult{}, &transport.Error{Kind: transport.NotSent}
}

func (b *bench) Disconnect(context.Context, transport.SlotID) error { return nil }

// The leases.

type fakeLease struct {
	b     *bench
	yield chan struct{}
}

func (b *bench) acquire(ctx context.Context, class lease.Class) (*fakeLease, error) {
	for {
		b.mu.Lock()
		if b.slots > 0 {
			b.slots--
			b.mu.Unlock()
			b.tell("%s permit", class)
			return &fakeLease{b: b, yield: make(chan struct{})}, nil
		}
		b.mu.Unlock()
		if clock.Sleep(ctx, b.clk, 100*time.Millisecond) != nil {
			return nil, ctx.Err()
		}
	}
}

func (l *fakeLease) give(after time.Duration) {
	time.AfterFunc(after, func() {
		l.b.mu.Lock()
		defer l.b.mu.Unlock()
		l.b.slots++
	})
}

func (l *fakeLease) Slot() int                     { return 1 }
func (l *fakeLease) Class() lease.Class            { return lease.Send }
func (l *fakeLease) Grant() string                 { return "grant" }
func (l *fakeLease) Lost() <-chan struct{}         { return nil }
func (l *fakeLease) Err() error                    { return nil }
func (l *fakeLease) Served()                       {}
func (l *fakeLease) Yield() <-chan struct{}        { return l.yield }
func (l *fakeLease) StartDeadline() clock.Deadline { return l.b.clk.Now().Deadline(11 * time.Second) }

func (l *fakeLease) Release(context.Context) error {
	l.b.tell("release at %v", l.b.at())
	l.give(0)
	return nil
}

func (l *fakeLease) CoolDown(context.Context, clock.Instant) error {
	l.b.tell("cool down at %v", l.b.at())
	l.give(8 * time.Second)
	return nil
}

// The signature.

func (b *bench) Sign(message []byte) ([]byte, error) { return message, nil }

// The store: messages in memory, under short names.

func (b *bench) away(err error) { b.mu.Lock(); defer b.mu.Unlock(); b.storeErr = err }

func (b *bench) Claim(_ context.Context, ids []int64) (free []store.Operation, taken []store.Message, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range ids {
		if !b.taken[id] {
			free = append(free, store.Operation{ID: id, MsgType: "pibr.001", Channel: pix.CPM, Body: []byte(`{"data":"x"}`)})
		}
	}
	return free, nil, b.storeErr
}

func (b *bench) Build(_ context.Context, drafts []store.Draft) ([]bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	built := make([]bool, len(drafts))
	if b.storeErr != nil {
		return built, b.storeErr
	}
	for i, d := range drafts {
		built[i] = !b.taken[d.OperationIDs[0]]
		b.taken[d.OperationIDs[0]] = true
		m := d.Message
		m.State, m.UpdatedAt, m.Operations = store.MessageBuilt, time.Now(), d.OperationIDs
		b.messages[m.MsgID] = &m
		b.names[m.MsgID] = fmt.Sprintf("m%d", d.OperationIDs[0])
	}
	return built, nil
}

func (b *bench) Discard(context.Context, int64, string) error { return nil }

func (b *bench) Attempt(_ context.Context, tries []store.Try) ([]bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	ours := make([]bool, len(tries))
	for i, t := range tries {
		m := b.messages[t.MsgID]
		ours[i] = m.Attempts == t.Attempts && b.storeErr == nil
		if ours[i] {
			m.Attempts, m.UpdatedAt = m.Attempts+1, time.Now()
		}
	}
	return ours, b.storeErr
}

func (b *bench) Withdraw(_ context.Context, tries []store.Try, release bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range tries {
		if m := b.messages[t.MsgID]; m.Attempts == t.Attempts && b.storeErr == nil {
			m.Attempts, m.UpdatedAt = m.Attempts-1, time.Now()
			if release {
				m.UpdatedAt = time.Time{}
			}
		}
	}
	lost := b.lost
	b.lost = nil
	return cmp.Or(b.storeErr, lost)
}

func (b *bench) mark(state store.MessageState, ids []pix.MsgID) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.storeErr != nil {
		return b.storeErr
	}
	var names []string
	for _, id := range ids {
		m := b.messages[id]
		m.State, m.UpdatedAt = state, time.Now()
		names = append(names, fmt.Sprintf("%s/%d", b.names[id], m.Attempts))
	}
	b.lines = append(b.lines, fmt.Sprintf("%s %s", state, strings.Join(names, " ")))
	return nil
}

func (b *bench) Sent(_ context.Context, posted []store.Posted) error {
	ids := make([]pix.MsgID, len(posted))
	for i, p := range posted {
		ids[i] = p.MsgID
	}
	return b.mark(store.MessageSent, ids)
}

func (b *bench) Unknown(_ context.Context, ids []pix.MsgID, _ string) error {
	return b.mark(store.MessageUnknown, ids)
}

func (b *bench) Refused(_ context.Context, ids []pix.MsgID, _ string) ([]string, error) {
	return b.settled, b.mark(store.MessageRefused, ids)
}

func (b *bench) Due(_ context.Context, _ pix.Channel, r store.Resend, limit int) (due []store.Message, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.messages {
		age, pause := time.Since(m.UpdatedAt), min(r.First<<max(0, m.Attempts-1), r.Most)
		if m.State == store.MessageUnknown && m.Attempts < r.Attempts && age >= pause || m.State == store.MessageBuilt && age >= r.LostAfter {
			m.UpdatedAt = time.Now()
			due = append(due, *m)
		}
	}
	return due[:min(limit, len(due))], b.storeErr
}

func (b *bench) Release(_ context.Context, ids []pix.MsgID) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range ids {
		b.messages[id].UpdatedAt = time.Time{}
	}
	return b.storeErr
}

func (b *bench) Tidy(context.Context, int, time.Duration) error                    { return nil }
func (b *bench) Doubts(context.Context, int) (map[pix.Channel]store.Doubts, error) { return nil, nil }
