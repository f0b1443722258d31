package bus_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/bus"
	"github.com/cabine-pix/cabine/libs/devstack"
	"github.com/cabine-pix/cabine/libs/devstack/devtest"
)

// TestOnlyAFaultOfTheMessageIsARefusal goes through the faults of a message: each is said of that message
// alone, in its place in the batch, and holds nobody up.
func TestOnlyAFaultOfTheMessageIsARefusal(t *testing.T) {
	t.Parallel()
	b := provisioned(t)
	good := bus.Message{Subject: "pix.in.a.b", Payload: []byte("<a/>")}
	for name, bad := range map[string]bus.Message{
		"larger than the server takes": {Subject: "pix.in.a.b", Payload: make([]byte, 2<<20)},
		"larger than the stream takes": {Subject: "small.a", Payload: make([]byte, 2<<10)},
		"headers beyond 64 KB":         {Subject: "pix.in.a.b", Headers: map[string]string{"X": strings.Repeat("x", 70<<10)}},
		"a subject with a space":       {Subject: "pix.in.a b", Payload: []byte("<a/>")},
		"no subject":                   {Payload: []byte("<a/>")},
	} {
		t.Run(name, func(t *testing.T) {
			if strings.HasPrefix(bad.Subject, "small") {
				declare(t, b.server.URL(), jetstream.StreamConfig{Name: "SMALL", Subjects: []string{"small.>"}, MaxMsgSize: 1 << 10})
			}
			results := b.bus.Publish(t.Context(), []bus.Message{good, bad, good})
			require.Equal(t, []int{0, 2}, results.Acked())
			require.ErrorIs(t, results[1], bus.ErrRefused)
			require.NotErrorIs(t, results[1], bus.ErrUnavailable)
		})
	}
}

// TestWhatTheServerCannotDoNowIsNeverARefusal goes through conditions of the account and of the stream, in
// which every message fails and none is at fault.
func TestWhatTheServerCannotDoNowIsNeverARefusal(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		server devstack.NATSOptions
		stream jetstream.StreamConfig
	}{
		"the account is full":                {server: devstack.NATSOptions{StoreBytes: 64 << 10}},
		"the stream is full of bytes":        {stream: jetstream.StreamConfig{MaxBytes: 32 << 10, Discard: jetstream.DiscardNew}},
		"the stream is full of messages":     {stream: jetstream.StreamConfig{MaxMsgs: 3, Discard: jetstream.DiscardNew}},
		"the stream is full of this subject": {stream: jetstream.StreamConfig{MaxMsgsPerSubject: 3, DiscardNewPerSubject: true, Discard: jetstream.DiscardNew}},
		"the stream is sealed":               {stream: jetstream.StreamConfig{Sealed: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := devtest.OwnNATSWith(t, c.server)
			sealed := c.stream.Sealed
			c.stream.Name, c.stream.Subjects, c.stream.Sealed = bus.StreamInbound, []string{"pix.in.>"}, false
			js := declare(t, server.URL(), c.stream)
			if sealed {
				c.stream.Sealed = true
				_, err := js.UpdateStream(t.Context(), c.stream)
				require.NoError(t, err)
			}
			b := connect(t, server.URL())
			require.Eventually(t, b.Connected, limit, tick)
			var err error
			for i := 0; err == nil && i < 100; i++ {
				err = b.Publish(t.Context(), []bus.Message{{
					Subject: "pix.in.a.b", ID: fmt.Sprint(i), Payload: make([]byte, 4000),
				}}).Err()
			}
			require.ErrorIs(t, err, bus.ErrUnavailable)
			require.NotErrorIs(t, err, bus.ErrRefused)
			t.Log(err)
		})
	}
}

func declare(t *testing.T, url string, c jetstream.StreamConfig) jetstream.JetStream {
	t.Helper()
	conn, err := nats.Connect(url)
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	_, err = js.CreateStream(ctx, c)
	require.NoError(t, err)
	return js
}
