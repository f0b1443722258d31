package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/icom/spitest"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
)

const (
	payer    = pix.ISPB("11111111")
	receiver = pix.ISPB("22222222")
)

// agreed returns an order at the bank and the row that the payer has of it.
func agreed() (spitest.Order, store.Payment) {
	return spitest.Order{ID: "E1", Kind: pix.Payment, Debited: payer, Credited: receiver, Amount: 150, State: spitest.Settled},
		store.Payment{ID: "E1", Kind: pix.Payment, Direction: pix.Out, Amount: 150, State: pix.Settled}
}

func TestBooksThatAgreeHaveNoLines(t *testing.T) {
	t.Parallel()
	order, row := agreed()
	lines, difference := compare(payer, ledgers{"E1": row}, []spitest.Order{order})
	require.Empty(t, lines)
	require.Zero(t, difference)

	row.Direction = pix.In
	lines, _ = compare(receiver, ledgers{"E1": row}, []spitest.Order{order})
	require.Empty(t, lines)

	order.State = spitest.Rejected // before it reached the receiver
	lines, _ = compare(receiver, ledgers{}, []spitest.Order{order})
	require.Empty(t, lines)

	lines, _ = compare(payer, ledgers{"E2": {ID: "E2", State: pix.Rejected, Amount: 1}}, nil) // never reached the bank
	require.Empty(t, lines)
}

// Every way in which a line can differ is a line of the report, with its amount.
func TestBooksThatDifferAreNamed(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*spitest.Order, *store.Payment){
		"state here":     func(_ *spitest.Order, p *store.Payment) { p.State = pix.Sent },
		"state there":    func(o *spitest.Order, _ *store.Payment) { o.State = spitest.Rejected },
		"amount":         func(_ *spitest.Order, p *store.Payment) { p.Amount++ },
		"direction":      func(_ *spitest.Order, p *store.Payment) { p.Direction = pix.In },
		"kind":           func(o *spitest.Order, _ *store.Payment) { o.Kind = pix.Return },
		"missing there":  func(o *spitest.Order, _ *store.Payment) { o.Debited, o.Credited = receiver, "33333333" },
		"waiting at end": func(o *spitest.Order, _ *store.Payment) { o.State = spitest.Waiting },
	} {
		order, row := agreed()
		spoil(&order, &row)
		lines, difference := compare(payer, ledgers{"E1": row}, []spitest.Order{order})
		require.Len(t, lines, 1, name)
		require.Positive(t, difference, name)
	}
	order, _ := agreed()
	lines, difference := compare(payer, ledgers{}, []spitest.Order{order})
	require.Len(t, lines, 1)
	require.Equal(t, pix.Amount(150), difference)
}

// Every law of payments that the report can see broken ends the demo with 1.
func TestReportNamesBrokenPayments(t *testing.T) {
	t.Parallel()
	sound := Report{Outbound: Outbound{Orders: 3, Settled: 2, Rejected: 1}, Books: Books{Ours: 7, Bank: 7}}
	sound.judgePayments()
	require.Empty(t, sound.Broken)
	for name, spoil := range map[string]func(*Report){
		"nothing settled": func(r *Report) { r.Outbound = Outbound{Orders: 1, Rejected: 1} },
		"open":            func(r *Report) { r.Outbound.UnknownOpen, r.Outbound.Settled = 1, 1 },
		"twice":           func(r *Report) { r.Outbound.DoubleBooked = 1 },
		"too many":        func(r *Report) { r.Outbound.Settled++ },
		"sums":            func(r *Report) { r.Books.Ours++ },
		"lines":           func(r *Report) { r.Books.Difference = 1 },
	} {
		r := sound
		spoil(&r)
		r.judgePayments()
		require.NotEmpty(t, r.Broken, name)
	}
}
