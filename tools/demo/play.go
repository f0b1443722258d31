package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cabine-pix/cabine/libs/bus"
	"github.com/cabine-pix/cabine/libs/icom/icomtest"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/tools/internal/stage"
)

// books is what the stand-in for the core banking saw: per message, how many stored rows it closed.
type books struct {
	mu     sync.Mutex
	closed map[string]int
}

func (b *books) done(id string, rows int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed[id] += rows
}

// compare returns how many of the bank's messages were never closed and how many were closed more than once.
func (b *books) compare(sent []string) (lost, duplicated int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range sent {
		if b.closed[id] == 0 {
			lost++
		}
	}
	for _, rows := range b.closed {
		duplicated += max(0, rows-1)
	}
	return lost, duplicated
}

// consume stands in for the core banking: it takes messages off the bus and marks them done.
func (b *books) consume(ctx context.Context, s *stage.Stage) error {
	conn, err := bus.Connect(ctx, bus.Config{URL: s.NATSURL()}, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	inbox := store.NewInbox(s.DB)
	err = conn.ConsumeInbound(ctx, bus.ConsumeConfig{Durable: bus.ConsumerPayments, Concurrency: 4, Prefetch: 64},
		func(ctx context.Context, m bus.Inbound) error {
			closed, err := inbox.MarkDone(ctx, []string{m.MessageID}, m.Source)
			if err == nil {
				b.done(m.MessageID, int(closed))
			}
			return err
		})
	closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return errors.Join(err, conn.Close(closeCtx))
}

// troupe is the running replicas.
type troupe struct {
	o       options
	stage   *stage.Stage
	history *history
	mu      sync.Mutex
	running map[string]*stage.Process
	next    int
}

// enter starts one more replica and returns its name.
func (t *troupe) enter() (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next++
	name := fmt.Sprintf("r%d", t.next)
	p, err := t.stage.Poller(name, func(line []byte) { t.history.read(name, line) }, nil)
	if err != nil {
		return "", err
	}
	t.running[name] = p
	return name, nil
}

// leave takes a replica out of the books and returns its process.
func (t *troupe) leave(name string) *stage.Process {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.running[name]
	delete(t.running, name)
	return p
}

// gone returns an error if a replica ended that nobody asked to.
func (t *troupe) gone() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, p := range t.running {
		select {
		case <-p.Done():
			return fmt.Errorf("%w: %s: %w", errGone, name, errors.Join(p.Err(), errors.New("veja os logs com -logs")))
		default:
		}
	}
	return nil
}

// exit stops all replicas in order.
func (t *troupe) exit() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var g errgroup.Group
	for _, p := range t.running {
		g.Go(func() error { return p.Stop(20 * time.Second) })
	}
	clear(t.running)
	return g.Wait()
}

// play is the whole demonstration.
func play(ctx context.Context, o options, out, errOut io.Writer) (r *Report, err error) {
	s, err := stage.SetUp(ctx, stage.Config{
		Seed: o.seed, Examples: o.examples, MaxSlots: o.slots, WithoutCap: o.withoutCap,
		Logs: stage.Logs{Dir: o.keep}, Progress: errOut,
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.TearDown()) }()
	t := &troupe{o: o, stage: s, history: &history{}, running: make(map[string]*stage.Process)}
	defer func() { err = errors.Join(err, t.exit()) }()
	b := &books{closed: make(map[string]int)}
	consumeCtx, stopConsuming := context.WithCancel(ctx)
	consumed := make(chan error, 1)
	go func() { consumed <- b.consume(consumeCtx, s) }()
	defer func() { stopConsuming(); err = errors.Join(err, <-consumed) }()

	r = &Report{
		Replicas: o.replicas, Seed: s.Seed, Channels: make(map[string]*Channel),
		LeaseMS: stage.TTL.Milliseconds(), Versions: s.Versions(), TakeoverMS: Takeover{-1, -1}, Broken: []string{},
	}
	if err := t.act(ctx, r, newTable(out, o.plain)); err != nil {
		return nil, err
	}
	if err := t.exit(); err != nil {
		r.broke("parada limpa: %v", err)
	}
	return r, t.close(ctx, r, b)
}

// act is the traffic with its faults: at a third of the time a replica is killed, at two
// thirds another is rolled.
func (t *troupe) act(ctx context.Context, r *Report, view *table) error {
	names := make([]string, t.o.replicas)
	for i := range names {
		var err error
		if names[i], err = t.enter(); err != nil {
			return err
		}
	}
	view.note("o Redis é novo: nenhum slot é concedido durante a quarentena de %v", quarantine())
	if err := t.until(ctx, view, 60*time.Second, "o primeiro poll em cada canal", t.polling); err != nil {
		return err
	}
	began := time.Now()
	for _, name := range pix.Channels() {
		q := url.Values{
			"channel": {string(name)}, "ispb": {string(stage.ISPB)}, "rate": {strconv.FormatFloat(t.o.rate, 'g', -1, 64)},
			"n": {strconv.Itoa(int(t.o.rate * t.o.duration.Seconds()))},
		}
		if err := t.stage.Control(ctx, http.MethodPost, "/enqueue", q, "", nil); err != nil {
			return err
		}
	}
	at := func(part float64) time.Duration {
		return time.Duration(part*float64(t.o.duration)) - time.Since(began)
	}
	if err := t.watch(ctx, view, at(1./3)); err != nil {
		return err
	}
	killed := t.fault("SIGKILL", names[0])
	t.leave(names[0]).Signal(syscall.SIGKILL)
	r.Faults = append(r.Faults, killed)
	view.note("%s foi morta com SIGKILL; tinha %d slots", killed.Replica, killed.Slots)
	// As a scheduler would: a replacement, which waits for its share like everybody.
	if _, err := t.enter(); err != nil {
		return err
	}
	if err := t.watch(ctx, view, at(2./3)); err != nil {
		return err
	}
	rolled, err := t.roll(ctx, r, view, names[1])
	if err != nil {
		return err
	}
	if err := t.watch(ctx, view, at(1)); err != nil {
		return err
	}
	err = t.until(ctx, view, 60*time.Second, "o banco entregar o que resta", t.drained)
	if errors.Is(err, errWaited) {
		r.broke("Nothing silent: %v", err) // a law, not a failure of the demo: the report says what is left
	} else if err != nil {
		return err
	}
	view.end()
	var missing int
	r.TakeoverMS.Killed, missing = t.history.killedTakeover(killed)
	if missing > 0 {
		r.broke("%d slots da réplica morta nunca foram retomados", missing)
	}
	r.TakeoverMS.Graceful = t.history.gracefulTakeover(rolled)
	r.Seconds = time.Since(began).Seconds()
	return nil
}

