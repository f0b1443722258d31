package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/cabine-pix/cabine/libs/edge"
	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
)

// The messages that orders become.
const (
	msgPayment = "pacs.008"
	msgReturn  = "pacs.004"
)

// who names the client of a request in a payment's history.
func who(ctx context.Context) string { return "api/" + edge.Client(ctx) }

// prepareOrder reads a POST and says what it does when its key is free.
func (a *API) prepareOrder(r *http.Request, body []byte) (edge.Work[*store.Tx], error) {
	now := milliseconds(a.deps.Clock.Now().Wall)
	o, err := readOrder(body, a.cfg.ISPB, now)
	if err != nil {
		return edge.Work[*store.Tx]{}, err
	}
	if err := o.named(a.cfg.ISPB, now); err != nil {
		return edge.Work[*store.Tx]{}, err
	}
	var queued []store.Operation
	return edge.Work[*store.Tx]{
		Effect: func(ctx context.Context, tx *store.Tx) (edge.Answer, error) {
			row, err := a.bookOrder(ctx, tx, o)
			if err != nil {
				return edge.Answer{}, err
			}
			if queued, err = a.queue(ctx, tx, row, msgPayment); err != nil {
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

// bookOrder lets an order through the Gate and books it; an EndToEndId that is booked already is a conflict.
func (a *API) bookOrder(ctx context.Context, tx *store.Tx, o order) (store.Payment, error) {
	document, err := json.Marshal(o.transfer)
	if err != nil {
		return store.Payment{}, fmt.Errorf("order to JSON: %w", err)
	}
	if !slices.Contains(a.cfg.Channels, o.channel) {
		return store.Payment{}, Refuse("canal-desligado", "Canal desligado", "Este participante não usa o canal "+string(o.channel)+", e a ordem não sairia.",
			edge.Violation{Field: "nivelServico", Reason: "PAGPRI sai pelo canal cpm, PAGAGD pelo csm"})
	}
	row := store.Payment{
		ID: string(o.transfer.EndToEndID), Kind: pix.Payment, Direction: pix.Out, State: pix.Created, Amount: o.transfer.Amount,
		Channel: o.channel, Counterparty: o.transfer.CreditorAgent, Document: document, AcceptedAt: o.transfer.AcceptedAt,
	}
	if err := a.deps.Gate.Pass(ctx, tx, Order{Client: edge.Client(ctx), Payment: row}); err != nil {
		return store.Payment{}, err
	}
	fresh, err := a.payments.Insert(ctx, tx, row, who(ctx))
	switch {
	case err != nil:
		return store.Payment{}, err
	case !fresh:
		p := edge.NewProblem(http.StatusConflict, "pagamento-existe", "Pagamento já existe",
			"Já há um pagamento com este endToEndId, ordenado com outra chave. Consulte-o; ele não foi ordenado de novo.")
		p.Violations = []edge.Violation{{Field: "endToEndId", Reason: "já usado"}}
		return store.Payment{}, p
	}
	return row, nil
}

// queue writes what is to be said to the SPI about a row that was just booked.
func (a *API) queue(ctx context.Context, tx *store.Tx, row store.Payment, msgType string) ([]store.Operation, error) {
	return a.outbox.Add(ctx, tx, []store.Operation{{PaymentID: row.ID, MsgType: msgType, Channel: row.Channel, Body: row.Document}})
}

// putReturn orders a return, or answers the one that has the name.
func (a *API) putReturn(r *http.Request) (int, any, error) {
	ctx, id := r.Context(), r.PathValue("id")
	e2e, err := returnPath(r.PathValue("e2eid"), id)
	if err != nil {
		return 0, nil, err
	}
	body, err := edge.ReadBody(r)
	if err != nil {
		return 0, nil, err
	}
	asked, err := readReturn(body)
	if err != nil {
		return 0, nil, err
	}
	original, transfer, err := a.original(ctx, e2e)
	if err != nil {
		return 0, nil, err
	}
	if row, err := a.payments.ReturnByClient(ctx, string(e2e), id); !errors.Is(err, store.ErrNotFound) {
		return a.repeated(row, asked, err)
	}
	now := milliseconds(a.deps.Clock.Now().Wall)
	if asked, err = completed(asked, transfer, a.cfg.ISPB, now); err != nil {
		return 0, nil, err
	}
	document, err := json.Marshal(asked)
	if err != nil {
		return 0, nil, fmt.Errorf("return to JSON: %w", err)
	}
	row := store.Payment{
		ID: string(asked.ReturnID), Kind: pix.Return, Direction: pix.Out, State: pix.Created, Amount: asked.Amount,
		Channel: pix.CPM, Counterparty: original.Counterparty, OriginalID: original.ID, ClientID: id,
		Document: document, AcceptedAt: now,
	}
	order := Order{Client: edge.Client(ctx), Payment: row, Original: &original, OriginalTransfer: &transfer, Return: &asked}
	queued, err := a.bookReturn(ctx, order)
	switch {
	case errors.Is(err, store.ErrExceeds):
		return 0, nil, exceeds()
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

// bookReturn books a return and queues it in one transaction; it queues nothing when the name is taken.
func (a *API) bookReturn(ctx context.Context, o Order) (queued []store.Operation, err error) {
	err = a.deps.DB.InTx(ctx, func(ctx context.Context, tx *store.Tx) error {
		if err := a.deps.Gate.Pass(ctx, tx, o); err != nil {
			return err
		}
		fresh, err := a.payments.InsertReturn(ctx, tx, o.Payment, who(ctx))
		if err != nil || !fresh {
			return err
		}
		queued, err = a.queue(ctx, tx, o.Payment, msgReturn)
		return err
	})
	if err != nil {
		return nil, err
	}
	return queued, nil
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
	if !sameReturn(was, asked) {
		return 0, nil, edge.NewProblem(http.StatusConflict, "devolucao-existe", "Devolução já existe",
			"Já há uma devolução com este id e outro conteúdo. Use outro id para outra devolução.")
	}
	a.orders.WithLabelValues(string(pix.Return), "repeated").Inc()
	view, err := viewReturn(row)
	return http.StatusOK, view, err
}

// original returns a payment that may be given back, and its order.
func (a *API) original(ctx context.Context, id pix.EndToEndID) (store.Payment, iso20022.CreditTransfer, error) {
	var transfer iso20022.CreditTransfer
	row, err := a.payments.Get(ctx, string(id))
	if errors.Is(err, store.ErrNotFound) {
		return row, transfer, edge.NotFound()
	}
	if err != nil {
		return row, transfer, err
	}
	if err := json.Unmarshal(row.Document, &transfer); err != nil {
		return row, transfer, fmt.Errorf("payment %s as booked: %w", row.ID, err)
	}
	return row, transfer, nil
}

func kindOf(r *http.Request) string {
	if r.Method == http.MethodPut {
		return string(pix.Return)
	}
	return string(pix.Payment)
}
