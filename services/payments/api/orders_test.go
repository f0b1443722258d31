package api_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/edge"
	"github.com/cabine-pix/cabine/libs/iso20022"
	desk "github.com/cabine-pix/cabine/libs/order"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/services/payments/api"
)

// An order becomes a row, an event, an operation and a kept answer, and is announced.
func TestOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	answer := w.order(order(nil), "key-1")
	said := w.read(answer, http.StatusCreated)
	id, _ := said["endToEndId"].(string)
	require.Equal(t, "created", said["estado"])
	require.Equal(t, "EM_PROCESSAMENTO", said["status"])
	require.Equal(t, "out", said["direcao"])
	require.Equal(t, "12.34", said["valor"])
	require.Equal(t, "2026-01-02T03:04:05.000Z", said["horario"])
	require.Equal(t, map[string]any{
		"ispbParticipante": "12345678", "nome": "Fulano de Tal", "cpf": payerCPF, "agencia": "0001", "conta": "123456", "tipoConta": "CORRENTE",
	}, said["pagador"])

	row, err := w.payments.Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, pix.Created, row.State)
	require.Equal(t, pix.Amount(1234), row.Amount)
	require.Equal(t, pix.CPM, row.Channel)
	require.Equal(t, them, row.Counterparty)
	var transfer iso20022.CreditTransfer
	require.NoError(t, json.Unmarshal(row.Document, &transfer))
	require.Equal(t, us, transfer.DebtorAgent)
	require.Equal(t, us, transfer.EndToEndID.ISPB())
	require.Equal(t, "fulano@example.com", transfer.Proxy)
	require.Equal(t, iso20022.PurposePayment, transfer.Purpose)
	_, err = iso20022.DefaultVersions().Build(iso20022.Header{
		From: us, To: pix.SPI, MsgID: pix.MsgID("M" + string(us) + strings.Repeat("a", 23)), Created: w.now(), MsgType: "pacs.008",
	}, &iso20022.Pacs008{Priority: iso20022.High, ServiceLevel: iso20022.PAGPRI, Transactions: []iso20022.CreditTransfer{transfer}})
	require.NoError(t, err)

	queued := <-w.announced
	require.Equal(t, id, queued.PaymentID)
	require.Equal(t, "pacs.008", queued.MsgType)
	require.Positive(t, queued.ID)

	seen := w.read(w.get("/v1/pix/"+id), http.StatusOK)
	events, _ := seen["eventos"].([]any)
	require.Len(t, events, 1)
	require.Equal(t, "api/core", events[0].(map[string]any)["quem"]) //nolint:forcetypeassert // a failed one fails the test
	require.NotContains(t, w.logged(), payerCPF)
	require.NotContains(t, w.logged(), "fulano")
}

// The same order under the same key finds its answer, byte for byte, also when the clock has left its window; another
// order under the key, or the key of another client, does not.
func TestKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	body := order(func(o map[string]any) { o["endToEndId"] = w.id(us, w.now()) })
	first := w.order(body, "key")
	require.Equal(t, http.StatusCreated, first.Code)
	w.clk.Advance(13 * time.Hour)
	again := w.order(body, "key")
	require.Equal(t, http.StatusCreated, again.Code)
	require.Equal(t, first.Body.Bytes(), again.Body.Bytes())
	require.Equal(t, "true", again.Header().Get(edge.ReplayedHeader))
	require.Len(t, w.announced, 1)

	require.Equal(t, http.StatusUnprocessableEntity, w.order(order(nil), "key").Code)
	require.Equal(t, http.StatusUnprocessableEntity, w.order(body+" ", "key").Code)
	other := w.do(ask{method: http.MethodPost, path: "/v1/pix", body: order(nil), token: otherToken, key: "key"})
	require.Equal(t, http.StatusCreated, other.Code)
	require.Equal(t, []string{edge.KeyHeader}, w.violated(w.order(body, ""), http.StatusBadRequest))
	require.Equal(t, []string{edge.KeyHeader}, w.violated(w.order(body, "a_b"), http.StatusBadRequest))
}

// An EndToEndId is booked once, whatever the key and the client.
func TestOneBooking(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	body := order(func(o map[string]any) { o["endToEndId"] = w.id(us, w.now()) })
	require.Equal(t, http.StatusCreated, w.order(body, "a").Code)
	require.Equal(t, []string{"endToEndId"}, w.violated(w.order(body, "b"), http.StatusConflict))
	// The refused request left its key free.
	require.Equal(t, http.StatusCreated, w.order(order(nil), "b").Code)
	require.Len(t, w.announced, 2)
}

// The same order from many clients at once: one booking; everybody gets the same answer or is told to wait.
func TestSameOrderAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	body := order(nil)
	answers := make([]*httptest.ResponseRecorder, 16)
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() { answers[i] = w.order(body, "same") })
	}
	all.Wait()
	var kept []byte
	for _, a := range answers {
		if a.Code == http.StatusConflict {
			require.NotEmpty(t, a.Header().Get("Retry-After"))
			continue
		}
		require.Equal(t, http.StatusCreated, a.Code, a.Body.String())
		if kept == nil {
			kept = a.Body.Bytes()
		}
		require.Equal(t, string(kept), a.Body.String())
	}
	require.NotNil(t, kept)
	require.Equal(t, string(kept), w.order(body, "same").Body.String())
	rows, _, err := w.payments.List(t.Context(), store.Filter{Limit: 10})
	require.NoError(t, err)
	require.Len(t, rows, 1)
	require.Len(t, w.announced, 1)
}

