package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/url"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/bus"
	"github.com/cabine-pix/cabine/libs/icom/icomtest"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/services/icom-poller/inbound"
	"github.com/cabine-pix/cabine/services/internal/core"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// consumer stands in for the consumers: it takes messages off the bus and marks them done.
type consumer struct {
	mu   sync.Mutex
	seen []string
}

func (c *consumer) all() []string { c.mu.Lock(); defer c.mu.Unlock(); return slices.Clone(c.seen) }

// distinct returns the ids in the order of their first delivery.
func (c *consumer) distinct() []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(c.all(), func(id string) bool {
		was := seen[id]
		seen[id] = true
		return was
	})
}

// consume runs a consumer until the test ends.
func (w *world) consume(done bool) *consumer {
	w.t.Helper()
	c := &consumer{}
	b, err := bus.Connect(w.t.Context(), bus.Config{URL: w.nats.URL()}, quiet())
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = b.ConsumeInbound(ctx, bus.ConsumeConfig{Durable: bus.ConsumerPayments, Concurrency: 1, Prefetch: 64}, func(ctx context.Context, m bus.Inbound) error {
			c.mu.Lock()
			c.seen = append(c.seen, m.MessageID)
			c.mu.Unlock()
			if !done {
				return nil
			}
			_, err := w.inbox.MarkDone(ctx, []string{m.MessageID}, m.Source)
			return err
		})
	}()
	w.t.Cleanup(func() {
		cancel()
		<-ended
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = b.Close(ctx)
	})
	return c
}

func (w *world) counts() store.Counts {
	w.t.Helper()
	c, err := w.inbox.Counts(w.t.Context())
	require.NoError(w.t, err)
	return c
}

func (w *world) enqueue(n int) []string {
	w.t.Helper()
	ids, err := w.bank.EnqueueExamples(pix.CPM, ispb, n)
	require.NoError(w.t, err)
	return ids
}

func TestTwoReplicasReceiveEverythingOnceAndHandOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, icomtest.Config{})
	core := w.consume(true)
	a := w.start("a", nil)
	a.logged(4, "first poll")
	b := w.start("b", nil)
	// Spread: the second replica gets its share from the first.
	b.logged(2, "first poll")
	sent := w.enqueue(60)
	w.eventually("all messages to be done", func() bool { return w.counts().Done == 60 })

	status, body := b.get("/slots")
	require.Equal(t, 200, status)
	var held []inbound.Held
	require.NoError(t, json.Unmarshal([]byte(body), &held))
	require.NotEmpty(t, held)
	status, body = a.get("/health/ready")
	require.Equal(t, 200, status, body)

	before := b.count("first poll")
	require.Zero(t, a.stop())
	given := a.count("slot given", "how", "released")
	require.Zero(t, a.count("slot given", "how", "cooled"))
	b.logged(before+2, "first poll")
	for slot := 1; slot <= 4; slot++ {
		// A replica that gives a slot back may take it again before the other does: the last time counts.
		to := b.at("first poll", slot)
		if from := a.lastBefore(to, "slot given", slot); !from.IsZero() {
			t.Logf("slot %d: given, next poll after %v", slot, to.Sub(from))
			require.Less(t, to.Sub(from), 500*time.Millisecond)
		}
	}
	require.GreaterOrEqual(t, given, 2)
	sent = append(sent, w.enqueue(20)...)
	w.eventually("the rest to be done", func() bool { return w.counts().Done == 80 })
	require.Zero(t, b.stop())

	got := core.distinct()
	slices.Sort(got)
	slices.Sort(sent)
	require.Equal(t, sent, got)
	p := w.bank.Report().Participant(pix.CPM, ispb)
	t.Logf("the bank counted: %+v", p)
	require.LessOrEqual(t, p.PeakRequests, 4)
	require.Zero(t, p.StreamsNow, "every stream was deleted")
	require.EqualValues(t, 80, p.Acked)
}

func TestPostgresAwayNothingIsAcknowledged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, icomtest.Config{RedeliverAfter: 3 * time.Second})
	core := w.consume(true)
	a := w.start("a", nil)
	a.logged(4, "first poll")
	w.enqueue(5)
	w.eventually("the first to be done", func() bool { return w.counts().Done == 5 })

	acked := w.bank.Report().Participant(pix.CPM, ispb).Acked
	w.postgres.Refuse()
	w.postgres.Cut()
	w.enqueue(30)
	a.logged(1, "store does not answer, no further poll")
	a.logged(1, "slot given", "why", "store away")
	require.LessOrEqual(t, w.bank.Report().Participant(pix.CPM, ispb).Acked, acked+5, "only what was stored before")
	status, _ := a.get("/health/ready")
	require.Equal(t, 503, status)

	w.postgres.Pass()
	w.eventually("all to be done", func() bool { return w.counts().Done == 35 })
	require.Zero(t, a.stop())
	require.Len(t, core.distinct(), 35)
	w.eventually("all to be acknowledged", func() bool { return w.bank.Report().Participant(pix.CPM, ispb).Acked == 35 })
}

