package inbound

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
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

func TestSweepPublishesAgainAndBuriesInTheEnd(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.cfg.Publisher.MaxAttempts = 2
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
		b.after(30 * time.Minute)
		require.Equal(b.t, []string{"a", "b", "a#1", "a#2"}, b.carrier.all())
		require.Equal(b.t, []store.Poison{{MessageID: "a", Reason: "published 3 times and never done"}}, b.store.graves())
		require.EqualValues(b.t, 1, b.metric("cabine_inbound_dead_letters_total", "never_done"))
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
		b.after(time.Second)
		require.Equal(b.t, []string{"a", "c"}, b.carrier.all())
		require.Empty(b.t, b.store.graves())
		b.after(time.Minute)
		require.Len(b.t, b.store.graves(), 1)
		require.Contains(b.t, b.store.graves()[0].Reason, "refused 10 times")
		require.NoError(b.t, b.poller.Flush(b.t.Context()))
		require.Equal(b.t, []string{"a", "c"}, b.carrier.all())
	})
}
