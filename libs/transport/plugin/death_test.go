package plugin_test

import (
	"bufio"
	"context"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/transport"
	"github.com/cabine-pix/cabine/libs/transport/plugin"
)

func TestTheDeathOfAProcessBurnsItsGrants(t *testing.T) {
	t.Parallel()
	h, log := start(t, config(t))
	first := pid(t, h)
	_, err := pull(t.Context(), h, 1, "g", "")
	require.NoError(t, err)
	flight := inFlight(t, t.Context(), h, 2, "hang")

	before := now()
	require.NoError(t, unix.Kill(first, unix.SIGKILL))
	err = <-flight
	require.Less(t, now().Sub(before), time.Second, "noticed at once")
	require.ErrorIs(t, err, transport.PluginGone)
	reaped := asError(t, err).LastWrite
	require.GreaterOrEqual(t, reaped, before)
	require.LessOrEqual(t, reaped, now())

	for range 2 { // once while none runs, perhaps, and once with the next
		_, err = pull(t.Context(), h, 1, "g", "")
		require.Equal(t, reaped, asError(t, err).LastWrite, "an idle slot of the dead process")
		_, err = pull(t.Context(), h, 2, "g", "")
		require.ErrorIs(t, err, transport.PluginGone)
		await(t, h)
	}
	require.NotEqual(t, first, pid(t, h))
	require.ErrorIs(t, h.Disconnect(t.Context(), permit(2, "g", 0).Slot), transport.PluginGone)
	require.NoError(t, h.Disconnect(t.Context(), permit(2, "g", 0).Slot), "said once")
	for slot := 1; slot <= 3; slot++ {
		_, err = pull(t.Context(), h, slot, "next grant", "")
		require.NoError(t, err)
	}
	require.Contains(t, log.String(), "cause=exit")
}

func TestWithoutAProcessASlotThatNeverUsedOneIsNotSent(t *testing.T) {
	t.Parallel()
	h, err := plugin.New(config(t), clock.System(), slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	require.NoError(t, err)
	_, err = pull(t.Context(), h, 1, "g", "")
	require.ErrorIs(t, err, transport.NotSent)
	_, err = h.Capabilities(t.Context())
	require.ErrorIs(t, err, transport.NotSent)
	require.NoError(t, h.Disconnect(t.Context(), permit(1, "g", 0).Slot))
}

func TestExitAndPanicInTheMiddleOfACall(t *testing.T) {
	t.Parallel()
	for _, cursor := range []string{"exit", "panic"} {
		t.Run(cursor, func(t *testing.T) {
			t.Parallel()
			h, _ := start(t, config(t))
			_, err := pull(t.Context(), h, 1, "g", cursor)
			require.ErrorIs(t, err, transport.PluginGone)
			require.NotZero(t, asError(t, err).LastWrite)
			await(t, h)
		})
	}
}

func TestAStoppedProcessBoundsNothingUntilItIsReplaced(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.SilenceLimit = 3 * time.Second
	h, log := start(t, cfg)
	first := pid(t, h)
	stop(t, first)

	p := permit(1, "g", 300*time.Millisecond)
	_, err := h.Pull(t.Context(), transport.PullRequest{Permit: p, Timeout: 300 * time.Millisecond})
	require.ErrorIs(t, err, transport.PluginGone)
	require.Zero(t, asError(t, err).LastWrite)
	at, ok := transport.LastFirstByte(err, p.NotAfter)
	require.True(t, ok)
	require.Equal(t, p.NotAfter.Boot, at)

	require.Eventually(t, exited(first), patience, 10*time.Millisecond, "killed, although stopped")
	await(t, h)
	_, err = pull(t.Context(), h, 1, "g", "")
	require.NotZero(t, asError(t, err).LastWrite, "now there is a bound")
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "cause=silent") }, patience, time.Millisecond)
}

func TestStopsWithItsContext(t *testing.T) {
	t.Parallel()
	h, err := plugin.New(config(t), clock.System(), slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	await(t, h)
	n := pid(t, h)
	cancel()
	require.NoError(t, <-done)
	require.True(t, exited(n)(), "Run returns after the process has gone")
	_, err = pull(t.Context(), h, 1, "g", "")
	require.ErrorIs(t, err, transport.NotSent)
}

func TestDiesWithItsHost(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	host := exec.Command(self)
	host.Env = []string{roleEnv + "=" + roleHost, "TMPDIR=" + t.TempDir()}
	out, err := host.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, host.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	n, err := strconv.Atoi(strings.TrimSpace(line))
	require.NoError(t, err)
	require.False(t, exited(n)())

	require.NoError(t, host.Process.Kill())
	died := time.Now()
	require.Error(t, host.Wait())
	require.Eventually(t, exited(n), time.Second, time.Millisecond)
	t.Logf("gone after %v", time.Since(died))
}

// TestLeavesWhenItsParentIsAnother starts a plugin whose host is already another
// process, as after a death that the kernel's signal missed.
func TestLeavesWhenItsParentIsAnother(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	orphan := exec.Command(self)
	orphan.Env = []string{
		roleEnv + "=" + rolePlugin, "CABINE_TRANSPORT_HOST_PID=1",
		"CABINE_TRANSPORT_PLUGIN=7d1f0b1e5f0c4e0f9c56b7a2b1f4c8d3", "PLUGIN_PROTOCOL_VERSIONS=1",
	}
	began := time.Now()
	require.Error(t, orphan.Run())
	require.Equal(t, 3, orphan.ProcessState.ExitCode())
	require.Less(t, time.Since(began), 5*time.Second)
}
