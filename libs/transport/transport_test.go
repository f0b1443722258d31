package transport_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAnErrorIsItsKind(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("slot 3: %w", &transport.Error{
		Kind: transport.Throttled, Status: 429, Title: "Limite", ProblemType: "urn:x", Reason: "bucket",
	})
	require.ErrorIs(t, err, transport.Throttled)
	require.NotErrorIs(t, err, transport.Rejected)
	require.EqualError(t, err, "slot 3: transport: throttled: status 429 (Limite) [urn:x]: bucket")
}

func TestLastFirstByte(t *testing.T) {
	t.Parallel()
	const wrote, reaped, start = clock.Instant(100), clock.Instant(200), clock.Instant(300)
	notAfter := clock.Deadline{Boot: start}
	for name, c := range map[string]struct {
		err error
		at  clock.Instant
		ok  bool
	}{
		"success":                      {nil, 0, false},
		"a foreign error":              {errors.New("x"), start, true},
		"not sent":                     {&transport.Error{Kind: transport.NotSent}, 0, false},
		"a complete refusal":           {&transport.Error{Kind: transport.Rejected, Exchange: transport.Exchange{FirstByte: wrote, Complete: true}}, 0, false},
		"unknown since a known byte":   {&transport.Error{Kind: transport.OutcomeUnknown, Exchange: transport.Exchange{FirstByte: wrote}}, wrote, true},
		"unknown since nobody knows":   {&transport.Error{Kind: transport.OutcomeUnknown}, start, true},
		"process reaped":               {&transport.Error{Kind: transport.PluginGone, LastWrite: reaped}, reaped, true},
		"process silent":               {&transport.Error{Kind: transport.PluginGone}, start, true},
		"a wrapped unknown":            {fmt.Errorf("x: %w", &transport.Error{Kind: transport.OutcomeUnknown, Exchange: transport.Exchange{FirstByte: wrote}}), wrote, true},
		"gone process, doubtful bytes": {&transport.Error{Kind: transport.PluginGone, LastWrite: reaped, Exchange: transport.Exchange{FirstByte: wrote, Complete: true}}, reaped, true},
	} {
		at, ok := transport.LastFirstByte(c.err, notAfter)
		require.Equal(t, c.at, at, name)
		require.Equal(t, c.ok, ok, name)
	}
}

func permit() transport.Permit {
	return transport.Permit{Slot: transport.SlotID{Channel: pix.CPM, ISPB: "12345678", Slot: 1}, Grant: "g"}
}

func TestRequestsSayWhatIsWrong(t *testing.T) {
	t.Parallel()
	pull := transport.PullRequest{Permit: permit(), Timeout: time.Second}
	require.NoError(t, pull.Validate())
	send := transport.SendRequest{Permit: permit(), Timeout: time.Second, Messages: [][]byte{{1}}}
	require.NoError(t, send.Validate())
	end := transport.CloseRequest{Permit: permit(), Timeout: time.Second, Cursor: "/c"}
	require.NoError(t, end.Validate())

	for want, change := range map[string]func(*transport.PullRequest){
		"channel":       func(r *transport.PullRequest) { r.Permit.Slot.Channel = "x" },
		"ISPB":          func(r *transport.PullRequest) { r.Permit.Slot.ISPB = "1" },
		"count from 1":  func(r *transport.PullRequest) { r.Permit.Slot.Slot = 0 },
		"grant":         func(r *transport.PullRequest) { r.Permit.Grant = "" },
		"timeout":       func(r *transport.PullRequest) { r.Timeout = 0 },
		"visible ASCII": func(r *transport.PullRequest) { r.Cursor = "/x\n" },
		"at most 2048":  func(r *transport.PullRequest) { r.Cursor = strings.Repeat("x", 2049) },
	} {
		bad := pull
		change(&bad)
		require.ErrorContains(t, bad.Validate(), want)
	}
	send.Messages = nil
	require.ErrorContains(t, send.Validate(), "1 to 10")
	send.Messages = [][]byte{make([]byte, transport.MaxMessageBytes+1)}
	require.ErrorContains(t, send.Validate(), "bytes")
	end.Cursor = ""
	require.ErrorContains(t, end.Validate(), "cursor")
	require.Equal(t, "cpm:12345678:1", permit().Slot.String())
}

