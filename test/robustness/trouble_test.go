package robustness_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cabine-pix/cabine/libs/corebank/corebanktest"
	"github.com/cabine-pix/cabine/libs/icom/icomtest"
	"github.com/cabine-pix/cabine/libs/icom/spitest"
	"github.com/cabine-pix/cabine/libs/pix"
)

// card is one accident. It returns when it is over; what it took away is there again then.
type card struct {
	name string
	deal func(ctx context.Context, w *world, r *rand.Rand) error
}

const (
	// everyCard and everyWeather are after how many orders the next accident happens, and the misbehaviour of the bank
	// and the cores changes. The day of 20,000 payments deals each card twice.
	everyCard    = 400
	everyWeather = 500
)

// drainLimit is how long a replica may take to end in order.
const drainLimit = time.Minute

// deck is every accident of servers and processes.
func deck() []card {
	cards := []card{
		{"postgres restarts", func(ctx context.Context, w *world, _ *rand.Rand) error { return w.pg.Restart(ctx) }},
		{"postgres crashes", func(ctx context.Context, w *world, r *rand.Rand) error {
			if err := w.pg.Kill(); err != nil {
				return err
			}
			_ = pause(ctx, between(r, 0, 2*time.Second))
			return w.pg.Start(ctx)
		}},
		{"redis is emptied", func(ctx context.Context, w *world, _ *rand.Rand) error {
			_, err := w.redis.Do(ctx, "FLUSHALL")
			return err
		}},
		{"redis restarts", func(ctx context.Context, w *world, _ *rand.Rand) error { return w.redis.Restart(ctx) }},
		{"redis loses its disk", func(ctx context.Context, w *world, _ *rand.Rand) error { return w.redis.RestartEmpty(ctx) }},
		{"redis stands still", func(ctx context.Context, w *world, r *rand.Rand) error {
			if err := w.redis.Pause(); err != nil {
				return err
			}
			_ = pause(ctx, between(r, time.Second, 8*time.Second))
			return w.redis.Resume()
		}},
		{"nats restarts", func(ctx context.Context, w *world, r *rand.Rand) error { return w.any(r).nats.Restart(ctx) }},
		{"nats loses its disk", func(ctx context.Context, w *world, r *rand.Rand) error {
			p := w.any(r)
			if err := p.nats.RestartEmpty(ctx); err != nil {
				return err
			}
			_ = pause(ctx, between(r, 0, 2*time.Second))
			return p.migrate(ctx)
		}},
		{"core dies", func(ctx context.Context, w *world, r *rand.Rand) error {
			p := w.any(r)
			p.coreSim.kill()
			_ = pause(ctx, between(r, 0, 3*time.Second))
			return p.startCore()
		}},
		{"bank resets all connections", func(ctx context.Context, w *world, r *rand.Rand) error {
			channel := pix.Channels()[r.IntN(2)]
			return w.control(ctx, http.MethodPost, "/cut", url.Values{"channel": {string(channel)}}, nil, nil)
		}},
	}
	for _, role := range roles() {
		cards = append(cards,
			card{string(role) + " killed", func(ctx context.Context, w *world, r *rand.Rand) error { return w.killed(ctx, r, role) }},
			card{string(role) + " replaced", func(ctx context.Context, w *world, r *rand.Rand) error { return w.replaced(ctx, r, role) }},
			card{string(role) + " stands still", func(ctx context.Context, w *world, r *rand.Rand) error { return w.frozen(ctx, r, role) }},
		)
		if role != paying {
			cards = append(cards, card{"plugin of " + string(role) + " killed", func(_ context.Context, w *world, r *rand.Rand) error {
				_, one := w.anyReplica(r, role)
				if pid := one.transport(); pid != 0 {
					_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
				}
				return nil
			}})
		}
	}
	return cards
}

func between(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(most-least)+1))
}

func (w *world) any(r *rand.Rand) *participant { return w.participants[r.IntN(len(w.participants))] }

func (w *world) anyReplica(r *rand.Rand, which role) (*participant, *process) {
	p := w.any(r)
	all := p.some(which)
	return p, all[r.IntN(len(all))]
}

// killed loses a replica, and starts another after a while as a scheduler would.
func (w *world) killed(ctx context.Context, r *rand.Rand, which role) error {
	p, one := w.anyReplica(r, which)
	p.leave(which, one)
	one.kill()
	_ = pause(ctx, between(r, 0, 2*time.Second))
	return p.enter(ctx, which)
}

// replaced is a deploy: the new replica first, then SIGTERM to the old one.
func (w *world) replaced(ctx context.Context, r *rand.Rand, which role) error {
	p, one := w.anyReplica(r, which)
	if err := p.enter(ctx, which); err != nil {
		return err
	}
	p.leave(which, one)
	return one.stop(drainLimit)
}

// frozen stops a replica, sometimes with its transport, for longer and shorter than its leases live.
func (w *world) frozen(ctx context.Context, r *rand.Rand, which role) error {
	_, one := w.anyReplica(r, which)
	pids := []int{one.cmd.Process.Pid}
	if plugin := one.transport(); plugin != 0 && r.IntN(2) == 0 {
		pids = append(pids, plugin)
	}
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGSTOP)
	}
	_ = pause(ctx, between(r, time.Second, 9*time.Second))
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
	return nil
}

