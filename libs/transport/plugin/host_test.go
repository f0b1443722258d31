package plugin_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/transport"
	"github.com/cabine-pix/cabine/libs/transport/plugin"
)

const patience = 30 * time.Second

// logged collects the host's log.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// config runs the test binary as the plugin.
func config(t *testing.T) plugin.HostConfig {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	return plugin.HostConfig{
		Path: self, Env: []string{roleEnv + "=" + rolePlugin},
		MinBackoff: 10 * time.Millisecond, PingInterval: 50 * time.Millisecond,
	}
}

// start runs a host until the test ends and waits for its first process.
func start(t *testing.T, cfg plugin.HostConfig) (*plugin.Host, *logged) {
	t.Helper()
	log := &logged{}
	h, err := plugin.New(cfg, clock.System(), slog.New(slog.NewTextHandler(log, nil)), prometheus.NewRegistry())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	await(t, h)
	return h, log
}

func await(t *testing.T, h *plugin.Host) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, h.Await(ctx))
}

func pid(t *testing.T, h *plugin.Host) int {
	t.Helper()
	c, err := h.Capabilities(t.Context())
	require.NoError(t, err)
	n, err := strconv.Atoi(c.Version)
	require.NoError(t, err)
	return n
}

func permit(slot int, grant string, d time.Duration) transport.Permit {
	return transport.Permit{
		Slot:     transport.SlotID{Channel: pix.CPM, ISPB: "12345678", Slot: slot},
		Grant:    grant,
		NotAfter: clock.System().Now().Deadline(d),
	}
}

func pull(ctx context.Context, tr transport.Transport, slot int, grant, cursor string) (transport.PullResult, error) {
	return tr.Pull(ctx, transport.PullRequest{
		Permit: permit(slot, grant, 5*time.Second), Cursor: cursor, Timeout: 5 * time.Second,
	})
}

// inFlight starts a Pull that hangs and returns its end.
func inFlight(t *testing.T, ctx context.Context, h *plugin.Host, slot int, cursor string) <-chan error {
	t.Helper()
	failed := make(chan error, 1)
	began := make(chan struct{})
	go func() {
		close(began)
		_, err := pull(ctx, h, slot, "g", cursor)
		failed <- err
	}()
	<-began
	// The stub answers other slots meanwhile; one round trip later the call has arrived.
	_, err := pull(t.Context(), h, 99, "other", "")
	require.NoError(t, err)
	select {
	case err := <-failed:
		t.Fatalf("the call did not hang: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	return failed
}

func asError(t *testing.T, err error) *transport.Error {
	t.Helper()
	var e *transport.Error
	require.ErrorAs(t, err, &e)
	return e
}

// exited reports whether the process has ended. One that nobody reaped, because its
// parent is gone and init does not care, holds no socket any more.
func exited(pid int) func() bool {
	return func() bool {
		s := state(fmt.Sprintf("/proc/%d/stat", pid))
		return s == "" || s == "Z"
	}
}

// state returns the letter of a process or thread, empty when there is none.
func state(path string) string {
	stat, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))[0]
}

// stop stops the process and returns when its last thread stands still.
func stop(t *testing.T, pid int) {
	t.Helper()
	require.NoError(t, unix.Kill(pid, unix.SIGSTOP))
	require.Eventually(t, func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		return err == nil && !slices.ContainsFunc(threads, func(p string) bool { return state(p) != "T" })
	}, patience, time.Millisecond)
}

func TestCallsAndErrorsCrossWhole(t *testing.T) {
	t.Parallel()
	h, _ := start(t, config(t))
	loop, stop, err := plugin.Loopback(t.Context(), newStub(), clock.System())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, stop()) })
	for name, tr := range map[string]transport.Transport{"process": h, "loopback": loop} {
		t.Run(name, func(t *testing.T) { crossing(t, tr) })
	}
}

