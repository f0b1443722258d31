package e2e_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// demoLimit bounds one demonstration, its compilation included.
const demoLimit = 4 * time.Minute

// report is the shape that a reader of the demo's report relies on.
type report struct {
	Replicas int `json:"replicas"`
	Channels map[string]struct {
		Cap          *int `json:"cap"`
		PeakRequests *int `json:"peak_requests"`
		PeakStreams  *int `json:"peak_streams"`
		Violations   *int `json:"violations"`
	} `json:"channels"`
	Inbound struct {
		SentByBank *int `json:"sent_by_bank"`
		Stored     *int `json:"stored"`
		Published  *int `json:"published"`
		Lost       *int `json:"lost"`
		Duplicated *int `json:"duplicated"`
	} `json:"inbound"`
	Faults []struct {
		At   time.Time `json:"at"`
		Kind string    `json:"kind"`
	} `json:"faults"`
	Takeover struct {
		Graceful *int64 `json:"graceful"`
		Killed   *int64 `json:"killed"`
	} `json:"takeover_ms"`
	LeaseMS  int64             `json:"lease_ms"`
	Versions map[string]string `json:"versions"`
}

// demo runs the demonstration as make does and returns its exit code and report.
func demo(t *testing.T, flags ...string) (int, report) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), demoLimit)
	defer cancel()
	file := filepath.Join(t.TempDir(), "report.json")
	cmd := exec.CommandContext(ctx, "go", append([]string{"run", "./tools/demo", "-plain", "-duration", "20s", "-report", file}, flags...)...)
	cmd.Dir = root
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	out, _ := cmd.CombinedOutput() // the code is read from ProcessState
	t.Logf("%s", out)
	var r report
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &r))
	return cmd.ProcessState.ExitCode(), r
}

// Goal: the demonstration shows what it promises, and its report has every promised field.
//
// Method: run it as make does and read the report.
func TestDemoKeepsTheLaws(t *testing.T) {
	t.Parallel()
	code, r := demo(t)
	require.Zero(t, code)
	require.Equal(t, 3, r.Replicas)
	require.Len(t, r.Channels, 2)
	for _, name := range []string{"cpm", "csm"} {
		c := r.Channels[name]
		for _, field := range []*int{c.Cap, c.PeakRequests, c.PeakStreams, c.Violations} {
			require.NotNil(t, field, name)
		}
		require.Equal(t, slots, *c.Cap)
		require.Positive(t, *c.PeakRequests)
		require.LessOrEqual(t, *c.PeakRequests, slots)
		require.Positive(t, *c.PeakStreams)
		require.Zero(t, *c.Violations)
	}
	in := r.Inbound
	for _, field := range []*int{in.SentByBank, in.Stored, in.Published, in.Lost, in.Duplicated} {
		require.NotNil(t, field)
	}
	require.Positive(t, *in.SentByBank)
	require.Equal(t, *in.SentByBank, *in.Stored)
	require.Equal(t, *in.SentByBank, *in.Published)
	require.Zero(t, *in.Lost)
	require.Zero(t, *in.Duplicated)
	require.Len(t, r.Faults, 2)
	require.Equal(t, []string{"SIGKILL", "SIGTERM"}, []string{r.Faults[0].Kind, r.Faults[1].Kind})
	require.True(t, r.Faults[0].At.Before(r.Faults[1].At))
	require.Positive(t, r.LeaseMS)
	require.NotNil(t, r.Takeover.Graceful)
	require.NotNil(t, r.Takeover.Killed)
	require.LessOrEqual(t, *r.Takeover.Killed, r.LeaseMS+1000)
	for _, name := range []string{"go", "redis", "postgres", "nats"} {
		require.NotEmpty(t, r.Versions[name])
	}
}

// Goal: the demonstration can fail.
//
// Method: its hidden flag takes the cap's check out of Redis.
func TestDemoWithoutTheCapFails(t *testing.T) {
	t.Parallel()
	code, r := demo(t, "-without-cap")
	require.Equal(t, 1, code)
	cpm, csm := r.Channels["cpm"], r.Channels["csm"]
	require.Positive(t, *cpm.Violations+*csm.Violations)
	require.Greater(t, max(*cpm.PeakRequests, *csm.PeakRequests), slots)
}