func TestResultsAreBounded(t *testing.T) {
	t.Parallel()
	require.NoError(t, transport.PullResult{}.Validate())
	require.NoError(t, transport.SendResult{}.Validate())
	ten := func(size int) (out []transport.Message) {
		for range transport.MaxMessages {
			out = append(out, transport.Message{ResourceID: "id", Body: make([]byte, size)})
		}
		return out
	}
	require.NoError(t, transport.PullResult{Messages: ten(transport.MaxMessageBytes), Cursor: "/c"}.Validate())
	for want, r := range map[string]transport.PullResult{
		"messages": {Messages: append(ten(1), transport.Message{})},
		"bytes":    {Messages: ten(transport.MaxMessageBytes + 1)},
		"visible":  {Messages: []transport.Message{{ResourceID: "a b"}}},
		"128":      {Messages: []transport.Message{{ResourceID: strings.Repeat("x", 129)}}},
		"took":     {Took: -1},
		"cursor":   {Cursor: "\x7f"},
	} {
		require.ErrorContains(t, r.Validate(), want)
	}
	require.ErrorContains(t, transport.SendResult{ResourceIDs: make([]string, 11)}.Validate(), "at most 10")
	require.ErrorContains(t, transport.SendResult{ResourceIDs: []string{"\r"}}.Validate(), "visible")
}

// said is a transport that says this of itself.
type said struct {
	can         transport.Capabilities
	silent, not error
}

func (s said) Capabilities(context.Context) (transport.Capabilities, error) { return s.can, s.silent }

func (s said) Ready(context.Context, pix.Channel, pix.ISPB) error { return s.not }

func TestUsableSaysWhyNot(t *testing.T) {
	t.Parallel()
	both := transport.Capabilities{
		Name: "t", Version: "1", Channels: []pix.Channel{pix.CPM}, Send: true, Pull: true, UserTimeout: time.Second,
	}
	with := func(change func(*transport.Capabilities)) said {
		can := both
		change(&can)
		return said{can: can}
	}
	send := transport.Need{Channel: pix.CPM, ISPB: "12345678", Send: true, UserTimeout: time.Second}
	pull := send
	pull.Send, pull.Pull = false, true
	csm := send
	csm.Channel = pix.CSM
	require.NoError(t, transport.Usable(t.Context(), said{can: both}, send))
	require.NoError(t, transport.Usable(t.Context(), with(func(c *transport.Capabilities) { c.Send = false }), pull))
	for name, tt := range map[string]struct {
		t    said
		need transport.Need
		why  string
	}{
		"silent":        {said{silent: errors.New("no process")}, send, "no process"},
		"cannot send":   {with(func(c *transport.Capabilities) { c.Send = false }), send, "does not serve"},
		"cannot read":   {with(func(c *transport.Capabilities) { c.Pull = false }), pull, "does not serve"},
		"other channel": {said{can: both}, csm, "does not serve"},
		"unbounded":     {with(func(c *transport.Capabilities) { c.UserTimeout = 0 }), send, "lease.user_timeout"},
		"bounded late":  {with(func(c *transport.Capabilities) { c.UserTimeout++ }), pull, "lease.user_timeout"},
		"not ready":     {said{can: both, not: errors.New("expired")}, send, "expired"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.ErrorContains(t, transport.Usable(t.Context(), tt.t, tt.need), tt.why)
		})
	}
}

func TestLogAttrHasTheFieldsOfATransportsError(t *testing.T) {
	t.Parallel()
	plain := errors.New("x")
	require.Equal(t, slog.Any("error", plain), transport.LogAttr(plain))
	attr := transport.LogAttr(fmt.Errorf("send: %w", &transport.Error{Kind: transport.Rejected, Status: 400, Title: "não"}))
	fields := map[string]any{}
	for _, a := range attr.Value.Group() {
		fields[a.Key] = a.Value.Any()
	}
	require.Equal(t, "error", attr.Key)
	require.Equal(t, map[string]any{"kind": "rejected", "status": int64(400), "title": "não", "type": "", "reason": ""}, fields)
}
