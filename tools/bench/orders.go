package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cabine-pix/cabine/libs/bus"
	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/tools/internal/stage"
)

// booker books orders of one participant as payments does, an order and its operation in one transaction, without an
// HTTP request for each: what is measured is what comes after it.
type booker struct {
	payer    *stage.Participant
	receiver pix.ISPB
	bus      *bus.Bus
	payments *store.Payments
	outbox   *store.Outbox
}

func newBooker(ctx context.Context, payer *stage.Participant, receiver pix.ISPB) (*booker, error) {
	b, err := bus.Connect(ctx, bus.Config{URL: payer.NATS.URL()}, slog.New(slog.DiscardHandler))
	return &booker{
		payer: payer, receiver: receiver, bus: b, payments: store.NewPayments(payer.DB), outbox: store.NewOutbox(payer.DB),
	}, err
}

func (b *booker) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return b.bus.Close(ctx)
}

// book writes n orders in one transaction.
func (b *booker) book(ctx context.Context, n int) (operations []store.Operation, err error) {
	now := time.Now().UTC().Truncate(time.Millisecond)
	err = b.payer.DB.InTx(ctx, func(ctx context.Context, tx *store.Tx) error {
		for range n {
			row, err := b.order(now)
			if err != nil {
				return err
			}
			if _, err := b.payments.Insert(ctx, tx, row, "bench"); err != nil {
				return err
			}
			operations = append(operations, store.Operation{PaymentID: row.ID, MsgType: "pacs.008", Channel: row.Channel, Body: row.Document})
		}
		operations, err = b.outbox.Add(ctx, tx, operations)
		return err
	})
	return operations, err
}

func (b *booker) order(now time.Time) (store.Payment, error) {
	id, err := pix.NewEndToEndID(b.payer.ISPB, now, rand.Reader)
	if err != nil {
		return store.Payment{}, err
	}
	account := iso20022.Account{ID: "1001", Branch: "1", Type: iso20022.CACC}
	body, err := json.Marshal(iso20022.CreditTransfer{
		EndToEndID: id, Amount: 100, AcceptedAt: now, LocalInstrument: iso20022.MANU,
		Debtor: iso20022.Party{Name: "Pessoa Pagadora", ID: "11144477735"}, DebtorAccount: account, DebtorAgent: b.payer.ISPB,
		CreditorID: "52998224725", CreditorAccount: account, CreditorAgent: b.receiver, Purpose: iso20022.PurposePayment,
	})
	return store.Payment{
		ID: string(id), Kind: pix.Payment, Direction: pix.Out, State: pix.Created, Amount: 100, Channel: pix.CPM,
		Counterparty: b.receiver, Document: body, AcceptedAt: now,
	}, err
}

// announce tells the senders of what was booked.
func (b *booker) announce(ctx context.Context, operations []store.Operation) error {
	const most = 256
	for len(operations) > 0 {
		n := min(most, len(operations))
		batch, ids := make([]bus.Outbound, n), make([]int64, n)
		for i, o := range operations[:n] {
			batch[i] = bus.Outbound{ISPB: b.payer.ISPB, Channel: o.Channel, ID: o.ID, MsgType: o.MsgType}
			ids[i] = o.ID
		}
		if err := errors.Join(b.bus.PublishOutbound(ctx, batch)...); err != nil {
			return fmt.Errorf("announce: %w", err)
		}
		if err := b.outbox.MarkPublished(ctx, ids); err != nil {
			return err
		}
		operations = operations[n:]
	}
	return nil
}

// pace books and announces at a rate until n are booked or ctx ends, and returns how many were.
func (b *booker) pace(ctx context.Context, n int, rate float64) (booked int, err error) {
	const step = 50 * time.Millisecond
	tick := time.NewTicker(step)
	defer tick.Stop()
	for began := time.Now(); booked < n; {
		select {
		case <-ctx.Done():
			return booked, ctx.Err()
		case <-tick.C:
		}
		due := min(n, int(time.Since(began).Seconds()*rate)) - booked
		if due <= 0 {
			continue
		}
		operations, err := b.book(ctx, due)
		if err != nil {
			return booked, err
		}
		if err := b.announce(ctx, operations); err != nil {
			return booked, err
		}
		booked += due
	}
	return booked, nil
}
