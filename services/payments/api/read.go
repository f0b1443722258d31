package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/cabine-pix/cabine/libs/edge"
	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/order"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
)

// answering makes a handler of what returns a status and a value for JSON, or an error for fail.
func (a *API) answering(h func(*http.Request) (int, any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, value, err := h(r)
		if err != nil {
			a.fail(w, r, err)
			return
		}
		body, err := json.Marshal(value)
		if err != nil {
			a.fail(w, r, fmt.Errorf("answer to JSON: %w", err))
			return
		}
		edge.WriteJSON(w, status, body)
	})
}

func (a *API) getPayment(r *http.Request) (int, any, error) {
	ctx := r.Context()
	var found order.Violations
	id := found.EndToEndID("e2eid", r.PathValue("e2eid"))
	if err := found.Refusal(); err != nil {
		return 0, nil, err
	}
	row, err := a.payments.Get(ctx, string(id))
	if err != nil {
		return 0, nil, missing(err)
	}
	view, err := viewPayment(row)
	if err != nil {
		return 0, nil, err
	}
	returns, err := a.payments.Returns(ctx, row.ID)
	if err != nil {
		return 0, nil, err
	}
	for _, r := range returns {
		v, err := viewReturn(r)
		if err != nil {
			return 0, nil, err
		}
		view.Returns = append(view.Returns, v)
	}
	view.Events, err = a.events(ctx, row.ID)
	return http.StatusOK, view, err
}

func (a *API) getReturn(r *http.Request) (int, any, error) {
	ctx, id := r.Context(), r.PathValue("id")
	original, err := order.ReturnName(r.PathValue("e2eid"), id)
	if err != nil {
		return 0, nil, err
	}
	row, err := a.payments.ReturnByClient(ctx, string(original), id)
	if err != nil {
		return 0, nil, missing(err)
	}
	view, err := viewReturn(row)
	if err != nil {
		return 0, nil, err
	}
	view.Events, err = a.events(ctx, row.ID)
	return http.StatusOK, view, err
}

func missing(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return edge.NotFound()
	}
	return err
}

func (a *API) events(ctx context.Context, id string) ([]event, error) {
	rows, err := a.payments.Events(ctx, id)
	events := make([]event, len(rows))
	for i, e := range rows {
		events[i] = event{
			At: instant(e.At), Was: string(e.Was), Became: string(e.Became), Who: e.Who, Reason: e.Reason, Detail: e.Detail,
		}
	}
	return events, err
}

func (a *API) listPayments(r *http.Request) (int, any, error) {
	filter, err := readFilter(r.URL.Query())
	if err != nil {
		return 0, nil, err
	}
	rows, next, err := a.payments.List(r.Context(), filter)
	if errors.Is(err, store.ErrCursor) {
		var found order.Violations
		found.Add(queryCursor, "não é o cursor de uma página anterior")
		err = found.Refusal()
	}
	if err != nil {
		return 0, nil, err
	}
	list := listing{Payments: make([]payment, len(rows)), Parameters: parameters{
		From: instant(filter.From), Until: instant(filter.To), Page: page{Size: filter.Limit, Next: next},
	}}
	for i, row := range rows {
		if list.Payments[i], err = viewPayment(row); err != nil {
			return 0, nil, err
		}
	}
	return http.StatusOK, list, nil
}

// The query of a list.
const (
	queryFrom      = "inicio"
	queryUntil     = "fim"
	queryState     = "estado"
	queryDirection = "direcao"
	querySize      = "paginacao.itensPorPagina"
	queryCursor    = "paginacao.cursor"

	defaultSize = 100
	maxSize     = 1000
)

