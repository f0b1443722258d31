package inbound_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/bus"
	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/corebank"
	"github.com/cabine-pix/cabine/libs/corebank/corebanktest"
	"github.com/cabine-pix/cabine/libs/devstack/devtest"
	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/signature"
	"github.com/cabine-pix/cabine/libs/signature/signaturetest"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/services/payments/decision"
	"github.com/cabine-pix/cabine/services/payments/inbound"
)

const (
	us, them = pix.ISPB("12345678"), pix.ISPB("87654321")
	long     = 30 * time.Second
)

// identity makes the key of the SPI once, since RSA keys are slow to make; it is never changed.
var identity = sync.OnceValues(func() (signaturetest.Identity, error) {
	return signaturetest.New("SPI", time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
})

// world is a processor on a database of its own, with a core and the SPI's pen.
type world struct {
	t         *testing.T
	books     inbound.Books
	dsn       string
	bank      *corebanktest.Core
	processor *inbound.Processor
	signer    *signature.Signer
	session   store.Session
	metrics   *prometheus.Registry
	received  int

	mu        sync.Mutex
	announced []store.Operation
}

// Announce implements inbound.Announcer.
func (w *world) Announce(_ context.Context, rows []store.Operation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.announced = append(w.announced, rows...)
}

func (w *world) told() []store.Operation {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]store.Operation(nil), w.announced...)
}

// skewed is the machine's clock, off by so much.
type skewed struct {
	clock.Clock
	by time.Duration
}

func (s skewed) Now() clock.Reading {
	r := s.Clock.Now()
	r.Wall = r.Wall.Add(s.by)
	return r
}

func newWorld(t *testing.T) *world { return newWorldWith(t, 0, nil) }

// newWorldWith also puts other parts in place of the true ones.
func newWorldWith(t *testing.T, skew time.Duration, change func(*inbound.Config), others ...func(*inbound.Deps)) *world {
	t.Helper()
	dsn := devtest.Postgres(t)
	require.NoError(t, store.Migrate(t.Context(), dsn))
	db, err := store.Open(t.Context(), store.Config{URL: dsn, Application: "test"})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	w := &world{t: t, dsn: dsn, metrics: prometheus.NewRegistry(), books: inbound.Books{
		DB: db, Inbox: store.NewInbox(db), Payments: store.NewPayments(db), Outbox: store.NewOutbox(db), Outbound: store.NewOutbound(db),
		Reconciliations: store.NewReconciliations(db),
	}}
	w.session, err = w.books.Inbox.OpenSession(t.Context(), pix.CPM, us, 1, "test")
	require.NoError(t, err)
	spi, err := identity()
	require.NoError(t, err)
	w.signer, err = spi.Signer()
	require.NoError(t, err)
	w.processor = w.start(skew, change, others...)
	return w
}

