package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/bus"
	"github.com/cabine-pix/cabine/libs/devstack"
	"github.com/cabine-pix/cabine/libs/devstack/devtest"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
)

const (
	us         = pix.ISPB("12345678")
	leadership = "settlement:12345678"
	// long bounds every wait of these tests: far above what is expected, because machines are slow.
	long = 90 * time.Second
	// ttl is the lease of these tests.
	ttl = 4 * time.Second
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// world is real servers and books in which payments settle.
type world struct {
	t           *testing.T
	dsn         string
	database    string
	nats        *devstack.NATS
	redis       *devstack.Redis
	bus         *bus.Bus
	db          *store.DB
	payments    *store.Payments
	obligations *store.Obligations
	cycles      *store.Cycles
	creations   *devstack.Requests
	first       []store.Cycle // two cycles that are over, opened by the test

	mu      sync.Mutex
	settled []string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dsn: devtest.Postgres(t), nats: devtest.OwnNATS(t), redis: devtest.OwnRedis(t, devstack.RedisOptions{})}
	require.NoError(t, store.Migrate(t.Context(), w.dsn))
	w.database, _, _ = strings.Cut(w.dsn[strings.LastIndex(w.dsn, "/")+1:], "?")
	var err error
	w.db, err = store.Open(t.Context(), store.Config{URL: w.dsn, Application: "test"})
	require.NoError(t, err)
	t.Cleanup(w.db.Close)
	w.payments, w.cycles = store.NewPayments(w.db), store.NewCycles(w.db)
	w.obligations, err = store.NewObligations(w.db, nil)
	require.NoError(t, err)
	w.bus, err = bus.Connect(t.Context(), bus.Config{URL: w.nats.URL()}, quiet())
	require.NoError(t, err)
	t.Cleanup(func() {
		last, done := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Second)
		defer done()
		_ = w.bus.Close(last)
	})
	w.provision()
	w.creations, err = w.nats.ConsumerCreations()
	require.NoError(t, err)
	t.Cleanup(w.creations.Close)

	term, err := store.NewTerms(w.db).Mint(t.Context(), leadership, "test")
	require.NoError(t, err)
	day := w.now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -1)
	w.first, err = w.cycles.Open(t.Context(), store.Reign{Name: leadership, Term: term}, []store.Window{
		{Date: day, Type: "a", OpensAt: day, ClosesAt: day.Add(time.Hour)}, {Date: day, Type: "b", ClosesAt: day.Add(2 * time.Hour)},
	})
	require.NoError(t, err)
	return w
}

func (w *world) provision() {
	w.t.Helper()
	w.eventually("the bus to be provisioned", func() bool {
		_, err := w.bus.Provision(w.t.Context(), bus.Declared(1), true)
		return err == nil
	})
}

func (w *world) eventually(what string, done func() bool) {
	w.t.Helper()
	require.Eventually(w.t, done, long, 5*time.Millisecond, what)
}

// now is the database's.
func (w *world) now() time.Time {
	w.t.Helper()
	_, now, _, err := w.cycles.Unclosed(context.WithoutCancel(w.t.Context()))
	require.NoError(w.t, err)
	return now
}

// settle adds payments that settled at an instant.
func (w *world) settle(n int, at time.Time) []string {
	w.t.Helper()
	ids, err := w.add(w.t.Context(), n, at)
	require.NoError(w.t, err)
	return ids
}

func (w *world) add(ctx context.Context, n int, at time.Time) (ids []string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	err = w.db.InTx(ctx, func(ctx context.Context, tx *store.Tx) error {
		var moves []store.Move
		for i := range n {
			id := fmt.Sprintf("E12345678202612010000%011d", len(w.settled)+i)
			if _, err := w.payments.Insert(ctx, tx, store.Payment{
				ID: id, Kind: pix.Payment, Direction: pix.In, State: pix.Accepted, Amount: 100, Channel: pix.CPM, Counterparty: "87654321",
				Document: json.RawMessage("{}"), AcceptedAt: at,
			}, "test"); err != nil {
				return err
			}
			ids = append(ids, id)
			moves = append(moves, store.Move{ID: id, To: pix.Settled, Who: "spi", SettledAt: at})
		}
		_, err := w.payments.Move(ctx, tx, moves)
		return err
	})
	if err != nil {
		return nil, err
	}
	w.settled = append(w.settled, ids...)
	return ids, nil
}

// handover bounds a leadership that is given back and taken: half a second, and what the steps of it wait for a processor
// on a machine that has none free, taken from the slowest of some round trips to the database.
func (w *world) handover() time.Duration {
	w.t.Helper()
	var slowest time.Duration
	for range 10 {
		began := time.Now()
		w.now()
		slowest = max(slowest, time.Since(began))
	}
	return 500*time.Millisecond + 10*slowest
}

// written waits until nothing is due.
func (w *world) written() {
	w.t.Helper()
	w.eventually("all obligations to be written", func() bool {
		b, err := w.obligations.Backlog(w.t.Context())
		return err == nil && b.Due == 0
	})
}

