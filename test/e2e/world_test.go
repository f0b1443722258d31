package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/bus"
	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/devstack"
	"github.com/cabine-pix/cabine/libs/devstack/devtest"
	"github.com/cabine-pix/cabine/libs/icom/icomtest"
	"github.com/cabine-pix/cabine/libs/lease"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
)

const (
	ispb = pix.ISPB("12345678")
	// slots is N: all six poll, since nothing sends here.
	slots = 6
	// long bounds every wait: far above what is expected, because machines are slow.
	long = 90 * time.Second
	// bankCounts is the longest time for which the bank of these tests counts a request: its hold and its delay.
	bankCounts = 2 * time.Second
	bankHold   = time.Second
)

// timing is the shortest lease that the guard allows for B = bankCounts + u.
func timing() lease.Timing {
	return lease.Timing{
		TTL: 5 * time.Second, LongestTTL: 5 * time.Second, BankHold: bankCounts + 500*time.Millisecond,
		ReceiveTimeout: 2300 * time.Millisecond, UserTimeout: 500 * time.Millisecond,
		Heartbeat: 500 * time.Millisecond, RenewTimeout: 500 * time.Millisecond, NoReplicas: true,
	}
}

// world is real servers, the bank, and replicas as processes.
type world struct {
	t       *testing.T
	bank    *icomtest.Bank
	redis   *devstack.Redis
	way     *devstack.Proxy // replicas reach Redis through it
	nats    *devstack.NATS
	dsn     string
	inbox   *store.Inbox
	files   icomtest.Files
	timing  lease.Timing
	program string
	core    *core
	feed    func() // ends the traffic
}

// options of a world; the zero value is what most tests want.
type options struct {
	bank     icomtest.Config
	redis    devstack.RedisOptions
	timing   lease.Timing
	program  string
	postgres *devstack.Postgres // a server of its own
}

func newWorld(t *testing.T, o options) *world {
	t.Helper()
	if o.timing == (lease.Timing{}) {
		o.timing = timing()
	}
	if o.program == "" {
		o.program = program(poller)
	}
	o.bank.Hold, o.bank.Cap, o.bank.Limit = bankHold, slots, slots
	o.bank.RedeliverAfter, o.bank.Timeline, o.bank.Seed = 3*time.Second, 1<<16, devtest.Rand(t).Uint64()
	w := &world{t: t, bank: icomtest.Start(t, o.bank), timing: o.timing, program: o.program, feed: func() {}}
	var err error
	w.files, err = w.bank.PKI().WriteClient(t.TempDir(), ispb)
	require.NoError(t, err)
	if o.postgres != nil {
		require.NoError(t, o.postgres.CreateDatabase(t.Context(), "cabine"))
		w.dsn = o.postgres.DSN("cabine")
	} else {
		w.dsn = devtest.Postgres(t)
	}
	o.redis.AppendOnly = true
	w.redis = devtest.OwnRedis(t, o.redis)
	w.way = devtest.Proxy(t, w.redis.Addr())
	w.nats = devtest.OwnNATS(t)
	w.migrate()
	db, err := store.Open(t.Context(), store.Config{URL: w.dsn, Application: "test"})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	w.inbox = store.NewInbox(db)
	return w
}

// migrate is the deploy step.
func (w *world) migrate() {
	w.t.Helper()
	w.eventually("the deploy step", func() bool {
		cmd := exec.CommandContext(w.t.Context(), program("migrate"), "up")
		cmd.Env = []string{"DATABASE_URL=" + w.dsn, "NATS_URL=" + w.nats.URL()}
		out, err := cmd.CombinedOutput()
		if err != nil {
			w.t.Logf("migrate: %v: %s", err, out)
		}
		return err == nil
	})
}

// busy makes the bank take its longest time for about a third of the requests, whether there are messages or not.
func (w *world) busy() {
	w.t.Helper()
	require.NoError(w.t, w.bank.SetFaults(pix.CPM, icomtest.Fault{Rate: 0.35, Delay: bankCounts - bankHold}))
}

