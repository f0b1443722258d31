package reconciliation_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/calendar"
	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/devstack/devtest"
	"github.com/cabine-pix/cabine/libs/icom/icomtest"
	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/statement"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/services/settlement-scheduler/reconciliation"
)

func TestMain(m *testing.M) { os.Exit(devtest.Main(m, devtest.WithPostgres())) }

const (
	us         = pix.ISPB("12345678")
	long       = 60 * time.Second
	leadership = "settlement:12345678"
)

// pki makes the file host's certificate once, since RSA keys are slow to make; it is never changed.
var pki = sync.OnceValues(icomtest.NewPKI)

// world is books, and a bank that has an account, a file host and a mood.
type world struct {
	t        *testing.T
	db       *store.DB
	database string
	books    *store.Reconciliations
	files    *store.Files
	payments *store.Payments
	outbox   *store.Outbox
	outbound *store.Outbound
	terms    *store.Terms
	host     *reconciliation.Host
	cfg      reconciliation.Config
	reg      *prometheus.Registry

	// What the bank does. Changed by the test alone, before the leader runs or through with.
	mu      sync.Mutex
	entries []statement.Entry
	mute    bool                // it answers no question for a file
	lies    int                 // so many times it tells another hash
	account map[string]bool     // what it says BOOK to, when asked about one entry
	served  map[string][]byte   // archives by hash
	objects map[string][]byte   // the bucket
	status  int                 // what the file host answers; 0: the file
	gets    int                 // how often it was asked
	refuses bool                // the importer refuses
	asked   []*iso20022.Camt060 // all questions that were sent
	msgIDs  map[string]pix.MsgID
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dsn := devtest.Postgres(t)
	require.NoError(t, store.Migrate(t.Context(), dsn))
	db, err := store.Open(t.Context(), store.Config{URL: dsn, Application: "test"})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	w := &world{
		t: t, db: db, books: store.NewReconciliations(db), files: store.NewFiles(db), payments: store.NewPayments(db),
		outbox: store.NewOutbox(db), outbound: store.NewOutbound(db), terms: store.NewTerms(db),
		account: map[string]bool{}, served: map[string][]byte{}, objects: map[string][]byte{}, msgIDs: map[string]pix.MsgID{},
		cfg: reconciliation.Config{
			Leadership: leadership, ISPB: us, Version: "v1", Look: 5 * time.Millisecond, Grace: time.Minute,
			RetryFirst: time.Millisecond, RetryMost: 5 * time.Millisecond, EntryAgain: time.Hour, Scratch: t.TempDir(),
		},
	}
	w.database, _, _ = strings.Cut(dsn[strings.LastIndex(dsn, "/")+1:], "?")
	w.host = w.serve()
	return w
}

// serve starts the file host.
func (w *world) serve() *reconciliation.Host {
	w.t.Helper()
	authority, err := pki()
	require.NoError(w.t, err)
	server := httptest.NewUnstartedServer(http.HandlerFunc(w.handle))
	server.TLS = authority.ServerConfig()
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	w.t.Cleanup(server.Close)
	files, err := authority.WriteClient(w.t.TempDir(), us)
	require.NoError(w.t, err)
	host, err := reconciliation.NewHost(reconciliation.HostConfig{
		URL: server.URL, CertFile: files.Cert, KeyFile: files.Key, CAFile: files.CA, MaxBytes: 1 << 20, Timeout: 10 * time.Second,
	}, clock.System())
	require.NoError(w.t, err)
	return host
}

func (w *world) handle(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gets++
	hash, _ := statement.Hash(r.URL.Path)
	content, ok := w.served[hash]
	switch {
	case path.Dir(r.URL.Path) == "/elsewhere":
		_, _ = rw.Write(content)
	case path.Dir(r.URL.Path) != "/api/v1/download/"+string(us)+"/extrato", r.Header.Get("Accept") != "*/*":
		rw.WriteHeader(http.StatusNotAcceptable)
	case w.status == http.StatusFound:
		http.Redirect(rw, r, "/elsewhere/"+path.Base(r.URL.Path), http.StatusFound)
	case w.status == http.StatusPartialContent:
		rw.Header().Set("Content-Length", fmt.Sprint(len(content)))
		_, _ = rw.Write(content[:len(content)/2])
	case w.status != 0:
		rw.WriteHeader(w.status)
	case !ok:
		rw.WriteHeader(http.StatusNotFound)
	default:
		_, _ = rw.Write(content)
	}
}

// Put implements reconciliation.Bucket.
func (w *world) Put(_ context.Context, name string, from io.Reader) error {
	content, err := io.ReadAll(from)
	w.with(func() { w.objects[name] = content })
	return err
}

func (w *world) with(do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	do()
}

