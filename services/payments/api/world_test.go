package api_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/devstack/devtest"
	"github.com/cabine-pix/cabine/libs/edge"
	"github.com/cabine-pix/cabine/libs/iso20022"
	desk "github.com/cabine-pix/cabine/libs/order"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/services/payments/api"
)

const (
	us, them = pix.ISPB("12345678"), pix.ISPB("99999A04")

	coreToken  = "core-0123456789abcdef0123456789abcdef"
	otherToken = "othr-0123456789abcdef0123456789abcdef"

	payerCPF     = "52998224725"
	receiverCNPJ = "12ABC34501DE35" // the example of the Receita Federal
)

// world is an API on a database of its own, whose every exchange is held against the contract that it serves.
type world struct {
	t         testing.TB
	db        *store.DB
	payments  *store.Payments
	clk       *clock.Fake
	handler   http.Handler
	announced chan store.Operation
	contract  routers.Router
	document  *openapi3.T
	log       *bytes.Buffer

	mu   sync.Mutex
	seen map[string]bool // operation and status
}

func newWorld(t testing.TB) *world {
	t.Helper()
	dsn := devtest.Postgres(t)
	require.NoError(t, store.Migrate(t.Context(), dsn))
	db, err := store.Open(t.Context(), store.Config{URL: dsn, Application: "test"})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	w := &world{
		t: t, db: db, payments: store.NewPayments(db), clk: clock.NewFake(), announced: make(chan store.Operation, 10_000),
		seen: make(map[string]bool), log: &bytes.Buffer{},
	}
	w.handler = w.serve(nil, func(*api.Config) {})
	answer := httptest.NewRecorder()
	w.handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/openapi.yaml", nil))
	loader := openapi3.NewLoader()
	w.document, err = loader.LoadFromData(answer.Body.Bytes())
	require.NoError(t, err)
	require.NoError(t, w.document.Validate(t.Context()))
	w.contract, err = legacy.NewRouter(w.document)
	require.NoError(t, err)
	return w
}

// Announce implements api.Announcer.
func (w *world) Announce(_ context.Context, operations []store.Operation) {
	for _, o := range operations {
		w.announced <- o
	}
}

// serve makes another API on the same database.
func (w *world) serve(gate desk.Gate, change func(*api.Config)) http.Handler {
	w.t.Helper()
	return w.newAPI(gate, change).Handler()
}

func (w *world) newAPI(gate desk.Gate, change func(*api.Config)) *api.API {
	w.t.Helper()
	cfg := api.Config{
		ISPB: us, Listen: "127.0.0.1:0", Tokens: "core=" + coreToken + ",backoffice=" + otherToken,
		Throttle: edge.ThrottleConfig{Disabled: true},
	}
	change(&cfg)
	a, err := api.New(cfg, api.Deps{
		DB: w.db, Gate: gate, Announcer: w, Clock: w.clk, Log: slog.New(slog.NewJSONHandler(&safeWriter{w: w}, nil)),
		Metrics: prometheus.NewRegistry(),
	})
	require.NoError(w.t, err)
	return a
}

type safeWriter struct{ w *world }

func (s *safeWriter) Write(b []byte) (int, error) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	return s.w.log.Write(b)
}

func (w *world) logged() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.String()
}

// ask is one request; the zero value of token and key means none.
type ask struct {
	method, path, body string
	token, key         string
	header             http.Header
	handler            http.Handler
	ctx                context.Context
}

func (w *world) do(a ask) *httptest.ResponseRecorder {
	w.t.Helper()
	if a.ctx == nil {
		a.ctx = w.t.Context()
	}
	request := func() *http.Request {
		r := httptest.NewRequestWithContext(a.ctx, a.method, a.path, strings.NewReader(a.body))
		if a.body != "" {
			r.Header.Set("Content-Type", "application/json")
		}
		if a.token != "" {
			r.Header.Set("Authorization", "Bearer "+a.token)
		}
		if a.key != "" {
			r.Header.Set(edge.KeyHeader, a.key)
		}
		maps.Copy(r.Header, a.header)
		return r
	}
	handler := a.handler
	if handler == nil {
		handler = w.handler
	}
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, request())
	w.conform(request(), answer)
	return answer
}

// conform holds an exchange against the contract: what was done was allowed, and what was said was promised.
func (w *world) conform(r *http.Request, answer *httptest.ResponseRecorder) {
	w.t.Helper()
	route, params, err := w.contract.FindRoute(r)
	if err != nil {
		require.Contains(w.t, []int{http.StatusNotFound, http.StatusMethodNotAllowed}, answer.Code, "%s %s is not in the contract", r.Method, r.URL)
		return
	}
	options := &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, MultiError: true, IncludeResponseStatus: true}
	input := &openapi3filter.RequestValidationInput{Request: r, PathParams: params, Route: route, Options: options}
	asked := openapi3filter.ValidateRequest(w.t.Context(), input)
	switch answer.Code {
	case http.StatusOK, http.StatusCreated, http.StatusConflict, http.StatusUnprocessableEntity:
		require.NoError(w.t, asked, "answered %d", answer.Code)
	}
	said := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: answer.Code, Header: answer.Header(), Options: options,
	}
	said.SetBodyBytes(answer.Body.Bytes())
	require.NoError(w.t, openapi3filter.ValidateResponse(w.t.Context(), said), "%s %s: %d %s", r.Method, r.URL, answer.Code, answer.Body)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen[fmt.Sprintf("%s %d", route.Operation.OperationID, answer.Code)] = true
}

