package lease

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/devstack/devtest"
)

// Goal: the Cap. Method: many replicas take and give back as fast as they can, a
// counter beside them sees how many hold at once.
func TestNeverMoreThanNHolders(t *testing.T) {
	t.Parallel()
	w := newWorld(t, devtest.Redis(t)).settled()
	const n = 3
	var now, peak atomic.Int32
	var wg sync.WaitGroup
	for range 4 {
		s, _ := w.replica(polls(n))
		for range 3 {
			wg.Go(func() {
				for range 40 {
					l, err := s.Acquire(t.Context(), Poll)
					if err != nil {
						t.Error(err)
						return
					}
					held := now.Add(1)
					for p := peak.Load(); held > p && !peak.CompareAndSwap(p, held); p = peak.Load() {
					}
					w.rdb.Ping(t.Context()) // work, as long as a round trip
					now.Add(-1)
					if err := l.Release(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	require.LessOrEqual(t, peak.Load(), int32(n))
	require.Greater(t, peak.Load(), int32(1), "the test never had two holders at once and showed nothing")
}

func TestReleaseWakesAWaiter(t *testing.T) {
	t.Parallel()
	w := newWorld(t, devtest.Redis(t)).settled()
	a, _ := w.replica(polls(1))
	b, _ := w.replica(polls(1))
	first := w.acquire(a, Poll)
	got := make(chan time.Time, 1)
	go func() {
		l, err := b.Acquire(t.Context(), Poll)
		if err == nil {
			got <- time.Now()
			err = l.Release(t.Context())
		}
		if err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	}()
	eventually(t, func() bool { return w.rdb.Exists(t.Context(), w.name+":waiting").Val() == 1 }, "b waits")
	released := time.Now()
	require.NoError(t, first.Release(t.Context()))
	require.Less(t, (<-got).Sub(released), 500*time.Millisecond)
}

func TestKilledOwnersSlotComesBackAfterT(t *testing.T) {
	t.Parallel()
	w := newWorld(t, devtest.Redis(t)).settled()
	dead, _ := w.replica(polls(1), notRunning())
	b, _ := w.replica(polls(1))
	asked := time.Now()
	l := w.acquire(dead, Poll)
	w.refusedFor(b, Poll, short().TTL-time.Since(asked)-50*time.Millisecond)
	w.acquire(b, Poll)
	require.Less(t, time.Since(asked), short().TTL+time.Second)
	require.ErrorContains(t, l.Err(), "expired")
	require.True(t, l.StartDeadline().Passed(clock.System().Now()))
}

// F1, F2: a slot cools down until s+ + B + eps, also when s+ lies ahead (a silent plugin may still write until D).
func TestCoolDownCoversTheLastPossibleWrite(t *testing.T) {
	t.Parallel()
	tm := short()
	for name, last := range map[string]func(*Lease, clock.Instant) clock.Instant{
		"written now":         func(_ *Lease, now clock.Instant) clock.Instant { return now },
		"written a while ago": func(_ *Lease, now clock.Instant) clock.Instant { return now.Add(-300 * time.Millisecond) },
		"may be written until D": func(l *Lease, _ clock.Instant) clock.Instant {
			return l.StartDeadline().Boot
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, devtest.Redis(t)).settled()
			s, _ := w.replica(polls(1), notRunning())
			l := w.acquire(s, Poll)
			now := clock.System().Now().Boot
			at := last(l, now)
			require.NoError(t, l.CoolDown(t.Context(), at))
			left := w.ttl(1)
			want := tm.BankHold + tm.Eps() - clock.System().Now().Boot.Sub(at)
			require.GreaterOrEqual(t, left, want-2*time.Millisecond)
			require.Less(t, left, want+200*time.Millisecond)
			h, err := s.Snapshot(t.Context())
			require.NoError(t, err)
			require.True(t, h[0].Cooling)
			require.False(t, h[0].Held())
			w.refusedFor(s, Poll, want-100*time.Millisecond)
			w.acquire(s, Poll)
		})
	}
}

func TestCoolDownFromLongAgoFreesAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, devtest.Redis(t)).settled()
	s, _ := w.replica(polls(1))
	l := w.acquire(s, Poll)
	require.NoError(t, l.CoolDown(t.Context(), clock.System().Now().Boot.Add(-time.Minute)))
	_, err := s.TryAcquire(t.Context(), Poll)
	require.NoError(t, err)
}

func TestGivenBackTwiceOrLateChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, devtest.Redis(t)).settled()
	s, _ := w.replica(polls(1))
	old := w.acquire(s, Poll)
	require.NoError(t, old.Release(t.Context()))
	young := w.acquire(s, Poll)
	require.NoError(t, old.Release(t.Context()))
	require.NoError(t, old.CoolDown(t.Context(), clock.System().Now().Boot))
	require.NoError(t, young.Err())
	require.Equal(t, young.value, w.rdb.Get(t.Context(), w.name+":1").Val())
	var lost *LostError
	require.ErrorAs(t, old.Err(), &lost)
	require.Equal(t, GivenBack, lost.Cause)
}

