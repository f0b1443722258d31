package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/bus"
	"github.com/cabine-pix/cabine/libs/corebank"
	"github.com/cabine-pix/cabine/libs/corebank/corebanktest"
	"github.com/cabine-pix/cabine/libs/devstack"
	"github.com/cabine-pix/cabine/libs/devstack/devtest"
	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/signature"
	"github.com/cabine-pix/cabine/libs/signature/signaturetest"
	"github.com/cabine-pix/cabine/libs/store"
)

const (
	us, them = pix.ISPB("12345678"), pix.ISPB("87654321")
	// long bounds every wait of these tests: far above what is expected, because machines are slow.
	long  = 60 * time.Second
	token = "app-0123456789abcdef0123456789abcdef"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// world is real servers, a core, and the SPI's pen; replicas are processes.
type world struct {
	t        *testing.T
	nats     *devstack.NATS
	postgres *devstack.Proxy // replicas reach Postgres through it
	dsn      string          // for the test itself
	inbox    *store.Inbox
	payments *store.Payments
	session  store.Session
	bus      *bus.Bus
	bank     *corebanktest.Core
	coreURL  string
	signer   *signature.Signer
	cert     string
	received int

	mu      sync.Mutex
	notices []notice
}

// notice is what the sender hears.
type notice struct {
	ID  int64  `json:"id"`
	Msg string `json:"msg"`
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dsn: devtest.Postgres(t), nats: devtest.OwnNATS(t)}
	require.NoError(t, store.Migrate(t.Context(), w.dsn))
	db, err := store.Open(t.Context(), store.Config{URL: w.dsn, Application: "test"})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	w.inbox, w.payments = store.NewInbox(db), store.NewPayments(db)
	w.session, err = w.inbox.OpenSession(t.Context(), pix.CPM, us, 1, "test")
	require.NoError(t, err)
	w.postgres = devtest.Proxy(t, devtest.PostgresServer(t).Addr())
	w.startCore()
	spi, err := signaturetest.New("SPI", time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
	require.NoError(t, err)
	w.signer, err = spi.Signer()
	require.NoError(t, err)
	_, w.cert, err = spi.Write(t.TempDir())
	require.NoError(t, err)

	w.bus, err = bus.Connect(t.Context(), bus.Config{URL: w.nats.URL()}, quiet())
	require.NoError(t, err)
	w.provision()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); w.listen(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-ended
		last, done := context.WithTimeout(context.Background(), 5*time.Second)
		defer done()
		_ = w.bus.Close(last)
	})
	return w
}

func (w *world) provision() {
	w.t.Helper()
	w.eventually("the bus to be provisioned", func() bool {
		_, err := w.bus.Provision(w.t.Context(), bus.Declared(1), true)
		return err == nil
	})
}

func (w *world) startCore() {
	w.t.Helper()
	var err error
	w.bank, err = corebanktest.New(corebanktest.Config{Keys: corebank.Keys{{ID: "k1", Secret: []byte(secret)}}})
	require.NoError(w.t, err)
	server := httptest.NewUnstartedServer(w.bank)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.Start()
	w.t.Cleanup(server.Close)
	w.coreURL = server.URL
}

// listen stands in for the sender.
func (w *world) listen(ctx context.Context) {
	for ctx.Err() == nil {
		_ = w.bus.Consume(ctx, bus.ConsumeConfig{Stream: bus.StreamOutbound, Durable: bus.SenderConsumer(pix.CPM), Concurrency: 1, Prefetch: 100},
			func(_ context.Context, d bus.Delivery) error {
				var n notice
				if err := json.Unmarshal(d.Payload, &n); err != nil {
					return err
				}
				w.mu.Lock()
				defer w.mu.Unlock()
				w.notices = append(w.notices, n)
				return nil
			})
	}
}

// heard counts distinct outbox rows of a type that the sender was told of.
func (w *world) heard(msgType string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	ids := map[int64]bool{}
	for _, n := range w.notices {
		if n.Msg == msgType {
			ids[n.ID] = true
		}
	}
	return len(ids)
}

func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	require.Eventually(w.t, ok, long, 2*time.Millisecond, "waiting for %s", what)
}

// receive signs a message as the SPI, stores it as the poller does, and publishes it so often.
func (w *world) receive(doc iso20022.Document, attempts ...int) (again func(attempt int)) {
	w.t.Helper()
	id, err := pix.NewMsgID(pix.SPI, rand.Reader)
	require.NoError(w.t, err)
	h := iso20022.Header{From: pix.SPI, To: us, MsgID: id, Created: now(), MsgType: doc.MsgType()}
	envelope, err := iso20022.DefaultVersions().Build(h, doc)
	require.NoError(w.t, err)
	signed, err := w.signer.Sign(envelope)
	require.NoError(w.t, err)
	w.received++
	m := bus.Inbound{
		ISPB: us, MsgType: doc.MsgType(), MessageID: fmt.Sprintf("resource-%d", w.received), Source: store.Source(pix.CPM, us), Payload: signed,
	}
	_, err = w.inbox.Receive(w.t.Context(), store.Batch{
		Session: w.session, Arrivals: []store.Arrival{{MessageID: m.MessageID, MsgType: m.MsgType, Payload: signed}}, NextCursor: m.MessageID,
	})
	require.NoError(w.t, err)
	publish := func(attempt int) {
		m.Attempt = attempt
		require.NoError(w.t, w.bus.PublishInbound(w.t.Context(), []bus.Inbound{m}).Err())
	}
	for _, a := range attempts {
		publish(a)
	}
	return publish
}