// The same order from two clients with keys of their own, each named by the core: one booking.
func TestSameOrderFromTwoClients(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	body := order(func(o map[string]any) { o["endToEndId"] = w.id(us, w.now()) })
	codes := make([]int, 2)
	var all sync.WaitGroup
	for i, token := range []string{coreToken, otherToken} {
		all.Go(func() {
			codes[i] = w.do(ask{method: http.MethodPost, path: "/v1/pix", body: body, token: token, key: "k"}).Code
		})
	}
	all.Wait()
	require.ElementsMatch(t, []int{http.StatusCreated, http.StatusConflict}, codes)
	require.Len(t, w.announced, 1)
}

// A first request that has not ended: the second is told so at once, and finds the answer afterwards.
func TestInProgress(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	gate := &slowGate{at: make(chan struct{}), open: make(chan struct{})}
	slow := w.serve(gate, func(*api.Config) {})
	var first *httptest.ResponseRecorder
	done := make(chan struct{})
	a := ask{method: http.MethodPost, path: "/v1/pix", body: order(nil), token: coreToken, key: "slow", handler: slow}
	go func() {
		defer close(done)
		first = w.do(a)
	}()
	<-gate.at
	second := w.do(a)
	require.Equal(t, http.StatusConflict, second.Code)
	require.Equal(t, "1", second.Header().Get("Retry-After"))
	close(gate.open)
	<-done
	require.Equal(t, http.StatusCreated, first.Code)
	require.Equal(t, first.Body.String(), w.do(a).Body.String())
}

type slowGate struct{ at, open chan struct{} }

func (g *slowGate) Pass(context.Context, *store.Tx, desk.Order) error {
	close(g.at)
	<-g.open
	return nil
}

// A gate that refuses, fails or panics books nothing and frees the key.
func TestGateRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	gate := gateFunc(func(o desk.Order) error {
		require.Equal(t, "core", o.Client)
		if o.Payment.Amount == 1 {
			return desk.Refuse("acima-do-limite", "Acima do limite", "", desk.Violation{Field: "valor", Reason: "acima do limite"})
		}
		if o.Payment.Amount == 2 {
			panic("gate")
		}
		return nil
	})
	h := w.serve(gate, func(*api.Config) {})
	for amount, code := range map[string]int{"0.01": http.StatusUnprocessableEntity, "0.02": http.StatusInternalServerError} {
		a := ask{
			method: http.MethodPost, path: "/v1/pix", token: coreToken, key: "k", handler: h,
			body: order(func(o map[string]any) { o["valor"] = amount }),
		}
		require.Equal(t, code, w.do(a).Code)
		require.Equal(t, code, w.do(a).Code)
	}
	require.Empty(t, w.announced)
	rows, _, err := w.payments.List(t.Context(), store.Filter{Limit: 1})
	require.NoError(t, err)
	require.Empty(t, rows)
	ok := ask{method: http.MethodPost, path: "/v1/pix", token: coreToken, key: "k", handler: h, body: order(nil)}
	require.Equal(t, http.StatusCreated, w.do(ok).Code)
}

type gateFunc func(desk.Order) error

func (g gateFunc) Pass(_ context.Context, _ *store.Tx, o desk.Order) error { return g(o) }

// A client that leaves while its order is being booked leaves both the order and its answer, or neither.
func TestClientLeaves(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	h := w.serve(gateFunc(func(desk.Order) error { cancel(); return nil }), func(*api.Config) {})
	a := ask{method: http.MethodPost, path: "/v1/pix", body: order(nil), token: coreToken, key: "left", handler: h, ctx: ctx}
	require.Equal(t, http.StatusServiceUnavailable, w.do(a).Code)
	require.Empty(t, w.announced)
	require.Equal(t, http.StatusCreated, w.order(a.body, "left").Code)
}

func TestScheduledOrdersTakeTheSecondaryChannel(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	said := w.read(w.order(order(func(o map[string]any) { o["nivelServico"] = "PAGAGD" }), "k"), http.StatusCreated)
	require.Equal(t, "csm", said["canal"])
	require.Equal(t, pix.CSM, (<-w.announced).Channel)
}

// What no sender would take is not booked.
func TestAnOrderForAChannelThatIsOffIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.serve(nil, func(c *api.Config) { c.Channels = []pix.Channel{pix.CPM} })
	scheduled := order(func(o map[string]any) { o["nivelServico"] = "PAGAGD" })
	answer := w.do(ask{method: http.MethodPost, path: "/v1/pix", body: scheduled, token: coreToken, key: "off", handler: h})
	require.Equal(t, []string{"nivelServico"}, w.violated(answer, http.StatusUnprocessableEntity))
	require.Empty(t, w.announced)
	require.Equal(t, http.StatusCreated, w.do(ask{method: http.MethodPost, path: "/v1/pix", body: order(nil), token: coreToken, key: "on", handler: h}).Code)
}
