package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/cabine-pix/cabine/libs/clock"
)

// Config of a Keeper.
type Config struct {
	// Replica names this process among all that share the sets: letters, digits and
	// ".", "_", "-", at most 64. Unique per process; a restart is another replica.
	Replica string
	// Owner is what a person reads in Redis beside the grant: task, version, pid. Optional.
	Owner string
	// Timing holds the times of the permit; zero fields have their defaults.
	Timing Timing
	// SetsPerRenewal bounds one renewal command, so that it never keeps Redis busy for
	// long. Default 256 sets (1,536 slots). One makes every command touch a single hash tag,
	// which Redis Cluster requires.
	SetsPerRenewal int
}

// WithDefaults returns a copy with defaults filled in.
func (c Config) WithDefaults() Config {
	c.Timing = c.Timing.WithDefaults()
	if c.SetsPerRenewal == 0 {
		c.SetsPerRenewal = 256
	}
	return c
}

// Validate names every rule that does not hold.
func (c Config) Validate() error {
	var errs []error
	if !word.MatchString(c.Replica) {
		errs = append(errs, fmt.Errorf("replica %q: want 1 to 64 of letters, digits, '.', '_', '-'", c.Replica))
	}
	if c.SetsPerRenewal < 1 {
		errs = append(errs, fmt.Errorf("SetsPerRenewal is %d, want 1 or more", c.SetsPerRenewal))
	}
	errs = append(errs, c.Timing.Validate())
	return errors.Join(errs...)
}

// Keeper keeps one replica's leases alive. Run starts three goroutines: the heartbeat,
// which renews everything held in one command; the watch, which drops a lease when
// its trust ends and owes nothing to any call of Redis; and the hints, which wake waiters.
type Keeper struct {
	cfg     Config
	redis   *Client
	clk     clock.Clock
	log     *slog.Logger
	met     *metrics
	scripts scripts

	mu      sync.Mutex
	sets    map[string]*Set
	held    map[*Lease]struct{}
	ended   bool
	stopped chan struct{}  // closed when ended is set
	asides  sync.WaitGroup // what runs beside its callers
	nearer  chan struct{}  // the watch must look again: a lease was added
}

// NewKeeper checks cfg and returns a keeper. Nothing runs until Run.
func NewKeeper(cfg Config, client *Client, clk clock.Clock, log *slog.Logger, reg prometheus.Registerer) (*Keeper, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("lease: %w", err)
	}
	met, err := newMetrics(reg)
	if err != nil {
		return nil, err
	}
	return &Keeper{
		cfg: cfg, redis: client, clk: clk, log: log, met: met, scripts: loadScripts(),
		sets: make(map[string]*Set), held: make(map[*Lease]struct{}),
		stopped: make(chan struct{}), nearer: make(chan struct{}, 1),
	}, nil
}

// Timing returns the times the keeper works with.
func (k *Keeper) Timing() Timing { return k.cfg.Timing }

// NewSet adds a set. Add sets before Run: the hints are subscribed once.
func (k *Keeper) NewSet(cfg SetConfig) (*Set, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("lease: %w", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, ok := k.sets[cfg.Name]; ok {
		return nil, fmt.Errorf("lease: set %s exists already", cfg.Name)
	}
	s := newSet(k, cfg)
	k.sets[cfg.Name] = s
	return s, nil
}

// Run renews until ctx ends, once. It gives nothing back: whoever holds a lease does, before
// stopping the keeper. What is still held is lost, and its key ends by itself. It returns when
// Redis has heard of what was given back, or after a time limit.
func (k *Keeper) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return k.heartbeat(ctx) })
	g.Go(func() error { return k.watch(ctx) })
	g.Go(func() error { return k.hints(ctx) })
	err := g.Wait()
	k.stop()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// stop ends what is held and waits until Redis has heard of what was given back.
func (k *Keeper) stop() {
	k.mu.Lock()
	k.ended = true
	close(k.stopped)
	left := k.leasesLocked()
	k.mu.Unlock()
	for _, l := range left {
		if l.end(Stopped) {
			l.set.met.losses[Stopped].Inc()
		}
		k.drop(l)
	}
	k.asides.Wait()
}

func (k *Keeper) closed() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ended
}

// adopt takes a granted lease into the heartbeat; false if it came too late to be of use.
func (k *Keeper) adopt(l *Lease) bool {
	if l.Err() != nil {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ended {
		return false
	}
	k.held[l] = struct{}{}
	select {
	case k.nearer <- struct{}{}:
	default:
	}
	l.set.met.classes[l.class].held.Inc()
	return true
}

func (k *Keeper) drop(l *Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, ok := k.held[l]; ok {
		delete(k.held, l)
		l.set.met.classes[l.class].held.Dec()
	}
}

func (k *Keeper) leasesLocked() []*Lease {
	ls := make([]*Lease, 0, len(k.held))
	for l := range k.held {
		ls = append(ls, l)
	}
	return ls
}

// watch drops leases whose trust has ended. Its timer makes that prompt; that it is
// true is decided by the clock, here and at every use of a lease.
func (k *Keeper) watch(ctx context.Context) error {
	timer := k.clk.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		now := k.clk.Now()
		next := time.Duration(math.MaxInt64)
		k.mu.Lock()
		leases := k.leasesLocked()
		k.mu.Unlock()
		for _, l := range leases {
			if err := l.Err(); err != nil {
				k.drop(l)
				k.log.WarnContext(ctx, "lease lost", "set", l.set.cfg.Name, "slot", l.slot, "grant", l.Grant(), "err", err)
				continue
			}
			l.mu.Lock()
			next = min(next, k.cfg.Timing.Trust()-now.Elapsed(l.sentAt))
			l.mu.Unlock()
		}
		timer.Reset(min(next, k.cfg.Timing.Heartbeat))
		if len(leases) == 0 {
			timer.Stop()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C():
		case <-k.nearer:
		}
	}
}

