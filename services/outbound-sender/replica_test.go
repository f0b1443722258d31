package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/clock"
)

func systemClock() clock.Clock { return clock.System() }

// replica is one process of the service.
type replica struct {
	w    *world
	name string
	cmd  *exec.Cmd
	done chan struct{}

	mu    sync.Mutex
	lines []map[string]any
}

// start runs a replica with settings over the defaults of these tests.
func (w *world) start(name string, settings map[string]string) *replica {
	w.t.Helper()
	return w.run(os.Args[0], name, settings)
}

// run runs a program as a replica.
func (w *world) run(program, name string, settings map[string]string) *replica {
	w.t.Helper()
	r := &replica{w: w, name: name, done: make(chan struct{})}
	r.cmd = exec.Command(program)
	r.cmd.Env = w.environ(name, settings)
	stderr, err := r.cmd.StderrPipe()
	require.NoError(w.t, err)
	require.NoError(w.t, r.cmd.Start())
	go r.read(stderr)
	w.t.Cleanup(func() {
		r.kill()
		if w.t.Failed() {
			w.t.Logf("log of %s:\n%s", name, r.text())
		}
	})
	return r
}

func (r *replica) read(stderr io.Reader) {
	defer close(r.done)
	in := bufio.NewScanner(stderr)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var line map[string]any
		if json.Unmarshal(in.Bytes(), &line) != nil {
			line = map[string]any{"msg": in.Text()}
		}
		r.mu.Lock()
		r.lines = append(r.lines, line)
		r.mu.Unlock()
	}
	_ = r.cmd.Wait() // the code is read from ProcessState
}

func (r *replica) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b bytes.Buffer
	for _, line := range r.lines {
		raw, _ := json.Marshal(line)
		b.Write(raw)
		b.WriteByte('\n')
	}
	return b.String()
}

// count returns how many log lines have the message and all attributes, given as name, value.
func (r *replica) count(msg string, attrs ...any) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, line := range r.lines {
		match := line["msg"] == msg
		for i := 0; i < len(attrs); i += 2 {
			match = match && fmt.Sprint(line[attrs[i].(string)]) == fmt.Sprint(attrs[i+1])
		}
		if match {
			n++
		}
	}
	return n
}

// logged waits for n lines.
func (r *replica) logged(n int, msg string, attrs ...any) {
	r.w.t.Helper()
	r.w.eventually(fmt.Sprintf("%s to log %d x %q %v", r.name, n, msg, attrs), func() bool { return r.count(msg, attrs...) >= n })
}

// metric returns the value of a metric, given with its labels as Prometheus writes them; zero if it is not there.
func (r *replica) metric(name string) float64 {
	r.w.t.Helper()
	_, text := r.get("/metrics")
	found := regexp.MustCompile("(?m)^" + regexp.QuoteMeta(name) + " (.*)$").FindStringSubmatch(text)
	if found == nil {
		return 0
	}
	v, err := strconv.ParseFloat(found[1], 64)
	require.NoError(r.w.t, err)
	return v
}

// get asks the admin server.
func (r *replica) get(path string) (int, string) {
	r.w.t.Helper()
	r.logged(1, "admin server listens")
	r.mu.Lock()
	addr := ""
	for _, line := range r.lines {
		if line["msg"] == "admin server listens" {
			addr, _ = line["address"].(string)
		}
	}
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(r.w.t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, nil)
	require.NoError(r.w.t, err)
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close() //nolint:errcheck // read to its end
	body, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(body)
}

// stop sends SIGTERM and returns the exit code.
func (r *replica) stop() int {
	r.w.t.Helper()
	require.NoError(r.w.t, r.cmd.Process.Signal(syscall.SIGTERM))
	return r.wait()
}

func (r *replica) wait() int {
	r.w.t.Helper()
	select {
	case <-r.done:
	case <-time.After(long):
		r.w.t.Fatalf("%s does not end", r.name)
	}
	return r.cmd.ProcessState.ExitCode()
}

func (r *replica) kill() {
	_ = r.cmd.Process.Kill() // it may have ended
	<-r.done
}