func TestHeartbeatKeepsALeaseBeyondT(t *testing.T) {
	t.Parallel()
	w := newWorld(t, devtest.Redis(t)).settled()
	a, _ := w.replica(polls(1))
	b, _ := w.replica(polls(1))
	l := w.acquire(a, Poll)
	d := l.StartDeadline().Boot
	w.refusedFor(b, Poll, short().TTL+300*time.Millisecond)
	require.NoError(t, l.Err())
	require.Greater(t, l.StartDeadline().Boot, d)
}

// One command renews everything, however many slots and sets are held.
func TestRenewalIsOneCommand(t *testing.T) {
	t.Parallel()
	r := devtest.OwnRedis(t, redisOptions())
	w := newWorld(t, r).settled()
	// Leases that outlast the test on a busy machine.
	s, k := w.replica(polls(6), notRunning(), withTiming(Timing{NoReplicas: true}.WithDefaults()))
	for range 6 {
		w.acquire(s, Poll)
	}
	for i := range 20 {
		extra := newWorld(t, r)
		extra.name = "sem:icom:{csm:" + string(rune('A'+i)) + "}"
		extra.settled()
		more, err := k.NewSet(SetConfig{Name: extra.name, Slots: 6, Floors: map[Class]int{Poll: 6}})
		require.NoError(t, err)
		for range 6 {
			_, err := more.TryAcquire(t.Context(), Poll)
			require.NoError(t, err)
		}
	}
	calls := func() int { return commandCalls(t, w, "evalsha") }
	before := calls()
	require.NoError(t, k.renewAll(t.Context()))
	require.Equal(t, before+1, calls())
	k.cfg.SetsPerRenewal = 1
	require.NoError(t, k.renewAll(t.Context()))
	require.Equal(t, before+1+21, calls())
}

// A set whose keys somebody damaged must not cost the others their leases.
func TestDamagedSetCostsOnlyItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t, devtest.Redis(t)).settled()
	s, k := w.replica(polls(1), notRunning())
	good := w.acquire(s, Poll)
	w2 := newWorld(t, devtest.Redis(t))
	w2.name = uniqueName("damaged")
	w2.settled()
	bad, err := k.NewSet(SetConfig{Name: w2.name, Slots: 1, Floors: map[Class]int{Poll: 1}})
	require.NoError(t, err)
	_, err = bad.TryAcquire(t.Context(), Poll)
	require.NoError(t, err)
	require.NoError(t, w2.rdb.Del(t.Context(), w2.name+":state").Err())
	require.NoError(t, w2.rdb.Set(t.Context(), w2.name+":state", "no hash", 0).Err())
	before := good.StartDeadline().Boot
	require.ErrorIs(t, k.renewAll(t.Context()), ErrStoreUnavailable)
	require.Greater(t, good.StartDeadline().Boot, before)
}

func TestAcquireEndsWithItsContext(t *testing.T) {
	t.Parallel()
	w := newWorld(t, devtest.Redis(t)).settled()
	s, _ := w.replica(polls(1))
	w.acquire(s, Poll)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := s.Acquire(ctx, Poll)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = s.Acquire(t.Context(), Send)
	require.ErrorContains(t, err, `no class "send"`)
}

func TestStoppedKeeperGrantsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, devtest.Redis(t)).settled()
	s, k := w.replica(polls(2), notRunning())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	l := w.acquire(s, Poll)
	cancel()
	require.NoError(t, <-done)
	<-l.Lost()
	require.Error(t, l.Err())
	_, err := s.Acquire(t.Context(), Poll)
	require.ErrorIs(t, err, ErrClosed)
	require.Greater(t, w.ttl(1)+w.ttl(2), time.Duration(0), "what was not given back keeps its key")
}

// The local clocks: boot time that ran on during suspend, and a wall clock that jumped forward, end the permission.
func TestDeadlineFollowsTheMorePessimisticClock(t *testing.T) {
	t.Parallel()
	tm := short()
	for name, jump := range map[string]func(*clock.Fake){
		"suspended":         func(f *clock.Fake) { f.Suspend(tm.Horizon()) },
		"wall jumped ahead": func(f *clock.Fake) { f.StepWall(tm.Horizon()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, devtest.Redis(t)).settled()
			fake := clock.NewFake()
			s, _ := w.replica(polls(1), withClock(fake), notRunning())
			l := w.acquire(s, Poll)
			require.False(t, l.StartDeadline().Passed(fake.Now()))
			jump(fake)
			require.True(t, l.StartDeadline().Passed(fake.Now()))
			require.NoError(t, l.Err(), "still renewable")
			jump(fake)
			require.Error(t, l.Err(), "past trust, without any timer having fired")
		})
	}
}

