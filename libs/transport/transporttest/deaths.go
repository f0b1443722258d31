package transporttest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/transport"
	"github.com/cabine-pix/cabine/libs/transport/plugin"
)

// envHost makes the test binary a host: it holds the plugin's HostConfig as JSON.
const envHost = "CABINE_TRANSPORTTEST_HOST"

// Main is the TestMain of a package that calls Run.
func Main(m *testing.M) {
	if cfg := os.Getenv(envHost); cfg != "" {
		if err := host(cfg); err != nil {
			panic(err)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// host runs a plugin, prints its pid and waits to be killed.
func host(text string) error {
	var cfg plugin.HostConfig
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		return err
	}
	h, err := plugin.New(cfg, clock.System(), slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		return err
	}
	go func() {
		if h.Await(context.Background()) == nil {
			fmt.Println(h.PID())
		}
	}()
	return h.Run(context.Background())
}

// runDeaths has the cases that need real processes.
func runDeaths(t *testing.T, s Subject) {
	for name, run := range map[string]func(*testing.T, bench){
		"killed during a request":                          killedDuringARequest,
		"killed between requests":                          killedBetweenRequests,
		"stopped across the deadline and continued":        stoppedAcrossTheDeadline,
		"stopped across the deadline on a kept connection": stoppedOnAKeptConnection,
		"stopped for longer than the call and continued":   stoppedForLongerThanTheCall,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			patient := s
			patient.Process = func(t *testing.T) (plugin.HostConfig, Bank) {
				cfg, bank := s.Process(t)
				cfg.SilenceLimit = time.Minute
				return cfg, bank
			}
			run(t, patient.process(t))
		})
	}
	t.Run("gone with its host", func(t *testing.T) {
		t.Parallel()
		goneWithItsHost(t, s)
	})
}

func killedDuringARequest(t *testing.T, b bench) {
	p := b.permit(1, "g", 5*time.Second)
	failed := b.underWay(t.Context(), t, p, 20*time.Second)
	before := clock.System().Now().Boot
	require.NoError(t, unix.Kill(b.host.PID(), unix.SIGKILL))
	err := <-failed
	require.Less(t, clock.System().Now().Boot.Sub(before), time.Second)
	require.ErrorIs(t, err, transport.PluginGone)
	at, running := transport.LastFirstByte(err, p.NotAfter)
	require.True(t, running)
	require.GreaterOrEqual(t, at, before)
	require.LessOrEqual(t, at, clock.System().Now().Boot)
	require.Eventually(t, func() bool { return b.bank.Connections() == 0 }, patience, time.Millisecond)
}

func killedBetweenRequests(t *testing.T, b bench) {
	b.served(t, b.permit(1, "g", 5*time.Second))
	first := b.host.PID()
	require.NoError(t, unix.Kill(first, unix.SIGKILL))
	require.Eventually(t, func() bool { p := b.host.PID(); return p != 0 && p != first }, patience, time.Millisecond)
	_, err := b.attempt(t.Context(), b.permit(1, "g", 5*time.Second), time.Second)
	require.ErrorIs(t, err, transport.PluginGone)
	require.NotZero(t, asError(t, err).LastWrite)
	require.Equal(t, 1, b.bank.Requests())
	b.served(t, b.permit(1, "next", 5*time.Second))
	b.served(t, b.permit(2, "g", 5*time.Second))
}

// stoppedAcrossTheDeadline: the call outlives the stop, so that only the transport's
// own look at the clock can keep it from writing.
func stoppedAcrossTheDeadline(t *testing.T, b bench) {
	pid := b.host.PID()
	stop(t, pid)
	p := b.permit(1, "g", 300*time.Millisecond)
	failed := make(chan error, 1)
	go func() {
		_, err := b.attempt(t.Context(), p, 20*time.Second)
		failed <- err
	}()
	waitUntil(t, p.NotAfter)
	require.NoError(t, unix.Kill(pid, unix.SIGCONT))
	err := <-failed
	require.ErrorIs(t, err, transport.NotSent)
	require.Zero(t, b.bank.Requests(), "not one byte")
	b.served(t, b.permit(1, "g", 5*time.Second))
}

func stoppedOnAKeptConnection(t *testing.T, b bench) {
	b.served(t, b.permit(1, "g", 5*time.Second))
	b.bank.Enqueue(message())
	pid := b.host.PID()
	stop(t, pid)
	p := b.permit(1, "g", 300*time.Millisecond)
	failed := make(chan error, 1)
	go func() {
		_, err := b.attempt(t.Context(), p, 20*time.Second)
		failed <- err
	}()
	waitUntil(t, p.NotAfter)
	require.NoError(t, unix.Kill(pid, unix.SIGCONT))
	require.ErrorIs(t, <-failed, transport.NotSent)
	require.Equal(t, 1, b.bank.Requests(), "not one byte")
}

func stoppedForLongerThanTheCall(t *testing.T, b bench) {
	pid := b.host.PID()
	stop(t, pid)
	p := b.permit(1, "g", 200*time.Millisecond)
	_, err := b.attempt(t.Context(), p, 200*time.Millisecond)
	require.ErrorIs(t, err, transport.PluginGone)
	at, running := transport.LastFirstByte(err, p.NotAfter)
	require.True(t, running)
	require.Equal(t, p.NotAfter.Boot, at, "nobody knows: the start deadline is the bound")
	waitUntil(t, p.NotAfter)
	require.NoError(t, unix.Kill(pid, unix.SIGCONT))
	b.served(t, b.permit(2, "g", 5*time.Second))
	require.Equal(t, 1, b.bank.Requests(), "not one byte of the first call")
}

func goneWithItsHost(t *testing.T, s Subject) {
	cfg, bank := s.Process(t)
	text, err := json.Marshal(cfg)
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	h := exec.CommandContext(context.Background(), self)
	h.Env = []string{envHost + "=" + string(text), "TMPDIR=" + t.TempDir()}
	out, err := h.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, h.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	require.NoError(t, err)
	require.NotContains(t, []string{"", "Z"}, state(fmt.Sprintf("/proc/%d/stat", pid)))

	require.NoError(t, h.Process.Kill())
	require.Error(t, h.Wait())
	require.Eventually(t, func() bool {
		// One that init does not reap holds no socket any more.
		s := state(fmt.Sprintf("/proc/%d/stat", pid))
		return s == "" || s == "Z"
	}, time.Second, time.Millisecond)
	require.Zero(t, bank.Requests())
}

// waitUntil returns when the deadline has passed on both clocks.
func waitUntil(t *testing.T, d clock.Deadline) {
	t.Helper()
	require.Eventually(t, func() bool { return d.Passed(clock.System().Now()) }, patience, time.Millisecond)
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
