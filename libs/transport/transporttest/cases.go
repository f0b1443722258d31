package transporttest

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/transport"
)

type testCase struct {
	name  string
	needs func(transport.Capabilities) bool
	run   func(*testing.T, bench)
}

func pulls(c transport.Capabilities) bool   { return c.Pull }
func sends(c transport.Capabilities) bool   { return c.Send }
func streams(c transport.Capabilities) bool { return c.Pull && c.Streams }

func cases() []testCase {
	return []testCase{
		{"ready without a request", nil, readyWithoutARequest},
		{"reads in order", pulls, readsInOrder},
		{"closes a stream, also twice", streams, closesAStream},
		{"sends one and ten", sends, sendsOneAndTen},
		{"no byte at or after the deadline", nil, noByteAfterTheDeadline},
		{"a malformed call is not sent", nil, malformedCalls},
		{"a timeout is an unknown outcome", nil, timeouts},
		{"a cut answer is an unknown outcome, and nothing is repeated", nil, cutAnswers},
		{"a connection that ended between calls is replaced", nil, endedBetweenCalls},
		{"statuses", nil, statuses},
		{"one call per slot", nil, oneCallPerSlot},
		{"one connection per slot, another for another grant", nil, oneConnectionPerSlot},
		{"the caller's end ends the call", nil, cancelled},
		{"disconnect ends the call", nil, disconnected},
	}
}

func readyWithoutARequest(t *testing.T, b bench) {
	require.NoError(t, b.Ready(t.Context(), b.subject.Channel, b.subject.ISPB))
	require.Zero(t, b.bank.Requests())
	require.ErrorIs(t, b.Ready(t.Context(), b.subject.Channel, "ZZZZZZZZ"), transport.NotSent)
}

func readsInOrder(t *testing.T, b bench) {
	const n = 25
	for i := range n {
		b.bank.Enqueue(fmt.Appendf(nil, "<Envelope>%d</Envelope>", i))
	}
	seen := map[string]bool{}
	cursor := ""
	for i := 0; i < n; {
		before := clock.System().Now().Boot
		r, err := b.Pull(t.Context(), transport.PullRequest{
			Permit: b.permit(1, "g", 5*time.Second), Cursor: cursor, Timeout: 5 * time.Second,
		})
		require.NoError(t, err)
		require.True(t, r.Exchange.Complete)
		require.GreaterOrEqual(t, r.Exchange.FirstByte, before)
		require.LessOrEqual(t, r.Exchange.FirstByte, clock.System().Now().Boot)
		require.GreaterOrEqual(t, r.Took, time.Duration(0))
		require.NotEmpty(t, r.Messages)
		for _, m := range r.Messages {
			require.Equal(t, fmt.Sprintf("<Envelope>%d</Envelope>", i), string(m.Body))
			require.NotEmpty(t, m.ResourceID)
			require.False(t, seen[m.ResourceID])
			seen[m.ResourceID] = true
			i++
		}
		if b.caps.Streams {
			require.NotEmpty(t, r.Cursor)
		}
		cursor = r.Cursor
	}
}

func closesAStream(t *testing.T, b bench) {
	b.bank.Enqueue(message())
	r, err := b.Pull(t.Context(), transport.PullRequest{Permit: b.permit(1, "g", 5*time.Second), Timeout: 5 * time.Second})
	require.NoError(t, err)
	for range 2 {
		c, err := b.CloseStream(t.Context(), transport.CloseRequest{
			Permit: b.permit(1, "g", 5*time.Second), Cursor: r.Cursor, Timeout: 5 * time.Second,
		})
		require.NoError(t, err)
		require.True(t, c.Exchange.Complete)
	}
	_, err = b.Pull(t.Context(), transport.PullRequest{
		Permit: b.permit(1, "g", 5*time.Second), Cursor: r.Cursor, Timeout: 5 * time.Second,
	})
	require.ErrorIs(t, err, transport.Gone)
	require.True(t, asError(t, err).Exchange.Complete)
}

func sendsOneAndTen(t *testing.T, b bench) {
	for _, n := range []int{1, transport.MaxMessages} {
		messages := make([][]byte, n)
		for i := range messages {
			messages[i] = message()
		}
		r, err := b.Send(t.Context(), transport.SendRequest{
			Permit: b.permit(1, "g", 5*time.Second), Messages: messages, Timeout: 5 * time.Second,
		})
		require.NoError(t, err)
		require.True(t, r.Exchange.Complete)
		require.NotZero(t, r.Exchange.FirstByte)
		require.Len(t, r.ResourceIDs, n)
	}
}

