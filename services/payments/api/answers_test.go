package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	desk "github.com/cabine-pix/cabine/libs/order"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/services/payments/api"
)

// Every answer that the contract promises is given, and every answer that is given was promised (see conform).
func TestEveryAnswerOfTheContract(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.read(w.order(order(nil), "k"), http.StatusCreated)["endToEndId"].(string) //nolint:forcetypeassert // a failed one fails the test
	received := w.received(100, w.now())
	back := "/v1/pix/" + received + "/devolucao/a"
	whole := `{"valor":"0.50"}`
	require.Equal(t, http.StatusCreated, w.put(back, whole).Code)
	w.do(ask{method: http.MethodGet, path: list(nil), token: coreToken})
	broken := w.broken(received)
	throttled := w.serve(nil, func(c *api.Config) {
		c.Throttle.Disabled, c.Throttle.Limit, c.Throttle.Window = false, 1, time.Minute
	})
	panics := w.serve(gateFunc(func(desk.Order) error { panic("gate") }), func(*api.Config) {})
	post := func(body, key string, h http.Handler) ask {
		return ask{method: http.MethodPost, path: "/v1/pix", body: body, token: coreToken, key: key, handler: h}
	}
	get := func(path string, h http.Handler) ask {
		return ask{method: http.MethodGet, path: path, token: coreToken, handler: h}
	}
	put := func(path, body string, h http.Handler) ask {
		return ask{method: http.MethodPut, path: path, body: body, token: coreToken, handler: h}
	}
	huge := strings.Repeat(" ", 1<<20)
	missing := "/v1/pix/" + w.id(us, w.now())
	for _, a := range []ask{
		post(order(set("endToEndId", id)), "k2", nil), post(order(nil), "k", nil), post("{}", "k", nil), post(huge, "k", nil),
		post(order(set("valor", "9.99")), "k", nil),
		{method: http.MethodPost, path: "/v1/pix", token: coreToken, key: "k", body: "x", header: http.Header{"Content-Type": {"text/plain"}}},
		{method: http.MethodPost, path: "/v1/pix"},
		post(order(nil), "k3", panics),
		get(list(nil), nil), get("/v1/pix", nil),
		{method: http.MethodGet, path: list(nil)},
		get("/v1/pix/"+id, nil), get("/v1/pix/x", nil), get(missing, nil),
		{method: http.MethodGet, path: missing},
		put(back, whole, nil), put(back, `{"valor":"0.20"}`, nil), put(back, huge, nil), put(back, "{}", nil),
		put(missing+"/devolucao/a", whole, nil), put(back+"2", `{"valor":"0.99"}`, nil),
		{method: http.MethodPut, path: back},
		{method: http.MethodPut, path: back, token: coreToken, body: "x", header: http.Header{"Content-Type": {"text/plain"}}},
		put("/v1/pix/"+w.received(100, w.now())+"/devolucao/a", whole, panics),
		get(back, nil), get(back+"-", nil), get(back+"2", nil),
		{method: http.MethodGet, path: back},
		{method: http.MethodGet, path: "/openapi.yaml"},
		get(missing, throttled), // the allowance
		post(order(nil), "k", throttled), get(list(nil), throttled), get(missing, throttled), put(back, whole, throttled),
		get(back, throttled), get("/openapi.yaml", throttled),
		get(list(nil), nil), get("/v1/pix/"+broken.payment, nil), get("/v1/pix/"+received+"/devolucao/"+broken.refund, nil),
	} {
		w.do(a)
	}
	w.db.Close()
	for _, a := range []ask{
		post(order(nil), "k4", nil), get(list(nil), nil), get("/v1/pix/"+id, nil), put(back, whole, nil), get(back, nil),
	} {
		require.Equal(t, http.StatusServiceUnavailable, w.do(a).Code)
	}
	var promised, given []string
	for _, item := range w.document.Paths.Map() {
		for _, operation := range item.Operations() {
			for status := range operation.Responses.Map() {
				promised = append(promised, operation.OperationID+" "+status)
			}
		}
	}
	for name := range w.seen {
		given = append(given, name)
	}
	slices.Sort(promised)
	slices.Sort(given)
	require.Equal(t, promised, given)
}

type brokenRows struct{ payment, refund string }

// broken books a payment and a return of another whose documents nobody can read, which is a fault of ours.
func (w *world) broken(original string) brokenRows {
	w.t.Helper()
	row, err := w.payments.Get(w.t.Context(), original)
	require.NoError(w.t, err)
	row.ID, row.Document = w.id(them, w.now()), json.RawMessage(`"unreadable"`)
	w.insert(row)
	back := store.Payment{
		ID: "D" + w.id(us, w.now())[1:], Kind: pix.Return, Direction: pix.Out, State: pix.Created, Amount: 1, Channel: pix.CPM,
		Counterparty: them, OriginalID: original, ClientID: "broken", Document: row.Document, AcceptedAt: w.now(),
	}
	require.NoError(w.t, w.db.InTx(w.t.Context(), func(ctx context.Context, tx *store.Tx) error {
		_, err := w.payments.InsertReturn(ctx, tx, back, "api")
		return err
	}))
	return brokenRows{payment: row.ID, refund: back.ClientID}
}

