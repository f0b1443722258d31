package outbound

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/libs/transport"
)

func rejected(status int) error { return &transport.Error{Kind: transport.Rejected, Status: status} }

func TestALoneOperationWaitsForNothing(t *testing.T) {
	t.Parallel()
	inBubble(t, Config{}, func(b *bench) {
		b.deliver(1, 1)
		require.Equal(b, []string{"send permit", "post 1 at 0s", "sent m1/1"}, b.story())
		require.Equal(b, []string{"ack 1"}, b.answered())
		b.after(2 * time.Second)
		require.Equal(b, "release at 1s", b.story()[3], "idle for a second, and not longer")
		// What is in a message already is acknowledged and not sent again.
		b.deliver(1, 1)
		require.Equal(b, []string{"ack 1", "ack 1"}, b.answered())
		b.after(time.Second)
		require.Len(b, posts(b), 1)
	})
}

func TestWhatGathersWhilePostsAreInFlightGoesTogether(t *testing.T) {
	t.Parallel()
	inBubble(t, Config{}, func(b *bench) {
		b.answer = func(ctx context.Context, _ int) error { <-time.After(250 * time.Millisecond); return nil }
		b.deliver(1, 1)
		b.deliver(2, 2)
		b.deliver(3, 60)
		b.after(time.Minute)
		require.Equal(b, []string{"post 1 at 0s", "post 1 at 0s", "post 10 at 250ms", "post 10 at 250ms", "post 10 at 500ms", "post 10 at 500ms"},
			posts(b)[:6], "never more than the permits, and full as soon as there is enough")
	})
}

func posts(b *bench) (all []string) {
	for _, line := range b.story() {
		if line[:4] == "post" {
			all = append(all, line)
		}
	}
	return all
}

func TestA429MakesTheWholeChannelWait(t *testing.T) {
	t.Parallel()
	inBubble(t, Config{}, func(b *bench) {
		b.answer = func(_ context.Context, n int) error {
			if n == 1 {
				return &transport.Error{Kind: transport.Throttled, Status: 429, RetryAfter: 7 * time.Second}
			}
			return nil
		}
		b.deliver(1, 1)
		b.deliver(2, 5)
		b.after(6 * time.Second)
		require.Equal(b, []string{"send permit", "post 1 at 0s", "release at 1s"}, b.story(), "a permit is not kept for a pause")
		b.after(2 * time.Second)
		require.Equal(b, []string{"send permit", "post 5 at 7s", "sent m1/1 m2/1 m3/1 m4/1 m5/1"}, b.story()[3:6], "each attempted once that counts")
	})
}

func TestAnUnknownOutcomeGoesAgainAfterAGrowingPauseAndNotForEver(t *testing.T) {
	t.Parallel()
	inBubble(t, Config{Resend: Resend{Attempts: 3}}, func(b *bench) {
		b.answer = func(context.Context, int) error { return &transport.Error{Kind: transport.Unavailable, Status: 503} }
		b.deliver(1, 1)
		b.after(10 * time.Minute)
		require.Equal(b, []string{"post 1 at 0s", "post 1 at 2s", "post 1 at 6s"}, posts(b))
		require.Contains(b, b.story(), "unknown m1/3")
	})
}

func TestAPostThatDoesNotSettleCoolsItsSlotDown(t *testing.T) {
	t.Parallel()
	inBubble(t, Config{}, func(b *bench) {
		b.answer = func(_ context.Context, n int) error {
			if n == 1 {
				return &transport.Error{Kind: transport.OutcomeUnknown}
			}
			return nil
		}
		b.deliver(1, 1)
		b.after(3 * time.Second)
		require.Equal(b, []string{"send permit", "post 1 at 0s", "cool down at 0s"}, b.story()[:3])
		require.Contains(b, b.story(), "unknown m1/1")
		require.Contains(b, b.story(), "sent m1/2")
	})
}