func noByteAfterTheDeadline(t *testing.T, b bench) {
	for _, kept := range []bool{false, true} {
		if kept {
			b.served(t, b.permit(1, "g", 5*time.Second))
		}
		before := b.bank.Requests()
		for name, d := range map[string]clock.Deadline{
			"passed":              clock.System().Now().Deadline(-time.Nanosecond),
			"forgotten":           {},
			"passed on the wall":  {Boot: clock.System().Now().Boot.Add(time.Hour), Wall: time.Now().Add(-time.Second)},
			"passed by boot time": {Boot: clock.System().Now().Boot.Add(-1), Wall: time.Now().Add(time.Hour)},
		} {
			p := b.permit(1, "g", 0)
			p.NotAfter = d
			_, err := b.attempt(t.Context(), p, time.Second)
			require.ErrorIs(t, err, transport.NotSent, name)
			require.Zero(t, asError(t, err).Exchange)
			_, stillRunning := transport.LastFirstByte(err, d)
			require.False(t, stillRunning)
		}
		require.Equal(t, before, b.bank.Requests(), "not one byte")
	}
}

func malformedCalls(t *testing.T, b bench) {
	good := b.permit(1, "g", 5*time.Second)
	for name, change := range map[string]func(*transport.Permit){
		"no grant":           func(p *transport.Permit) { p.Grant = "" },
		"slot zero":          func(p *transport.Permit) { p.Slot.Slot = 0 },
		"another channel":    func(p *transport.Permit) { p.Slot.Channel = "x" },
		"an unknown ISPB":    func(p *transport.Permit) { p.Slot.ISPB = "ZZZZZZZZ" },
		"an ISPB with slash": func(p *transport.Permit) { p.Slot.ISPB = "../12345" },
	} {
		p := good
		change(&p)
		_, err := b.attempt(t.Context(), p, time.Second)
		require.ErrorIs(t, err, transport.NotSent, name)
	}
	_, err := b.attempt(t.Context(), good, 0)
	require.ErrorIs(t, err, transport.NotSent, "no timeout")
	if b.caps.Pull && b.caps.Streams {
		for _, cursor := range []string{"https://elsewhere.example/x", "//elsewhere.example/x", "/x\r\nHost: y"} {
			_, err := b.Pull(t.Context(), transport.PullRequest{Permit: good, Cursor: cursor, Timeout: time.Second})
			require.ErrorIs(t, err, transport.NotSent, cursor)
		}
	}
	if b.caps.Send {
		for _, messages := range [][][]byte{nil, {{}}, make([][]byte, transport.MaxMessages+1)} {
			_, err := b.Send(t.Context(), transport.SendRequest{Permit: good, Messages: messages, Timeout: time.Second})
			require.ErrorIs(t, err, transport.NotSent)
		}
	}
	require.Zero(t, b.bank.Requests())
}

func timeouts(t *testing.T, b bench) {
	b.bank.Misbehave(Fault{Delay: time.Minute})
	before := clock.System().Now().Boot
	p := b.permit(1, "g", 5*time.Second)
	_, err := b.attempt(t.Context(), p, 300*time.Millisecond)
	require.ErrorIs(t, err, transport.OutcomeUnknown)
	at, running := transport.LastFirstByte(err, p.NotAfter)
	require.True(t, running, "the bank may be at it still")
	require.GreaterOrEqual(t, at, before)
	require.Less(t, at, p.NotAfter.Boot, "the transport knows when it wrote")
	require.Equal(t, 1, b.bank.Requests())
	b.bank.Misbehave(Fault{})
	b.served(t, b.permit(1, "next", 5*time.Second))
}

func cutAnswers(t *testing.T, b bench) {
	for _, cut := range []Cut{CutBefore, CutMiddle} {
		for _, kept := range []bool{true, false} {
			if kept {
				b.served(t, b.permit(1, string(cut), 5*time.Second))
			}
			if b.caps.Pull {
				b.bank.Enqueue(message())
			}
			before := b.bank.Requests()
			b.bank.Misbehave(Fault{Cut: cut})
			_, err := b.attempt(t.Context(), b.permit(1, string(cut), 5*time.Second), 5*time.Second)
			b.bank.Misbehave(Fault{})
			require.ErrorIs(t, err, transport.OutcomeUnknown)
			require.NotZero(t, asError(t, err).Exchange.FirstByte)
			require.False(t, asError(t, err).Exchange.Complete)
			require.Equal(t, before+1, b.bank.Requests(), "one call is one request")
		}
	}
}

