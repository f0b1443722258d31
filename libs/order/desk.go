package order

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
)

// The messages that orders become.
const (
	msgPayment = "pacs.008"
	msgReturn  = "pacs.004"
)

// Config says whose orders these are.
type Config struct {
	// ISPB is the participant. Required.
	ISPB pix.ISPB
	// Channels are those that orders go out on. Required.
	Channels []pix.Channel
}

// Deps are a Desk's means.
type Deps struct {
	DB *store.DB
	// Gate is what every order passes. Nil: Rules.
	Gate  Gate
	Clock clock.Clock
}

// Desk takes orders, wherever they come from. It is safe for concurrent use.
type Desk struct {
	cfg      Config
	deps     Deps
	payments *store.Payments
	outbox   *store.Outbox
}

// NewDesk returns a desk.
func NewDesk(cfg Config, deps Deps) *Desk {
	if deps.Gate == nil {
		deps.Gate = NewRules(cfg.ISPB, deps.Clock)
	}
	return &Desk{cfg: cfg, deps: deps, payments: store.NewPayments(deps.DB), outbox: store.NewOutbox(deps.DB)}
}

// By is who gives an order.
type By struct {
	// Client is what the Gate knows it by.
	Client string
	// Who is what the history of the payment says.
	Who string
}

// Read reads and judges a payment order, and names it if its client did not. It fails with a Refusal.
func (d *Desk) Read(body []byte) (Payment, error) {
	now := d.now()
	p, err := readPayment(body, d.cfg.ISPB, now)
	if err == nil {
		err = p.named(d.cfg.ISPB, now)
	}
	return p, err
}

// ReadEvent is Read for an event, whose id it returns too; empty: it has none that can be read.
func (d *Desk) ReadEvent(body []byte) (id string, p Payment, err error) {
	now := d.now()
	if id, p, err = readEvent(body, d.cfg.ISPB, now); err == nil {
		err = p.named(d.cfg.ISPB, now)
	}
	return id, p, err
}

// now is the instant of an order: UTC, to the millisecond, as the SPI's messages have them.
func (d *Desk) now() time.Time { return d.deps.Clock.Now().Wall.UTC().Truncate(time.Millisecond) }

// EndToEndID is the payment's name, the client's or the one that Read gave it.
func (o *Payment) EndToEndID() pix.EndToEndID { return o.transfer.EndToEndID }

// Book lets a payment through the Gate, books it and queues what is to be said about it to the SPI, as part of a
// transaction. It fails with a Refusal, among others for an EndToEndId that is booked already: the transaction must not
// be committed then.
func (d *Desk) Book(ctx context.Context, tx *store.Tx, by By, o Payment) (store.Payment, []store.Operation, error) {
	document, err := json.Marshal(o.transfer)
	if err != nil {
		return store.Payment{}, nil, fmt.Errorf("order to JSON: %w", err)
	}
	if !slices.Contains(d.cfg.Channels, o.channel) {
		return store.Payment{}, nil, Refuse("canal-desligado", "Canal desligado", "Este participante não usa o canal "+string(o.channel)+", e a ordem não sairia.",
			Violation{Field: "nivelServico", Reason: "PAGPRI sai pelo canal cpm, PAGAGD pelo csm"})
	}
	row := store.Payment{
		ID: string(o.transfer.EndToEndID), Kind: pix.Payment, Direction: pix.Out, State: pix.Created, Amount: o.transfer.Amount,
		Channel: o.channel, Counterparty: o.transfer.CreditorAgent, Document: document, AcceptedAt: o.transfer.AcceptedAt,
	}
	if err := d.deps.Gate.Pass(ctx, tx, Order{Client: by.Client, Payment: row}); err != nil {
		return store.Payment{}, nil, err
	}
	fresh, err := d.payments.Insert(ctx, tx, row, by.Who)
	switch {
	case err != nil:
		return store.Payment{}, nil, err
	case !fresh:
		return store.Payment{}, nil, &Refusal{
			Class: Taken, Kind: "pagamento-existe", Title: "Pagamento já existe",
			Detail:     "Já há um pagamento com este endToEndId, ordenado com outra chave. Consulte-o; ele não foi ordenado de novo.",
			Violations: []Violation{{Field: "endToEndId", Reason: "já usado"}},
		}
	}
	queued, err := d.queue(ctx, tx, row, msgPayment)
	return row, queued, err
}

// queue writes what is to be said to the SPI about a row that was just booked.
func (d *Desk) queue(ctx context.Context, tx *store.Tx, row store.Payment, msgType string) ([]store.Operation, error) {
	return d.outbox.Add(ctx, tx, []store.Operation{{PaymentID: row.ID, MsgType: msgType, Channel: row.Channel, Body: row.Document}})
}

// Original is a payment that may be given back, and its order.
type Original struct {
	Row      store.Payment
	Transfer iso20022.CreditTransfer
}

// BookReturn lets a return of an original through the Gate, books it under the name that its client gave it, and queues
// it, in one transaction. Nothing is queued when the name is taken. It fails with a Refusal, among others for one that
// would give back more than is left.
func (d *Desk) BookReturn(ctx context.Context, by By, name string, asked iso20022.PaymentReturn, of Original) (store.Payment, []store.Operation, error) {
	now := d.now()
	asked, err := completed(asked, of.Transfer, d.cfg.ISPB, now)
	if err != nil {
		return store.Payment{}, nil, err
	}
	document, err := json.Marshal(asked)
	if err != nil {
		return store.Payment{}, nil, fmt.Errorf("return to JSON: %w", err)
	}
	row := store.Payment{
		ID: string(asked.ReturnID), Kind: pix.Return, Direction: pix.Out, State: pix.Created, Amount: asked.Amount,
		Channel: pix.CPM, Counterparty: of.Row.Counterparty, OriginalID: of.Row.ID, ClientID: name,
		Document: document, AcceptedAt: now,
	}
	o := Order{Client: by.Client, Payment: row, Original: &of.Row, OriginalTransfer: &of.Transfer, Return: &asked}
	var queued []store.Operation
	err = d.deps.DB.InTx(ctx, func(ctx context.Context, tx *store.Tx) error {
		if err := d.deps.Gate.Pass(ctx, tx, o); err != nil {
			return err
		}
		fresh, err := d.payments.InsertReturn(ctx, tx, row, by.Who)
		if err != nil || !fresh {
			return err
		}
		queued, err = d.queue(ctx, tx, row, msgReturn)
		return err
	})
	if errors.Is(err, store.ErrExceeds) {
		err = exceeds()
	}
	if err != nil {
		return store.Payment{}, nil, err
	}
	return row, queued, nil
}
