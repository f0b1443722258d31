package lease

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// MaxSlots is the most requests BACEN accepts at once per channel and ISPB (ICOM manual 2.2.2.10).
const MaxSlots = 6

// Class is a kind of work that competes for the slots of a set.
type Class string

// The classes of a connection semaphore are Poll and Send. A set of one that elects a leader has only Lead.
const (
	Poll Class = "poll"
	Send Class = "send"
	Lead Class = "lead"
)

// SetConfig describes one set of numbered slots.
type SetConfig struct {
	// Name is the prefix of the set's keys and holds exactly one hash tag, as
	// "sem:icom:{cpm:12345678}". Slot n is the key Name:n.
	Name string
	// Slots is N, 1 to MaxSlots.
	Slots int
	// Floors gives each class that exists its own slots, which no other class may
	// take; what remains is shared by all. The lowest numbers belong to the class
	// whose name sorts first, the shared slots come last. Their sum is at most N,
	// and a class without a floor needs a shared slot.
	Floors map[Class]int
}

// Validate names the numbers of every rule that does not hold.
func (c SetConfig) Validate() error {
	var errs []error
	if !setName.MatchString(c.Name) {
		errs = append(errs, fmt.Errorf("set name %q: want words and exactly one {hash tag}", c.Name))
	}
	if c.Slots < 1 || c.Slots > MaxSlots {
		errs = append(errs, fmt.Errorf("%s: N is %d, want 1 to %d", c.Name, c.Slots, MaxSlots))
	}
	if len(c.Floors) == 0 {
		errs = append(errs, fmt.Errorf("%s: no class exists", c.Name))
	}
	sum, terms := 0, make([]string, 0, len(c.Floors))
	for _, class := range slices.Sorted(maps.Keys(c.Floors)) {
		if !word.MatchString(string(class)) {
			errs = append(errs, fmt.Errorf("%s: class %q: want one word", c.Name, class))
		}
		if c.Floors[class] < 0 {
			errs = append(errs, fmt.Errorf("%s: %s_floor is %d, want 0 or more", c.Name, class, c.Floors[class]))
		}
		sum += c.Floors[class]
		terms = append(terms, fmt.Sprintf("%s_floor %d", class, c.Floors[class]))
	}
	if sum > c.Slots {
		errs = append(errs, fmt.Errorf("%s: %s = %d, want at most N = %d", c.Name, strings.Join(terms, " + "), sum, c.Slots))
	}
	for class, floor := range c.Floors {
		if floor == 0 && sum >= c.Slots {
			errs = append(errs, fmt.Errorf("%s: class %s has %s_floor 0 and no slot is shared: it would starve", c.Name, class, class))
		}
	}
	return errors.Join(errs...)
}

var (
	setName = regexp.MustCompile(`^[A-Za-z0-9:._-]*\{[A-Za-z0-9:._-]+\}[A-Za-z0-9:._-]*$`)
	word    = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
)

// slotRange is a run of slot numbers, empty when last < first.
type slotRange struct{ first, last int }

func (r slotRange) has(slot int) bool { return slot >= r.first && slot <= r.last }

// digits returns the numbers of the range; MaxSlots keeps each to one digit.
func (r slotRange) digits() string {
	var b []byte
	for n := r.first; n <= r.last; n++ {
		b = append(b, byte('0'+n))
	}
	return string(b)
}

// own returns the slots that only class may take; shared those that every class may.
func (c SetConfig) own(class Class) slotRange {
	first := 1
	for _, k := range slices.Sorted(maps.Keys(c.Floors)) {
		if k == class {
			return slotRange{first, first + c.Floors[k] - 1}
		}
		first += c.Floors[k]
	}
	return slotRange{1, 0}
}

func (c SetConfig) shared() slotRange {
	sum := 0
	for _, f := range c.Floors {
		sum += f
	}
	return slotRange{sum + 1, c.Slots}
}