func TestBusAwayInboxFillsAndIsPublishedInOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, icomtest.Config{})
	a := w.start("a", map[string]string{
		"CABINE_ICOM_CPM_LIMIT": "2", "CABINE_ICOM_CPM_MAX_SLOTS": "1", "CABINE_PUBLISH_QUEUE_ROWS": "20", // one stream, one order
	})
	a.logged(1, "first poll")
	require.NoError(t, w.nats.Stop())
	sent := w.enqueue(100)
	w.eventually("all to be stored", func() bool { return w.counts().Received == 100 })
	a.logged(1, "publishing fails, rows wait in the table")
	require.NoError(t, w.nats.Start(t.Context()))
	core := w.consume(true)
	w.eventually("all to be done", func() bool { return w.counts().Done == 100 })
	require.Equal(t, sent, core.distinct(), "in order of arrival")
	require.Zero(t, a.stop())
}

func TestBusThatLostItsStoreGetsEverythingAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, icomtest.Config{})
	a := w.start("a", map[string]string{"CABINE_PUBLISH_STUCK_AGE": "3s", "CABINE_PUBLISH_SWEEP_EVERY": "1s"})
	a.logged(4, "first poll")
	sent := w.enqueue(30)
	w.eventually("all to be published", func() bool { return w.counts().Published == 30 })
	require.NoError(t, w.nats.RestartEmpty(t.Context()))
	w.provision()
	core := w.consume(true)
	w.eventually("all to be done", func() bool { return w.counts().Done == 30 })
	got := core.distinct()
	slices.Sort(got)
	slices.Sort(sent)
	require.Equal(t, sent, got)
	require.NotZero(t, a.count("publishing again what nobody finished"))
	require.Zero(t, a.stop())
}

func TestRedisAwayNoRequestIsStarted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, icomtest.Config{})
	a := w.start("a", nil)
	a.logged(4, "first poll")
	w.redisWay.Refuse()
	w.redisWay.Cut()
	a.logged(4, "slot given", "how", "lost")
	total := w.bank.Report().Participant(pix.CPM, ispb).RequestsTotal
	w.enqueue(1)
	require.Never(t, func() bool { return w.bank.Report().Participant(pix.CPM, ispb).RequestsTotal != total },
		3*time.Second, 50*time.Millisecond, "no permit, no request")
	w.redisWay.Pass()
	w.eventually("the message to be stored", func() bool { c := w.counts(); return c.Received+c.Published == 1 })
	require.Zero(t, a.stop())
}

func TestSpoiledAnswers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		how  icomtest.Malformed
		dead int64 // messages that end among the dead letters, at most
	}{
		{icomtest.BrokenXML, 1},
		{icomtest.NoResourceID, 1},
		{icomtest.NoBoundary, 0},
		{icomtest.WrongCharset, 8}, // all of one answer
		{icomtest.TruncatedMultipart, 0},
		{icomtest.NotGzip, 0},
		{icomtest.GzipBomb, 0},
		{icomtest.NoCursor, 0},
	} {
		t.Run(string(tt.how), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, icomtest.Config{RedeliverAfter: 2 * time.Second})
			require.NoError(t, w.bank.SetFaults(pix.CPM, icomtest.Fault{Malformed: tt.how, Times: 1}))
			w.enqueue(8)
			a := w.start("a", nil)
			w.eventually("all to be stored or buried", func() bool {
				c := w.counts()
				return c.Received+c.Published+c.Dead >= 8
			})
			c := w.counts()
			require.LessOrEqual(t, c.Dead, tt.dead)
			require.Equal(t, tt.dead > 0, c.Dead > 0)
			require.Equal(t, 8-c.Dead, c.Received+c.Published)
			require.Zero(t, a.stop())
			w.eventually("all to be acknowledged", func() bool { return w.bank.Report().Participant(pix.CPM, ispb).Acked == 8 })
		})
	}
}

// A session whose commits a crash may take back acknowledges nothing: the replica does not start, and says that it
// is a matter of configuration.
func TestADatabaseThatMayForgetIsWrongConfiguration(t *testing.T) {
	t.Parallel()
	w := newWorld(t, icomtest.Config{})
	w.enqueue(1)
	dsn, err := url.Parse(w.dsn)
	require.NoError(t, err)
	dsn.RawQuery += "&synchronous_commit=off"
	a := w.start("a", map[string]string{"CABINE_POSTGRES_URL": dsn.String()})
	require.Equal(t, core.ExitUsage, a.wait())
	require.Zero(t, w.counts().Received)
	require.Zero(t, w.bank.Report().Participant(pix.CPM, ispb).RequestsTotal)
}

func TestKilledReplicaIsReplacedWithinItsLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t, icomtest.Config{RedeliverAfter: 2 * time.Second})
	a := w.start("a", nil)
	a.logged(4, "first poll")
	b := w.start("b", nil)
	b.logged(2, "first poll")
	killed := time.Now()
	a.kill()
	held := b.count("first poll")
	b.logged(held+2, "first poll")
	t.Logf("slots of the killed replica polled again after %v of a lease of 6s", time.Since(killed))
	require.Less(t, time.Since(killed), 7*time.Second)
	w.enqueue(40)
	w.eventually("all to be stored", func() bool { c := w.counts(); return c.Received+c.Published == 40 })
	require.Zero(t, b.stop())
}

func TestPluginKilledAloneIsReplacedAndItsSlotsCoolDown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, icomtest.Config{RedeliverAfter: 2 * time.Second})
	core := w.consume(true)
	a := w.start("a", nil)
	a.logged(4, "first poll")
	polls := a.count("first poll")
	require.NoError(t, syscall.Kill(a.number("transport process started", "pid"), syscall.SIGKILL))
	a.logged(2, "transport process started")
	a.logged(polls+4, "first poll")
	require.GreaterOrEqual(t, a.count("slot given", "how", "cooled"), 1)
	w.enqueue(20)
	w.eventually("all to be done", func() bool { return w.counts().Done == 20 })
	require.Len(t, core.distinct(), 20)
	require.Zero(t, a.stop())
}

func TestKilledHostTakesItsPluginAlong(t *testing.T) {
	t.Parallel()
	w := newWorld(t, icomtest.Config{})
	a := w.start("a", nil)
	a.logged(1, "transport process started")
	pid := a.number("transport process started", "pid")
	a.kill()
	w.eventually("the plugin to end", func() bool { return syscall.Kill(pid, 0) != nil })
}

func TestForeignCertificateIsShownAsWhatItIs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, icomtest.Config{AllowViolations: true}) // the bank counts each such request as one
	var err error
	w.files, err = w.bank.PKI().WriteClient(t.TempDir(), "87654321")
	require.NoError(t, err)
	w.anySubject = true
	a := w.start("a", nil)
	a.logged(3, "poll failed")
	require.Contains(t, a.text(), `"status":403`)
	a.logged(1, "slot given", "how", "released", "why", "errors")
	require.Zero(t, a.stop())
}

func TestPlacementLeaderPollsFromOneReplica(t *testing.T) {
	t.Parallel()
	w := newWorld(t, icomtest.Config{})
	core := w.consume(true)
	lead := map[string]string{"CABINE_POLL_PLACEMENT": "leader"}
	a := w.start("a", lead)
	a.logged(4, "first poll")
	b := w.start("b", lead)
	b.logged(1, "ready to poll")
	w.enqueue(20)
	w.eventually("all to be done", func() bool { return w.counts().Done == 20 })
	require.Zero(t, b.count("slot granted"))
	require.Zero(t, a.stop())
	b.logged(4, "first poll")
	w.enqueue(20)
	w.eventually("the rest to be done", func() bool { return w.counts().Done == 40 })
	require.Len(t, core.distinct(), 40)
	require.Zero(t, b.stop())
}

func TestWrongNumbersAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, icomtest.Config{})
	for name, tt := range map[string]struct {
		set  map[string]string
		says string
	}{
		"N of 7":          {map[string]string{"CABINE_ICOM_CPM_LIMIT": "7"}, "icom.cpm.limit is 7, want 1 to 6"},
		"m above N":       {map[string]string{"ICOM_CPM_MAX_SLOTS": "7"}, "max_slots is 7"},
		"T too short":     {map[string]string{"CABINE_LEASE_TTL": "9s"}, "TTL is 9s"},
		"receive above B": {map[string]string{"CABINE_LEASE_RECEIVE_TIMEOUT": "8s"}, "ReceiveTimeout is 8s"},
		"redis timeout":   {map[string]string{"CABINE_REDIS_TIMEOUT": "1500ms"}, "redis.timeout is 1.5s, want at most"},
		"placement":       {map[string]string{"CABINE_POLL_PLACEMENT": "random"}, "want spread or leader"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := w.start("a", tt.set)
			require.Equal(t, 2, r.wait())
			require.Contains(t, r.text(), tt.says)
		})
	}
}