func crossing(t *testing.T, tr transport.Transport) {
	ctx := t.Context()
	c, err := tr.Capabilities(ctx)
	require.NoError(t, err)
	require.Equal(t, pix.Channels(), c.Channels)
	require.NoError(t, tr.Ready(ctx, pix.CPM, "12345678"))
	require.Equal(t, "the certificate has expired", asError(t, tr.Ready(ctx, pix.CSM, "12345678")).Reason)

	p := permit(1, "g", 5*time.Second)
	r, err := tr.Pull(ctx, transport.PullRequest{Permit: p, Cursor: "deadline", Timeout: time.Second})
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintf("%d/%d", p.NotAfter.Boot, p.NotAfter.Wall.UnixNano()), r.Cursor)
	require.Equal(t, []transport.Message{{ResourceID: "id", Body: []byte("body")}}, r.Messages)

	r, err = pull(ctx, tr, 1, "g", "fault")
	require.NoError(t, err, "a fault of one message is not the answer's")
	require.Equal(t, []transport.Message{
		{ResourceID: "id", Body: []byte("body")},
		{ResourceID: "bad", Fault: "empty?? " + strings.Repeat("x", 504)},
	}, r.Messages)
	r, err = pull(ctx, tr, 1, "g", "full")
	require.NoError(t, err, "the largest legal answer fits")
	require.Len(t, r.Messages, transport.MaxMessages)
	big := make([][]byte, transport.MaxMessages)
	for i := range big {
		big[i] = make([]byte, transport.MaxMessageBytes)
	}
	s, err := tr.Send(ctx, transport.SendRequest{Permit: p, Messages: big, Timeout: time.Second})
	require.NoError(t, err, "the largest legal send fits")
	require.Len(t, s.ResourceIDs, transport.MaxMessages)
	_, err = tr.CloseStream(ctx, transport.CloseRequest{Permit: p, Cursor: "/c", Timeout: time.Second})
	require.NoError(t, err)
	require.NoError(t, tr.Disconnect(ctx, p.Slot))

	_, err = pull(ctx, tr, 1, "g", "throttled")
	e := asError(t, err)
	require.True(t, e.Exchange.Complete)
	require.NotZero(t, e.Exchange.FirstByte)
	e.Exchange = transport.Exchange{}
	require.Equal(t, &transport.Error{
		Kind: transport.Throttled, Status: 429, ProblemType: "urn:x", Title: "devagar",
		RetryAfter: 3 * time.Second, Reason: "bucket?empty",
	}, e)
}

func TestAnAnswerThatCannotBeIsNotBelieved(t *testing.T) {
	t.Parallel()
	h, _ := start(t, config(t))
	for cursor, kind := range map[string]transport.Kind{
		"future":     transport.OutcomeUnknown,
		"past":       transport.OutcomeUnknown,
		"incomplete": transport.OutcomeUnknown,
		"untyped":    transport.OutcomeUnknown,
		"too-many":   transport.Malformed,
		"too-large":  transport.Malformed,
		"bad-cursor": transport.Malformed,
		"bad-id":     transport.Malformed,
	} {
		t.Run(cursor, func(t *testing.T) {
			t.Parallel()
			p := permit(1, "g", 5*time.Second)
			_, err := h.Pull(t.Context(), transport.PullRequest{Permit: p, Cursor: cursor, Timeout: time.Second})
			require.ErrorIs(t, err, kind)
			at, ok := transport.LastFirstByte(err, p.NotAfter)
			require.Equal(t, kind == transport.OutcomeUnknown, ok)
			if ok {
				require.Equal(t, p.NotAfter.Boot, at, "the start deadline is the bound")
			}
		})
	}
}

func TestRefusesLocallyWhatMayNotStart(t *testing.T) {
	t.Parallel()
	h, _ := start(t, config(t))
	_, err := h.Pull(t.Context(), transport.PullRequest{Permit: permit(1, "g", 0), Timeout: time.Second})
	require.ErrorIs(t, err, transport.NotSent)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = pull(ctx, h, 1, "g", "")
	require.ErrorIs(t, err, transport.NotSent)
	_, err = h.Pull(t.Context(), transport.PullRequest{Permit: permit(0, "g", time.Second), Timeout: time.Second})
	require.ErrorIs(t, err, transport.NotSent)
}

func TestCancellingACallBringsItsExchange(t *testing.T) {
	t.Parallel()
	h, _ := start(t, config(t))
	ctx, cancel := context.WithCancel(t.Context())
	flight := inFlight(t, ctx, h, 1, "hang")
	cancel()
	err := <-flight
	require.ErrorIs(t, err, transport.OutcomeUnknown)
	require.NotZero(t, asError(t, err).Exchange.FirstByte)

	ctx, cancel = context.WithCancel(t.Context())
	flight = inFlight(t, ctx, h, 1, "deaf")
	cancel()
	err = <-flight
	require.ErrorIs(t, err, transport.PluginGone, "a transport that does not let go is not waited for")
	require.Zero(t, asError(t, err).LastWrite)
}