// Errors of Acquire and TryAcquire, besides those of the context.
var (
	// ErrNoSlot: every slot that the class may take is taken, or this replica has its share.
	ErrNoSlot = errors.New("lease: no free slot")
	// ErrStoreUnavailable wraps whatever kept Redis from deciding. No decision, no permit.
	ErrStoreUnavailable = errors.New("lease: redis cannot decide")
	// ErrClosed: the keeper has stopped.
	ErrClosed = errors.New("lease: keeper stopped")
)

// QuarantineError says that Redis lost state: only holders keep their slots until Remaining is over.
type QuarantineError struct{ Remaining time.Duration }

// Error implements error.
func (e *QuarantineError) Error() string {
	return fmt.Sprintf("lease: redis lost state, no grants for %v", e.Remaining)
}

// ConflictError says that another version with other numbers holds the set.
type ConflictError struct{ Theirs, Ours string }

// Error implements error.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("lease: others run with %q, this replica with %q; it waits until they are gone", e.Theirs, e.Ours)
}

// Set is one set of slots as this replica sees it.
type Set struct {
	k       *Keeper
	cfg     SetConfig
	keys    []string // state, waiting, slot 1..N
	keyArgs []any    // the same, as arguments of a script
	cfgID   string   // what the config record must say
	classes map[Class]*member
	back    backlog
	met     *setMetrics
}

// member is one class of a set in this process.
type member struct {
	turn chan struct{} // held by the one waiter that asks Redis
	hint chan struct{} // wakes it
	// args are those of acquire that stay the same; orders its own and shared slots, a
	// digit each, begun at every one of them.
	args        []any
	orders      [][2]any
	own, shared slotRange
	met         *classMetrics
}

// order returns in which order to try the slots: first what this process has just given back,
// if anything, because it is free; otherwise any.
func (m *member) order(back []any) [2]any {
	i := rand.IntN(len(m.orders)) //nolint:gosec // spreads load, protects nothing
	if len(back) > 0 {
		switch slot, _ := back[0].(int); {
		case m.own.has(slot):
			i = slot - m.own.first
		case m.shared.has(slot):
			i = slot - m.shared.first
		}
	}
	return m.orders[i]
}

const (
	markFor   = 2 * time.Second        // a waiting mark lives this long
	waitFirst = 50 * time.Millisecond  // first pause between two tries
	waitMost  = 500 * time.Millisecond // longest pause between two tries
)

func newSet(k *Keeper, cfg SetConfig) *Set {
	t := k.cfg.Timing
	s := &Set{
		k:       k,
		cfg:     cfg,
		keys:    []string{cfg.Name + ":state", cfg.Name + ":waiting"},
		cfgID:   fmt.Sprintf("schema=1 N=%d T=%v B=%v longest=%v", cfg.Slots, t.TTL, t.BankHold, t.LongestTTL),
		classes: make(map[Class]*member, len(cfg.Floors)),
		back:    backlog{line: make(chan struct{}, 1)},
		met:     k.met.of(cfg),
	}
	for n := 1; n <= cfg.Slots; n++ {
		s.keys = append(s.keys, cfg.Name+":"+strconv.Itoa(n))
	}
	for _, key := range s.keys {
		s.keyArgs = append(s.keyArgs, key)
	}
	for class := range cfg.Floors {
		m := &member{
			turn: make(chan struct{}, 1),
			hint: make(chan struct{}, 1),
			args: []any{string(class), k.cfg.Replica, s.cfgID, ms(t.TTL), ms(t.LongestTTL), ms(t.Quarantine())},
			own:  cfg.own(class), shared: cfg.shared(),
			met: s.met.classes[class],
		}
		for i := range cfg.Slots {
			m.orders = append(m.orders, [2]any{rotated(m.own.digits(), i), rotated(m.shared.digits(), i)})
		}
		s.classes[class] = m
	}
	return s
}

// rotated returns s begun at its character number i, counted round and round.
func rotated(s string, i int) string {
	if s == "" {
		return ""
	}
	i %= len(s)
	return s[i:] + s[:i]
}

