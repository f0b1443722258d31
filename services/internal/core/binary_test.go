package core_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// service is a running sample and what it said.
type service struct {
	t     *testing.T
	cmd   *exec.Cmd
	mu    sync.Mutex
	lines []string
	read  chan struct{}
}

func startSample(t *testing.T, environ ...string) *service {
	t.Helper()
	s := &service{t: t, cmd: exec.Command(sampleBinary), read: make(chan struct{})}
	s.cmd.Env = append([]string{"CABINE_ICOM_ISPB=00038166"}, environ...)
	stderr, err := s.cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, s.cmd.Start())
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		<-s.read
		_ = s.cmd.Wait()
	})
	go func() {
		defer close(s.read)
		for scan := bufio.NewScanner(stderr); scan.Scan(); {
			s.mu.Lock()
			s.lines = append(s.lines, scan.Text())
			s.mu.Unlock()
		}
	}()
	return s
}

func (s *service) log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.lines, "\n")
}

func (s *service) until(text string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return strings.Contains(s.log(), text) }, 20*time.Second, 5*time.Millisecond, "%s", text)
}

func (s *service) signal() {
	s.t.Helper()
	require.NoError(s.t, s.cmd.Process.Signal(syscall.SIGTERM))
}

func (s *service) exit() int {
	s.t.Helper()
	<-s.read
	_ = s.cmd.Wait() // the code is what is asked for
	return s.cmd.ProcessState.ExitCode()
}

// address finds the admin server in the log.
func (s *service) address() string {
	s.t.Helper()
	s.until("admin server listens")
	for line := range strings.SplitSeq(s.log(), "\n") {
		var rec struct{ Msg, Address string }
		if json.Unmarshal([]byte(line), &rec) == nil && rec.Address != "" {
			return rec.Address
		}
	}
	s.t.Fatal("no address in the log")
	return ""
}

func TestSignalDrains(t *testing.T) {
	t.Parallel()
	s := startSample(t)
	s.until(`"msg":"started"`)
	s.signal()
	require.Equal(t, 0, s.exit(), s.log())
	log := s.log()
	last := -1
	for _, want := range []string{
		"told to stop", `"phase":"take no more"`, `"phase":"let it end"`, `"in_time":true`, `"phase":"release"`,
		"work returned", `"phase":"end admin server"`, `"msg":"stopped"`,
	} {
		at := strings.Index(log, want)
		require.Greater(t, at, last, "%s in\n%s", want, log)
		last = at
	}
	require.Contains(t, log, `"service":"sample","version":"1.2.3"`)
}

func TestSecondSignalAbortsAndStillReleases(t *testing.T) {
	t.Parallel()
	s := startSample(t, "CABINE_MODE=busy", "CABINE_WAIT=30s")
	s.until(`"msg":"started"`)
	began := time.Now()
	s.signal()
	s.until(`"phase":"take no more"`)
	s.signal()
	require.Equal(t, 0, s.exit(), s.log())
	require.Less(t, time.Since(began), 10*time.Second)
	require.Contains(t, s.log(), "told to stop again, aborting")
	require.Contains(t, s.log(), `"msg":"released","service":"sample"`)
	require.Contains(t, s.log(), `"in_time":true`)
}

func TestHungPhaseIsLeftBehindAndFails(t *testing.T) {
	t.Parallel()
	s := startSample(t, "CABINE_MODE=hang", "CABINE_WAIT=100ms")
	s.until(`"msg":"started"`)
	s.signal()
	require.Equal(t, 1, s.exit(), s.log())
	require.Contains(t, s.log(), "left behind")
	require.Contains(t, s.log(), `"msg":"released"`)
}

// A log that nobody reads stops everything that wants to say something, the drain included.
func TestWatchdogEndsABlockedProcess(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	cmd := exec.Command(sampleBinary)
	cmd.Env = []string{"CABINE_ICOM_ISPB=00038166", "CABINE_MODE=flood", "CABINE_WAIT=100ms"}
	cmd.Stderr = w
	require.NoError(t, cmd.Start())
	require.NoError(t, w.Close())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = r.Close()
	})
	first := make([]byte, 1<<14) // it has begun to flood; nobody reads on
	_, err = r.Read(first)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		n, err := unread(r)
		return err == nil && n >= 40<<10 // a pipe holds 64 KiB, less what its pages waste
	}, 10*time.Second, 5*time.Millisecond)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	_ = cmd.Wait()
	require.Equal(t, 1, cmd.ProcessState.ExitCode())
}