func TestTheProcessInheritsNothing(t *testing.T) {
	t.Parallel()
	require.NotEmpty(t, os.Getenv("PATH"))
	h, _ := start(t, config(t))
	environment := asError(t, h.Ready(t.Context(), "env", "")).Reason
	require.Contains(t, environment, roleEnv+"="+rolePlugin)
	require.NotContains(t, environment, "PATH=")
	group, err := unix.Getpgid(pid(t, h))
	require.NoError(t, err)
	require.Equal(t, pid(t, h), group)
}

func TestTheProcessLogsThroughItsHost(t *testing.T) {
	t.Parallel()
	_, log := start(t, config(t))
	require.Eventually(t, func() bool {
		return strings.Contains(log.String(), `level=WARN msg="transport process" message="a line of the plugin"`)
	}, patience, time.Millisecond)
	require.Contains(t, log.String(), "answer=42")
	require.Contains(t, log.String(), "text=ção")
	require.NotContains(t, log.String(), "below the level")
	require.Contains(t, log.String(), `level=WARN msg="transport process" message="no JSON: ?"`)
	require.Contains(t, log.String(), `level=INFO msg="transport process" message="" @message=1`, "and no panic")
	require.NotContains(t, log.String(), "configuring client automatic mTLS", "go-plugin's own chatter is for debugging")
}

func TestCountsWhatHappened(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	h, err := plugin.New(config(t), clock.System(), slog.New(slog.DiscardHandler), reg)
	require.NoError(t, err)
	_, err = plugin.New(config(t), clock.System(), slog.New(slog.DiscardHandler), reg)
	require.Error(t, err, "two hosts need two registries or labels")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	await(t, h)
	_, err = pull(t.Context(), h, 1, "g", "")
	require.NoError(t, err)
	_, err = pull(t.Context(), h, 1, "g", "throttled")
	require.Error(t, err)
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(`
		# HELP cabine_transport_process_up 1 while a transport process can be called.
		# TYPE cabine_transport_process_up gauge
		cabine_transport_process_up 1
	`), "cabine_transport_process_up"))
	n, err := testutil.GatherAndCount(reg, "cabine_transport_call_seconds")
	require.NoError(t, err)
	require.Equal(t, 2, n, "pull ok, pull throttled")
	cancel()
	require.NoError(t, <-done)
	n, err = testutil.GatherAndCount(reg, "cabine_transport_process_ends_total")
	require.NoError(t, err)
	require.Equal(t, 1, n)
}

func TestAConfigurationSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	err := plugin.HostConfig{Path: "relative", SHA256: "x", MinBackoff: time.Hour, PingInterval: 1}.WithDefaults().Validate()
	for _, want := range []string{"absolute path", "64 hexadecimal", "MaxBackoff", "PingInterval"} {
		require.ErrorContains(t, err, want)
	}
}

func TestRunsOnlyTheExecutableThatWasMeant(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	file, err := os.Open(cfg.Path)
	require.NoError(t, err)
	sum := sha256.New()
	_, err = io.Copy(sum, file)
	require.NoError(t, err)
	require.NoError(t, file.Close())
	cfg.SHA256 = hex.EncodeToString(sum.Sum(nil))
	h, _ := start(t, cfg)
	pid(t, h)

	cfg.SHA256 = strings.Repeat("0", 64)
	refused(t, cfg, "checksums did not match")
}

// refused requires that no process comes to be and that the log says why.
func refused(t *testing.T, cfg plugin.HostConfig, why string) {
	t.Helper()
	log := &logged{}
	h, err := plugin.New(cfg, clock.System(), slog.New(slog.NewTextHandler(log, nil)), prometheus.NewRegistry())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	require.Eventually(t, func() bool { return strings.Contains(log.String(), why) }, patience, time.Millisecond)
	_, err = h.Capabilities(t.Context())
	require.ErrorIs(t, err, transport.NotSent)
	cancel()
	require.NoError(t, <-done)
}

func TestAnExecutableThatIsNoPlugin(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Path, cfg.Env = "/bin/true", nil
	refused(t, cfg, "did not start")
	cfg.Path = "/does/not/exist"
	refused(t, cfg, "no such file")
	cfg = config(t)
	cfg.Env = []string{roleEnv + "=" + roleMute}
	cfg.StartTimeout = 500 * time.Millisecond
	refused(t, cfg, "did not start")
}