func endedBetweenCalls(t *testing.T, b bench) {
	p := func() transport.Permit { return b.permit(1, "g", 5*time.Second) }
	b.served(t, p())
	b.bank.CutConnections()
	require.Eventually(t, func() bool { return b.bank.Connections() == 0 }, patience, time.Millisecond)
	b.served(t, p())
	b.bank.Misbehave(Fault{Cut: CutAfter})
	b.served(t, p())
	b.bank.Misbehave(Fault{})
	require.Eventually(t, func() bool { return b.bank.Connections() == 0 }, patience, time.Millisecond)
	b.served(t, p())
	require.Equal(t, 4, b.bank.Requests())
}

func statuses(t *testing.T, b bench) {
	for _, c := range []struct {
		fault Fault
		kind  transport.Kind
		wait  time.Duration
	}{
		{Fault{Status: http.StatusTooManyRequests, RetryAfter: 7}, transport.Throttled, 7 * time.Second},
		{Fault{Status: http.StatusTooManyRequests}, transport.Throttled, 0},
		{Fault{Status: http.StatusInternalServerError}, transport.Unavailable, 0},
		{Fault{Status: http.StatusServiceUnavailable}, transport.Unavailable, 0},
	} {
		b.bank.Misbehave(c.fault)
		_, err := b.attempt(t.Context(), b.permit(1, "g", 5*time.Second), 5*time.Second)
		e := asError(t, err)
		require.Equal(t, c.kind, e.Kind)
		require.Equal(t, c.fault.Status, e.Status)
		require.Equal(t, c.wait, e.RetryAfter)
		require.True(t, e.Exchange.Complete)
		require.NotZero(t, e.Exchange.FirstByte)
	}
}

func oneCallPerSlot(t *testing.T, b bench) {
	ctx, cancel := context.WithCancel(t.Context())
	first := b.underWay(ctx, t, b.permit(1, "g", 5*time.Second), 20*time.Second)
	_, err := b.attempt(t.Context(), b.permit(1, "g", 5*time.Second), time.Second)
	require.ErrorIs(t, err, transport.NotSent)
	b.bank.Misbehave(Fault{})
	b.served(t, b.permit(2, "g", 5*time.Second))
	cancel()
	require.Error(t, <-first)
	require.Equal(t, 2, b.bank.Requests())
}

func oneConnectionPerSlot(t *testing.T, b bench) {
	for range 3 {
		b.served(t, b.permit(1, "g", 5*time.Second))
		require.Equal(t, 1, b.bank.Connections())
	}
	b.served(t, b.permit(1, "another", 5*time.Second))
	require.Eventually(t, func() bool { return b.bank.Connections() == 1 }, patience, time.Millisecond)
	require.NoError(t, b.Disconnect(t.Context(), b.permit(1, "another", 0).Slot))
	require.NoError(t, b.Disconnect(t.Context(), b.permit(1, "another", 0).Slot), "may be repeated")
	require.Eventually(t, func() bool { return b.bank.Connections() == 0 }, patience, time.Millisecond)
}

func cancelled(t *testing.T, b bench) {
	ctx, cancel := context.WithCancel(t.Context())
	p := b.permit(1, "g", 5*time.Second)
	failed := b.underWay(ctx, t, p, 20*time.Second)
	cancel()
	_, running := transport.LastFirstByte(<-failed, p.NotAfter)
	require.True(t, running, "the end of the caller is not the end of the request")
	require.Eventually(t, func() bool { return b.bank.Connections() == 0 }, patience, time.Millisecond)
}

func disconnected(t *testing.T, b bench) {
	p := b.permit(1, "g", 5*time.Second)
	failed := b.underWay(t.Context(), t, p, 20*time.Second)
	require.NoError(t, b.Disconnect(t.Context(), p.Slot))
	err := <-failed
	require.ErrorIs(t, err, transport.OutcomeUnknown)
	require.NotZero(t, asError(t, err).Exchange.FirstByte)
}
