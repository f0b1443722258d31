package inbound

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Many publications are told to the table at once, soon, and without being waited for.
func TestMarksOfManyPublicationsAreOne(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.start()
		b.after(time.Second) // the first look at the table is over
		for i := range 5 {
			b.poller.pub.offer(line, b.store.put(fmt.Sprintf("m%d", i)))
			b.after(10 * time.Millisecond)
		}
		require.Len(b.t, b.carrier.all(), 5)
		require.Empty(b.t, b.store.marked())
		b.after(60 * time.Millisecond)
		require.Equal(b.t, []int{5}, b.store.marked())
		b.after(time.Second)
		require.Equal(b.t, []int{5}, b.store.marked(), "once")
	})
}

// A full batch of marks does not wait for its time.
func TestManyMarksDoNotWait(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.cfg.Publisher.BatchRows = 10
		b.start()
		b.after(time.Second) // the first look at the table is over
		b.poller.pub.offer(line, b.store.put(ids("m", 1, 25)...))
		b.after(time.Millisecond)
		require.Equal(b.t, []int{10, 10}, b.store.marked())
		b.after(time.Second)
		require.Equal(b.t, []int{10, 10, 5}, b.store.marked())
	})
}

// Before the table is read for what is not published it is told what is, or that would go out twice and out of order.
func TestMarksComeBeforeTheTableIsRead(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.start()
		b.after(time.Second) // the first look at the table is over
		b.poller.pub.offer(line, b.store.put("m1", "m2"))
		b.after(10 * time.Millisecond)
		require.Empty(b.t, b.store.marked())
		b.store.put("m3")
		b.poller.pub.gap(line)
		b.poller.pub.offer(line, b.store.put("m4"))
		b.after(10 * time.Millisecond)
		require.Equal(b.t, []string{"m1", "m2", "m3", "m4"}, b.carrier.all())
	})
}

// Marks that fail are made when the table answers again. What they are about does not go out again, before or after.
func TestMarksThatFailAreRepeated(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.start()
		b.after(time.Second) // the first look at the table is over
		b.poller.pub.offer(line, b.store.put("m1", "m2"))
		b.after(10 * time.Millisecond)
		b.store.set(errors.New("away"))
		b.after(time.Minute)
		require.Contains(b.t, b.log.String(), "publishing fails")
		b.store.set(nil)
		b.after(time.Minute)
		require.Equal(b.t, []int{2}, b.store.marked())
		require.Equal(b.t, []string{"m1", "m2"}, b.carrier.all())
	})
}

// A poller that stops tells the table before it ends.
func TestFlushWaitsForTheMarks(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.start()
		b.after(time.Second) // the first look at the table is over
		b.poller.pub.offer(line, b.store.put("m1"))
		require.NoError(b.t, b.poller.Flush(b.t.Context()))
		require.Equal(b.t, []int{1}, b.store.marked())
	})
}
