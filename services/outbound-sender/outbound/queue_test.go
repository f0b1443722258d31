package outbound

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/pix"
)

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

// held is a permit that a test may take away.
type held struct{ yield, lost chan struct{} }

func (h held) Yield() <-chan struct{} { return h.yield }
func (h held) Lost() <-chan struct{}  { return h.lost }

func newHeld() held { return held{make(chan struct{}), make(chan struct{})} }

func inQueue(t *testing.T, test func(t *testing.T, q *queue)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(bubbleClock{time.Now()}, Config{}.WithDefaults().Groups, 20,
			func(clock.Reading, []*parcel) time.Duration { return 0 })
		q.setUnfit(nil)
		test(t, q)
	})
}

func parcels(n int) (all []*parcel) {
	for i := range n {
		all = append(all, &parcel{id: pix.MsgID(fmt.Sprintf("M%d", i)), msgType: msgPacs008})
	}
	return all
}

func (q *queue) fillReady(all []*parcel) {
	q.update(func() { q.building++ })
	q.built(1, all...)
}

func TestFillCountsMessages(t *testing.T) {
	t.Parallel()
	of := func(kinds ...string) (all []op) {
		for _, k := range kinds {
			all = append(all, op{msgType: k})
		}
		return all
	}
	groups := Groups{Pacs008: 2, Pacs002: 3, Pacs004: 1}
	for _, tt := range []struct {
		waiting  []op
		messages int
		want     int
	}{
		{of(), 5, 0},
		{of(msgPacs008), 0, 0},
		{of(msgPacs008, msgPacs008, msgPacs008), 1, 2},
		{of(msgPacs008, msgPacs008, msgPacs008), 2, 3},
		{of(msgPacs008, msgPacs002, msgPacs008, msgPacs002, msgPacs002), 2, 5},
		{of(msgPacs008, msgPacs002, msgPacs004), 2, 2},
		{of("camt.060", "camt.060", "camt.060"), 2, 2},
		{of(msgPacs004, msgPacs004), 1, 1},
	} {
		require.Equal(t, tt.want, fill(tt.waiting, tt.messages, groups), "%v in %d", tt.waiting, tt.messages)
	}
}

func TestWhatIsReadyGoesAndNobodyWaitsForMore(t *testing.T) {
	t.Parallel()
	inQueue(t, func(t *testing.T, q *queue) {
		began := time.Now()
		q.fillReady(parcels(1))
		require.True(t, q.want(t.Context()))
		batch, why := q.take(t.Context(), newHeld(), time.Second)
		require.Len(t, batch, 1)
		require.Empty(t, why)
		require.Zero(t, time.Since(began))
		q.fillReady(parcels(23))
		for _, want := range []int{10, 10, 3} {
			q.hand()
			batch, _ = q.take(t.Context(), newHeld(), time.Second)
			require.Len(t, batch, want)
		}
	})
}

func TestOnePermitMoreIsWantedOnlyWhenNoneIsIdle(t *testing.T) {
	t.Parallel()
	inQueue(t, func(t *testing.T, q *queue) {
		got := make(chan int, 4)
		ctx, cancel := context.WithCancel(t.Context())
		for i := range 2 {
			go func() {
				if q.want(ctx) {
					got <- i
				}
			}()
		}
		synctest.Wait()
		require.Empty(t, got, "nothing to send")
		q.fillReady(parcels(15))
		synctest.Wait()
		require.Len(t, got, 1, "the first fetches one")
		_, _ = q.take(t.Context(), newHeld(), time.Second)
		synctest.Wait()
		require.Len(t, got, 2, "its permit is busy, and there is more")
		cancel()
	})
}

func TestAnIdlePermitIsGivenBack(t *testing.T) {
	t.Parallel()
	inQueue(t, func(t *testing.T, q *queue) {
		began := time.Now()
		q.hand()
		batch, why := q.take(t.Context(), newHeld(), time.Second)
		require.Empty(t, batch)
		require.Equal(t, idled, why)
		require.Equal(t, time.Second, time.Since(began))

		h := newHeld()
		close(h.yield)
		q.hand()
		q.fillReady(parcels(1))
		_, why = q.take(t.Context(), h, time.Second)
		require.Equal(t, yielded, why, "asked for, it is given, whatever there is to send")

		h = newHeld()
		time.AfterFunc(100*time.Millisecond, func() { close(h.lost) })
		q.hold(time.Minute, "test")
		q.hand()
		_, why = q.take(t.Context(), h, time.Second)
		require.Equal(t, leaseLost, why)
	})
}

