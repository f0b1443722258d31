package store_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
)

// books is a bundle with the aggregates of the sending side.
type books struct {
	bundle
	payments *store.Payments
	outbox   *store.Outbox
	outbound *store.Outbound
	keys     *store.Idempotency
}

func setupBooks(t testing.TB) books {
	t.Helper()
	b := setup(t)
	return books{
		bundle: b, payments: store.NewPayments(b.db), outbox: store.NewOutbox(b.db),
		outbound: store.NewOutbound(b.db), keys: store.NewIdempotency(b.db),
	}
}

// e2e and rtr return identifiers that are told apart by n.
func e2e(n int) string { return fmt.Sprintf("E12345678202612010000%011d", n) }
func rtr(n int) string { return fmt.Sprintf("D12345678202612010000%011d", n) }

func msgID(n int) pix.MsgID { return pix.MsgID(fmt.Sprintf("M12345678%023d", n)) }

// order is an outgoing payment of 100.00 as the API books it.
func order(id string) store.Payment {
	return store.Payment{
		ID: id, Kind: pix.Payment, Direction: pix.Out, State: pix.Created, Amount: 100_00, Channel: pix.CPM,
		Counterparty: "87654321", Document: json.RawMessage(`{"b": 1, "a": "2"}`),
		AcceptedAt: time.Date(2026, 12, 1, 0, 0, 0, 123_000_000, time.UTC),
	}
}

// incoming is a payment that was accepted.
func incoming(id string) store.Payment {
	p := order(id)
	p.Direction, p.State = pix.In, pix.Accepted
	return p
}

// giveBack is an outgoing return of part of an incoming payment.
func giveBack(id, original, client string, amount pix.Amount) store.Payment {
	p := order(id)
	p.Kind, p.OriginalID, p.ClientID, p.Amount = pix.Return, original, client, amount
	return p
}

func (b books) tx(t testing.TB, fn func(ctx context.Context, tx *store.Tx) error) {
	t.Helper()
	require.NoError(t, b.db.InTx(t.Context(), fn))
}

// insert books payments, each of which must be new.
func (b books) insert(t testing.TB, payments ...store.Payment) {
	t.Helper()
	b.tx(t, func(ctx context.Context, tx *store.Tx) error {
		for _, p := range payments {
			fresh, err := b.payments.Insert(ctx, tx, p, "api")
			require.NoError(t, err)
			require.True(t, fresh)
		}
		return nil
	})
}

func (b books) insertReturn(t testing.TB, p store.Payment) (fresh bool, err error) {
	t.Helper()
	err = b.db.InTx(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		fresh, err = b.payments.InsertReturn(ctx, tx, p, "api")
		return err
	})
	return fresh, err
}

func (b books) move(t testing.TB, moves ...store.Move) (moved []store.Moved) {
	t.Helper()
	b.tx(t, func(ctx context.Context, tx *store.Tx) (err error) {
		moved, err = b.payments.Move(ctx, tx, moves)
		return err
	})
	return moved
}

func to(state pix.State, ids ...string) []store.Move {
	moves := make([]store.Move, len(ids))
	for i, id := range ids {
		moves[i] = store.Move{ID: id, To: state, Who: "spi"}
	}
	return moves
}

func (b books) get(t testing.TB, id string) store.Payment {
	t.Helper()
	p, err := b.payments.Get(t.Context(), id)
	require.NoError(t, err)
	return p
}

// history is what the events of a payment say: "created sent settled".
func (b books) history(t testing.TB, id string) []pix.State {
	t.Helper()
	events, err := b.payments.Events(t.Context(), id)
	require.NoError(t, err)
	var states []pix.State
	for i, e := range events {
		if i == 0 {
			require.Empty(t, e.Was)
		} else {
			require.Equal(t, events[i-1].Became, e.Was, "the events of %s form no chain", id)
		}
		states = append(states, e.Became)
	}
	return states
}

// add writes orders of payments to the outbox.
func (b books) add(t testing.TB, operations ...store.Operation) (added []store.Operation) {
	t.Helper()
	b.tx(t, func(ctx context.Context, tx *store.Tx) (err error) {
		added, err = b.outbox.Add(ctx, tx, operations)
		return err
	})
	return added
}

func operation(id, msgType string) store.Operation {
	return store.Operation{PaymentID: id, MsgType: msgType, Channel: pix.CPM, Body: json.RawMessage(`{"id": "` + id + `"}`)}
}

// ordered books outgoing payments with their orders, and returns the IDs of these in the outbox.
func (b books) ordered(t testing.TB, ids ...string) (operations []int64) {
	t.Helper()
	all := make([]store.Operation, len(ids))
	for i, id := range ids {
		b.insert(t, order(id))
		all[i] = operation(id, "pacs.008")
	}
	for _, o := range b.add(t, all...) {
		operations = append(operations, o.ID)
	}
	return operations
}

func draft(id pix.MsgID, attempts int, operations ...int64) store.Draft {
	return store.Draft{
		Message:      store.Message{MsgID: id, Channel: pix.CPM, MsgType: "pacs.008", Attempts: attempts, Payload: []byte("<" + id + "/>")},
		OperationIDs: operations,
	}
}

func (b books) build(t testing.TB, drafts ...store.Draft) []bool {
	t.Helper()
	built, err := b.outbound.Build(t.Context(), drafts)
	require.NoError(t, err)
	return built
}

func TestThroughTheLifeOfAPayment(t *testing.T) {
	t.Parallel()
	b := setupBooks(t)
	ops := b.ordered(t, e2e(1), e2e(2))
	free, taken, err := b.outbound.Claim(t.Context(), ops)
	require.NoError(t, err)
	require.Empty(t, taken)
	require.Len(t, free, 2)
	require.Equal(t, []bool{true}, b.build(t, draft(msgID(1), 1, ops...)))
	require.NoError(t, b.outbound.Sent(t.Context(), []store.Posted{{MsgID: msgID(1), ResourceID: "PI1"}}))
	at := time.Date(2026, 12, 1, 0, 0, 1, 0, time.UTC)
	moved := b.move(t,
		store.Move{ID: e2e(2), To: pix.Rejected, Who: "spi", Reason: "AB03"},
		store.Move{ID: e2e(1), To: pix.Settled, Who: "spi", SettledAt: at})
	require.Equal(t, []store.Moved{
		{ID: e2e(2), Was: pix.Sent, Became: pix.Rejected, Changed: true, Kind: pix.Payment, Direction: pix.Out, Amount: 100_00},
		{ID: e2e(1), Was: pix.Sent, Became: pix.Settled, Changed: true, Kind: pix.Payment, Direction: pix.Out, Amount: 100_00},
	}, moved)
	one := b.get(t, e2e(1))
	require.True(t, at.Equal(one.SettledAt))
	require.JSONEq(t, `{"a":"2","b":1}`, string(one.Document))
	require.Equal(t, []pix.State{pix.Created, pix.Sent, pix.Settled}, b.history(t, e2e(1)))
	require.Equal(t, []pix.State{pix.Created, pix.Sent, pix.Rejected}, b.history(t, e2e(2)))
	require.True(t, b.get(t, e2e(2)).SettledAt.IsZero())
	m, operations, err := b.outbound.ByResource(t.Context(), "PI1")
	require.NoError(t, err)
	require.Equal(t, store.MessageSent, m.State)
	require.Equal(t, ops, m.Operations)
	require.Len(t, operations, 2)
}
