package coreevent_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/bus"
	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/devstack"
	"github.com/cabine-pix/cabine/libs/devstack/devtest"
	"github.com/cabine-pix/cabine/libs/order"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/services/settlement-scheduler/coreevent"
)

func TestMain(m *testing.M) { os.Exit(devtest.Main(m, devtest.WithPostgres())) }

const (
	us, them = pix.ISPB("12345678"), pix.ISPB("99999A04")
	// long bounds every wait, far above what is expected.
	long = 60 * time.Second
	// coreReader is the consumer of the core's side.
	coreReader = "core"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// world is books, a bus of its own, and a core that publishes events and collects answers.
type world struct {
	t        *testing.T
	nats     *devstack.NATS
	bus      *bus.Bus
	dsn      string
	db       *store.DB
	payments *store.Payments
	outbox   *store.Outbox
	inbox    *store.Inbox

	mu      sync.Mutex
	answers []answer
}

// answer is one that the core got.
type answer struct {
	subject string
	raw     string
	ID      string            `json:"id"`
	Digest  string            `json:"resumo"`
	E2E     string            `json:"endToEndId"`
	Kind    string            `json:"tipo"`
	At      []order.Violation `json:"violacoes"`
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dsn: devtest.Postgres(t), nats: devtest.OwnNATS(t)}
	require.NoError(t, store.Migrate(t.Context(), w.dsn))
	w.db = w.open(w.dsn)
	w.payments, w.outbox, w.inbox = store.NewPayments(w.db), store.NewOutbox(w.db), store.NewInbox(w.db)
	w.bus = w.connect()
	w.provision()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	reader := w.connect()
	go func() {
		ended <- reader.Consume(ctx, bus.ConsumeConfig{Stream: bus.StreamCoreAnswers, Durable: coreReader}, func(_ context.Context, d bus.Delivery) error {
			a := answer{subject: d.Subject, raw: string(d.Payload)}
			if err := json.Unmarshal(d.Payload, &a); err != nil {
				return err
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.answers = append(w.answers, a)
			return nil
		})
	}()
	t.Cleanup(func() { cancel(); w.over(<-ended) })
	return w
}

// over requires that a loop ended because it was told to, or because a bus that was emptied has its consumer no more.
func (w *world) over(err error) {
	w.t.Helper()
	if err != nil {
		require.ErrorIs(w.t, err, bus.ErrNotProvisioned)
	}
}

func (w *world) open(dsn string) *store.DB {
	w.t.Helper()
	db, err := store.Open(w.t.Context(), store.Config{
		URL: dsn, Application: "test", AcquireTimeout: 500 * time.Millisecond, CallTimeout: time.Second, StatementTimeout: time.Second,
	})
	require.NoError(w.t, err)
	w.t.Cleanup(db.Close)
	return db
}

func (w *world) connect() *bus.Bus {
	w.t.Helper()
	b, err := bus.Connect(w.t.Context(), bus.Config{URL: w.nats.URL(), ReconnectWait: 50 * time.Millisecond}, quiet())
	require.NoError(w.t, err)
	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(w.t.Context()), 5*time.Second)
		defer cancel()
		_ = b.Close(ctx)
	})
	return b
}

// provision has a consumer for the core.
func (w *world) provision() { w.provisionWith(30 * time.Second) }

// provisionWith says how long a delivery stays with a replica that died.
func (w *world) provisionWith(ackWait time.Duration) {
	w.t.Helper()
	topology := bus.Declared(1).With(bus.Consumer{Stream: bus.StreamCoreAnswers, Name: coreReader, AckWait: 30 * time.Second, MaxAckPending: 1000})
	for i, c := range topology.Consumers {
		if c.Name == bus.ConsumerCoreEvents {
			topology.Consumers[i].AckWait = ackWait
		}
	}
	w.eventually("the bus to be provisioned", func() bool {
		_, err := w.bus.Provision(w.t.Context(), topology, true)
		return err == nil
	})
}

func (w *world) eventually(what string, done func() bool) {
	w.t.Helper()
	require.Eventually(w.t, done, long, 10*time.Millisecond, what)
}

// replica says how one differs from the usual.
type replica struct {
	bus  coreevent.Bus
	db   *store.DB
	gate order.Gate
	cfg  func(*coreevent.Config)
}

