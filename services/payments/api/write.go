package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/cabine-pix/cabine/libs/edge"
	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/order"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
)

// by names the client of a request to the gate and in a payment's history.
func by(ctx context.Context) order.By {
	client := edge.Client(ctx)
	return order.By{Client: client, Who: "api/" + client}
}

// prepareOrder reads a POST and says what it does when its key is free.
func (a *API) prepareOrder(_ *http.Request, body []byte) (edge.Work[*store.Tx], error) {
	asked, err := a.desk.Read(body)
	if err != nil {
		return edge.Work[*store.Tx]{}, err
	}
	var queued []store.Operation
	return edge.Work[*store.Tx]{
		Effect: func(ctx context.Context, tx *store.Tx) (edge.Answer, error) {
			var row store.Payment
			var err error
			if row, queued, err = a.desk.Book(ctx, tx, by(ctx), asked); err != nil {
				return edge.Answer{}, err
			}
			view, err := viewPayment(row)
			if err != nil {
				return edge.Answer{}, err
			}
			answer, err := json.Marshal(view)
			return edge.Answer{Status: http.StatusCreated, Body: answer}, err
		},
		After: func(ctx context.Context) {
			a.orders.WithLabelValues(string(pix.Payment), "created").Inc()
			a.deps.Announcer.Announce(ctx, queued)
		},
	}, nil
}

// putReturn orders a return, or answers the one that has the name.
func (a *API) putReturn(r *http.Request) (int, any, error) {
	ctx, id := r.Context(), r.PathValue("id")
	e2e, err := order.ReturnName(r.PathValue("e2eid"), id)
	if err != nil {
		return 0, nil, err
	}
	body, err := edge.ReadBody(r)
	if err != nil {
		return 0, nil, err
	}
	asked, err := order.ReadReturn(body)
	if err != nil {
		return 0, nil, err
	}
	original, err := a.original(ctx, e2e)
	if err != nil {
		return 0, nil, err
	}
	if row, err := a.payments.ReturnByClient(ctx, string(e2e), id); !errors.Is(err, store.ErrNotFound) {
		return a.repeated(row, asked, err)
	}
	row, queued, err := a.desk.BookReturn(ctx, by(ctx), id, asked, original)
	switch {
	case err != nil:
		return 0, nil, err
	case queued == nil: // another request with this name was faster
		row, err := a.payments.ReturnByClient(ctx, string(e2e), id)
		return a.repeated(row, asked, err)
	}
	a.orders.WithLabelValues(string(pix.Return), "created").Inc()
	a.deps.Announcer.Announce(context.WithoutCancel(ctx), queued)
	view, err := viewReturn(row)
	return http.StatusCreated, view, err
}

// repeated answers a return that exists, unless something else was asked under its name.
func (a *API) repeated(row store.Payment, asked iso20022.PaymentReturn, err error) (int, any, error) {
	if err != nil {
		return 0, nil, err
	}
	var was iso20022.PaymentReturn
	if err := json.Unmarshal(row.Document, &was); err != nil {
		return 0, nil, fmt.Errorf("return %s as booked: %w", row.ID, err)
	}
	if !order.SameReturn(was, asked) {
		return 0, nil, edge.NewProblem(http.StatusConflict, "devolucao-existe", "Devolução já existe",
			"Já há uma devolução com este id e outro conteúdo. Use outro id para outra devolução.")
	}
	a.orders.WithLabelValues(string(pix.Return), "repeated").Inc()
	view, err := viewReturn(row)
	return http.StatusOK, view, err
}

// original returns a payment that may be given back, and its order.
func (a *API) original(ctx context.Context, id pix.EndToEndID) (of order.Original, err error) {
	of.Row, err = a.payments.Get(ctx, string(id))
	if errors.Is(err, store.ErrNotFound) {
		return of, edge.NotFound()
	}
	if err != nil {
		return of, err
	}
	if err := json.Unmarshal(of.Row.Document, &of.Transfer); err != nil {
		return of, fmt.Errorf("payment %s as booked: %w", of.Row.ID, err)
	}
	return of, nil
}

func kindOf(r *http.Request) string {
	if r.Method == http.MethodPut {
		return string(pix.Return)
	}
	return string(pix.Payment)
}