// traffic feeds the bank at a rate per second until calm.
func (w *world) traffic(rate float64) {
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- w.bank.Feed(ctx, pix.CPM, ispb, 0, rate) }()
	w.feed = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("feeding the bank: %v", err)
		}
	})
	w.t.Cleanup(w.feed)
}

// eventually waits for what must become true.
func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	require.Eventually(w.t, ok, long, 10*time.Millisecond, "waiting for %s", what)
}

// until waits for an instant.
func (w *world) until(at time.Time) {
	w.t.Helper()
	require.NoError(w.t, clock.Sleep(w.t.Context(), clock.System(), time.Until(at)))
}

func (w *world) count() icomtest.Participant { return w.bank.Report().Participant(pix.CPM, ispb) }

// booksAgree ends the traffic and waits until the bank has nothing left; then every
// message that it ever had was delivered to the consumers, and closed exactly once.
func (w *world) booksAgree() {
	w.t.Helper()
	w.feed()
	require.NoError(w.t, w.bank.SetFaults(pix.CPM))
	w.eventually("the bank and the consumers to have nothing left", func() bool {
		p := w.count()
		open, err := w.inbox.Backlog(w.t.Context())
		return err == nil && p.Acked == p.Enqueued && open.Received+open.Published == 0
	})
	c, err := w.inbox.Counts(w.t.Context())
	require.NoError(w.t, err)
	p := w.count()
	require.NotZero(w.t, p.Enqueued)
	require.EqualValues(w.t, p.Enqueued, c.Done, "everything is stored and done")
	require.Zero(w.t, c.Dead, "nothing is buried")
	sent := w.bank.IDs(pix.CPM, ispb).Enqueued
	// A consumer notes what it saw after the row was closed.
	w.eventually("the consumers to have noted what they closed", func() bool {
		return len(w.core.distinct()) >= len(sent) && w.core.effects() >= len(sent)
	})
	require.ElementsMatch(w.t, sent, w.core.distinct(), "the consumers saw every message")
	require.Equal(w.t, len(sent), w.core.effects(), "and each had its effect once")
	require.LessOrEqual(w.t, p.PeakRequests, slots)
	w.t.Logf("bank: %d requests, peak %d, %d messages, %d redelivered", p.RequestsTotal, p.PeakRequests, p.Enqueued, p.Redelivered)
}

// door is where one replica reaches the bank, so that the bank's timeline says who asked.
type door struct {
	net.Listener
	name string
}

// namedConn tells the bank whose it is.
type namedConn struct {
	net.Conn
	remote net.Addr
}

type namedAddr string

func (a namedAddr) Network() string { return "tcp" }
func (a namedAddr) String() string  { return string(a) }

func (c namedConn) RemoteAddr() net.Addr { return c.remote }

func (d door) Accept() (net.Conn, error) {
	c, err := d.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return namedConn{c, namedAddr(d.name + " " + c.RemoteAddr().String())}, nil
}

// openDoor serves the bank on one more port, until the test ends.
func (w *world) openDoor(name string) (addr string) {
	w.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	done := make(chan error, 1)
	go func() { done <- w.bank.Serve(ctx, pix.CPM, door{ln, name}) }()
	w.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("bank's door for %s: %v", name, err)
		}
	})
	return ln.Addr().String()
}

// asked returns the bank's timeline of what one replica asked for, from an instant on.
func (w *world) asked(r *replica, since time.Time) []icomtest.Request {
	return slices.DeleteFunc(w.bank.Requests(pix.CPM, ispb), func(q icomtest.Request) bool {
		return !strings.HasPrefix(q.Remote, r.name+" ") || q.FirstByte.Before(since)
	})
}

// askedBetween is asked with an end.
func (w *world) askedBetween(r *replica, from, to time.Time) []icomtest.Request {
	return slices.DeleteFunc(w.asked(r, from), func(q icomtest.Request) bool { return !q.FirstByte.Before(to) })
}

// keyOf returns what Redis holds for a slot, empty when nothing.
func (w *world) keyOf(slot int) string {
	v, err := w.redis.Do(w.t.Context(), "GET", fmt.Sprintf("sem:icom:{cpm:%s}:%d", ispb, slot))
	require.NoError(w.t, err)
	s, _ := v.(string)
	return s
}