// work starts a replica, which ends with the returned function.
func (w *world) work(r replica) (reg *prometheus.Registry, stop func()) {
	w.t.Helper()
	if r.bus == nil {
		r.bus = w.connect()
	}
	if r.db == nil {
		r.db = w.db
	}
	cfg := coreevent.Config{
		ISPB: us, Channels: []pix.Channel{pix.CPM}, RetryDelay: 20 * time.Millisecond, DrainTimeout: 2 * time.Second, TellTimeout: time.Second,
	}
	if r.cfg != nil {
		r.cfg(&cfg)
	}
	reg = prometheus.NewRegistry()
	worker, err := coreevent.New(cfg, coreevent.Deps{Bus: r.bus, DB: r.db, Gate: r.gate, Clock: clock.System(), Log: quiet(), Metrics: reg})
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	var once sync.Once
	stop = func() { once.Do(func() { cancel(); w.over(<-ended) }) }
	w.t.Cleanup(stop)
	return reg, stop
}

// event is a valid one, with what change makes of it.
func event(id string, change func(map[string]any)) string {
	o := map[string]any{
		"id": id, "valor": "12.34", "formaIniciacao": "DICT", "chave": "fulano@example.com", "infoPagador": "Aluguel",
		"pagador":   map[string]any{"nome": "Fulano de Tal", "cpf": "52998224725", "agencia": "0001", "conta": "123456", "tipoConta": "CORRENTE"},
		"recebedor": map[string]any{"ispbParticipante": string(them), "cnpj": "12ABC34501DE35", "conta": "98765X", "tipoConta": "PAGAMENTO"},
	}
	if change != nil {
		change(o)
	}
	body, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	return string(body)
}

// set returns a change of one field, given by its path.
func set(path string, value any) func(map[string]any) {
	return func(o map[string]any) {
		name := path
		if parent, child, nested := strings.Cut(path, "."); nested {
			o, _ = o[parent].(map[string]any)
			name = child
		}
		if value == nil {
			delete(o, name)
		} else {
			o[name] = value
		}
	}
}

// id makes an EndToEndId of a participant at an instant.
func (w *world) id(ispb pix.ISPB, at time.Time) string {
	w.t.Helper()
	id, err := pix.NewEndToEndID(ispb, at, rand.Reader)
	require.NoError(w.t, err)
	return string(id)
}

// publish publishes events; attempt tells those that are published again.
func (w *world) publish(attempt int, bodies ...string) {
	w.t.Helper()
	all := make([]bus.PaymentRequest, len(bodies))
	for i, body := range bodies {
		var named struct {
			ID string `json:"id"`
		}
		_ = json.Unmarshal([]byte(body), &named) // some are nothing of the kind
		all[i] = bus.PaymentRequest{ISPB: us, ID: named.ID, Attempt: attempt, Body: []byte(body)}
		if named.ID == "" {
			all[i].ID = digest(body)
		}
	}
	w.eventually("the events to be taken", func() bool { return w.bus.PublishPaymentRequests(w.t.Context(), all).Err() == nil })
}

// answered waits until the core has answers to n events, and returns the last to each, by its digest.
func (w *world) answered(n int) map[string]answer {
	w.t.Helper()
	var by map[string]answer
	w.eventually("the core to be told", func() bool {
		by = make(map[string]answer)
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, a := range w.answers {
			if was, twice := by[a.Digest]; twice {
				require.Equal(w.t, was.raw, a.raw, "an answer does not change")
			}
			by[a.Digest] = a
		}
		return len(by) == n
	})
	return by
}

// of returns the answer to an event by its id, of which there is one with a kind; empty: accepted.
func (w *world) of(answers map[string]answer, id, kind string) answer {
	w.t.Helper()
	var found []answer
	for _, a := range answers {
		if a.ID == id && a.Kind == kind {
			found = append(found, a)
		}
	}
	require.Len(w.t, found, 1, "%s %s in %v", id, kind, answers)
	return found[0]
}

func (w *world) booked() []store.Payment {
	w.t.Helper()
	now := time.Now()
	rows, next, err := w.payments.List(w.t.Context(), store.Filter{From: now.AddDate(-1, 0, 0), To: now.AddDate(1, 0, 0), Limit: 1000})
	require.NoError(w.t, err)
	require.Empty(w.t, next)
	return rows
}

func (w *world) dead() []store.DeadLetter {
	w.t.Helper()
	letters, err := w.inbox.DeadLetters(w.t.Context(), 0, 1000)
	require.NoError(w.t, err)
	return letters
}

// counted returns a counter, by its result if it has one.
func counted(t *testing.T, reg *prometheus.Registry, name, result string) float64 {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && (result == "" || m.GetLabel()[0].GetValue() == result) {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

const events = "cabine_core_events_total"
