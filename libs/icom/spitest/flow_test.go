package spitest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/icom/spitest"
	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
)

// TestFlow: a payment and its return, to the end on both sides.
func TestFlow(t *testing.T) {
	t.Parallel()
	bank, spi := start(t, spitest.Config{})
	a, b := join(t, bank, pix.CPM, payer), join(t, bank, pix.CPM, receiver)

	paid := transfer(t, payer, receiver, 150_25)
	_, h := a.send(priority(paid))
	e := b.next()
	require.NotEqual(t, h.MsgID, e.Header.MsgID, "the SPI's own identifier")
	require.Equal(t, priority(paid), e.Document, "the operation is what was sent")
	require.Equal(t, 1, spi.Books(false).Account(payer).PaymentsOut.Waiting)
	a.nothing()

	b.answer("", same(paid.EndToEndID))
	settled(t, a.told(), string(paid.EndToEndID), iso20022.ACSC)
	settled(t, b.told(), string(paid.EndToEndID), iso20022.ACCC)

	back := giveBack(t, paid, 50_25)
	b.send(&iso20022.Pacs004{Returns: []iso20022.PaymentReturn{back}})
	require.Equal(t, []iso20022.PaymentReturn{back}, got[*iso20022.Pacs004](a).Returns)
	a.answer("", [2]string{string(back.ReturnID), string(paid.EndToEndID)})
	settled(t, b.told(), string(back.ReturnID), iso20022.ACSC)
	settled(t, a.told(), string(back.ReturnID), iso20022.ACCC)

	books := spi.Books(true)
	require.Empty(t, books.Broken)
	require.Equal(t, spitest.Account{
		ISPB: payer, Opening: 1000_00, Debits: 150_25, Credits: 50_25, Balance: 900_00,
		PaymentsOut: spitest.Totals{Settled: 1, Amount: 150_25}, ReturnsIn: spitest.Totals{Settled: 1, Amount: 50_25},
	}, books.Account(payer))
	require.Equal(t, spitest.Account{
		ISPB: receiver, Opening: 1000_00, Debits: 50_25, Credits: 150_25, Balance: 1100_00,
		PaymentsIn: spitest.Totals{Settled: 1, Amount: 150_25}, ReturnsOut: spitest.Totals{Settled: 1, Amount: 50_25},
	}, books.Account(receiver))
	require.Len(t, books.Orders, 2)
	require.Equal(t, string(paid.EndToEndID), books.Orders[1].Original)
}

func settled(t *testing.T, st iso20022.PaymentStatus, id string, status iso20022.Status) {
	t.Helper()
	require.Equal(t, id, st.OriginalInstrID)
	require.Equal(t, status, st.Status)
	require.Empty(t, st.Reasons)
	require.WithinDuration(t, time.Now(), *st.SettledAt, time.Minute)
	require.Equal(t, st.SettledAt.Add(-3*time.Hour).Format(time.DateOnly), *st.AccountingDate)
}

// TestBothWaysInGroups: ten payments a message, answered ten a message, settle all.
func TestBothWaysInGroups(t *testing.T) {
	t.Parallel()
	bank, spi := start(t, spitest.Config{WrapSignatures: true, Linger: 5 * time.Millisecond})
	a, b := join(t, bank, pix.CPM, payer), join(t, bank, pix.CPM, receiver)
	const messages = 5
	for range messages {
		var there, back []iso20022.CreditTransfer
		for range 10 {
			there = append(there, transfer(t, payer, receiver, 1_00))
			back = append(back, transfer(t, receiver, payer, 1_01))
		}
		a.send(priority(there...))
		b.send(priority(back...))
	}
	for open := 4 * 10 * messages; open > 0; {
		for _, m := range []*member{a, b} {
			for _, e := range m.unread {
				open -= m.react(e)
			}
			m.unread = nil
			m.read()
		}
	}
	books := spi.Books(false)
	require.Equal(t, spitest.Totals{Settled: 50, Amount: 50_00}, books.Account(payer).PaymentsOut)
	require.Equal(t, spitest.Totals{Settled: 50, Amount: 50_50}, books.Account(payer).PaymentsIn)
	require.LessOrEqual(t, books.Counters.Sent, 4*10*messages/5, "operations travel in groups")
}

// react accepts payments and counts what it is told about its own.
func (m *member) react(e iso20022.Envelope) (told int) {
	m.t.Helper()
	switch d := e.Document.(type) {
	case *iso20022.Pacs008:
		var ids [][2]string
		for _, p := range d.Transactions {
			ids = append(ids, same(p.EndToEndID))
		}
		m.answer("", ids...)
	case *iso20022.Pacs002:
		for _, st := range d.Statuses {
			require.NotEqual(m.t, iso20022.RJCT, st.Status)
		}
		return len(d.Statuses)
	default:
		require.Fail(m.t, "unexpected", "%T", d)
	}
	return 0
}
