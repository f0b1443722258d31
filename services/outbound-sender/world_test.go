package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/bus"
	"github.com/cabine-pix/cabine/libs/devstack"
	"github.com/cabine-pix/cabine/libs/devstack/devtest"
	"github.com/cabine-pix/cabine/libs/icom/icomtest"
	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/signature"
	"github.com/cabine-pix/cabine/libs/signature/signaturetest"
	"github.com/cabine-pix/cabine/libs/store"
)

const (
	ispb  = pix.ISPB("12345678")
	other = pix.ISPB("87654321")
)

// long bounds every wait of these tests: far above what is expected, because machines are slow.
const long = 60 * time.Second

// world is real servers, the bank, and replicas as processes.
type world struct {
	t        *testing.T
	bank     *icomtest.Bank
	redis    *devstack.Redis
	nats     *devstack.NATS
	postgres *devstack.Proxy // replicas reach Postgres through it
	dsn      string          // for the test itself
	db       *store.DB
	outbox   *store.Outbox
	payments *store.Payments
	bus      *bus.Bus
	files    icomtest.Files
	key      string
	cert     string
	verifier *signature.Verifier
	// anySubject makes the transport present a certificate of another participant.
	anySubject bool

	mu       sync.Mutex
	received []arrival
}

// arrival is one message as the bank got it.
type arrival struct {
	id       pix.MsgID
	body     []byte
	document iso20022.Document
	at       time.Time
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// newWorld starts everything but replicas. configure may change the bank, which is strict and slow to nothing.
func newWorld(t *testing.T, configure func(*icomtest.Config)) *world {
	t.Helper()
	w := &world{t: t}
	cfg := icomtest.Config{OnReceive: w.receive}
	if configure != nil {
		configure(&cfg)
	}
	identity, err := signaturetest.New("BANCO TESTE", time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
	require.NoError(t, err)
	w.key, w.cert, err = identity.Write(t.TempDir())
	require.NoError(t, err)
	w.verifier, err = signature.NewVerifier(systemClock(), identity.Certificate)
	require.NoError(t, err)

	w.bank = icomtest.Start(t, cfg)
	w.files, err = w.bank.PKI().WriteClient(t.TempDir(), ispb)
	require.NoError(t, err)
	w.dsn = devtest.Postgres(t)
	require.NoError(t, store.Migrate(t.Context(), w.dsn))
	w.db, err = store.Open(t.Context(), store.Config{URL: w.dsn, Application: "test"})
	require.NoError(t, err)
	t.Cleanup(w.db.Close)
	w.outbox, w.payments = store.NewOutbox(w.db), store.NewPayments(w.db)
	w.postgres = devtest.Proxy(t, devtest.PostgresServer(t).Addr())
	w.redis = devtest.OwnRedis(t, devstack.RedisOptions{AppendOnly: true})
	w.nats = devtest.OwnNATS(t)
	w.bus, err = bus.Connect(t.Context(), bus.Config{URL: w.nats.URL()}, quiet())
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = w.bus.Close(ctx)
	})
	w.provision()
	return w
}

// provision declares the topology with an AckWait that a test can wait for.
func (w *world) provision() {
	w.t.Helper()
	topology := bus.Declared(1)
	for i := range topology.Consumers {
		topology.Consumers[i].AckWait = 6 * time.Second
	}
	w.eventually("the bus to be provisioned", func() bool {
		_, err := w.bus.Provision(w.t.Context(), topology, true)
		return err == nil
	})
}

// receive is the bank's own record: what arrived must be signed and readable.
func (w *world) receive(r icomtest.Received) {
	a := arrival{body: bytes.Clone(r.Body), at: time.Now()}
	versions := iso20022.DefaultVersions()
	versions["pacs.008"] = []string{"1.16", "1.15"}
	e, err := versions.Parse(r.Body)
	if err == nil {
		_, err = w.verifier.Verify(r.Body)
	}
	if err != nil {
		w.t.Errorf("the bank cannot read what it was sent: %v", err)
	}
	a.id, a.document = e.Header.MsgID, e.Document
	w.mu.Lock()
	defer w.mu.Unlock()
	w.received = append(w.received, a)
}

func (w *world) arrivals() []arrival {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.received)
}

// orders counts how often each payment arrived, and under how many messages.
func (w *world) orders() (arrived map[pix.EndToEndID]int, messages map[pix.EndToEndID]map[pix.MsgID]bool) {
	arrived, messages = map[pix.EndToEndID]int{}, map[pix.EndToEndID]map[pix.MsgID]bool{}
	for _, a := range w.arrivals() {
		if d, ok := a.document.(*iso20022.Pacs008); ok {
			for _, t := range d.Transactions {
				arrived[t.EndToEndID]++
				if messages[t.EndToEndID] == nil {
					messages[t.EndToEndID] = map[pix.MsgID]bool{}
				}
				messages[t.EndToEndID][a.id] = true
			}
		}
	}
	return arrived, messages
}

// eventually waits for what must become true.
func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	require.Eventually(w.t, ok, long, 5*time.Millisecond, "waiting for %s", what)
}

// order books n payments with their operations, as the payments service does, without publishing them.
func (w *world) order(n int) []store.Operation {
	w.t.Helper()
	return w.orderOn(pix.CPM, n)
}

