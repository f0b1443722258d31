package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/cabine-pix/cabine/libs/icom"
	"github.com/cabine-pix/cabine/libs/icom/icomtest"
	"github.com/cabine-pix/cabine/libs/pix"
)

const participant = pix.ISPB("12345678")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestProcess builds the command, talks to it as a client would and stops it with SIGTERM.
func TestProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	binary := filepath.Join(dir, "bacen-sim")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".").CombinedOutput()
	require.NoError(t, err, string(out))

	cmd := exec.CommandContext(t.Context(), binary,
		"--pki-dir", filepath.Join(dir, "pki"), "--ispb", string(participant), "--rate", "500", "--hold", "50ms")
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewReader(stdout)
	first, err := lines.ReadBytes('\n')
	require.NoError(t, err)
	var at ready
	require.NoError(t, json.Unmarshal(first, &at))
	require.NotZero(t, at.Seed)
	require.Equal(t, cmd.Process.Pid, at.PID)

	transport := &http.Transport{TLSClientConfig: clientConfig(t, at.Clients[participant])}
	defer transport.CloseIdleConnections()
	for _, addr := range []string{at.CPM, at.CSM} {
		url := "https://" + addr + icom.PathStreamStart(participant)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		require.NoError(t, err)
		req.Host = "localhost"
		req.Header.Set("Accept", icom.TypeXML)
		resp, err := transport.RoundTrip(req)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.Contains(t, string(body), "<Envelope")
	}

	report := fetchReport(t, at.Control)
	require.Equal(t, at.Seed, report.Seed)
	require.EqualValues(t, 1, report.Participant(pix.CPM, participant).Delivered)
	require.Zero(t, report.Violations())

	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	rest, err := io.ReadAll(lines)
	require.NoError(t, err)
	require.Empty(t, rest, "one line and no more")
	require.NoError(t, cmd.Wait())
}

func clientConfig(t *testing.T, files icomtest.Files) *tls.Config {
	t.Helper()
	cert, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	require.NoError(t, err)
	ca, err := os.ReadFile(files.CA)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(ca))
	return &tls.Config{
		Certificates: []tls.Certificate{cert}, RootCAs: pool, ServerName: "localhost", MinVersion: tls.VersionTLS12,
	}
}

func fetchReport(t *testing.T, control string) icomtest.Report {
	t.Helper()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+control+"/report", nil)
	require.NoError(t, err)
	resp, err := transport.RoundTrip(req)
	require.NoError(t, err)
	var report icomtest.Report
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&report))
	require.NoError(t, resp.Body.Close())
	return report
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	pki := filepath.Join(t.TempDir(), "pki")
	for _, tt := range []struct {
		name string
		args []string
		code int
	}{
		{"help", []string{"--help"}, exitClean},
		{"no directory", nil, exitWrongUse},
		{"unknown flag", []string{"--pki-dir", pki, "--port", "1"}, exitWrongUse},
		{"argument", []string{"--pki-dir", pki, "x"}, exitWrongUse},
		{"ispb", []string{"--pki-dir", pki, "--ispb", "1"}, exitWrongUse},
		{"rate for nobody", []string{"--pki-dir", pki, "--rate", "1"}, exitWrongUse},
		{"count by", []string{"--pki-dir", pki, "--count-by", "bytes"}, exitWrongUse},
		{"participant", []string{"--pki-dir", pki, "--participant", "12345678"}, exitWrongUse},
		{"balance", []string{"--pki-dir", pki, "--participant", "12345678=1"}, exitWrongUse},
		{"flag of a participant", []string{"--pki-dir", pki, "--participant", "12345678=1.00,rich"}, exitWrongUse},
		{"participants", []string{"--pki-dir", pki, "--participants", "nowhere.json"}, exitWrongUse},
		{"two that complain", []string{"--pki-dir", pki, "--participant", "12345678=1.00", "--validate"}, exitWrongUse},
		{"address", []string{"--pki-dir", pki, "--listen-csm", "nowhere:99999"}, exitFailure},
		{"address of the files", []string{"--pki-dir", pki, "--participant", "12345678=1.00", "--listen-files", "nowhere:99999"}, exitFailure},
		{"no room for files", []string{"--pki-dir", pki, "--participant", "12345678=1.00", "--max-files", "-1"}, exitFailure},
		{"stopped", []string{"--pki-dir", pki}, exitClean},
	} {
		var stdout, stderr bytes.Buffer
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		code := run(ctx, tt.args, &stdout, &stderr)
		cancel()
		require.Equal(t, tt.code, code, "%s: %s", tt.name, stderr.String())
		require.Equal(t, tt.code == exitClean, stderr.Len() == 0, tt.name)
		require.Equal(t, tt.code == exitClean, stdout.Len() > 0, tt.name)
	}
}