func TestPartThatEndsAloneEndsTheProcess(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]string{"fail": "the work is broken", "end": "ended although nobody stopped it"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := startSample(t, "CABINE_MODE="+mode)
			require.Equal(t, 1, s.exit(), s.log())
			require.Contains(t, s.log(), want)
			require.Contains(t, s.log(), `"msg":"released"`, "the drain runs all the same")
		})
	}
}

func TestAdminServer(t *testing.T) {
	t.Parallel()
	s := startSample(t, "CABINE_MODE=busy", "CABINE_WAIT=30s")
	base := "http://" + s.address()
	s.until(`"msg":"started"`)
	get := func(path string) (int, string) {
		resp, err := http.Get(base + path)
		require.NoError(t, err)
		defer resp.Body.Close() //nolint:errcheck // read whole
		var b bytes.Buffer
		_, err = b.ReadFrom(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, b.String()
	}
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	for _, path := range []string{"/health", "/health/live", "/health/ready"} {
		code, body := get(path)
		require.Equal(t, 200, code, body)
		require.Contains(t, body, `"status":"ok"`)
	}
	code, body := get("/metrics")
	require.Equal(t, 200, code)
	require.Contains(t, body, `cabine_build_info{`)
	code, _ = get("/nothing")
	require.Equal(t, 404, code)

	s.signal()
	s.until(`"phase":"take no more"`)
	code, body = get("/health/ready")
	require.Equal(t, 503, code)
	require.Contains(t, body, "draining")
	code, _ = get("/health/live")
	require.Equal(t, 200, code)
	s.signal()
	require.Equal(t, 0, s.exit(), s.log())
}

func TestCommandLine(t *testing.T) {
	t.Parallel()
	bad := file(t, "bad.yaml", "icom: {ispb: \"00038166\", cpm: {limit: 7}}\nthrottle: {limit: 0}\n")
	good := file(t, "good.yaml", "icom: {ispb: \"00038166\"}\nredis: {password: s3cr3t}\n")
	for name, c := range map[string]struct {
		args    []string
		environ []string
		code    int
		stdout  []string
		stderr  []string
	}{
		"version":        {args: []string{"--version"}, stdout: []string{"sample 1.2.3"}},
		"help":           {args: []string{"--help"}, stdout: []string{"Uso: sample", "redis.host (REDIS_HOST, CABINE_REDIS_HOST; )", "Códigos de saída"}},
		"unknown flag":   {args: []string{"--what"}, code: 2, stderr: []string{"what"}},
		"argument":       {args: []string{"what"}, code: 2, stderr: []string{`unexpected argument "what"`}},
		"numbers named":  {args: []string{"--config", bad}, code: 2, stderr: []string{"icom.cpm.limit is 7, want 1 to 6", "throttle.limit is 0"}},
		"file from env":  {environ: []string{"CABINE_CONFIG=" + bad}, code: 2, stderr: []string{"icom.cpm.limit is 7"}},
		"no such file":   {args: []string{"--config", "/does/not/exist"}, code: 2, stderr: []string{"/does/not/exist"}},
		"print masks":    {args: []string{"--config", good, "--print-config"}, stdout: []string{"password: '********'", `ispb: "00038166"`}},
		"print, refused": {args: []string{"--config", bad, "--print-config"}, code: 2, stdout: []string{"limit: 7"}, stderr: []string{"icom.cpm.limit is 7"}},
		"stop limits": {
			args: []string{"--config", good}, environ: []string{"CABINE_WAIT=60s"}, code: 2,
			stderr: []string{"drain phases 1m8.1s + watchdog 5s = 1m13.1s, want less than the stop timeout 55s"},
		},
		"port taken": {args: []string{"--config", good}, environ: []string{"CABINE_ADMIN_LISTEN=256.0.0.1:1"}, code: 1, stderr: []string{"admin.listen"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(sampleBinary, c.args...)
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr, cmd.Env = &stdout, &stderr, append([]string{"X=y"}, c.environ...)
			_ = cmd.Run()
			require.Equal(t, c.code, cmd.ProcessState.ExitCode(), stderr.String())
			for _, want := range c.stdout {
				require.Contains(t, stdout.String(), want)
			}
			for _, want := range c.stderr {
				require.Contains(t, stderr.String(), want)
			}
			require.NotContains(t, stdout.String()+stderr.String(), "s3cr3t")
		})
	}
}
