package e2e_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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
	Outbound struct {
		Orders       *int `json:"orders"`
		Settled      *int `json:"settled"`
		Rejected     *int `json:"rejected"`
		UnknownOpen  *int `json:"unknown_open"`
		DoubleBooked *int `json:"double_booked"`
	} `json:"outbound"`
	Books struct {
		Ours       *int64 `json:"ours"`
		Bank       *int64 `json:"bank"`
		Difference *int64 `json:"difference"`
	} `json:"books"`
	Leader struct {
		Changes  *int `json:"changes"`
		Overlaps *int `json:"overlaps"`
	} `json:"leader"`
	JetStream struct {
		Timeouts *int `json:"timeouts"`
		Creates  *int `json:"consumer_creates_by_services"`
	} `json:"jetstream"`
	Cycles struct {
		Closed      *int `json:"closed"`
		NettedTwice *int `json:"netted_twice"`
	} `json:"cycles"`
	Reconciliation struct {
		MissingHere  *int `json:"missing_here"`
		MissingThere *int `json:"missing_there"`
		Differing    *int `json:"differing"`
	} `json:"reconciliation"`
	LatencyMS struct {
		Payer    percentiles `json:"payer"`
		Receiver percentiles `json:"receiver"`
	} `json:"latency_ms"`
	Faults []struct {
		At      time.Time `json:"at"`
		Kind    string    `json:"kind"`
		Replica string    `json:"replica"`
	} `json:"faults"`
	Takeover struct {
		Graceful *int64 `json:"graceful"`
		Killed   *int64 `json:"killed"`
	} `json:"takeover_ms"`
	LeaseMS  int64             `json:"lease_ms"`
	Versions map[string]string `json:"versions"`
}

// percentiles are in milliseconds.
type percentiles struct {
	P50 *float64 `json:"p50"`
	P95 *float64 `json:"p95"`
	P99 *float64 `json:"p99"`
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
// Method: run it as make does and read the report. Alone: it keeps the machine busy, and its takeovers have limits.
func TestDemoKeepsTheLaws(t *testing.T) { //nolint:paralleltest // see above
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
	done := make(map[string]bool)
	for i, f := range r.Faults {
		service, _, _ := strings.Cut(f.Replica, "-")
		done[f.Kind+" "+service] = true
		require.True(t, i == 0 || r.Faults[i-1].At.Before(f.At))
	}
	for _, service := range []string{"poller", "sender", "payments", "scheduler"} {
		require.True(t, done["SIGKILL "+service] && done["SIGTERM "+service], service)
	}
	requirePaid(t, r)
	requireSettled(t, r)
	require.Positive(t, r.LeaseMS)
	require.NotNil(t, r.Takeover.Graceful)
	require.NotNil(t, r.Takeover.Killed)
	require.LessOrEqual(t, *r.Takeover.Killed, r.LeaseMS+1000)
	for _, name := range []string{"go", "redis", "postgres", "nats"} {
		require.NotEmpty(t, r.Versions[name])
	}
}

// requirePaid checks the report of payments: all fields, and that the books agree.
func requirePaid(t *testing.T, r report) {
	t.Helper()
	out := r.Outbound
	for _, field := range []*int{out.Orders, out.Settled, out.Rejected, out.UnknownOpen, out.DoubleBooked} {
		require.NotNil(t, field)
	}
	require.Positive(t, *out.Settled)
	require.Equal(t, *out.Orders, *out.Settled+*out.Rejected)
	require.Zero(t, *out.UnknownOpen)
	require.Zero(t, *out.DoubleBooked)
	for _, field := range []*int64{r.Books.Ours, r.Books.Bank, r.Books.Difference} {
		require.NotNil(t, field)
	}
	require.Positive(t, *r.Books.Ours)
	require.Equal(t, *r.Books.Bank, *r.Books.Ours)
	require.Zero(t, *r.Books.Difference)
	for _, p := range []percentiles{r.LatencyMS.Payer, r.LatencyMS.Receiver} {
		for _, field := range []*float64{p.P50, p.P95, p.P99} {
			require.NotNil(t, field)
			require.Positive(t, *field)
		}
	}
}

// requireSettled checks the report of settlement: all fields, and that nothing is broken.
func requireSettled(t *testing.T, r report) {
	t.Helper()
	l, j, c, b := r.Leader, r.JetStream, r.Cycles, r.Reconciliation
	for _, field := range []*int{l.Changes, c.Closed} {
		require.NotNil(t, field)
		require.Positive(t, *field)
	}
	for _, field := range []*int{l.Overlaps, j.Timeouts, j.Creates, c.NettedTwice, b.MissingHere, b.MissingThere, b.Differing} {
		require.NotNil(t, field)
		require.Zero(t, *field)
	}
}

// Goal: the demonstration can fail, by each of its laws.
//
// Method: its hidden flags break them. Beside nothing else of this package, as above.
func TestDemoFails(t *testing.T) { //nolint:paralleltest // see above
	t.Run("settlement", demoThatIsBroken)
	t.Run("cap", demoWithoutTheCap)
}

// One flag takes the bus away for a moment, creates a consumer, adds a payment to a line of a closed cycle, and has the
// bank's account lose, change and invent entries.
func demoThatIsBroken(t *testing.T) {
	t.Parallel()
	code, r := demo(t, "-break", "jetstream,consumers,netting,entries", "-duration", "15s")
	require.Equal(t, 1, code)
	require.Positive(t, *r.JetStream.Timeouts)
	require.Positive(t, *r.JetStream.Creates)
	require.Positive(t, *r.Cycles.NettedTwice)
	require.Positive(t, *r.Reconciliation.MissingHere)
	require.Positive(t, *r.Reconciliation.MissingThere)
	require.Positive(t, *r.Reconciliation.Differing)
}

// The other takes the cap's check out of Redis, which grants a leadership to several replicas, too.
func demoWithoutTheCap(t *testing.T) {
	t.Parallel()
	code, r := demo(t, "-without-cap")
	require.Equal(t, 1, code)
	cpm, csm := r.Channels["cpm"], r.Channels["csm"]
	require.Positive(t, *cpm.Violations+*csm.Violations)
	require.Greater(t, max(*cpm.PeakRequests, *csm.PeakRequests), slots)
	require.Positive(t, *r.Leader.Overlaps)
	require.Zero(t, *r.Cycles.NettedTwice, "terms keep what a lease does not")
}