// readFilter reads a query as strictly as a body: what is unknown or repeated would be a filter that does not filter.
func readFilter(q url.Values) (store.Filter, error) {
	var found order.Violations
	for name, values := range q {
		switch name {
		case queryFrom, queryUntil, queryState, queryDirection, querySize, queryCursor:
			if len(values) > 1 {
				found.Add(name, "parâmetro repetido")
			}
		default:
			found.Add(name, "parâmetro desconhecido")
		}
	}
	f := store.Filter{
		Kind: pix.Payment, Limit: defaultSize, After: q.Get(queryCursor),
		From: readInstant(&found, queryFrom, q.Get(queryFrom)), To: readInstant(&found, queryUntil, q.Get(queryUntil)),
	}
	if len(found) == 0 && !f.From.Before(f.To) {
		found.Add(queryUntil, "deve ser depois de inicio")
	}
	if q.Has(queryState) {
		f.State = order.Choice(&found, queryState, q.Get(queryState), pix.States()...)
	}
	if q.Has(queryDirection) {
		f.Direction = order.Choice(&found, queryDirection, q.Get(queryDirection), pix.Out, pix.In)
	}
	if q.Has(querySize) {
		n, err := strconv.Atoi(q.Get(querySize))
		if err != nil || n < 1 || n > maxSize {
			found.Add(querySize, "deve ser um número de 1 a "+strconv.Itoa(maxSize))
		}
		f.Limit = n
	}
	if q.Has(queryCursor) && f.After == "" {
		found.Add(queryCursor, "não pode ser vazio")
	}
	return f, found.Refusal()
}

// readInstant reads an instant of a query, to the millisecond in which it is written back.
func readInstant(found *order.Violations, field, s string) time.Time {
	if s == "" {
		found.Add(field, "obrigatório")
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339, s)
	if err != nil || at.Year() < 2000 || at.Year() > 9000 {
		found.Add(field, "deve ser um instante RFC 3339, como 2026-01-31T12:00:00Z")
		return time.Time{}
	}
	return at.UTC().Truncate(time.Millisecond)
}

// instant writes a time as the SPI does.
func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

// status is a state in BACEN's words; done is that of what was settled.
func status(s pix.State, done string) string {
	switch s {
	case pix.Settled:
		return done
	case pix.Rejected:
		return "NAO_REALIZADO"
	case pix.Created, pix.Sent, pix.Unknown, pix.Accepted:
	}
	return "EM_PROCESSAMENTO"
}

// viewPayment puts a row into the interface's words.
func viewPayment(row store.Payment) (payment, error) {
	var t iso20022.CreditTransfer
	if err := json.Unmarshal(row.Document, &t); err != nil {
		return payment{}, fmt.Errorf("payment %s as booked: %w", row.ID, err)
	}
	v := payment{
		EndToEndID: row.ID, TxID: t.TxID, Direction: string(row.Direction), State: string(row.State),
		Status: status(row.State, "REALIZADO"), Reason: row.Reason, Detail: row.Detail, Channel: string(row.Channel),
		Amount: row.Amount.String(), Returned: row.Returned.String(), AcceptedAt: instant(row.AcceptedAt), SettledAt: instant(row.SettledAt),
		Key: t.Proxy, Instrument: string(t.LocalInstrument), Purpose: string(t.Purpose), Initiator: t.InitiatingParty,
		Payer:    viewParty(t.DebtorAgent, t.Debtor.Name, t.Debtor.ID, t.DebtorAccount),
		Receiver: viewParty(t.CreditorAgent, "", t.CreditorID, t.CreditorAccount),
	}
	if t.Remittance != nil {
		v.Text = t.Remittance.Text
	}
	return v, nil
}

func viewParty(ispb pix.ISPB, name, id string, account iso20022.Account) party {
	p := party{
		ISPB: string(ispb), Name: name, Branch: account.Branch, Account: account.ID, AccountType: order.AccountWord(account.Type),
	}
	if len(id) == 11 {
		p.CPF = id
	} else {
		p.CNPJ = id
	}
	return p
}

// viewReturn puts a row of a return into the interface's words.
func viewReturn(row store.Payment) (refund, error) {
	var r iso20022.PaymentReturn
	if err := json.Unmarshal(row.Document, &r); err != nil {
		return refund{}, fmt.Errorf("return %s as booked: %w", row.ID, err)
	}
	return refund{
		ID: row.ClientID, ReturnID: row.ID, State: string(row.State), Status: status(row.State, "DEVOLVIDO"),
		Reason: row.Reason, Detail: row.Detail, Amount: row.Amount.String(), Nature: order.NatureWord(r.Reason.Code), Text: r.Remittance,
		At: refundTimes{Asked: instant(row.AcceptedAt), Settled: instant(row.SettledAt)},
	}, nil
}