func (w *world) reconciler(change func(*reconciliation.Config)) *reconciliation.Reconciler {
	w.t.Helper()
	cfg := w.cfg
	if change != nil {
		change(&cfg)
	}
	days, err := calendar.New()
	require.NoError(w.t, err)
	w.reg = prometheus.NewRegistry()
	r, err := reconciliation.New(cfg, reconciliation.Deps{
		Books: w.books, Files: w.files, Host: w.host, Bucket: w, Days: days, Clock: clock.System(),
		Log: slog.New(slog.NewTextHandler(w.t.Output(), nil)), Metrics: w.reg,
	})
	require.NoError(w.t, err)
	return r
}

func (w *world) mint() int64 {
	w.t.Helper()
	term, err := w.terms.Mint(w.t.Context(), leadership, "test")
	require.NoError(w.t, err)
	return term
}

// lead runs a reconciler under a new term until the returned function is called, which returns why it ended.
func (w *world) lead(change func(*reconciliation.Config)) (stop func() error) {
	w.t.Helper()
	r, term := w.reconciler(change), w.mint()
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx, term) }()
	w.t.Cleanup(cancel)
	return func() error { cancel(); return <-ended }
}

// eventually lets the bank and the importer work until something is true.
func (w *world) eventually(what string, done func() bool) {
	w.t.Helper()
	deadline := time.Now().Add(long)
	for !done() {
		require.True(w.t, time.Now().Before(deadline), what)
		w.send()
		w.bring()
	}
}

// latest returns the newest one, none while there is none.
func (w *world) latest() store.Reconciliation {
	w.t.Helper()
	all, err := w.books.Latest(w.t.Context(), 1)
	require.NoError(w.t, err)
	if len(all) == 0 {
		return store.Reconciliation{}
	}
	return all[0]
}

func (w *world) until(state store.ReconciliationState) store.Reconciliation {
	w.t.Helper()
	var a store.Reconciliation
	w.eventually("a reconciliation to be "+string(state), func() bool { a = w.latest(); return a.State == state })
	return a
}

// send does what the sender, the SPI and payments do with what waits in the outbox.
func (w *world) send() {
	w.t.Helper()
	waiting, err := w.outbox.Unpublished(w.t.Context(), 0, 100)
	require.NoError(w.t, err)
	for _, op := range waiting {
		free, _, err := w.outbound.Claim(w.t.Context(), []int64{op.ID})
		require.NoError(w.t, err)
		id, err := pix.NewMsgID(us, rand.Reader)
		require.NoError(w.t, err)
		_, err = w.outbound.Build(w.t.Context(), []store.Draft{{
			Message: store.Message{MsgID: id, Channel: op.Channel, MsgType: op.MsgType, Payload: []byte("<x/>")}, OperationIDs: []int64{op.ID},
		}})
		require.NoError(w.t, err)
		var q iso20022.Camt060
		require.NoError(w.t, json.Unmarshal(free[0].Body, &q))
		require.NoError(w.t, iso20022.Validate(&q))
		w.with(func() {
			w.asked = append(w.asked, &q)
			w.msgIDs[op.PaymentID] = id
		})
		require.NoError(w.t, w.answer(id, &q))
	}
}

// answer is the SPI's and its effect in payments.
func (w *world) answer(id pix.MsgID, q *iso20022.Camt060) error {
	return w.db.InTx(w.t.Context(), func(ctx context.Context, tx *store.Tx) error {
		var asked bool
		var err error
		switch q.Answer {
		case iso20022.AnswerBalances:
			asked, err = w.books.AnswerBalance(ctx, tx, id, 100, time.Now())
		case iso20022.AnswerEntry:
			var booked bool
			w.with(func() { booked = w.account[q.EntryID] })
			if !booked {
				return nil
			}
			if _, err = w.payments.Move(ctx, tx, []store.Move{{ID: q.EntryID, To: pix.Settled, Who: "spi"}}); err != nil {
				return err
			}
			asked, err = w.books.AnswerEntry(ctx, tx, id, q.EntryID, store.AnswerBooked, store.Side{Direction: pix.Out, Amount: 100})
		case iso20022.AnswerFile:
			hash, n, told := w.file(q)
			if !told {
				return nil
			}
			asked, err = w.books.AnswerFile(ctx, tx, id, "Hash: "+hash, n)
		}
		require.True(w.t, asked)
		return err
	})
}

// file makes the file of a question.
func (w *world) file(q *iso20022.Camt060) (hash string, n int64, told bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	from, err := time.Parse("2006-01-02T15:04:05.000Z", q.Period.FromDate+"T"+q.Period.Times.From)
	require.NoError(w.t, err)
	to, err := time.Parse("2006-01-02T15:04:05.000Z", q.Period.ToDate+"T"+q.Period.Times.To)
	require.NoError(w.t, err)
	var archive bytes.Buffer
	out, err := statement.NewWriter(&archive, statement.Header{Kind: statement.Entries, ISPB: us, From: from, To: to})
	require.NoError(w.t, err)
	for _, e := range w.entries {
		if !e.SettledAt.Before(from) && e.SettledAt.Before(to) {
			require.NoError(w.t, out.Entry(e))
		}
	}
	sum, err := out.Close()
	require.NoError(w.t, err)
	hash = sum.Hash
	if w.lies > 0 {
		w.lies--
		hash = strings.Repeat("0", 64)
	}
	w.served[hash] = archive.Bytes()
	return strings.ToUpper(hash), sum.Records, !w.mute
}

