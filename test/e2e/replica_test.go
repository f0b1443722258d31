package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/icom/icomtest"
)

// settings of one replica over those of its world.
type settings struct {
	env   map[string]string
	files *icomtest.Files
}

// replica is one process of the icom-poller.
type replica struct {
	w    *world
	name string
	cmd  *exec.Cmd
	done chan struct{}

	mu    sync.Mutex
	lines []line
}

// line is one line of a replica's log.
type line struct {
	at    time.Time
	attrs map[string]any
}

func (l line) text(attr string) string { return fmt.Sprint(l.attrs[attr]) }

func (l line) slot() int {
	n, _ := l.attrs["slot"].(float64)
	return int(n)
}

// start runs a replica.
func (w *world) start(name string, o settings) *replica {
	w.t.Helper()
	r := &replica{w: w, name: name, done: make(chan struct{})}
	r.cmd = exec.Command(w.program, "--config", w.configFile(name, o))
	env := map[string]string{"PATH": os.Getenv("PATH"), "TMPDIR": os.TempDir(), "LOG_LEVEL": os.Getenv("TEST_LOG_LEVEL")}
	maps.Copy(env, o.env)
	for k, v := range env {
		if v != "" {
			r.cmd.Env = append(r.cmd.Env, k+"="+v)
		}
	}
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stderr, err := r.cmd.StderrPipe()
	require.NoError(w.t, err)
	started := make(chan error, 1)
	go func() {
		// The signal of the parent's death comes when the thread that forked dies, so it stays for the child's life.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := r.cmd.Start()
		started <- err
		if err == nil {
			r.read(stderr)
		}
	}()
	require.NoError(w.t, <-started)
	w.t.Cleanup(func() {
		r.signal(syscall.SIGCONT)
		r.signal(syscall.SIGKILL)
		<-r.done
		if w.t.Failed() {
			w.t.Logf("log of %s:\n%s", name, r.text())
		}
	})
	return r
}

// markLives is how long a replica that waits for its share is heard in Redis.
const markLives = 2 * time.Second

// three starts three replicas and waits until each polls its share.
func (w *world) three() (a, b, c *replica) {
	w.t.Helper()
	a, b, c = w.start("a", settings{}), w.start("b", settings{}), w.start("c", settings{})
	w.settled(2, a, b, c)
	return a, b, c
}

// settled waits until each replica polls n slots and none is about to give one up to another.
func (w *world) settled(n int, replicas ...*replica) {
	w.t.Helper()
	w.eventually("the replicas to share the slots", func() bool {
		since := time.Now().Add(-markLives - w.timing.Heartbeat)
		return !slices.ContainsFunc(replicas, func(r *replica) bool {
			return len(r.held()) != n || len(r.logs(since, "slot given")) > 0
		})
	})
}

func (r *replica) read(stderr io.Reader) {
	defer close(r.done)
	in := bufio.NewScanner(stderr)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		l := line{at: time.Now()}
		if json.Unmarshal(in.Bytes(), &l.attrs) != nil {
			l.attrs = map[string]any{"msg": in.Text()}
		}
		for _, attr := range []string{"time", "at"} { // "at" is the moment itself, "time" that of the line
			if text, ok := l.attrs[attr].(string); ok {
				if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
					l.at = at
				}
			}
		}
		r.mu.Lock()
		r.lines = append(r.lines, l)
		r.mu.Unlock()
	}
	_ = r.cmd.Wait() // the code is read from ProcessState
}

// logs returns the lines with a message from an instant on; attrs are names and values that they must have.
func (r *replica) logs(since time.Time, msg string, attrs ...any) []line {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []line
	for _, l := range r.lines {
		match := l.attrs["msg"] == msg && !l.at.Before(since)
		for i := 0; i < len(attrs); i += 2 {
			match = match && l.text(attrs[i].(string)) == fmt.Sprint(attrs[i+1])
		}
		if match {
			out = append(out, l)
		}
	}
	return out
}

// logged waits for a line and returns the first.
func (r *replica) logged(since time.Time, msg string, attrs ...any) line {
	r.w.t.Helper()
	r.w.eventually(fmt.Sprintf("%s to log %q %v", r.name, msg, attrs), func() bool { return len(r.logs(since, msg, attrs...)) > 0 })
	return r.logs(since, msg, attrs...)[0]
}

func (r *replica) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	for _, l := range r.lines {
		raw, _ := json.Marshal(l.attrs)
		fmt.Fprintf(&b, "%s\n", raw)
	}
	return b.String()
}

// held returns the slots that the replica polls, by its log: a first poll and no end since.
func (r *replica) held() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	polls := map[int]bool{}
	for _, l := range r.lines {
		switch l.attrs["msg"] {
		case "first poll":
			polls[l.slot()] = true
		case "slot given":
			delete(polls, l.slot())
		}
	}
	return slices.Sorted(maps.Keys(polls))
}

// get asks the admin server.
func (r *replica) get(path string) (int, string) {
	r.w.t.Helper()
	addr := r.logged(time.Time{}, "admin server listens").text("address")
	ctx, cancel := context.WithTimeout(r.w.t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, nil)
	require.NoError(r.w.t, err)
	req.Close = true
	res, err := (&http.Transport{}).RoundTrip(req)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = res.Body.Close() }() // read below
	body, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(body)
}

// plugin returns the process of the transport that was started last.
func (r *replica) plugin() int {
	r.w.t.Helper()
	r.logged(time.Time{}, "transport process started")
	all := r.logs(time.Time{}, "transport process started")
	pid, _ := all[len(all)-1].attrs["pid"].(float64)
	require.NotZero(r.w.t, pid)
	return int(pid)
}

// signal reaches the host alone.
func (r *replica) signal(s syscall.Signal) { _ = r.cmd.Process.Signal(s) } // it may have ended

// stop sends SIGTERM and returns the exit code.
func (r *replica) stop() int {
	r.w.t.Helper()
	r.signal(syscall.SIGTERM)
	select {
	case <-r.done:
	case <-time.After(long):
		r.w.t.Fatalf("%s does not end", r.name)
	}
	return r.cmd.ProcessState.ExitCode()
}

// gone reports whether a process has ended; one that nobody reaps holds no socket any more.
func gone(pid int) bool {
	state := stateOf(fmt.Sprintf("/proc/%d/stat", pid))
	return state == "" || state == "Z"
}

// stateOf returns the letter of a process or thread, empty when there is none.
func stateOf(path string) string {
	stat, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return rest[:min(1, len(rest))]
}

// freeze stops processes and returns when their last threads stand still.
func (w *world) freeze(pids ...int) {
	w.t.Helper()
	for _, pid := range pids {
		require.NoError(w.t, syscall.Kill(pid, syscall.SIGSTOP))
	}
	w.eventually("the processes to stand still", func() bool {
		for _, pid := range pids {
			threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
			if err != nil || slices.ContainsFunc(threads, func(p string) bool { return stateOf(p) != "T" }) {
				return false
			}
		}
		return true
	})
}
