package transporttest

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/transport"
	"github.com/cabine-pix/cabine/libs/transport/plugin"
)

// patience bounds what ought to take moments.
const patience = 30 * time.Second

// Bank is the far end as the suite sees it, an adapter over a simulator. It serves one
// case, one channel and one participant. A read without messages waits for at least a second.
type Bank interface {
	// Requests is how many requests have begun: the first byte of each has been read.
	Requests() int
	// Connections is how many connections are open.
	Connections() int
	// Enqueue puts a message for the participant.
	Enqueue(body []byte)
	// Misbehave applies to every request that begins from now on; the zero Fault ends it.
	Misbehave(Fault)
	// CutConnections resets every connection.
	CutConnections()
}

// Fault is how the bank misbehaves.
type Fault struct {
	// Delay before the answer.
	Delay time.Duration
	// Cut ends the connection.
	Cut Cut
	// Status is answered instead, with RetryAfter in whole seconds.
	Status, RetryAfter int
}

// Cut is where the bank ends the connection.
type Cut string

// The places: before the answer, in its middle, and after it without having said so.
const (
	CutBefore Cut = "before"
	CutMiddle Cut = "middle"
	CutAfter  Cut = "after"
)

// Subject is a transport under test. Both functions make a bank of the case's own.
type Subject struct {
	Channel pix.Channel
	ISPB    pix.ISPB
	// Open makes the transport in this process.
	Open func(t *testing.T) (transport.Transport, Bank)
	// Process says how to run it as a plugin.
	Process func(t *testing.T) (plugin.HostConfig, Bank)
}

// bench is one case's transport, reached through the wire, and its bank.
type bench struct {
	transport.Transport
	bank    Bank
	subject Subject
	caps    transport.Capabilities
	// host is set where the transport is a process.
	host *plugin.Host
}

// Run runs every case on both wires.
func Run(t *testing.T, s Subject) {
	t.Helper()
	wires := map[string]func(*testing.T) bench{"loopback": s.loopback, "process": s.process}
	for wire, open := range wires {
		t.Run(wire, func(t *testing.T) {
			t.Parallel()
			for _, c := range cases() {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					b := open(t)
					if c.needs == nil || c.needs(b.caps) {
						c.run(t, b)
					}
				})
			}
		})
	}
	t.Run("death", func(t *testing.T) {
		t.Parallel()
		runDeaths(t, s)
	})
}

func (s Subject) loopback(t *testing.T) bench {
	t.Helper()
	impl, bank := s.Open(t)
	tr, stop, err := plugin.Loopback(t.Context(), impl, clock.System())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, stop()) })
	return s.bench(t, tr, bank)
}

func (s Subject) process(t *testing.T) bench {
	t.Helper()
	cfg, bank := s.Process(t)
	h, err := plugin.New(cfg, clock.System(), slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	waitCtx, stopWaiting := context.WithTimeout(t.Context(), patience)
	defer stopWaiting()
	require.NoError(t, h.Await(waitCtx))
	b := s.bench(t, h, bank)
	b.host = h
	return b
}

func (s Subject) bench(t *testing.T, tr transport.Transport, bank Bank) bench {
	t.Helper()
	caps, err := tr.Capabilities(t.Context())
	require.NoError(t, err)
	require.Positive(t, caps.UserTimeout, "what was written must be delivered or dropped within a bound")
	require.NotEmpty(t, caps.Name)
	require.NotEmpty(t, caps.Version)
	require.True(t, slices.Contains(caps.Channels, s.Channel))
	return bench{Transport: tr, bank: bank, subject: s, caps: caps}
}

// permit for a slot under a grant, for so long from now.
func (b bench) permit(slot int, grant string, d time.Duration) transport.Permit {
	return transport.Permit{
		Slot:     transport.SlotID{Channel: b.subject.Channel, ISPB: b.subject.ISPB, Slot: slot},
		Grant:    grant,
		NotAfter: clock.System().Now().Deadline(d),
	}
}

// attempt is one request of any direction that the transport offers, so that a case
// about the wire holds for readers and for senders.
func (b bench) attempt(ctx context.Context, p transport.Permit, timeout time.Duration) (transport.Exchange, error) {
	if b.caps.Pull {
		r, err := b.Pull(ctx, transport.PullRequest{Permit: p, Timeout: timeout})
		return r.Exchange, err
	}
	r, err := b.Send(ctx, transport.SendRequest{Permit: p, Messages: [][]byte{message()}, Timeout: timeout})
	return r.Exchange, err
}

// served is an attempt that the bank answers at once.
func (b bench) served(t *testing.T, p transport.Permit) {
	t.Helper()
	if b.caps.Pull {
		b.bank.Enqueue(message())
	}
	x, err := b.attempt(t.Context(), p, 5*time.Second)
	require.NoError(t, err)
	require.True(t, x.Complete)
}

// underWay starts an attempt that the bank holds, and returns once its first byte has
// arrived. The bank goes on holding requests.
func (b bench) underWay(ctx context.Context, t *testing.T, p transport.Permit, timeout time.Duration) <-chan error {
	t.Helper()
	b.bank.Misbehave(Fault{Delay: time.Minute})
	before := b.bank.Requests()
	failed := make(chan error, 1)
	go func() {
		_, err := b.attempt(ctx, p, timeout)
		failed <- err
	}()
	require.Eventually(t, func() bool { return b.bank.Requests() > before }, patience, time.Millisecond)
	return failed
}

func asError(t *testing.T, err error) *transport.Error {
	t.Helper()
	var e *transport.Error
	require.ErrorAs(t, err, &e)
	return e
}

// message is a document that says nothing.
func message() []byte { return []byte("<Envelope/>") }
