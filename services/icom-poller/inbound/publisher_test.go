package inbound

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/bus"
	"github.com/cabine-pix/cabine/libs/pix"
)

var line = stream{pix.CPM, ispb, 1}

func ids(prefix string, from, to int) []string {
	var out []string
	for i := from; i <= to; i++ {
		out = append(out, fmt.Sprintf("%s%03d", prefix, i))
	}
	return out
}

func TestBusAwayKeepsTheOrderOfArrival(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.cfg.Publisher.QueueRows = 10
		b.carrier.set(errors.New("no responders"))
		b.start()
		for i := 1; i <= 100; i++ {
			b.poller.pub.offer(line, b.store.put(fmt.Sprintf("m%03d", i)))
			b.after(100 * time.Millisecond)
		}
		require.Empty(b.t, b.carrier.all())
		require.NotZero(b.t, b.metric("cabine_inbound_publish_gaps_total"))
		require.LessOrEqual(b.t, b.metric("cabine_inbound_publish_queue_rows"), 10.0)
		b.carrier.set(nil)
		for i := 101; i <= 200; i++ {
			b.poller.pub.offer(line, b.store.put(fmt.Sprintf("m%03d", i)))
			b.after(100 * time.Millisecond)
		}
		b.after(10 * time.Second)
		require.Equal(b.t, ids("m", 1, 200), b.carrier.all())
		require.Contains(b.t, b.log.String(), "publishing again")
	})
}

func TestOfferNeverWaits(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.cfg.Publisher.QueueRows = 5
		b.start()
		began := b.clk.Now()
		for range 1000 {
			b.poller.pub.offer(line, b.store.put(fmt.Sprintf("%p", new(int))))
		}
		require.Zero(b.t, b.clk.Now().Elapsed(began))
		b.after(time.Second)
		require.NoError(b.t, b.poller.Flush(b.t.Context()))
	})
}

// What comes alone goes out at once; what comes in numbers goes out together, each stream in its order, soon after.
func TestPublicationsAreGathered(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.start()
		b.after(time.Second)
		b.poller.pub.offer(line, b.store.put("m000"))
		b.after(0)
		require.Equal(b.t, []string{"m000"}, b.carrier.all(), "at once")
		for i := 1; i <= 20; i++ {
			b.poller.pub.offer(line, b.store.put(fmt.Sprintf("m%03d", i)))
			b.after(time.Millisecond)
		}
		b.after(5 * time.Millisecond)
		require.Equal(b.t, ids("m", 0, 20), b.carrier.all())
		require.LessOrEqual(b.t, len(b.carrier.sizes()), 6, "one for each 5 ms")
		b.after(time.Second)
		b.poller.pub.offer(line, b.store.put("late"))
		b.after(0)
		require.Equal(b.t, append(ids("m", 0, 20), "late"), b.carrier.all(), "at once")
	})
}

// More than goes out at once does not wait for the next time.
func TestWhatIsLeftOfABatchDoesNotWait(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.cfg.Publisher.BatchRows = 10
		b.start()
		b.after(time.Second)
		b.poller.pub.offer(line, b.store.put(ids("m", 1, 35)...))
		b.after(0)
		require.Equal(b.t, ids("m", 1, 35), b.carrier.all())
		require.Equal(b.t, []int{10, 10, 10, 5}, b.carrier.sizes())
	})
}

func TestNewOwnerPublishesWhatTheOldOneLeftFirst(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.start()
		b.store.put("old1", "old2")
		b.poller.pub.gap(line)
		b.poller.pub.offer(line, b.store.put("new1"))
		b.after(0)
		require.Equal(b.t, []string{"old1", "old2", "new1"}, b.carrier.all())
	})
}

func TestRepublisherTakesWhatADeadReplicaLeft(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.start()
		b.after(time.Second)
		b.store.put("left1", "left2")
		b.after(28 * time.Second)
		require.Empty(b.t, b.carrier.all())
		b.after(2 * time.Second)
		require.Equal(b.t, []string{"left1", "left2"}, b.carrier.all())
	})
}

