package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/bus"
	"github.com/cabine-pix/cabine/libs/devstack"
	"github.com/cabine-pix/cabine/libs/devstack/devtest"
	"github.com/cabine-pix/cabine/libs/icom/icomtest"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
)

const ispb = pix.ISPB("12345678")

// long bounds every wait of these tests: far above what is expected, because machines are slow.
const long = 60 * time.Second

// world is real servers, the bank, and replicas as processes.
type world struct {
	t        *testing.T
	bank     *icomtest.Bank
	redis    *devstack.Redis
	nats     *devstack.NATS
	postgres *devstack.Proxy // replicas reach Postgres through it
	redisWay *devstack.Proxy
	dsn      string // for the test itself
	inbox    *store.Inbox
	files    icomtest.Files
	topology bus.Topology
	// anySubject makes the transport present a certificate of another participant.
	anySubject bool
}

func newWorld(t *testing.T, cfg icomtest.Config) *world {
	t.Helper()
	if cfg.Hold == 0 {
		cfg.Hold = time.Second
	}
	w := &world{t: t, bank: icomtest.Start(t, cfg), topology: bus.Declared(1)}
	var err error
	w.files, err = w.bank.PKI().WriteClient(t.TempDir(), ispb)
	require.NoError(t, err)

	w.dsn = devtest.Postgres(t)
	require.NoError(t, store.Migrate(t.Context(), w.dsn))
	db, err := store.Open(t.Context(), store.Config{URL: w.dsn, Application: "test"})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	w.inbox = store.NewInbox(db)
	w.postgres = devtest.Proxy(t, devtest.PostgresServer(t).Addr())

	w.redis = devtest.OwnRedis(t, devstack.RedisOptions{AppendOnly: true})
	w.redisWay = devtest.Proxy(t, w.redis.Addr())
	w.nats = devtest.OwnNATS(t)
	w.provision()
	return w
}

func (w *world) provision() {
	w.t.Helper()
	b, err := bus.Connect(w.t.Context(), bus.Config{URL: w.nats.URL()}, quiet())
	require.NoError(w.t, err)
	w.eventually("the bus to be provisioned", func() bool {
		_, err = b.Provision(w.t.Context(), w.topology, true)
		return err == nil
	})
	require.NoError(w.t, b.Close(w.t.Context()))
}

// eventually waits for what must become true.
func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	require.Eventually(w.t, ok, long, 5*time.Millisecond, "waiting for %s", what)
}

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
	r := &replica{w: w, name: name, done: make(chan struct{})}
	r.cmd = exec.Command(os.Args[0])
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

func (w *world) environ(name string, settings map[string]string) []string {
	_, redisPort, _ := net.SplitHostPort(w.redisWay.Addr())
	dsn, err := url.Parse(w.dsn)
	require.NoError(w.t, err)
	dsn.Host = w.postgres.Addr()
	all := map[string]string{
		childVariable:    "1",
		"PATH":           os.Getenv("PATH"),
		"TMPDIR":         os.Getenv("TMPDIR"),
		"CABINE_REPLICA": name, "LOG_LEVEL": os.Getenv("TEST_LOG_LEVEL"),
		"CABINE_ICOM_ISPB":  string(ispb),
		"CABINE_REDIS_HOST": "127.0.0.1", "CABINE_REDIS_PORT": redisPort,
		"CABINE_POSTGRES_URL":     dsn.String(),
		"CABINE_NATS_URL":         w.nats.URL(),
		"CABINE_ADMIN_LISTEN":     "127.0.0.1:0",
		"CABINE_TRANSPORT_PLUGIN": os.Getenv(pluginVariable),
		"CABINE_ICOM_CSM_ENABLED": "false",
		// A short lease, so that a new Redis is out of its quarantine soon: 3s hold of the bank, 1s of ours.
		"CABINE_LEASE_NO_REPLICAS": "true", "CABINE_LEASE_TTL": "6s", "CABINE_LEASE_LONGEST_TTL": "6s",
		"CABINE_LEASE_BANK_HOLD": "3s", "CABINE_LEASE_RECEIVE_TIMEOUT": "2500ms", "CABINE_LEASE_USER_TIMEOUT": "500ms",
		"CABINE_LEASE_HEARTBEAT": "500ms", "CABINE_LEASE_RENEW_TIMEOUT": "500ms", "CABINE_REDIS_TIMEOUT": "500ms",
	}
	maps.Copy(all, settings)
	var env []string
	for k, v := range all {
		if v != "" {
			env = append(env, k+"="+v)
		}
	}
	return append(env, "CABINE_CONFIG="+w.configFile())
}

// configFile holds what does not fit into variables: the transport's own configuration.
func (w *world) configFile() string {
	w.t.Helper()
	channels := map[string]any{}
	for _, name := range pix.Channels() {
		channels[string(name)] = map[string]any{"url": w.bank.URL(name), "server_name": "localhost"}
	}
	doc, err := json.Marshal(map[string]any{
		"channels":     channels,
		"participants": map[string]any{string(ispb): map[string]any{"cert": w.files.Cert, "key": w.files.Key}},
		"ca":           w.files.CA,
		"any_subject":  w.anySubject,
		"user_timeout": "500ms", // as in environ
	})
	require.NoError(w.t, err)
	dir := w.t.TempDir()
	require.NoError(w.t, os.WriteFile(filepath.Join(dir, "bacen.json"), doc, 0o600))
	path := filepath.Join(dir, "icom-poller.yaml")
	text := fmt.Sprintf("transport:\n  env:\n    CABINE_BACEN: %s\n", filepath.Join(dir, "bacen.json"))
	require.NoError(w.t, os.WriteFile(path, []byte(text), 0o600))
	return path
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

// number returns a number of the first line with a message.
func (r *replica) number(msg, attr string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, line := range r.lines {
		if n, ok := line[attr].(float64); ok && line["msg"] == msg {
			return int(n)
		}
	}
	r.w.t.Fatalf("%s logged no %s of %q", r.name, attr, msg)
	return 0
}

// at returns the time of the first line with a message and slot.
func (r *replica) at(msg string, slot int) time.Time {
	if all := r.times(msg, slot); len(all) > 0 {
		return all[0]
	}
	return time.Time{}
}

// lastBefore returns the time of the last line with a message and slot before a moment.
func (r *replica) lastBefore(moment time.Time, msg string, slot int) (last time.Time) {
	for _, t := range r.times(msg, slot) {
		if t.Before(moment) {
			last = t
		}
	}
	return last
}

// times returns the times of all lines with a message and slot, in order.
func (r *replica) times(msg string, slot int) (all []time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, line := range r.lines {
		if line["msg"] == msg && fmt.Sprint(line["slot"]) == fmt.Sprint(slot) {
			when, _ := line["time"].(string)
			if at, ok := line["at"].(string); ok {
				when = at
			}
			t, _ := time.Parse(time.RFC3339Nano, when)
			all = append(all, t)
		}
	}
	return all
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
