package api

import (
	"context"
	"crypto/tls"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"mime"
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/edge"
	"github.com/cabine-pix/cabine/libs/order"
	"github.com/cabine-pix/cabine/libs/store"
)

// Announcer hands operations that were committed to the bus. It must not block for long, and may fail: what it did not
// publish, a republisher will.
type Announcer interface {
	Announce(ctx context.Context, operations []store.Operation)
}

// Deps are the API's means.
type Deps struct {
	DB *store.DB
	// Gate is what every order passes. Nil: order.Rules.
	Gate order.Gate
	// Announcer hears of every order that was committed.
	Announcer Announcer
	Clock     clock.Clock
	Log       *slog.Logger
	Metrics   prometheus.Registerer
}

// API is the HTTP interface. It is safe for concurrent use.
type API struct {
	cfg      Config
	deps     Deps
	log      *slog.Logger
	tls      *tls.Config
	handler  http.Handler
	listener net.Listener

	desk     *order.Desk
	payments *store.Payments
	ledger   ledger
	orders   *prometheus.CounterVec
}

//go:embed openapi.yaml
var contract []byte

// New returns an API that does not listen yet.
func New(cfg Config, deps Deps) (*API, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("api config: %w", err)
	}
	a := &API{
		cfg: cfg, deps: deps, log: deps.Log, payments: store.NewPayments(deps.DB),
		desk:   order.NewDesk(order.Config{ISPB: cfg.ISPB, Channels: cfg.Channels}, order.Deps{DB: deps.DB, Gate: deps.Gate, Clock: deps.Clock}),
		ledger: ledger{db: deps.DB, keys: store.NewIdempotency(deps.DB), log: deps.Log},
		orders: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cabine_orders_total", Help: "Orders by kind and outcome: created, repeated or refused.",
		}, []string{"kind", "outcome"}),
	}
	var err error
	if a.tls, err = loadTLS(cfg.TLS); err != nil {
		return nil, fmt.Errorf("api config: %w", err)
	}
	if a.handler, err = a.build(); err != nil {
		return nil, err
	}
	if err := deps.Metrics.Register(a.orders); err != nil {
		return nil, fmt.Errorf("api metrics: %w", err)
	}
	return a, nil
}

// Handler is the API without its server.
func (a *API) Handler() http.Handler { return a.handler }

// route is one line of the interface.
type route struct {
	method, path string
	handler      http.Handler
	// open routes are answered without a token.
	open bool
	// body says that the request has one, in JSON.
	body bool
}

func (a *API) routes() []route {
	return []route{
		{method: http.MethodPost, path: "/v1/pix", body: true, handler: edge.Once(a.ledger, a.prepareOrder, a.fail)},
		{method: http.MethodGet, path: "/v1/pix", handler: a.answering(a.listPayments)},
		{method: http.MethodGet, path: "/v1/pix/{e2eid}", handler: a.answering(a.getPayment)},
		{method: http.MethodPut, path: "/v1/pix/{e2eid}/devolucao/{id}", body: true, handler: a.answering(a.putReturn)},
		{method: http.MethodGet, path: "/v1/pix/{e2eid}/devolucao/{id}", handler: a.answering(a.getReturn)},
		{method: http.MethodGet, path: "/openapi.yaml", open: true, handler: http.HandlerFunc(serveContract)},
	}
}

// build puts the routes behind what every request passes. See package edge for the order.
func (a *API) build() (http.Handler, error) {
	tokens, err := edge.ParseTokens(a.cfg.Tokens)
	if err != nil {
		return nil, fmt.Errorf("api config: tokens: %w", err)
	}
	observer, err := edge.NewObserver(a.deps.Clock, a.log, a.deps.Metrics)
	if err != nil {
		return nil, err
	}
	throttle, err := edge.NewThrottle(a.cfg.Throttle, a.deps.Clock, a.deps.Metrics)
	if err != nil {
		return nil, err
	}
	mux, allowed := http.NewServeMux(), make(map[string]string)
	for _, r := range a.routes() {
		inner := []edge.Middleware{edge.Route(r.method + " " + r.path)}
		if !r.open {
			inner = append(inner, edge.RequireClient)
		}
		if r.body {
			inner = append(inner, requireJSON)
		}
		mux.Handle(r.method+" "+r.path, edge.Chain(r.handler, inner...))
		if allowed[r.path] != "" {
			allowed[r.path] += ", "
		}
		allowed[r.path] += r.method
	}
	for path, methods := range allowed {
		mux.Handle(path, methodNotAllowed(methods))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { edge.NotFound().Write(w, r) })
	return edge.Chain(mux, edge.Correlate, observer.Observe, observer.Recover,
		edge.Limit(a.cfg.MaxBody, a.cfg.RequestTimeout), tokens.Identify, throttle.Throttle), nil
}

func methodNotAllowed(methods string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", methods)
		edge.NewProblem(http.StatusMethodNotAllowed, "metodo-nao-permitido", "Método não permitido",
			"Este recurso aceita: "+methods+".").Write(w, r)
	})
}

// requireJSON answers 415 to a body that does not say that it is JSON: a form of a browser, say.
func requireJSON(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		media, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
		charset, given := params["charset"]
		if err != nil || media != "application/json" || given && charset != "utf-8" && charset != "UTF-8" {
			edge.NewProblem(http.StatusUnsupportedMediaType, "outro-formato", "Formato não suportado",
				"Envie o corpo como application/json, em UTF-8.").Write(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func serveContract(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(contract) // a client that left does not read
}

// fail answers whatever went wrong: a Problem or a Refusal as it is, a fault of ours without its text, which the log has.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	var p edge.Problem
	var no *order.Refusal
	switch {
	case errors.As(err, &p):
	case errors.As(err, &no):
		p = problem(no)
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		a.log.Warn("request could not be answered now", "error", err, "correlation_id", edge.CorrelationID(r.Context()))
		p = edge.Unavailable()
	case errors.Is(r.Context().Err(), context.Canceled):
		p = edge.Unavailable() // nobody reads it; the client left
	default:
		a.log.Error("request failed", "error", err, "correlation_id", edge.CorrelationID(r.Context()))
		p = edge.Internal()
	}
	if p.Status == http.StatusUnprocessableEntity || p.Status == http.StatusConflict {
		a.orders.WithLabelValues(kindOf(r), "refused").Inc()
	}
	p.Write(w, r)
}

// problem is a Refusal as HTTP says it.
func problem(no *order.Refusal) edge.Problem {
	status := http.StatusUnprocessableEntity
	switch no.Class {
	case order.Malformed:
		status = http.StatusBadRequest
	case order.Taken:
		status = http.StatusConflict
	case order.Refused:
	}
	p := edge.NewProblem(status, no.Kind, no.Title, no.Detail)
	for _, v := range no.Violations {
		p.Violations = append(p.Violations, edge.Violation(v))
	}
	return p
}