func TestValidation(t *testing.T) {
	t.Parallel()
	require.NoError(t, Timing{}.WithDefaults().Validate())
	require.NoError(t, short().Validate())
	for want, change := range map[string]func(*Timing){
		"TTL is 12s, want at least BankHold 8s": func(t *Timing) { t.TTL = 12 * time.Second },
		"TTL is 30s, want at most LongestTTL":   func(t *Timing) { t.TTL = 30 * time.Second },
		"ReceiveTimeout is 8s, want less":       func(t *Timing) { t.ReceiveTimeout = 8 * time.Second },
		"UserTimeout is 9s":                     func(t *Timing) { t.UserTimeout = 9 * time.Second },
		"Heartbeat is -1s":                      func(t *Timing) { t.Heartbeat = -time.Second },
		"TTL is 20s, want at least L 16s":       func(t *Timing) { t.MaxLag = 15 * time.Second },
	} {
		tm := Timing{}.WithDefaults()
		change(&tm)
		require.ErrorContains(t, tm.Validate(), want)
	}
	name := "sem:icom:{cpm:12345678}"
	for want, cfg := range map[string]SetConfig{
		"N is 7, want 1 to 6":                  {Name: name, Slots: 7, Floors: icom(7, 4, 2)},
		"N is 0, want 1 to 6":                  {Name: name, Slots: 0, Floors: icom(0, 0, 0)},
		"poll_floor 4 + send_floor 2 = 6":      {Name: name, Slots: 5, Floors: icom(5, 4, 2)},
		"class send has send_floor 0":          {Name: name, Slots: 4, Floors: icom(4, 4, 0)},
		"exactly one {hash tag}":               {Name: "sem:icom", Slots: 4, Floors: icom(4, 2, 2)},
		"no class exists":                      {Name: name, Slots: 4},
		"poll_floor is -1, want 0 or more":     {Name: name, Slots: 4, Floors: icom(4, -1, 2)},
		`class "a b": want one word`:           {Name: name, Slots: 4, Floors: map[Class]int{"a b": 1}},
		"sem:icom:{a}{b}\": want words and ex": {Name: "sem:icom:{a}{b}", Slots: 4, Floors: icom(4, 2, 2)},
	} {
		require.ErrorContains(t, cfg.Validate(), want)
	}
	_, err := NewKeeper(Config{Replica: "a b"}, nil, nil, nil, nil)
	require.ErrorContains(t, err, `replica "a b"`)
}

// F9: eps is the sum of two rates. With worker 1 % slow and Redis 1 % fast the key must outlive the request.
func TestEpsCoversTwoClocks(t *testing.T) {
	t.Parallel()
	for _, tm := range []Timing{Timing{}.WithDefaults(), short(), {TTL: 30 * time.Second, BankHold: 10 * time.Second}} {
		lastStart := time.Duration(float64(tm.Horizon()) / 0.99)
		keyEnds := time.Duration(float64(tm.TTL) / 1.01)
		require.LessOrEqual(t, lastStart+tm.BankHold, keyEnds, "%+v", tm)
	}
}

func TestCheckRefusesAnUnfitServer(t *testing.T) {
	t.Parallel()
	o := redisOptions()
	o.MaxMemory, o.MaxMemoryPolicy = "100mb", "allkeys-lru"
	w := newWorld(t, devtest.OwnRedis(t, o))
	_, k := w.replica(polls(1), notRunning())
	_, err := k.redis.Check(t.Context(), short())
	var unfit *UnfitError
	require.ErrorAs(t, err, &unfit)
	require.ErrorContains(t, err, "noeviction")

	fit := newWorld(t, devtest.Redis(t))
	_, k = fit.replica(polls(1), notRunning())
	_, err = k.redis.Check(t.Context(), short())
	require.NoError(t, err)
}

// F4: the quarantine holds the lag of a replica that may be promoted; a server with replicas that the times do
// not reckon with, or that may go on granting alone after a split, must not decide.
func TestCheckRefusesReplicasNobodyReckonsWith(t *testing.T) {
	t.Parallel()
	r := devtest.OwnRedis(t, redisOptions())
	_, err := r.AddReplica(t.Context())
	require.NoError(t, err)
	w := newWorld(t, r)
	_, k := w.replica(polls(1), notRunning())
	with := Timing{}.WithDefaults()
	_, err = k.redis.Check(t.Context(), short())
	require.ErrorContains(t, err, "although NoReplicas")
	_, err = k.redis.Check(t.Context(), with)
	require.ErrorContains(t, err, "no min-replicas-to-write")
	require.NoError(t, w.rdb.ConfigSet(t.Context(), "min-replicas-to-write", "1").Err())
	_, err = k.redis.Check(t.Context(), with)
	require.NoError(t, err)
}
