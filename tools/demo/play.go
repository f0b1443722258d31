package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/tools/internal/stage"
)

// other is the participant that ours pays and is paid by. It runs the same services, one replica of each.
const other = pix.ISPB("87654321")

// play is the whole demonstration.
func play(ctx context.Context, o options, out, errOut io.Writer) (r *Report, err error) {
	s, err := stage.SetUp(ctx, stage.Config{
		Seed: o.seed, MaxSlots: o.slots, WithoutCap: o.withoutCap, Payments: true, Settlement: true, Participants: []pix.ISPB{stage.ISPB, other},
		Logs: stage.Logs{Dir: o.keep}, Progress: errOut,
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.TearDown()) }()
	t := &troupe{
		o: o, stage: s, history: &history{}, hearing: &hearing{}, running: make(map[string]*replica), next: make(map[string]int),
	}
	defer func() { err = errors.Join(err, t.exit()) }()

	r = &Report{
		Replicas: o.replicas, Seed: s.Seed, Channels: make(map[string]*Channel),
		LeaseMS: stage.TTL.Milliseconds(), Versions: s.Versions(), TakeoverMS: Takeover{-1, -1}, Broken: []string{},
	}
	if err := t.open(ctx); err != nil {
		return nil, err
	}
	if err := t.act(ctx, r, newTable(out, o.plain)); err != nil {
		return nil, err
	}
	if err := t.exit(); err != nil {
		r.broke("parada limpa: %v", err)
	}
	return r, t.close(ctx, r)
}