func TestNothingGoesWhileTheChannelIsHeld(t *testing.T) {
	t.Parallel()
	inQueue(t, func(t *testing.T, q *queue) {
		q.fillReady(parcels(1))
		q.hold(5*time.Second, "throttled")
		q.hold(time.Second, "shorter") // changes nothing
		began := time.Now()
		require.Zero(t, q.room())
		require.True(t, q.want(t.Context()))
		require.Equal(t, 5*time.Second, time.Since(began).Round(time.Millisecond))
		batch, _ := q.take(t.Context(), newHeld(), time.Second)
		require.Len(t, batch, 1)
	})
}

func TestAMessageThatWasRefusedWithOthersGoesAlone(t *testing.T) {
	t.Parallel()
	inQueue(t, func(t *testing.T, q *queue) {
		all := parcels(5)
		all[2].alone = true
		q.fillReady(all)
		for _, want := range []int{2, 1, 2} {
			q.hand()
			batch, _ := q.take(t.Context(), newHeld(), time.Second)
			require.Len(t, batch, want)
		}
	})
}

func TestOneMessageAtATimeProbes(t *testing.T) {
	t.Parallel()
	inQueue(t, func(t *testing.T, q *queue) {
		q.probe(true)
		q.fillReady(parcels(5))
		q.hand()
		batch, _ := q.take(t.Context(), newHeld(), time.Second)
		require.Len(t, batch, 1)
		q.hand()
		_, why := q.take(t.Context(), newHeld(), time.Second)
		require.Equal(t, idled, why, "while the first is on the wire no second goes")
		q.landed()
		q.hand()
		batch, _ = q.take(t.Context(), newHeld(), time.Second)
		require.Len(t, batch, 1)
	})
}

func TestDeliveriesGoElsewhereWhileThisReplicaCannotSend(t *testing.T) {
	t.Parallel()
	inQueue(t, func(t *testing.T, q *queue) {
		var answers []error
		take := func(id int64) error {
			return q.offer(op{id: id, done: func(err error) { answers = append(answers, err) }})
		}
		require.NoError(t, take(1))
		q.setUnfit(context.DeadlineExceeded)
		require.Equal(t, []error{errElsewhere}, answers)
		require.ErrorIs(t, take(2), errElsewhere)
		require.ErrorIs(t, q.state(), context.DeadlineExceeded)
		q.setUnfit(nil)
		require.NoError(t, take(3))
		q.close()
		require.Equal(t, []error{errElsewhere, errStopping}, answers)
		require.ErrorIs(t, take(4), errStopping)
		require.Empty(t, q.next(t.Context()))
		require.False(t, q.want(t.Context()), "drained")
	})
}

func TestNoMoreIsMadeThanMayBeReady(t *testing.T) {
	t.Parallel()
	inQueue(t, func(t *testing.T, q *queue) {
		for i := range 100 {
			require.NoError(t, q.offer(op{id: int64(i), msgType: msgPacs008, done: func(error) {}}))
		}
		for range 2 {
			ops := q.next(t.Context())
			require.Len(t, ops, maxBatch)
			q.built(len(ops), parcels(len(ops))...)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.Empty(t, q.next(ctx), "twenty are ready")
		q.hand()
		_, _ = q.take(t.Context(), newHeld(), time.Second)
		require.Len(t, q.next(t.Context()), maxBatch)
	})
}

func TestWhatTheStoreFindsIsNotTakenTwice(t *testing.T) {
	t.Parallel()
	inQueue(t, func(t *testing.T, q *queue) {
		all := parcels(3)
		q.fillReady(all[:1])
		fresh := q.adopt(parcels(3))
		require.Len(t, fresh, 2)
		require.Empty(t, q.adopt(parcels(3)))
		q.again(fresh)
		q.hand()
		batch, _ := q.take(t.Context(), newHeld(), time.Second)
		require.Equal(t, pix.MsgID("M1"), batch[0].id, "resends first")
		q.forget(batch)
		require.Len(t, q.adopt(parcels(3)), 3)
	})
}

func TestWhatWaitsTooLongIsNoAttempt(t *testing.T) {
	t.Parallel()
	inQueue(t, func(t *testing.T, q *queue) {
		all := parcels(2)
		all[0].counted = q.clk.Now()
		q.fillReady(all)
		require.Empty(t, q.stale(time.Second))
		<-time.After(time.Second)
		require.Equal(t, all[:1], q.stale(time.Second))
		require.Equal(t, all[1:], q.rest())
	})
}