// spiFaults are the rules of the SPI for the whole day.
func spiFaults() []spitest.Fault {
	return []spitest.Fault{
		{At: spitest.AtForward, Do: spitest.Drop, Rate: .01},
		{At: spitest.AtForward, Do: spitest.Repeat, Rate: .01, Delay: 500 * time.Millisecond},
		{At: spitest.AtForward, Do: spitest.Delay, Rate: .02, Delay: 3 * time.Second},
		{At: spitest.AtStatus, Do: spitest.Drop, Rate: .01},
		{At: spitest.AtStatus, Do: spitest.Repeat, Rate: .02, Delay: time.Second},
		{At: spitest.AtStatus, Do: spitest.Delay, Rate: .02, Delay: 4 * time.Second},
		{At: spitest.AtAnswer, Do: spitest.Drop, Rate: .005},
		{At: spitest.AtAnswer, Do: spitest.Delay, Rate: .01, Delay: 2 * time.Second},
		{At: spitest.AtAnswer, Do: spitest.Late, Rate: .005},
		{At: spitest.AtOrder, Do: spitest.Refuse, Rate: .004},
	}
}

// bankFaults draws rules. Only one of them takes time: their effects add up, and B covers one.
func bankFaults(r *rand.Rand) []icomtest.Fault {
	reads, sends := []icomtest.Kind{icomtest.KindStart, icomtest.KindPull}, []icomtest.Kind{icomtest.KindSend}
	drops := []icomtest.Drop{icomtest.DropReading, icomtest.DropUnprocessed, icomtest.DropBefore, icomtest.DropMiddle, icomtest.DropAfter}
	rate := func() float64 { return .01 + .06*r.Float64() }
	slow := []icomtest.Fault{
		{Kinds: reads, Rate: rate(), Delay: between(r, 0, pullDelay)},
		{Kinds: sends, Rate: rate(), Delay: between(r, 0, sendDelay)},
		{Kinds: sends, Rate: .03, Delay: sendDelay},
		{Rate: rate(), SlowBody: between(r, 100*time.Millisecond, pullDelay)},
	}
	others := []icomtest.Fault{
		{Rate: rate(), Status: []int{500, 502, 503}[r.IntN(3)]},
		{Rate: .02, Status: 429, RetryAfter: 1},
		{Rate: rate(), Drop: drops[r.IntN(len(drops))]},
		{Kinds: sends, Rate: rate(), Drop: drops[r.IntN(len(drops))]},
		{Kinds: reads, Rate: .01, Malformed: malformations()[r.IntN(len(malformations()))]},
	}
	r.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	return append(others[:1+r.IntN(2)], slow[r.IntN(len(slow))])
}

func malformations() []icomtest.Malformed {
	return []icomtest.Malformed{
		icomtest.NoBoundary, icomtest.NoResourceID, icomtest.NoCursor, icomtest.WrongCharset, icomtest.BrokenXML,
		icomtest.TruncatedMultipart, icomtest.NotGzip, icomtest.GzipBomb, icomtest.Oversize,
	}
}

// weather changes what the bank and the cores do wrong.
func (w *world) weather(ctx context.Context, r *rand.Rand) error {
	for _, channel := range pix.Channels() {
		if err := w.setFaults(ctx, channel, bankFaults(r)); err != nil {
			return err
		}
	}
	for _, p := range w.participants {
		fault := corebanktest.None
		if r.IntN(12) == 0 {
			fault = corebanktest.Faults()[r.IntN(len(corebanktest.Faults()))]
		}
		p.coreFault(ctx, fault) // a core that is dead has its fault already
	}
	return nil
}

func (w *world) setFaults(ctx context.Context, channel pix.Channel, faults []icomtest.Fault) error {
	return w.control(ctx, http.MethodPost, "/faults", url.Values{"channel": {string(channel)}}, faults, nil)
}

func (p *participant) coreFault(ctx context.Context, fault corebanktest.Fault) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_ = p.w.ask(ctx, http.MethodPut, strings.Replace(p.core, "/decisao", "/falha", 1), []byte(fault), nil)
}

// trouble deals cards, each once before any again, and changes the weather, in step with the progress to n.
func (w *world) trouble(ctx context.Context, r *rand.Rand, progress *atomic.Int64, n int) error {
	if err := w.control(ctx, http.MethodPost, "/spi/faults", nil, spiFaults(), nil); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	// Each lane has numbers of its own, so that neither's pace changes the other's.
	sky, cards := rand.New(rand.NewPCG(r.Uint64(), 0)), rand.New(rand.NewPCG(r.Uint64(), 0))
	g.Go(func() error {
		for at := 0; at < n; at += everyWeather {
			if err := reached(ctx, progress, at); err != nil {
				return err
			}
			if err := w.weather(ctx, sky); err != nil {
				return fmt.Errorf("weather: %w", err)
			}
		}
		return nil
	})
	g.Go(func() error {
		var round []card
		for at := everyCard; at < n; at += everyCard {
			if len(round) == 0 {
				round = deck()
				cards.Shuffle(len(round), func(i, j int) { round[i], round[j] = round[j], round[i] })
			}
			if err := reached(ctx, progress, at); err != nil {
				return err
			}
			if err := round[0].deal(ctx, w, cards); err != nil {
				return fmt.Errorf("%s: %w", round[0].name, err)
			}
			w.t.Logf("%d orders: %s", progress.Load(), round[0].name)
			round = round[1:]
		}
		return nil
	})
	return g.Wait()
}

// reached waits until so many orders were taken.
func reached(ctx context.Context, progress *atomic.Int64, n int) error {
	for progress.Load() < int64(n) {
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// calm ends all misbehaviour.
func (w *world) calm(ctx context.Context) error {
	for _, channel := range pix.Channels() {
		if err := w.setFaults(ctx, channel, []icomtest.Fault{}); err != nil {
			return err
		}
	}
	for _, p := range w.participants {
		p.coreFault(ctx, corebanktest.None)
	}
	return w.control(ctx, http.MethodPost, "/spi/faults", nil, []spitest.Fault{}, nil)
}