// order is a valid one, with what change makes of it.
func order(change func(map[string]any)) string {
	o := map[string]any{
		"valor": "12.34", "formaIniciacao": "DICT", "chave": "fulano@example.com", "infoPagador": "Aluguel",
		"pagador":   map[string]any{"nome": "Fulano de Tal", "cpf": payerCPF, "agencia": "0001", "conta": "123456", "tipoConta": "CORRENTE"},
		"recebedor": map[string]any{"ispbParticipante": string(them), "cnpj": receiverCNPJ, "conta": "98765X", "tipoConta": "PAGAMENTO"},
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

func (w *world) order(body, key string) *httptest.ResponseRecorder {
	w.t.Helper()
	return w.do(ask{method: http.MethodPost, path: "/v1/pix", body: body, token: coreToken, key: key})
}

func (w *world) get(path string) *httptest.ResponseRecorder {
	w.t.Helper()
	return w.do(ask{method: http.MethodGet, path: path, token: coreToken})
}

func (w *world) put(path, body string) *httptest.ResponseRecorder {
	w.t.Helper()
	return w.do(ask{method: http.MethodPut, path: path, body: body, token: coreToken})
}

// read returns an answer's JSON.
func (w *world) read(answer *httptest.ResponseRecorder, status int) map[string]any {
	w.t.Helper()
	require.Equal(w.t, status, answer.Code, answer.Body.String())
	var m map[string]any
	require.NoError(w.t, json.Unmarshal(answer.Body.Bytes(), &m))
	return m
}

// violated returns the fields that a problem names.
func (w *world) violated(answer *httptest.ResponseRecorder, status int) []string {
	w.t.Helper()
	require.Equal(w.t, status, answer.Code, answer.Body.String())
	var p edge.Problem
	require.NoError(w.t, json.Unmarshal(answer.Body.Bytes(), &p))
	var fields []string
	for _, v := range p.Violations {
		fields = append(fields, v.Field)
	}
	return fields
}

// id makes an EndToEndId of a participant at an instant.
func (w *world) id(ispb pix.ISPB, at time.Time) string {
	w.t.Helper()
	id, err := pix.NewEndToEndID(ispb, at, rand.Reader)
	require.NoError(w.t, err)
	return string(id)
}

// received books an incoming payment that settled.
func (w *world) received(amount pix.Amount, settledAt time.Time) string {
	w.t.Helper()
	id := w.id(them, settledAt)
	document, err := json.Marshal(iso20022.CreditTransfer{
		EndToEndID: pix.EndToEndID(id), Amount: amount, AcceptedAt: settledAt, LocalInstrument: iso20022.MANU,
		Debtor: iso20022.Party{Name: "Beltrana", ID: payerCPF}, DebtorAccount: iso20022.Account{ID: "1", Branch: "1", Type: iso20022.CACC},
		DebtorAgent: them, CreditorAgent: us, CreditorID: receiverCNPJ,
		CreditorAccount: iso20022.Account{ID: "2", Type: iso20022.TRAN}, Purpose: iso20022.PurposePayment,
	})
	require.NoError(w.t, err)
	w.insert(store.Payment{
		ID: id, Kind: pix.Payment, Direction: pix.In, State: pix.Settled, Amount: amount, Channel: pix.CPM, Counterparty: them,
		Document: document, AcceptedAt: settledAt, SettledAt: settledAt,
	})
	return id
}

func (w *world) insert(p store.Payment) {
	w.t.Helper()
	require.NoError(w.t, w.db.InTx(w.t.Context(), func(ctx context.Context, tx *store.Tx) error {
		fresh, err := w.payments.Insert(ctx, tx, p, "spi")
		require.True(w.t, fresh)
		return err
	}))
}

func (w *world) move(m store.Move) {
	w.t.Helper()
	require.NoError(w.t, w.db.InTx(w.t.Context(), func(ctx context.Context, tx *store.Tx) error {
		moved, err := w.payments.Move(ctx, tx, []store.Move{m})
		require.Len(w.t, moved, 1)
		require.True(w.t, moved[0].Changed)
		return err
	}))
}

func (w *world) now() time.Time { return w.clk.Now().Wall }

// list asks for a page of everything.
func list(extra url.Values) string {
	q := url.Values{"inicio": {"2020-01-01T00:00:00Z"}, "fim": {"2100-01-01T00:00:00Z"}}
	maps.Copy(q, extra)
	return "/v1/pix?" + q.Encode()
}