// Name returns the set's name.
func (s *Set) Name() string { return s.cfg.Name }

// Slots returns N.
func (s *Set) Slots() int { return s.cfg.Slots }

// Acquire waits until class gets a slot or ctx ends. Of the waiters of one class in
// this process only the first asks Redis: when a hint says that a slot was freed,
// and otherwise with growing, jittered pauses of 25 to 500 ms. While it waits, a
// mark in Redis tells holders that somebody does.
func (s *Set) Acquire(ctx context.Context, class Class) (*Lease, error) {
	m, ok := s.classes[class]
	if !ok {
		return nil, fmt.Errorf("lease: %s has no class %q", s.cfg.Name, class)
	}
	since := s.k.clk.Now()
	select {
	case m.turn <- struct{}{}:
		defer func() { <-m.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	pause, reported := waitFirst, ""
	for {
		l, err := s.try(ctx, m, class, markFor)
		if err == nil {
			m.met.wait.Observe(s.k.clk.Now().Elapsed(since).Seconds())
			return l, nil
		}
		if ctx.Err() != nil {
			s.unmark(ctx, class)
			return nil, ctx.Err()
		}
		if errors.Is(err, ErrClosed) {
			return nil, err
		}
		// Said once per reason, not once per try.
		if r := resultOf(err); r != reported && r != "taken" {
			s.k.log.WarnContext(ctx, "no permit", "set", s.cfg.Name, "class", string(class), "reason", r, "err", err)
			reported = r
		}
		jittered := pause/2 + rand.N(pause/2) //nolint:gosec // spreads load, protects nothing
		t := s.k.clk.NewTimer(jittered)
		select {
		case <-ctx.Done():
			t.Stop()
			s.unmark(ctx, class)
			return nil, ctx.Err()
		case <-m.hint:
			t.Stop()
			pause = waitFirst
		case <-t.C():
			pause = min(2*pause, waitMost)
		}
	}
}

// unmark withdraws the mark of a waiter that gave up: while it stands, the others leave this
// replica its share. A mark that it misses ends by itself.
func (s *Set) unmark(ctx context.Context, class Class) {
	s.k.aside(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.k.cfg.Timing.RenewTimeout)
		defer cancel()
		_ = s.k.redis.rdb.ZRem(ctx, s.keys[1], string(class)+" "+s.k.cfg.Replica).Err()
	})
}

// TryAcquire asks Redis once, without a waiting mark.
func (s *Set) TryAcquire(ctx context.Context, class Class) (*Lease, error) {
	m, ok := s.classes[class]
	if !ok {
		return nil, fmt.Errorf("lease: %s has no class %q", s.cfg.Name, class)
	}
	return s.try(ctx, m, class, 0)
}

func (s *Set) try(ctx context.Context, m *member, class Class, mark time.Duration) (*Lease, error) {
	if s.k.closed() {
		return nil, ErrClosed
	}
	l, err := s.ask(ctx, m, class, mark)
	m.met.answers[resultOf(err)].Inc()
	if err == nil {
		s.met.quarantined.Set(0)
		return l, nil
	}
	var q *QuarantineError
	if errors.As(err, &q) {
		s.met.quarantined.Set(q.Remaining.Seconds())
	}
	return nil, err
}