// roll replaces a replica as a deploy does: the new one first, then SIGTERM to the old one.
func (t *troupe) roll(ctx context.Context, r *Report, view *table, name string) (Fault, error) {
	if _, err := t.enter(); err != nil {
		return Fault{}, err
	}
	if err := t.watch(ctx, view, time.Second); err != nil {
		return Fault{}, err
	}
	rolled := t.fault("SIGTERM", name)
	r.Faults = append(r.Faults, rolled)
	view.note("%s recebeu SIGTERM; tinha %d slots", rolled.Replica, rolled.Slots)
	if err := t.leave(name).Stop(20 * time.Second); err != nil {
		r.broke("parada limpa: %v", err)
	}
	return rolled, nil
}

func (t *troupe) fault(kind, name string) Fault {
	now := time.Now()
	return Fault{At: now, Kind: kind, Replica: name, Slots: len(t.history.held(name, now))}
}

// watch shows the table for a while.
func (t *troupe) watch(ctx context.Context, view *table, d time.Duration) error {
	deadline := time.Now().Add(d)
	return t.until(ctx, view, max(d, 0)+time.Minute, "", func(context.Context) (bool, error) { return !time.Now().Before(deadline), nil })
}

var errWaited = errors.New("esperei")

// until shows the table until something is true, or returns errWaited.
func (t *troupe) until(ctx context.Context, view *table, within time.Duration, what string, ok func(context.Context) (bool, error)) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(within)
	for {
		if err := t.gone(); err != nil {
			return err
		}
		done, err := ok(ctx)
		if err != nil || done {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%w %v por: %s", errWaited, within, what)
		}
		if err := view.draw(ctx, t); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

func (t *troupe) polling(context.Context) (bool, error) {
	t.history.mu.Lock()
	defer t.history.mu.Unlock()
	seen := make(map[string]bool)
	for _, e := range t.history.events {
		if e.Msg == "first poll" {
			seen[e.Channel] = true
		}
	}
	return len(seen) == len(pix.Channels()), nil
}

// drained reports that the bank has nothing left to deliver and everything stored is done.
func (t *troupe) drained(ctx context.Context) (bool, error) {
	bank, err := t.stage.Report(ctx)
	if err != nil {
		return false, err
	}
	if t.o.withoutCap && bank.Violations() > 0 {
		return true, nil // several owners of one stream may never be done, and the judge has what it needs
	}
	want := uint64(t.o.rate * t.o.duration.Seconds())
	for _, name := range pix.Channels() {
		if p := bank.Participant(name, stage.ISPB); p.Enqueued < want || p.Acked < p.Enqueued {
			return false, nil
		}
	}
	open, err := store.NewInbox(t.stage.DB).Backlog(ctx)
	return err == nil && open.Received+open.Published == 0, err
}

// close compares the books once every replica has stopped.
func (t *troupe) close(ctx context.Context, r *Report, b *books) error {
	counts, err := store.NewInbox(t.stage.DB).Counts(ctx)
	if err != nil {
		return err
	}
	bank, err := t.stage.Report(ctx)
	if err != nil {
		return err
	}
	var violations []icomtest.Violation
	if err := t.stage.Control(ctx, http.MethodGet, "/violations", nil, "", &violations); err != nil {
		return err
	}
	var sent []string
	in := &r.Inbound
	for _, name := range pix.Channels() {
		var ids icomtest.IDs
		q := url.Values{"channel": {string(name)}, "ispb": {string(stage.ISPB)}}
		if err := t.stage.Control(ctx, http.MethodGet, "/ids", q, "", &ids); err != nil {
			return err
		}
		sent = append(sent, ids.Enqueued...)
		in.Unconfirmed += len(ids.Enqueued) - len(ids.Acked)
	}
	in.SentByBank = len(sent)
	in.Stored = int(counts.Received + counts.Published + counts.Done)
	in.Published = int(counts.Published + counts.Done)
	in.Done, in.DeadLetters = int(counts.Done), int(counts.Dead)
	in.Lost, in.Duplicated = b.compare(sent)
	in.Duplicated += max(0, in.Stored-in.SentByBank)
	r.judge(bank, violations, stage.ISPB)
	return nil
}