// start makes a processor with a core of its own.
func (w *world) start(skew time.Duration, change func(*inbound.Config), others ...func(*inbound.Deps)) *inbound.Processor {
	w.t.Helper()
	keys := corebank.Keys{{ID: "k", Secret: []byte(strings.Repeat("s", 32))}}
	bank, err := corebanktest.New(corebanktest.Config{Keys: keys})
	require.NoError(w.t, err)
	w.bank = bank
	server := httptest.NewUnstartedServer(bank)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.Start()
	w.t.Cleanup(server.Close)
	log := slog.New(slog.NewTextHandler(w.t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	clk := skewed{clock.System(), skew}
	core, err := decision.New(decision.Config{URL: server.URL, Keys: keys, Timeout: 2 * time.Second}, decision.Deps{
		Clock: clk, Log: log, Metrics: w.metrics,
	})
	require.NoError(w.t, err)
	w.t.Cleanup(core.Close)
	spi, err := identity()
	require.NoError(w.t, err)
	verifier, err := signature.NewVerifier(clock.System(), spi.Certificate)
	require.NoError(w.t, err)
	cfg := inbound.Config{ISPB: us}
	if change != nil {
		change(&cfg)
	}
	deps := inbound.Deps{
		Verifier: verifier, Core: core, Announcer: w, Books: w.books, Clock: clk, Log: log, Metrics: w.metrics,
	}
	for _, other := range others {
		other(&deps)
	}
	p, err := inbound.New(cfg, deps)
	require.NoError(w.t, err)
	return p
}

// receive signs a message as the SPI and takes it into the inbox.
func (w *world) receive(doc iso20022.Document) bus.Inbound {
	w.t.Helper()
	return w.receiveFrom(iso20022.Header{From: pix.SPI, To: us}, doc)
}

func (w *world) receiveFrom(h iso20022.Header, doc iso20022.Document) bus.Inbound {
	w.t.Helper()
	var err error
	h.MsgID, err = pix.NewMsgID(h.From, rand.Reader)
	require.NoError(w.t, err)
	if h.Created.IsZero() {
		h.Created = now()
	}
	h.MsgType = doc.MsgType()
	envelope, err := iso20022.DefaultVersions().Build(h, doc)
	require.NoError(w.t, err)
	signed, err := w.signer.Sign(envelope)
	require.NoError(w.t, err)
	return w.store(doc.MsgType(), signed)
}

// store takes bytes into the inbox.
func (w *world) store(msgType string, payload []byte) bus.Inbound {
	w.t.Helper()
	w.received++
	id := fmt.Sprintf("resource-%d", w.received)
	_, err := w.books.Inbox.Receive(w.t.Context(), store.Batch{
		Session: w.session, Arrivals: []store.Arrival{{MessageID: id, MsgType: msgType, Payload: payload}}, NextCursor: id,
	})
	require.NoError(w.t, err)
	return bus.Inbound{ISPB: us, MsgType: msgType, MessageID: id, Source: store.Source(pix.CPM, us), Payload: payload}
}

func (w *world) handle(m bus.Inbound) {
	w.t.Helper()
	require.NoError(w.t, w.processor.Handle(w.t.Context(), m))
}

// payment returns a row of the books.
func (w *world) payment(id string) store.Payment {
	w.t.Helper()
	p, err := w.books.Payments.Get(w.t.Context(), id)
	require.NoError(w.t, err)
	return p
}

func (w *world) state(id string) pix.State { w.t.Helper(); return w.payment(id).State }

// events returns who, reason and what became, of each event.
func (w *world) events(id string) []string {
	w.t.Helper()
	events, err := w.books.Payments.Events(w.t.Context(), id)
	require.NoError(w.t, err)
	var all []string
	for _, e := range events {
		all = append(all, strings.TrimSpace(fmt.Sprintf("%s %s>%s %s", e.Who, e.Was, e.Became, e.Reason)))
	}
	return all
}

// answers returns the statuses that were announced, by payment.
func (w *world) answers() map[string]iso20022.PaymentStatus {
	w.t.Helper()
	all := map[string]iso20022.PaymentStatus{}
	for _, op := range w.told() {
		if op.MsgType != "pacs.002" {
			continue
		}
		var s iso20022.PaymentStatus
		require.NoError(w.t, json.Unmarshal(op.Body, &s))
		require.NotContains(w.t, all, op.PaymentID, "answered twice")
		all[op.PaymentID] = s
	}
	return all
}

// dead returns the counters of dead letters that are not zero, and how many there are in the table.
func (w *world) dead() (map[string]int, int64) {
	w.t.Helper()
	counts, err := w.books.Inbox.Counts(w.t.Context())
	require.NoError(w.t, err)
	return w.counter("cabine_payments_dead_letters_total", "kind"), counts.Dead
}

// counter returns a counter by one of its labels.
func (w *world) counter(name, label string) map[string]int {
	w.t.Helper()
	families, err := w.metrics.Gather()
	require.NoError(w.t, err)
	all := map[string]int{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == label && m.GetCounter().GetValue() > 0 {
					all[l.GetValue()] += int(m.GetCounter().GetValue())
				}
			}
		}
	}
	return all
}

// open counts what is not closed in the inbox.
func (w *world) open() int64 {
	w.t.Helper()
	b, err := w.books.Inbox.Backlog(w.t.Context())
	require.NoError(w.t, err)
	return b.Received + b.Published
}

func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

func e2e(t *testing.T, of pix.ISPB) pix.EndToEndID {
	t.Helper()
	id, err := pix.NewEndToEndID(of, now(), rand.Reader)
	require.NoError(t, err)
	return id
}

