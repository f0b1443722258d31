package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
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
	"github.com/cabine-pix/cabine/libs/clock"
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
	ttl = 3300 * time.Millisecond
	// takeover is within what the next one leads after the leader was killed, handover after it gave up in order.
	takeover = ttl + time.Second
	handover = 500 * time.Millisecond
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// world is real servers and books in which payments settle.
type world struct {
	t           *testing.T
	postgres    *devstack.Postgres
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

	mu   sync.Mutex
	made int // payments
}

// newWorld is a world in which two cycles of yesterday are still open.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := newWorldOn(t, devtest.PostgresServer(t), devtest.Postgres(t))
	day := w.now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -1)
	var err error
	w.first, err = w.cycles.Open(t.Context(), w.mint(), []store.Window{
		{Date: day, Type: "a", OpensAt: day, ClosesAt: day.Add(time.Hour)}, {Date: day, Type: "b", ClosesAt: day.Add(2 * time.Hour)},
	})
	require.NoError(t, err)
	return w
}

// mint gives the test the newest term, which is the next leader's predecessor.
func (w *world) mint() store.Reign {
	w.t.Helper()
	term, err := store.NewTerms(w.db).Mint(w.t.Context(), leadership, "test")
	require.NoError(w.t, err)
	return store.Reign{Name: leadership, Term: term}
}

// newWorldOn is a world without cycles.
func newWorldOn(t *testing.T, postgres *devstack.Postgres, dsn string) *world {
	t.Helper()
	w := &world{t: t, postgres: postgres, dsn: dsn, nats: devtest.OwnNATS(t), redis: devtest.OwnRedis(t, devstack.RedisOptions{})}
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
		for range n {
			w.made++
			id := fmt.Sprintf("E12345678202612010000%011d", w.made)
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
	return ids, err
}

// settling adds payments that settle now, until the test or stop ends it, whatever becomes of the database meanwhile.
func (w *world) settling() (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	var settler sync.WaitGroup
	settler.Go(func() {
		for ctx.Err() == nil {
			if _, err := w.add(ctx, 5, time.Now()); err != nil && ctx.Err() == nil && !errors.Is(err, store.ErrUnavailable) {
				w.t.Error(err)
			}
			_ = clock.Sleep(ctx, clock.System(), 50*time.Millisecond)
		}
	})
	stop = func() { cancel(); settler.Wait() }
	w.t.Cleanup(stop)
	return stop
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

func (w *world) cycle(id int64) store.Cycle {
	w.t.Helper()
	c, err := w.cycles.Get(w.t.Context(), id)
	require.NoError(w.t, err)
	return c
}

func (w *world) lines(id int64, want ...store.Line) {
	w.t.Helper()
	lines, err := w.cycles.Lines(w.t.Context(), id)
	require.NoError(w.t, err)
	require.Equal(w.t, want, lines)
}

// netted counts the obligations of all closed cycles by their lines.
func (w *world) netted() (n int64) {
	w.t.Helper()
	w.eventually("cycles to be read", func() bool { // also from a database that was killed under us
		var err error
		n, err = w.count()
		return err == nil
	})
	return n
}

func (w *world) count() (n int64, err error) {
	_, now, _, err := w.cycles.Unclosed(w.t.Context())
	if err != nil {
		return 0, err
	}
	cycles, err := w.cycles.Between(w.t.Context(), now.AddDate(0, 0, -10), now.AddDate(0, 0, 10))
	if err != nil {
		return 0, err
	}
	for _, c := range cycles {
		if c.State != store.CycleClosed {
			continue
		}
		lines, err := w.cycles.Lines(w.t.Context(), c.ID)
		if err != nil {
			return 0, err
		}
		counted := n
		for _, l := range lines {
			n += l.CreditCount + l.DebitCount
		}
		if n-counted != c.Obligations {
			w.t.Errorf("cycle %d netted %d obligations and its lines %d", c.ID, c.Obligations, n-counted)
		}
	}
	return n, nil
}

// closes waits until more obligations are netted than are now, by more than so many.
func (w *world) closes(more int64) {
	w.t.Helper()
	before := w.netted()
	w.eventually("cycles to be closed", func() bool {
		n, err := w.count()
		return err == nil && n > before+more
	})
}

// lock keeps everybody else from writing tables until unlock is called, or until the server or the test ends.
func (w *world) lock(tables ...string) (unlock func()) {
	w.t.Helper()
	ctx := context.WithoutCancel(w.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		// An error is how it ends.
		_ = w.postgres.Exec(ctx, w.database, "BEGIN; LOCK TABLE "+strings.Join(tables, ", ")+" IN EXCLUSIVE MODE; SELECT pg_sleep(120); COMMIT")
	}()
	w.ask("the tables to be locked", "granted AND mode = 'ExclusiveLock'", tables)
	unlock = func() {
		_ = w.postgres.Exec(ctx, w.database, // a server that was killed has no locks
			"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(120)%' AND datname = current_database() AND pid <> pg_backend_pid()")
		<-ended
	}
	w.t.Cleanup(unlock)
	return unlock
}

// waits waits until somebody waits for each of the tables that are locked.
func (w *world) waits(tables ...string) {
	w.t.Helper()
	w.ask("somebody to wait for "+strings.Join(tables, " and "), "NOT granted", tables)
}

// ask waits until there is a lock of some kind on each of the tables.
func (w *world) ask(what, kind string, tables []string) {
	w.t.Helper()
	sql := fmt.Sprintf(`DO $$ BEGIN IF (SELECT count(DISTINCT relation) FROM pg_locks WHERE %s AND relation IN ('%s'::regclass)) < %d
		THEN RAISE EXCEPTION 'not yet'; END IF; END $$`, kind, strings.Join(tables, "'::regclass, '"), len(tables))
	w.eventually(what, func() bool { return w.postgres.Exec(w.t.Context(), w.database, sql) == nil })
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
		"CABINE_LEASE_TTL": ttl.String(), "CABINE_LEASE_LONGEST_TTL": ttl.String(), "CABINE_LEASE_BANK_HOLD": "800ms",
		"CABINE_LEASE_HEARTBEAT": "300ms", "CABINE_LEASE_RENEW_TIMEOUT": "600ms", "CABINE_LEASE_RECEIVE_TIMEOUT": "600ms",
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