func TestList(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var ids []string
	for i := range 7 {
		said := w.read(w.order(order(nil), fmt.Sprint("k", i)), http.StatusCreated)
		ids = append(ids, said["endToEndId"].(string)) //nolint:forcetypeassert // a failed one fails the test
	}
	w.move(store.Move{ID: ids[2], To: pix.Rejected, Who: "spi", Reason: "AM04"})
	in := w.received(500, w.now())
	require.Equal(t, http.StatusCreated, w.put("/v1/pix/"+in+"/devolucao/a", `{"valor":"1.00"}`).Code)

	pages := func(extra url.Values) (got []string, sizes []int) {
		for {
			said := w.read(w.get(list(extra)), http.StatusOK)
			var page struct {
				Parametros struct{ Paginacao struct{ Cursor string } }
				Pix        []struct{ EndToEndID string }
			}
			raw, err := json.Marshal(said)
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(raw, &page))
			for _, p := range page.Pix {
				got = append(got, p.EndToEndID)
			}
			sizes = append(sizes, len(page.Pix))
			if page.Parametros.Paginacao.Cursor == "" {
				return got, sizes
			}
			extra.Set("paginacao.cursor", page.Parametros.Paginacao.Cursor)
		}
	}
	all, sizes := pages(url.Values{"paginacao.itensPorPagina": {"3"}})
	require.Equal(t, append(slices.Clone(ids), in), all, "payments in order, without returns")
	require.Equal(t, []int{3, 3, 2}, sizes)
	got, _ := pages(url.Values{"estado": {"rejected"}})
	require.Equal(t, []string{ids[2]}, got)
	got, _ = pages(url.Values{"direcao": {"in"}})
	require.Equal(t, []string{in}, got)
	got, _ = pages(url.Values{"inicio": {"2099-01-01T00:00:00Z"}})
	require.Empty(t, got)

	for name, c := range map[string]struct {
		query url.Values
		field string
	}{
		"from missing":     {url.Values{"inicio": nil}, "inicio"},
		"until not a time": {url.Values{"fim": {"ontem"}}, "fim"},
		"year 1":           {url.Values{"inicio": {"0001-01-01T00:00:00Z"}}, "inicio"},
		"backwards":        {url.Values{"fim": {"2019-01-01T00:00:00Z"}}, "fim"},
		"empty span":       {url.Values{"fim": {"2020-01-01T00:00:00Z"}}, "fim"},
		"state":            {url.Values{"estado": {"liquidado"}}, "estado"},
		"empty state":      {url.Values{"estado": {""}}, "estado"},
		"direction":        {url.Values{"direcao": {"saida"}}, "direcao"},
		"no size":          {url.Values{"paginacao.itensPorPagina": {"0"}}, "paginacao.itensPorPagina"},
		"large size":       {url.Values{"paginacao.itensPorPagina": {"1001"}}, "paginacao.itensPorPagina"},
		"no number":        {url.Values{"paginacao.itensPorPagina": {"1e2"}}, "paginacao.itensPorPagina"},
		"cursor":           {url.Values{"paginacao.cursor": {"abc"}}, "paginacao.cursor"},
		"empty cursor":     {url.Values{"paginacao.cursor": {""}}, "paginacao.cursor"},
		"unknown":          {url.Values{"cpf": {payerCPF}}, "cpf"},
		"repeated":         {url.Values{"estado": {"sent", "created"}}, "estado"},
	} {
		answer := w.get(list(c.query))
		require.Equal(t, []string{c.field}, w.violated(answer, http.StatusBadRequest), name)
		require.NotContains(t, answer.Body.String(), payerCPF)
	}
}

// A payment's history is told line by line, and its end in both vocabularies.
func TestEveryOutcomeIsExplained(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.read(w.order(order(nil), "k"), http.StatusCreated)["endToEndId"].(string) //nolint:forcetypeassert // a failed one fails the test
	w.move(store.Move{ID: id, To: pix.Unknown, Who: "icom", Detail: "no answer"})
	require.NoError(t, w.db.InTx(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		return w.payments.Note(ctx, tx, id, "payments", "DUPL", "asked")
	}))
	w.move(store.Move{ID: id, To: pix.Rejected, Who: "spi", Reason: "AB03", Detail: "timeout at the receiver"})
	said := w.read(w.get("/v1/pix/"+id), http.StatusOK)
	require.Equal(t, "rejected", said["estado"])
	require.Equal(t, "NAO_REALIZADO", said["status"])
	require.Equal(t, "AB03", said["motivo"])
	var told []string
	events, _ := said["eventos"].([]any)
	for _, e := range events {
		m, _ := e.(map[string]any)
		told = append(told, fmt.Sprint(m["de"], ">", m["para"], " ", m["quem"], " ", m["motivo"]))
	}
	require.Equal(t, []string{
		"<nil>>created api/core <nil>", "created>unknown icom <nil>", "unknown>unknown payments DUPL", "unknown>rejected spi AB03",
	}, told)
	require.NotContains(t, said, "horarioLiquidacao")

	in := w.read(w.get("/v1/pix/"+w.received(100, w.now())), http.StatusOK)
	require.Equal(t, "REALIZADO", in["status"])
	require.Equal(t, "in", in["direcao"])
	require.Equal(t, "2026-01-02T03:04:05.000Z", in["horarioLiquidacao"])
}