// open starts everything: of ours as many pollers as were asked for, three replicas of what settles and two of what pays
// and sends, of the other one of each.
func (t *troupe) open(ctx context.Context) error {
	if err := t.clocks(ctx); err != nil {
		return err
	}
	for place, p := range t.stage.Participants {
		heard, err := p.NATS.ConsumerCreations() // migrate has ended
		if err != nil {
			return err
		}
		t.creations = append(t.creations, heard)
		err = p.StartCore("--reject", "0.02", "--seed", fmt.Sprint(t.stage.Seed))
		if err != nil {
			return err
		}
		pollers, schedulers, others := t.o.replicas, 3, 2
		if place > 0 {
			pollers, schedulers, others = 1, 1, 1
		}
		for r, n := range map[role]int{polling: pollers, paying: others, sending: others, settling: schedulers} {
			for range n {
				if _, err := t.enter(ctx, r, p); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// act is the traffic with its faults: replicas of all services of ours are killed and rolled while orders run both ways, of
// what settles the leader.
func (t *troupe) act(ctx context.Context, r *Report, view *table) error {
	view.note("o Redis é novo: nenhum slot é concedido durante a quarentena de %v", quarantine())
	if err := t.until(ctx, view, 60*time.Second, "o primeiro poll em cada canal", t.polling); err != nil {
		return err
	}
	began := time.Now()
	stopTellers, tellers := t.tellers(ctx)
	defer stopTellers()
	var killed, rolled Fault
	kill := func(which role) func() error {
		return func() (err error) {
			f, err := t.kill(ctx, r, view, which)
			if which == polling {
				killed = f
			}
			return err
		}
	}
	for _, step := range []struct {
		at float64 // of the duration
		do func() error
	}{
		{2. / 12, kill(sending)},
		{4. / 12, kill(polling)},
		{5. / 12, kill(settling)},
		{6. / 12, kill(paying)},
		{7. / 12, func() error { return t.spoil(ctx, "consumers", "jetstream") }},
		{8. / 12, func() (err error) { rolled, err = t.rollAll(ctx, r, view); return err }},
	} {
		if err := t.watch(ctx, view, time.Duration(step.at*float64(t.o.duration))-time.Since(began)); err != nil {
			return err
		}
		if err := step.do(); err != nil {
			return err
		}
	}
	if err := t.finish(ctx, r, view, tellers, began); err != nil {
		return err
	}
	var missing int
	r.TakeoverMS.Killed, missing = t.history.killedTakeover(killed)
	if missing > 0 {
		r.broke("%d slots da réplica morta nunca foram retomados", missing)
	}
	r.TakeoverMS.Graceful = t.history.gracefulTakeover(rolled)
	r.Seconds = time.Since(began).Seconds()
	return nil
}

// rollAll rolls a replica of each service and returns the fault of the poller.
func (t *troupe) rollAll(ctx context.Context, r *Report, view *table) (poller Fault, err error) {
	for _, role := range []role{polling, sending, paying, settling} {
		name, err := t.victim(ctx, view, role, t.stage.Participants[0])
		if err != nil {
			return poller, err
		}
		f, err := t.roll(ctx, r, view, name)
		if err != nil {
			return poller, err
		}
		if role == polling {
			poller = f
		}
	}
	return poller, nil
}

// tellers gives orders both ways for the duration. The channel says how that ended.
func (t *troupe) tellers(ctx context.Context) (stop func(), done <-chan tellersEnd) {
	ctx, cancel := context.WithCancel(ctx)
	g, ctx := errgroup.WithContext(ctx)
	both := []*teller{
		newTeller(t, t.stage.Participants[0], t.stage.Participants[1], t.stage.Seed),
		newTeller(t, t.stage.Participants[1], t.stage.Participants[0], t.stage.Seed),
	}
	for _, teller := range both {
		g.Go(func() error { return teller.work(ctx, int(t.o.rate*t.o.duration.Seconds()), t.o.rate) })
	}
	end := make(chan tellersEnd, 1)
	go func() { err := g.Wait(); end <- tellersEnd{both, err} }()
	return func() { cancel(); g.Wait() }, end //nolint:errcheck // the channel has it
}

// tellersEnd is who gave orders, and why they stopped before their time.
type tellersEnd struct {
	tellers []*teller
	err     error
}

// finish waits until every order was taken and everything has ended.
func (t *troupe) finish(ctx context.Context, r *Report, view *table, tellers <-chan tellersEnd, began time.Time) error {
	var end tellersEnd
	taken := func(context.Context) (bool, error) {
		select {
		case end = <-tellers:
			return true, end.err
		default:
			return false, nil
		}
	}
	patience := t.o.duration + 2*orderPatience
	if t.o.withoutCap {
		patience = orderPatience / 4 // several owners of one stream may never be done, and the judge has what it needs
	}
	if err := t.until(ctx, view, patience, "as ordens serem aceitas", taken); errors.Is(err, errWaited) && t.o.withoutCap {
		r.broke("Nothing silent: %v", err)
	} else if err != nil {
		return err
	}
	for _, teller := range end.tellers {
		r.Outbound.Orders += len(teller.orders)
		r.Outbound.Returns += teller.returns
	}
	drained := "tudo chegar a um estado final"
	if err := t.within(ctx, r, view, 90*time.Second, drained, t.drained); err != nil {
		return err
	}
	if err := t.within(ctx, r, view, time.Minute, "os ciclos serem fechados", t.netted(time.Now())); err != nil {
		return err
	}
	if err := t.spoil(ctx, "entries"); err != nil {
		return err
	}
	if err := t.reconcile(ctx, r, view, began); err != nil {
		return err
	}
	if err := t.within(ctx, r, view, time.Minute, drained, t.drained); err != nil { // the bank's answers too
		return err
	}
	if err := t.spoil(ctx, "netting"); err != nil {
		return err
	}
	view.end()
	return nil
}

// within is until for what breaks a law if it does not come in time, which is no failure of the demo: the report says what
// is left.
func (t *troupe) within(
	ctx context.Context, r *Report, view *table, limit time.Duration, what string, ok func(context.Context) (bool, error),
) error {
	err := t.until(ctx, view, limit, what, ok)
	if errors.Is(err, errWaited) {
		r.broke("Nothing silent: %v", err)
		return nil
	}
	return err
}

// kill ends a replica of ours as a lost machine does, and starts another as a scheduler would.
func (t *troupe) kill(ctx context.Context, r *Report, view *table, which role) (Fault, error) {
	ours := t.stage.Participants[0]
	name, err := t.victim(ctx, view, which, ours)
	if err != nil {
		return Fault{}, err
	}
	killed := t.fault("SIGKILL", name)
	t.leave(killed.Replica).Signal(syscall.SIGKILL)
	r.Faults = append(r.Faults, killed)
	view.note("%s foi morta com SIGKILL; %s", killed.Replica, killed.had())
	_, err = t.enter(ctx, which, ours)
	return killed, err
}

// roll replaces a replica as a deploy does: the new one first, then SIGTERM to the old one.
func (t *troupe) roll(ctx context.Context, r *Report, view *table, name string) (Fault, error) {
	t.mu.Lock()
	old := t.running[name]
	t.mu.Unlock()
	if _, err := t.enter(ctx, old.role, old.of); err != nil {
		return Fault{}, err
	}
	if err := t.watch(ctx, view, time.Second); err != nil {
		return Fault{}, err
	}
	rolled := t.fault("SIGTERM", name)
	r.Faults = append(r.Faults, rolled)
	view.note("%s recebeu SIGTERM; %s", rolled.Replica, rolled.had())
	if err := t.leave(name).Stop(20 * time.Second); err != nil {
		r.broke("parada limpa: %v", err)
	}
	return rolled, nil
}

func (t *troupe) fault(kind, name string) Fault {
	now := time.Now()
	led := t.hearing.leader(t.stage.Participants[0].ISPB) == name
	return Fault{At: now, Kind: kind, Replica: name, Slots: len(t.history.held(name, now)), Led: led}
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

// drained reports that the bank has nothing left to deliver, everything stored is done and no payment is open.
func (t *troupe) drained(ctx context.Context) (bool, error) {
	bank, err := t.stage.Report(ctx)
	if err != nil {
		return false, err
	}
	if t.o.withoutCap && bank.Violations() > 0 {
		return true, nil
	}
	for _, p := range bank.Participants {
		if p.Acked < p.Enqueued {
			return false, nil
		}
	}
	for _, p := range t.stage.Participants {
		open, err := store.NewInbox(p.DB).Backlog(ctx)
		if err != nil || open.Received+open.Published > 0 {
			return false, err
		}
		counts, err := store.NewPayments(p.DB).OpenCounts(ctx)
		if err != nil {
			return false, err
		}
		for _, c := range counts {
			if c.Count > 0 {
				return false, nil
			}
		}
	}
	return true, nil
}