// transfer is a payment from them to us.
func transfer(t *testing.T) iso20022.CreditTransfer {
	t.Helper()
	return iso20022.CreditTransfer{
		EndToEndID: e2e(t, them), Amount: 1234, AcceptedAt: now(), LocalInstrument: iso20022.DICT,
		Debtor: iso20022.Party{Name: "Fulano", ID: "52998224725"}, DebtorAccount: iso20022.Account{ID: "1", Branch: "0001", Type: "CACC"},
		DebtorAgent: them, CreditorAgent: us, CreditorID: "12345678000195",
		CreditorAccount: iso20022.Account{ID: "2", Branch: "0001", Type: "CACC"}, Proxy: "fulano@example.com", Purpose: "IPAY",
	}
}

func pacs008(transfers ...iso20022.CreditTransfer) *iso20022.Pacs008 {
	return &iso20022.Pacs008{Priority: iso20022.High, ServiceLevel: iso20022.PAGPRI, Transactions: transfers}
}

// status is what the SPI says about a payment.
func status(id string, original pix.EndToEndID, s iso20022.Status, codes ...iso20022.ReasonCode) *iso20022.Pacs002 {
	st := iso20022.PaymentStatus{OriginalInstrID: id, OriginalEndToEndID: original, Status: s}
	for _, c := range codes {
		st.Reasons = append(st.Reasons, iso20022.StatusReason{Code: c})
	}
	if s == iso20022.ACSC || s == iso20022.ACCC {
		at, day := now(), now().Format(time.DateOnly)
		st.SettledAt, st.AccountingDate = &at, &day
	}
	return &iso20022.Pacs002{Statuses: []iso20022.PaymentStatus{st}}
}

// order books an outgoing payment and returns it with its outbox row.
func (w *world) order() (pix.EndToEndID, store.Operation) {
	w.t.Helper()
	t := transfer(w.t)
	t.EndToEndID, t.DebtorAgent, t.CreditorAgent = e2e(w.t, us), us, them
	body, err := json.Marshal(t)
	require.NoError(w.t, err)
	var rows []store.Operation
	require.NoError(w.t, w.books.DB.InTx(w.t.Context(), func(ctx context.Context, tx *store.Tx) error {
		fresh, err := w.books.Payments.Insert(ctx, tx, store.Payment{
			ID: string(t.EndToEndID), Kind: pix.Payment, Direction: pix.Out, State: pix.Created, Amount: t.Amount, Channel: pix.CPM,
			Counterparty: them, Document: body, AcceptedAt: t.AcceptedAt,
		}, "api")
		require.True(w.t, fresh)
		if err != nil {
			return err
		}
		rows, err = w.books.Outbox.Add(ctx, tx, []store.Operation{{PaymentID: string(t.EndToEndID), MsgType: "pacs.008", Channel: pix.CPM, Body: body}})
		return err
	}))
	return t.EndToEndID, rows[0]
}

// build makes a message of outbox rows, as the sender does, and puts it on the wire so often.
func (w *world) build(attempts int, rows ...store.Operation) pix.MsgID {
	w.t.Helper()
	id, err := pix.NewMsgID(us, rand.Reader)
	require.NoError(w.t, err)
	draft := store.Draft{Message: store.Message{MsgID: id, Channel: pix.CPM, MsgType: rows[0].MsgType, Payload: []byte("<x/>")}}
	for _, r := range rows {
		draft.OperationIDs = append(draft.OperationIDs, r.ID)
	}
	built, err := w.books.Outbound.Build(w.t.Context(), []store.Draft{draft})
	require.NoError(w.t, err)
	require.Equal(w.t, []bool{true}, built)
	for i := range attempts {
		ours, err := w.books.Outbound.Attempt(w.t.Context(), []store.Try{{MsgID: id, Attempts: i}})
		require.NoError(w.t, err)
		require.Equal(w.t, []bool{true}, ours)
	}
	return id
}

// sent records the bank's 201.
func (w *world) sent(id pix.MsgID, resource string) {
	w.t.Helper()
	require.NoError(w.t, w.books.Outbound.Sent(w.t.Context(), []store.Posted{{MsgID: id, ResourceID: resource}}))
}

// settledOrder is an outgoing payment that the SPI settled.
func (w *world) settledOrder() pix.EndToEndID {
	w.t.Helper()
	id, row := w.order()
	w.sent(w.build(1, row), "r-"+string(id))
	w.handle(w.receive(status(string(id), id, iso20022.ACSC)))
	require.Equal(w.t, pix.Settled, w.state(string(id)))
	return id
}