// ask sends one acquire with a token of its own. Whatever ends it without a grant that
// arrived in time is followed by an undo, after which the token is never used again:
// an acquire that Redis executed but did not answer must not hold a slot for long,
// and one that arrives late must not find its token alive (F12).
func (s *Set) ask(ctx context.Context, m *member, class Class, mark time.Duration) (*Lease, error) {
	callCtx, cancel := context.WithTimeout(ctx, s.k.cfg.Timing.RenewTimeout)
	defer cancel()
	back, err := s.back.take(callCtx)
	if err != nil {
		return nil, fmt.Errorf("%w: a release of this set is on its way: %w", ErrStoreUnavailable, err)
	}
	l := newLease(s, class)
	order := m.order(back)
	args := make([]any, 0, 16)
	args = append(append(args, l.value), m.args...)
	args = append(args, ms(mark), order[0], order[1])
	args = append(args, back...)
	l.sentAt = s.k.clk.Now()
	v, err := s.k.redis.run(callCtx, s.k.scripts.acquire, s.keyArgs, args...)
	if err != nil {
		s.undo(ctx, l, back)
		return nil, err
	}
	s.back.done(back)
	slot, err := s.verdict(v)
	if err != nil {
		if errors.Is(err, ErrStoreUnavailable) {
			s.undo(ctx, l, nil)
		}
		return nil, err
	}
	l.slot = slot
	if !s.k.adopt(l) {
		s.undo(ctx, l, nil)
		return nil, fmt.Errorf("%w: the grant took longer than the lease is trusted", ErrStoreUnavailable)
	}
	return l, nil
}

// verdict reads the acquire script's answer, which is not trusted to be well formed.
func (s *Set) verdict(v any) (slot int, err error) {
	if n, ok := v.(int64); ok {
		if n < 1 || n > int64(s.cfg.Slots) {
			return 0, fmt.Errorf("%w: granted slot %d of %d", ErrStoreUnavailable, n, s.cfg.Slots)
		}
		return int(n), nil
	}
	a, _ := v.([]any)
	if len(a) == 0 {
		return 0, fmt.Errorf("%w: unexpected answer %T", ErrStoreUnavailable, v)
	}
	word, _ := a[0].(string)
	var n int64
	var text string
	if len(a) > 1 {
		n, _ = a[1].(int64)
		text, _ = a[1].(string)
	}
	switch word {
	case "taken", "share":
		return 0, ErrNoSlot
	case "quarantined":
		return 0, &QuarantineError{Remaining: time.Duration(n) * time.Millisecond}
	case "conflict":
		return 0, &ConflictError{Theirs: text, Ours: s.cfgID}
	default:
		return 0, fmt.Errorf("%w: unexpected verdict", ErrStoreUnavailable)
	}
}

// Holder is who has a slot.
type Holder struct {
	// Slot counts from 1.
	Slot int
	// Class and Replica of the holder; empty when the slot is free.
	Class   Class
	Replica string
	// Cooling: nobody's, until the bank is certainly done with a request.
	Cooling bool
}

// Held reports whether a replica holds the slot.
func (h Holder) Held() bool { return h.Replica != "" && !h.Cooling }

// Snapshot reads who has each slot now, in the order of the slots. It is what Redis says,
// for gauges and alarms; permits are decided by Acquire alone.
func (s *Set) Snapshot(ctx context.Context) ([]Holder, error) {
	ctx, cancel := context.WithTimeout(ctx, s.k.cfg.Timing.RenewTimeout)
	defer cancel()
	values, err := s.k.redis.rdb.MGet(ctx, s.keys[2:]...).Result()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStoreUnavailable, err)
	}
	holders := make([]Holder, len(values))
	for i, v := range values {
		holders[i].Slot = i + 1
		if text, ok := v.(string); ok {
			token, class, replica := splitValue(text)
			holders[i].Class, holders[i].Replica, holders[i].Cooling = class, replica, token == cooling
		}
	}
	return holders, nil
}

// nudge wakes the waiters that ask Redis, one per class.
func (s *Set) nudge() {
	for _, m := range s.classes {
		select {
		case m.hint <- struct{}{}:
		default:
		}
	}
}

func ms(d time.Duration) int64 { return d.Milliseconds() }

func resultOf(err error) string {
	if err == nil {
		return "granted"
	}
	var q *QuarantineError
	var c *ConflictError
	switch {
	case errors.Is(err, ErrNoSlot):
		return "taken"
	case errors.As(err, &q):
		return "quarantined"
	case errors.As(err, &c):
		return "conflict"
	case errors.Is(err, ErrClosed):
		return "closed"
	default:
		return "unavailable"
	}
}