// Nobody consumes for two days: everything goes out again, less and less often, and nothing is given up.
func TestSweepPublishesAgainForAsLongAsItTakes(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.start()
		b.poller.pub.offer(line, b.store.put("a", "b"))
		b.after(time.Second)
		b.store.mu.Lock()
		b.store.rows[1].done = true
		b.store.mu.Unlock()
		b.after(4*time.Minute + 58*time.Second)
		require.Equal(b.t, []string{"a", "b"}, b.carrier.all())
		b.after(time.Minute + 2*time.Second)
		require.Equal(b.t, []string{"a", "b", "a#1"}, b.carrier.all())
		b.after(8 * time.Minute)
		require.Len(b.t, b.carrier.all(), 3, "twice as long the second time")
		b.after(26 * time.Minute)
		require.Equal(b.t, []string{"a", "b", "a#1", "a#2", "a#3"}, b.carrier.all())
		require.NotContains(b.t, b.log.String(), "level=ERROR")
		require.EqualValues(b.t, 3, b.metric("cabine_inbound_open_attempts"))

		b.after(48 * time.Hour)
		sent := len(b.carrier.all())
		require.Greater(b.t, sent, 40)
		require.Less(b.t, sent, 55, "about once an hour")
		require.Empty(b.t, b.store.graves())
		require.Zero(b.t, b.metric("cabine_inbound_dead_letters_total"))
		require.Contains(b.t, b.log.String(), `level=ERROR msg="publishing again what nobody finished" rows=1 attempts=3 message_id=a`)
	})
}

// A bus that can take nothing, full say, costs no message and freezes no gauge.
func TestABusThatTakesNothingBuriesNothing(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.carrier.set(fmt.Errorf("%w: resource limits exceeded for account", bus.ErrUnavailable))
		b.start()
		b.poller.pub.offer(line, b.store.put(ids("m", 1, 50)...))
		b.after(time.Hour)
		require.EqualValues(b.t, 50, b.metric("cabine_inbound_open_rows", "received"))
		require.InDelta(b.t, 3600, b.metric("cabine_inbound_open_oldest_seconds"), 60)
		b.after(time.Hour)
		require.InDelta(b.t, 7200, b.metric("cabine_inbound_open_oldest_seconds"), 60)
		require.Empty(b.t, b.store.graves())
		b.carrier.set(nil)
		b.after(time.Minute)
		require.Equal(b.t, ids("m", 1, 50), b.carrier.all())
		require.Zero(b.t, b.metric("cabine_inbound_open_rows", "received"))
		require.EqualValues(b.t, 50, b.metric("cabine_inbound_open_rows", "published"))
	})
}

func TestSeriesExistBeforeTheirFirstEvent(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.leases = newLeases(b.clk, b.story, 0)
		b.start()
		families, err := b.reg.Gather()
		require.NoError(b.t, err)
		series := map[string]int{}
		for _, f := range families {
			series[f.GetName()] = len(f.GetMetric())
		}
		for name, n := range map[string]int{
			"cabine_inbound_throttled_total": 1, "cabine_inbound_malformed_answers_total": 1,
			"cabine_inbound_streams_abandoned_total": 1, "cabine_inbound_dead_letters_total": 3,
			"cabine_inbound_messages_total": 3, "cabine_inbound_polls_total": 10, "cabine_inbound_publish_errors_total": 1,
			"cabine_slot_stale_starts_blocked_total": 2, "cabine_slot_late_writes_total": 1,
			"cabine_slot_cooldowns_total": 3, "cabine_slot_given_total": 3,
		} {
			require.Equal(b.t, n, series[name], name)
		}
	})
}

func TestFlushSaysWhatIsLeft(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.carrier.set(errors.New("down"))
		b.start()
		b.poller.pub.offer(line, b.store.put("a"))
		ctx, cancel := context.WithTimeout(b.t.Context(), time.Second)
		defer cancel()
		require.ErrorContains(b.t, b.poller.Flush(ctx), "1 rows")
	})
}

func TestRefusedRowIsBuriedAndHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.carrier.refuses = "bad"
		b.start()
		b.poller.pub.offer(line, b.store.put("a", "bad", "c"))
		b.after(0)
		require.Equal(b.t, []string{"a", "c"}, b.carrier.all())
		require.Len(b.t, b.store.graves(), 1, "at the first refusal")
		require.Contains(b.t, b.store.graves()[0].Reason, "refused by the bus")
		require.EqualValues(b.t, 1, b.metric("cabine_inbound_dead_letters_total", "refused"))
		require.NotContains(b.t, b.log.String(), "publishing fails")
		require.NoError(b.t, b.poller.Flush(b.t.Context()))
		require.Equal(b.t, []string{"a", "c"}, b.carrier.all())
	})
}