func (k *Keeper) heartbeat(ctx context.Context) error {
	timer := k.clk.NewTimer(k.cfg.Timing.Heartbeat)
	defer timer.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C():
		}
		started := k.clk.Now()
		err := k.renewAll(ctx)
		if (err != nil) != failing && ctx.Err() == nil {
			failing = err != nil
			if failing {
				k.log.ErrorContext(ctx, "renewal failed, no new requests once the start deadline passes", "err", err)
			} else {
				k.log.InfoContext(ctx, "renewal works again")
			}
		}
		timer.Reset(max(0, k.cfg.Timing.Heartbeat-k.clk.Now().Elapsed(started)))
	}
}

// batch is the leases of one set in one renewal.
type batch struct {
	set    *Set
	leases []*Lease
}

func (k *Keeper) renewAll(ctx context.Context) error {
	k.mu.Lock()
	bySet := make(map[*Set][]*Lease)
	for l := range k.held {
		bySet[l.set] = append(bySet[l.set], l)
	}
	k.mu.Unlock()
	batches := make([]batch, 0, len(bySet))
	for s, ls := range bySet {
		// A lease past its trust is dead: its token is never sent again (F14).
		ls = slices.DeleteFunc(ls, func(l *Lease) bool { return l.Err() != nil })
		if len(ls) > 0 {
			batches = append(batches, batch{s, ls})
		}
	}
	var errs []error
	for part := range slices.Chunk(batches, k.cfg.SetsPerRenewal) {
		err := k.renew(ctx, part)
		if err != nil && refused(err) && len(part) > 1 {
			// One damaged set must not cost the others their leases.
			err = nil
			for _, b := range part {
				err = errors.Join(err, k.renew(ctx, []batch{b}))
			}
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// renew sends one renewal for several sets. The deadline that its answer moves is
// counted from before it was sent, and the answer counts only if the lease is still
// trusted when it arrives.
func (k *Keeper) renew(ctx context.Context, batches []batch) error {
	t := k.cfg.Timing
	keys := make([]any, 0, 8*len(batches))
	args := make([]any, 0, 3+21*len(batches))
	args = append(args, ms(t.TTL), ms(t.LongestTTL), ms(t.Quarantine()))
	for _, b := range batches {
		keys = append(keys, b.set.keyArgs...)
		args = append(args, b.set.cfg.Slots, b.set.cfgID, len(b.leases))
		for _, l := range b.leases {
			args = append(args, l.slot, string(l.class), l.value)
		}
	}
	sentAt := k.clk.Now()
	callCtx, cancel := context.WithTimeout(ctx, t.RenewTimeout)
	defer cancel()
	v, err := k.redis.run(callCtx, k.scripts.renew, keys, args...)
	k.met.renewed(k.clk.Now().Elapsed(sentAt), err)
	if err != nil {
		return err
	}
	answers, _ := v.([]any)
	if len(answers) != len(batches) {
		return fmt.Errorf("%w: renewal of %d sets answered for %d", ErrStoreUnavailable, len(batches), len(answers))
	}
	for i, b := range batches {
		a, ok := parseRenewal(answers[i], len(b.leases))
		if !ok {
			return fmt.Errorf("%w: unexpected renewal answer for %s", ErrStoreUnavailable, b.set.cfg.Name)
		}
		for j, l := range b.leases {
			l.confirm(sentAt, a.renewed[j])
		}
		b.set.met.quarantined.Set(a.quarantine.Seconds())
		k.askToYield(b, a)
	}
	return nil
}

// pause waits for d, or until the keeper has ended.
func (k *Keeper) pause(d time.Duration) {
	timer := k.clk.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-k.stopped:
	}
}

// aside runs f beside its caller and makes Run wait for it; false, and f does not run, once
// the keeper has ended.
func (k *Keeper) aside(f func()) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.ended {
		k.asides.Go(f)
	}
	return !k.ended
}

func (k *Keeper) cool(ctx context.Context, l *Lease, last clock.Instant) error {
	t, s := k.cfg.Timing, l.set
	left := t.BankHold + t.Eps() - k.clk.Now().Boot.Sub(last)
	if left <= 0 {
		return s.free(ctx, []any{l.slot, l.value})
	}
	s.met.cooldowns.Inc()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.RenewTimeout)
	defer cancel()
	tombstone := cooling + " " + string(l.class) + " " + k.cfg.Replica + " " + l.Grant()
	// Rounded up: a millisecond too few is a millisecond in which the bank may still count.
	_, err := k.redis.run(ctx, k.scripts.cooldown, []any{s.keys[0], s.keys[1+l.slot]},
		l.value, tombstone, ms(left+time.Millisecond-1), ms(t.LongestTTL), l.slot)
	return err
}
