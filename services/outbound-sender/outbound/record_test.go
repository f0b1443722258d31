package outbound

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/libs/transport"
)

// Taken back twice, an attempt that stored nothing would take with it the one of a sender that has the message meanwhile, and
// a refusal would then pass for that of the only one.
func TestAnAttemptIsTakenBackOnceWhateverTheStoreAnswers(t *testing.T) {
	t.Parallel()
	inBubble(t, Config{}, func(b *bench) {
		b.answer = func(_ context.Context, n int) error {
			if n == 1 {
				return &transport.Error{Kind: transport.Throttled, Status: 429}
			}
			return nil
		}
		b.lost = store.ErrUnavailable
		b.deliver(1, 1)
		b.mu.Lock()
		for _, m := range b.messages {
			require.Zero(b, m.Attempts, "taken back, though nobody was told")
			m.Attempts, m.UpdatedAt = 1, time.Now() // another sender's
		}
		b.mu.Unlock()
		b.after(30 * time.Second)
		require.Contains(b, b.story(), "unknown m1/1", "what became of the other's is not known")
		require.Contains(b, b.story(), "sent m1/2")
	})
}

func TestAReasonIsTextThatTheStoreTakes(t *testing.T) {
	t.Parallel()
	require.Equal(t, "transport: rejected: status 400 (Requisição inválida)", reason(&transport.Error{
		Kind: transport.Rejected, Status: 400, Title: "Requisição inválida",
	}))
	got := reason(&transport.Error{Kind: transport.OutcomeUnknown, Reason: "line: \x00\xff\n" + strings.Repeat("ã", 400)})
	require.True(t, utf8.ValidString(got))
	require.LessOrEqual(t, len(got), maxReason)
	require.False(t, strings.ContainsAny(got, "\x00\n"))
	require.Equal(t, string(transport.OutcomeUnknown), reason(errors.New("\x00")))
}

func TestARefusalOfWhatSettledRaisesAnAlarm(t *testing.T) {
	t.Parallel()
	inBubble(t, Config{}, func(b *bench) {
		b.answer = func(context.Context, int) error { return rejected(413) }
		b.deliver(1, 1)
		count := b.sender.m.contradictions.WithLabelValues(string(pix.CPM))
		require.Zero(b, testutil.ToFloat64(count))
		b.settled = []string{"E1", "E2"}
		b.deliver(2, 2)
		require.InDelta(b, 2, testutil.ToFloat64(count), 0)
	})
}