// bring does what the importer does with what is in the bucket.
func (w *world) bring() {
	w.t.Helper()
	var objects map[string][]byte
	var refuses bool
	w.with(func() {
		objects, refuses = maps.Clone(w.objects), w.refuses
		clear(w.objects)
	})
	for name, content := range objects {
		newest := w.reign()
		in, err := statement.Open(bytes.NewReader(content), int64(len(content)), statement.Limits{})
		require.NoError(w.t, err)
		hash, _ := statement.Hash(name)
		h := in.Header()
		f := store.File{Object: store.Object{Name: name, Version: "1", Size: int64(len(content))}, SHA256: hash, ISPB: h.ISPB, From: h.From, To: h.To, Kind: store.EntriesFile}
		if refuses {
			f.Reason = "it is refused"
			require.NoError(w.t, w.files.Refuse(w.t.Context(), newest, f))
			continue
		}
		for err == nil {
			err = in.Skip()
		}
		require.ErrorIs(w.t, err, io.EOF)
		f.Records = in.Summary().Records
		in, err = statement.Open(bytes.NewReader(content), int64(len(content)), statement.Limits{})
		require.NoError(w.t, err)
		_, _, err = w.files.ImportEntries(w.t.Context(), newest, f, read(in))
		require.NoError(w.t, err)
	}
}

// reign is the newest reign, as the importer under the same leader has it.
func (w *world) reign() store.Reign {
	w.t.Helper()
	for term := int64(1); ; term++ {
		by := store.Reign{Name: leadership, Term: term}
		err := w.terms.InTx(w.t.Context(), by, func(context.Context, *store.Tx) error { return nil })
		if err == nil {
			return by
		}
		require.ErrorIs(w.t, err, store.ErrStaleTerm)
		require.Less(w.t, term, int64(100))
	}
}

func read(in *statement.Reader) iter.Seq2[store.StatementEntry, error] {
	return func(yield func(store.StatementEntry, error) bool) {
		for {
			e, err := in.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if !yield(store.StatementEntry{
				Line: e.Line, PaymentID: e.ID, OriginalID: e.Original, Kind: e.Kind, Direction: e.Direction, Amount: e.Amount,
				Counterparty: e.Counterparty, SettledAt: e.SettledAt,
			}, err) || err != nil {
				return
			}
		}
	}
}

func e2e(n int) string { return fmt.Sprintf("E12345678202612010000%011d", n) }

// there puts an entry of 1.00 into the bank's account.
func (w *world) there(n int, direction pix.Direction, at time.Time) {
	w.with(func() {
		w.entries = append(w.entries, statement.Entry{
			ID: e2e(n), Kind: pix.Payment, Direction: direction, Amount: 100, SettledAt: at.UTC().Truncate(time.Millisecond), Counterparty: "87654321",
		})
	})
}

// here books an outgoing payment of 1.00, settled if an instant is given and sent otherwise.
func (w *world) here(n int, at time.Time) {
	w.t.Helper()
	move := store.Move{ID: e2e(n), To: pix.Sent, Who: "icom"}
	if !at.IsZero() {
		move = store.Move{ID: e2e(n), To: pix.Settled, Who: "spi", SettledAt: at.UTC().Truncate(time.Millisecond)}
	}
	require.NoError(w.t, w.db.InTx(w.t.Context(), func(ctx context.Context, tx *store.Tx) error {
		_, err := w.payments.Insert(ctx, tx, store.Payment{
			ID: e2e(n), Kind: pix.Payment, Direction: pix.Out, State: pix.Created, Amount: 100, Channel: pix.CPM, Counterparty: "87654321",
			Document: json.RawMessage("{}"), AcceptedAt: time.Now(),
		}, "test")
		if err == nil {
			_, err = w.payments.Move(ctx, tx, []store.Move{move})
		}
		return err
	}))
}

// lines returns the lines of a reconciliation as "<n> <finding> <answer> <resolution>".
func (w *world) lines(id int64) (all []string) {
	w.t.Helper()
	lines, err := w.books.Lines(w.t.Context(), id, "", 100)
	require.NoError(w.t, err)
	for _, l := range lines {
		all = append(all, strings.Join(strings.Fields(fmt.Sprintf("%s %s %s %s", strings.TrimLeft(l.PaymentID[21:], "0"), l.Finding, l.Answer, l.Resolution)), " "))
	}
	return all
}

// questions counts what was asked of a kind.
func (w *world) questions(kind iso20022.AnswerType) (n int) {
	w.with(func() {
		for _, q := range w.asked {
			if q.Answer == kind {
				n++
			}
		}
	})
	return n
}