func (w *world) state(id pix.EndToEndID) pix.State {
	p, err := w.payments.Get(w.t.Context(), string(id))
	if err != nil {
		return ""
	}
	return p.State
}

func (w *world) open() int64 {
	w.t.Helper()
	b, err := w.inbox.Backlog(w.t.Context())
	require.NoError(w.t, err)
	return b.Received + b.Published
}

func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

// transfer is a payment from them to us.
func transfer(t *testing.T) iso20022.CreditTransfer {
	t.Helper()
	id, err := pix.NewEndToEndID(them, now(), rand.Reader)
	require.NoError(t, err)
	return iso20022.CreditTransfer{
		EndToEndID: id, Amount: 1234, AcceptedAt: now(), LocalInstrument: iso20022.DICT,
		Debtor: iso20022.Party{Name: "Fulano", ID: "52998224725"}, DebtorAccount: iso20022.Account{ID: "1", Type: "CACC"},
		DebtorAgent: them, CreditorAgent: us, CreditorID: "12345678000195",
		CreditorAccount: iso20022.Account{ID: "2", Type: "CACC"}, Proxy: "fulano@example.com", Purpose: "IPAY",
	}
}

func pacs008(transfers ...iso20022.CreditTransfer) *iso20022.Pacs008 {
	return &iso20022.Pacs008{Priority: iso20022.High, ServiceLevel: iso20022.PAGPRI, Transactions: transfers}
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

func (w *world) start(name string, settings map[string]string) *replica {
	w.t.Helper()
	r := &replica{w: w, name: name, done: make(chan struct{})}
	dsn, err := url.Parse(w.dsn)
	require.NoError(w.t, err)
	dsn.Host = w.postgres.Addr()
	all := map[string]string{
		childVariable: "1", "PATH": os.Getenv("PATH"), "TMPDIR": os.Getenv("TMPDIR"),
		"CABINE_REPLICA": name, "CABINE_ICOM_ISPB": string(us), "CABINE_POSTGRES_URL": dsn.String(), "CABINE_NATS_URL": w.nats.URL(),
		"CABINE_ADMIN_LISTEN": "127.0.0.1:0", "CABINE_API_LISTEN": "127.0.0.1:0", "CABINE_API_TOKENS": "app=" + token,
		"CABINE_CORE_URL": w.coreURL + "/decisao", "CABINE_CORE_KEY_ID": "k1", "CABINE_CORE_KEY": secret,
		"CABINE_SIGNATURE_SPI_CERTIFICATES": w.cert, "THROTTLE_DISABLED": "true",
	}
	maps.Copy(all, settings)
	r.cmd = exec.Command(os.Args[0])
	for k, v := range all {
		r.cmd.Env = append(r.cmd.Env, k+"="+v)
	}
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

// logged waits for a line and returns one of its attributes.
func (r *replica) logged(msg, attr string) (value string) {
	r.w.t.Helper()
	r.w.eventually(r.name+" to log "+msg, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, line := range r.lines {
			if line["msg"] == msg {
				value = fmt.Sprint(line[attr])
				return true
			}
		}
		return false
	})
	return value
}

func (r *replica) request(method, url, body string, header map[string]string) (int, string) {
	r.w.t.Helper()
	ctx, cancel := context.WithTimeout(r.w.t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	require.NoError(r.w.t, err)
	for k, v := range header {
		req.Header.Set(k, v)
	}
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close() //nolint:errcheck // read to its end
	said, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(said)
}

// admin asks the admin server.
func (r *replica) admin(path string) (int, string) {
	r.w.t.Helper()
	return r.request(http.MethodGet, "http://"+r.logged("admin server listens", "address")+path, "", nil)
}

func (r *replica) ready() *replica {
	r.w.t.Helper()
	r.w.eventually(r.name+" to be ready", func() bool { status, _ := r.admin("/health/ready"); return status == http.StatusOK })
	return r
}

// order posts an order under a key.
func (r *replica) order(key string) (int, string) {
	r.w.t.Helper()
	body := `{"valor":"12.34","formaIniciacao":"DICT","chave":"fulano@example.com",` +
		`"pagador":{"nome":"Fulano de Tal","cpf":"52998224725","agencia":"0001","conta":"123456","tipoConta":"CORRENTE"},` +
		`"recebedor":{"ispbParticipante":"87654321","cpf":"52998224725","conta":"98765","tipoConta":"PAGAMENTO"}}`
	return r.request(http.MethodPost, "http://"+r.logged("api listens", "address")+"/v1/pix", body, map[string]string{
		"Authorization": "Bearer " + token, "Content-Type": "application/json", "X-Idempotency-Key": key,
	})
}

func (r *replica) signal() {
	r.w.t.Helper()
	require.NoError(r.w.t, r.cmd.Process.Signal(syscall.SIGTERM))
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