func TestTheBankRefusesHowItIsAsked(t *testing.T) {
	t.Parallel()
	inBubble(t, Config{HaltFirst: 10 * time.Second, HaltMost: 40 * time.Second}, func(b *bench) {
		var accepts atomic.Bool
		b.answer = func(context.Context, int) error {
			if !accepts.Load() {
				return rejected(403)
			}
			return nil
		}
		b.deliver(1, 3)
		require.Error(b, b.sender.Ready(b.Context()))
		b.deliver(4, 5)
		require.Equal(b, []string{"ack 1", "ack 2", "ack 3", "retry 1s 4", "retry 1s 5"}, b.answered(), "others may be able to")
		b.after(5 * time.Minute)
		n := len(posts(b))
		require.Greater(b, n, 5)
		require.Less(b, n, 20, "at growing pauses")
		for _, p := range posts(b)[1:] {
			require.Contains(b, p, "post 1 ", "one message asks whether it is over")
		}
		require.NotContains(b, b.story(), "refused m1/1", "no payment is rejected for it")
		accepts.Store(true)
		b.after(time.Minute)
		require.NoError(b, b.sender.Ready(b.Context()))
		sent := 0
		b.mu.Lock()
		for _, m := range b.messages {
			if m.State == store.MessageSent {
				sent++
			}
		}
		b.mu.Unlock()
		require.Equal(b, 3, sent)
	})
}

func TestRefusedMessagesInARowHaltTheChannel(t *testing.T) {
	t.Parallel()
	inBubble(t, Config{HaltFirst: 10 * time.Second, HaltMost: 10 * time.Second}, func(b *bench) {
		b.answer = func(context.Context, int) error { return rejected(413) }
		b.deliver(1, 1)
		require.Contains(b, b.story(), "refused m1/1")
		b.deliver(2, 2)
		require.NoError(b, b.sender.Ready(b.Context()))
		b.deliver(3, 3)
		require.ErrorContains(b, b.sender.Ready(b.Context()), "3 messages refused in a row")
		b.deliver(4, 4)
		b.after(4 * time.Second)
		require.Equal(b, "retry 1s 4", b.answered()[3])
		require.Len(b, posts(b), 3)
	})
}

// While the channel is halted a refusal says nothing about the message that tries, and the next try is another's.
func TestATryWhileHaltedRejectsNobody(t *testing.T) {
	t.Parallel()
	inBubble(t, Config{RefusalsInARow: 2, HaltFirst: 10 * time.Second, HaltMost: 10 * time.Second}, func(b *bench) {
		b.slots = 1
		var accepts atomic.Bool
		b.answer = func(context.Context, int) error {
			b.mu.Lock()
			good := len(b.posted) == 1 && b.posted[0] == "m4"
			b.mu.Unlock()
			<-time.After(100 * time.Millisecond)
			if good && accepts.Load() {
				return nil
			}
			return rejected(413)
		}
		b.deliver(1, 4)
		ends := func() (all []string) {
			for _, line := range b.story() {
				if strings.HasPrefix(line, "refused") || strings.HasPrefix(line, "sent") {
					all = append(all, line)
				}
			}
			return all
		}
		b.after(5 * time.Minute)
		require.Equal(b, []string{"refused m1/1", "refused m2/1"}, ends(), "two in a row, and no more")
		require.Greater(b, len(posts(b)), 15, "it goes on trying")
		accepts.Store(true)
		b.after(time.Minute)
		require.Equal(b, []string{"refused m1/1", "refused m2/1", "sent m4/1", "refused m3/1"}, ends(), "the bank takes messages, but not this one")
		require.NoError(b, b.sender.Ready(b.Context()))
	})
}

func TestAStoreThatIsAwayStopsTheSending(t *testing.T) {
	t.Parallel()
	inBubble(t, Config{}, func(b *bench) {
		b.away(store.ErrUnavailable)
		b.deliver(1, 3)
		b.after(20 * time.Second)
		require.Empty(b, posts(b))
		require.Empty(b, b.answered(), "kept in hand")
		b.away(nil)
		b.after(10 * time.Second)
		require.Len(b, b.answered(), 3)
		require.Len(b, posts(b), 1)
	})
}