func (w *world) closed(id int64) store.Cycle {
	w.t.Helper()
	var c store.Cycle
	w.eventually("the cycle to be closed", func() (is bool) {
		var err error
		c, err = w.cycles.Get(w.t.Context(), id)
		return err == nil && c.State == store.CycleClosed
	})
	return c
}

// sound requires that every payment has its obligation in one cycle, and every closed cycle the lines that these give.
func (w *world) sound() {
	w.t.Helper()
	due, lost, err := w.obligations.Missing(w.t.Context())
	require.NoError(w.t, err)
	require.Equal(w.t, []int64{0, 0}, []int64{due, lost})
	now := w.now()
	cycles, err := w.cycles.Between(w.t.Context(), now.AddDate(0, 0, -10), now.AddDate(0, 0, 10))
	require.NoError(w.t, err)
	for _, c := range cycles {
		if c.State == store.CycleClosed {
			require.NoError(w.t, w.cycles.Check(w.t.Context(), c.ID))
		}
	}
}

// environ is the configuration of a replica.
func (w *world) environ(name, redis string, settings map[string]string) []string {
	w.t.Helper()
	host, port, err := net.SplitHostPort(redis)
	require.NoError(w.t, err)
	all := map[string]string{
		"CABINE_REPLICA": name, "CABINE_ICOM_ISPB": string(us), "CABINE_POSTGRES_URL": w.dsn, "CABINE_NATS_URL": w.nats.URL(),
		"REDIS_HOST": host, "REDIS_PORT": port, "CABINE_ADMIN_LISTEN": "127.0.0.1:0", "CABINE_REDIS_TIMEOUT": "600ms",
		"CABINE_LEASE_TTL": ttl.String(), "CABINE_LEASE_LONGEST_TTL": ttl.String(), "CABINE_LEASE_BANK_HOLD": "1500ms",
		"CABINE_LEASE_HEARTBEAT": "300ms", "CABINE_LEASE_RENEW_TIMEOUT": "600ms", "CABINE_LEASE_RECEIVE_TIMEOUT": "1s",
		"CABINE_LEASE_USER_TIMEOUT": "200ms", "CABINE_LEASE_NO_REPLICAS": "true",
		"CABINE_OBLIGATIONS_ANNOUNCE_EVERY": "100ms", "CABINE_OBLIGATIONS_ANNOUNCE_AGAIN": "3s",
		"CABINE_CYCLES_EVERY": "100ms", "CABINE_CYCLES_GRACE": "1ms", "CABINE_CYCLES_PATIENCE": "30s",
	}
	maps.Copy(all, settings)
	var environ []string
	for k, v := range all {
		environ = append(environ, k+"="+v)
	}
	return environ
}

// process is a replica that can be killed and paused.
type process struct {
	w    *world
	name string
	cmd  *exec.Cmd
	done chan struct{}

	mu    sync.Mutex
	lines []map[string]any
}

func (w *world) start(name string, settings map[string]string) *process {
	w.t.Helper()
	p := &process{w: w, name: name, done: make(chan struct{})}
	p.cmd = exec.Command(os.Args[0])
	p.cmd.Env = append(w.environ(name, w.redis.Addr(), settings), childVariable+"=1", "PATH="+os.Getenv("PATH"), "TMPDIR="+os.Getenv("TMPDIR"))
	stderr, err := p.cmd.StderrPipe()
	require.NoError(w.t, err)
	require.NoError(w.t, p.cmd.Start())
	go p.read(stderr)
	w.t.Cleanup(func() {
		p.kill()
		if w.t.Failed() {
			w.t.Logf("log of %s:\n%s", name, p.text())
		}
	})
	return p
}

func (p *process) read(stderr io.Reader) {
	defer close(p.done)
	in := bufio.NewScanner(stderr)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var line map[string]any
		if json.Unmarshal(in.Bytes(), &line) != nil {
			line = map[string]any{"msg": in.Text()}
		}
		p.mu.Lock()
		p.lines = append(p.lines, line)
		p.mu.Unlock()
	}
	_ = p.cmd.Wait() // the code is read from ProcessState
}

func (p *process) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var b bytes.Buffer
	for _, line := range p.lines {
		raw, _ := json.Marshal(line)
		b.Write(raw)
		b.WriteByte('\n')
	}
	return b.String()
}

// said counts the lines with a message.
func (p *process) said(msg string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, line := range p.lines {
		if line["msg"] == msg {
			n++
		}
	}
	return n
}

func (p *process) signal(s syscall.Signal) {
	p.w.t.Helper()
	require.NoError(p.w.t, p.cmd.Process.Signal(s))
}

func (p *process) wait() int {
	p.w.t.Helper()
	select {
	case <-p.done:
	case <-time.After(long):
		p.w.t.Fatalf("%s does not end", p.name)
	}
	return p.cmd.ProcessState.ExitCode()
}

func (p *process) kill() {
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
}

// leader waits until one of the processes said more often that it leads than it did before, and returns it.
func (w *world) leader(processes []*process, led map[string]int) *process {
	w.t.Helper()
	var found *process
	w.eventually("a leader", func() bool {
		for _, p := range processes {
			if n := p.said("leading"); n > led[p.name] {
				led[p.name] = n
				found = p
				return true
			}
		}
		return false
	})
	return found
}