func (w *world) orderOn(channel pix.Channel, n int) []store.Operation {
	w.t.Helper()
	var all []store.Operation
	now := time.Now().UTC().Truncate(time.Millisecond)
	require.NoError(w.t, w.db.InTx(w.t.Context(), func(ctx context.Context, tx *store.Tx) error {
		var ops []store.Operation
		for range n {
			id, err := pix.NewEndToEndID(ispb, now, rand.Reader)
			require.NoError(w.t, err)
			body, err := json.Marshal(transfer(id, now))
			require.NoError(w.t, err)
			_, err = w.payments.Insert(ctx, tx, store.Payment{
				ID: string(id), Kind: pix.Payment, Direction: pix.Out, State: pix.Created, Amount: 1234, Channel: channel,
				Counterparty: other, Document: body, AcceptedAt: now,
			}, "api")
			require.NoError(w.t, err)
			ops = append(ops, store.Operation{PaymentID: string(id), MsgType: "pacs.008", Channel: channel, Body: body})
		}
		var err error
		all, err = w.outbox.Add(ctx, tx, ops)
		return err
	}))
	return all
}

func transfer(id pix.EndToEndID, now time.Time) iso20022.CreditTransfer {
	account := iso20022.Account{ID: "12345", Branch: "1", Type: iso20022.CACC}
	return iso20022.CreditTransfer{
		EndToEndID: id, Amount: 1234, AcceptedAt: now, LocalInstrument: iso20022.MANU,
		Debtor: iso20022.Party{Name: "Fulano de Tal", ID: "11111111111"}, DebtorAccount: account, DebtorAgent: ispb,
		CreditorAgent: other, CreditorID: "22222222222", CreditorAccount: account, Purpose: iso20022.PurposePayment,
	}
}

// publish hands operations to the bus, as the payments service does right after its commit.
func (w *world) publish(ops []store.Operation, attempt int) {
	w.t.Helper()
	for batch := range slices.Chunk(ops, 100) {
		all := make([]bus.Outbound, len(batch))
		for i, o := range batch {
			all[i] = bus.Outbound{ISPB: ispb, Channel: o.Channel, ID: o.ID, MsgType: o.MsgType, Attempt: attempt}
		}
		require.NoError(w.t, w.bus.PublishOutbound(w.t.Context(), all).Err())
	}
}

// send orders and publishes.
func (w *world) send(n int) []store.Operation {
	w.t.Helper()
	ops := w.order(n)
	w.publish(ops, 0)
	return ops
}

// states counts the payments of operations by their states.
func (w *world) states(ops []store.Operation) map[pix.State]int {
	w.t.Helper()
	out := map[pix.State]int{}
	for _, o := range ops {
		p, err := w.payments.Get(w.t.Context(), o.PaymentID)
		require.NoError(w.t, err)
		out[p.State]++
	}
	return out
}

// became waits until all payments of the operations have a state.
func (w *world) became(ops []store.Operation, state pix.State) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("%d payments to be %s", len(ops), state), func() bool { return w.states(ops)[state] == len(ops) })
}

// history are the states that a payment went through.
func (w *world) history(o store.Operation) (states []pix.State) {
	w.t.Helper()
	events, err := w.payments.Events(w.t.Context(), o.PaymentID)
	require.NoError(w.t, err)
	for _, e := range events {
		states = append(states, e.Became)
	}
	return states
}

func (w *world) environ(name string, settings map[string]string) []string {
	_, redisPort, _ := net.SplitHostPort(w.redis.Addr())
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
		"CABINE_POSTGRES_URL":               dsn.String(),
		"CABINE_NATS_URL":                   w.nats.URL(),
		"CABINE_ADMIN_LISTEN":               "127.0.0.1:0",
		"CABINE_TRANSPORT_PLUGIN":           os.Getenv(pluginVariable),
		"CABINE_ICOM_CSM_ENABLED":           "false",
		"CABINE_SIGNATURE_KEY_FILE":         w.key,
		"CABINE_SIGNATURE_CERTIFICATE_FILE": w.cert,
		// A short lease, so that a new Redis is out of its quarantine soon: 3s hold of the bank, 1s of ours.
		"CABINE_LEASE_NO_REPLICAS": "true", "CABINE_LEASE_TTL": "6s", "CABINE_LEASE_LONGEST_TTL": "6s",
		"CABINE_LEASE_BANK_HOLD": "3s", "CABINE_LEASE_RECEIVE_TIMEOUT": "2s", "CABINE_LEASE_USER_TIMEOUT": "500ms",
		"CABINE_LEASE_HEARTBEAT": "500ms", "CABINE_LEASE_RENEW_TIMEOUT": "500ms", "CABINE_REDIS_TIMEOUT": "500ms",
		"CABINE_RESEND_FIRST": "300ms", "CABINE_RESEND_EVERY": "100ms", "CABINE_RESEND_LOST_AFTER": "3s",
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
	path := filepath.Join(dir, "outbound-sender.yaml")
	text := fmt.Sprintf("transport:\n  env:\n    CABINE_BACEN: %s\n", filepath.Join(dir, "bacen.json"))
	require.NoError(w.t, os.WriteFile(path, []byte(text), 0o600))
	return path
}