func TestStopEndsWhatIsStoredAndReturnsTheRest(t *testing.T) {
	t.Parallel()
	inBubble(t, Config{}, func(b *bench) {
		b.answer = func(context.Context, int) error { <-time.After(time.Second); return nil }
		b.deliver(1, 60)
		b.sender.StopTaking()
		require.NoError(b, b.sender.Quiet(b.Context()))
		acked, back := 0, 0
		for _, a := range b.answered() {
			switch a[:3] {
			case "ack":
				acked++
			case "ret":
				require.Contains(b, a, "retry 0s", "at once")
				back++
			}
		}
		require.Equal(b, 60, acked+back)
		require.Positive(b, back)
		b.mu.Lock()
		for _, m := range b.messages {
			require.Equal(b, store.MessageSent, m.State)
		}
		require.Len(b, b.messages, acked)
		require.Equal(b, 2, b.slots)
		b.mu.Unlock()
	})
}

func TestAbortCutsThePostAndLeavesTheRestToOthers(t *testing.T) {
	t.Parallel()
	inBubble(t, Config{}, func(b *bench) {
		b.answer = func(ctx context.Context, _ int) error {
			<-ctx.Done()
			return &transport.Error{Kind: transport.OutcomeUnknown, Reason: context.Cause(ctx).Error()}
		}
		b.deliver(1, 30)
		b.after(time.Second)
		require.ErrorContains(b, b.stop(), "2 posts", "what was cut was given up, and the stop says so")
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, m := range b.messages {
			if m.State == store.MessageUnknown {
				require.Equal(b, 1, m.Attempts)
				continue
			}
			require.Zero(b, m.Attempts, "not sent, and it says so")
			require.True(b, m.UpdatedAt.IsZero(), "due at once")
		}
	})
}

// A sender that stops with nothing to send does not wait for a permit that others hold.
func TestStopDoesNotWaitForAPermitOfNoUse(t *testing.T) {
	t.Parallel()
	inBubble(t, Config{}, func(b *bench) {
		b.slots = 1 // the other is somebody else's, for good
		b.answer = func(context.Context, int) error { <-time.After(time.Second); return nil }
		b.deliver(1, 1)
		b.deliver(2, 2) // wants a second permit, which does not come
		b.after(3 * time.Second)
		require.Len(b, posts(b), 2, "the first permit carried both")
		began := time.Now()
		require.NoError(b, b.stop())
		require.Zero(b, time.Since(began))
	})
}

// No permit is to be had while the sender stops: what is ready goes to the others, at once and as not sent, and the stop has
// lost nothing.
func TestStopWithoutAPermitLeavesAllToOthersAndIsClean(t *testing.T) {
	t.Parallel()
	inBubble(t, Config{EndPosts: 5 * time.Second}, func(b *bench) {
		b.slots = 0
		b.deliver(1, 3)
		began := time.Now()
		require.NoError(b, b.stop())
		require.Equal(b, 5*time.Second, time.Since(began))
		require.Empty(b, posts(b))
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, m := range b.messages {
			require.Zero(b, m.Attempts)
			require.True(b, m.UpdatedAt.IsZero(), "due at once")
		}
	})
}

// A POST that the bank answers late, and outcomes that the store takes late, are waited for.
func TestStopWaitsForALateBankAndALateStore(t *testing.T) {
	t.Parallel()
	inBubble(t, Config{}, func(b *bench) {
		b.answer = func(context.Context, int) error {
			<-time.After(6 * time.Second)
			b.away(store.ErrUnavailable)
			time.AfterFunc(2*time.Second, func() { b.away(nil) })
			return nil
		}
		b.deliver(1, 1)
		require.NoError(b, b.stop())
		require.Contains(b, b.story(), "sent m1/1")
	})
}

// An outcome that is not recorded at the end of all patience is lost to us, and the stop says so.
func TestStopThatRecordsNoOutcomeHasFailed(t *testing.T) {
	t.Parallel()
	inBubble(t, Config{}, func(b *bench) {
		b.answer = func(context.Context, int) error { b.away(store.ErrUnavailable); return nil }
		b.deliver(1, 1)
		require.ErrorContains(b, b.stop(), "budget spent")
	})
}

func TestASenderNeedsAChannel(t *testing.T) {
	t.Parallel()
	_, err := New(Config{ISPB: ispb}, Deps{Metrics: prometheus.NewRegistry()})
	require.ErrorContains(t, err, "no channel is enabled")
}