// core stands in for the core banking: it takes messages off the bus and closes them in the inbox.
type core struct {
	mu     sync.Mutex
	seen   []string
	closed int
}

func (c *core) all() []string { c.mu.Lock(); defer c.mu.Unlock(); return slices.Clone(c.seen) }

// effects is how many rows were closed; a second delivery closes none.
func (c *core) effects() int { c.mu.Lock(); defer c.mu.Unlock(); return c.closed }

// distinct returns the ids in the order of their first delivery.
func (c *core) distinct() []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(c.all(), func(id string) bool {
		was := seen[id]
		seen[id] = true
		return was
	})
}

// consume runs the core until the test ends.
func (w *world) consume() {
	w.t.Helper()
	c := &core{}
	w.core = c
	b, err := bus.Connect(w.t.Context(), bus.Config{URL: w.nats.URL()}, slog.New(slog.DiscardHandler))
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		cfg := bus.ConsumeConfig{Durable: bus.ConsumerPayments, Concurrency: 1, Prefetch: 64}
		for ctx.Err() == nil { // a wiped server has no consumer until the deploy step made it again
			_ = b.ConsumeInbound(ctx, cfg, func(ctx context.Context, m bus.Inbound) error {
				n, err := w.inbox.MarkDone(ctx, []string{m.MessageID}, m.Source)
				if err != nil {
					return err
				}
				c.mu.Lock()
				defer c.mu.Unlock()
				c.seen = append(c.seen, m.MessageID)
				c.closed += int(n)
				return nil
			})
			_ = clock.Sleep(ctx, clock.System(), 50*time.Millisecond)
		}
	}()
	w.t.Cleanup(func() {
		cancel()
		<-ended
		ctx, cancel := context.WithTimeout(context.WithoutCancel(w.t.Context()), 5*time.Second)
		defer cancel()
		_ = b.Close(ctx)
	})
}

// configFile writes what a replica is told. JSON is YAML.
func (w *world) configFile(name string, o settings) string {
	w.t.Helper()
	dir := w.t.TempDir()
	write := func(name string, v any) string {
		b, err := json.Marshal(v)
		require.NoError(w.t, err)
		path := filepath.Join(dir, name)
		require.NoError(w.t, os.WriteFile(path, b, 0o600))
		return path
	}
	files := w.files
	if o.files != nil {
		files = *o.files
	}
	bacen := write("bacen.json", map[string]any{
		"channels":     map[string]any{"cpm": map[string]any{"url": "https://" + w.openDoor(name), "server_name": "localhost"}},
		"participants": map[string]any{string(ispb): map[string]any{"cert": files.Cert, "key": files.Key}},
		"ca":           w.files.CA, "user_timeout": w.timing.UserTimeout.String(),
	})
	t := w.timing
	_, port, err := net.SplitHostPort(w.way.Addr())
	require.NoError(w.t, err)
	return write("icom-poller.yaml", map[string]any{
		"replica": name, "admin": map[string]any{"listen": "127.0.0.1:0"},
		"icom": map[string]any{"ispb": ispb, "max_slots": slots, "csm": map[string]any{"enabled": false}},
		"lease": map[string]any{
			"ttl": t.TTL.String(), "longest_ttl": t.LongestTTL.String(), "bank_hold": t.BankHold.String(),
			"receive_timeout": t.ReceiveTimeout.String(), "user_timeout": t.UserTimeout.String(),
			"heartbeat": t.Heartbeat.String(), "renew_timeout": t.RenewTimeout.String(),
			"max_lag": t.MaxLag.String(), "no_replicas": t.NoReplicas,
		},
		"redis":     map[string]any{"host": "127.0.0.1", "port": json.Number(port), "timeout": "500ms"},
		"postgres":  map[string]any{"url": w.dsn},
		"nats":      map[string]any{"url": w.nats.URL()},
		"transport": map[string]any{"plugin": program("transport-bacen"), "env": map[string]any{"CABINE_BACEN": bacen}},
	})
}
