package spitest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/icom/spitest"
	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
)

const soon = 60 * time.Millisecond

func always(at spitest.Place, do spitest.Effect, delay time.Duration) spitest.Config {
	return spitest.Config{Faults: []spitest.Fault{{At: at, Do: do, Rate: 1, Delay: delay}}}
}

// brief is an SPI that soon interrupts what it waits for.
func brief(cfg spitest.Config) spitest.Config {
	cfg.SettleWithin, cfg.OrderWithin = 300*time.Millisecond, time.Minute
	return cfg
}

// TestNoticesAreDropped: nobody is told, and the books know.
func TestNoticesAreDropped(t *testing.T) {
	t.Parallel()
	bank, spi := start(t, always(spitest.AtStatus, spitest.Drop, 0))
	a, b := join(t, bank, pix.CPM, payer), join(t, bank, pix.CPM, receiver)
	p := transfer(t, payer, receiver, 1_00)
	a.send(priority(p))
	got[*iso20022.Pacs008](b)
	b.answer("", same(p.EndToEndID))
	require.Eventually(t, func() bool { return spi.Books(false).Account(payer).PaymentsOut.Settled == 1 }, wait, tick)
	a.nothing()
	b.nothing()
	a.send(iso20022.Entry(payer, string(p.EndToEndID)))
	require.Equal(t, iso20022.Booked, got[*iso20022.Camt054](a).Notifications[0].Status, "asking helps")
	require.Equal(t, 2, spi.Books(false).Counters.Faults)
}

func TestNoticesComeTwice(t *testing.T) {
	t.Parallel()
	bank, _ := start(t, always(spitest.AtStatus, spitest.Repeat, soon))
	a, b := join(t, bank, pix.CPM, payer), join(t, bank, pix.CPM, receiver)
	p := pay(a, b, 1_00)
	first := a.told()
	settled(t, first, string(p.EndToEndID), iso20022.ACSC)
	settled(t, b.told(), string(p.EndToEndID), iso20022.ACCC)
	a.nothing()
}

func TestForwardingIsDelayedAndRepeated(t *testing.T) {
	t.Parallel()
	bank, spi := start(t, always(spitest.AtForward, spitest.Delay, soon))
	a, b := join(t, bank, pix.CPM, payer), join(t, bank, pix.CPM, receiver)
	begin := time.Now()
	pay(a, b, 1_00)
	require.Greater(t, time.Since(begin), soon)

	require.NoError(t, spi.SetFaults(spitest.Fault{At: spitest.AtForward, Do: spitest.Repeat, Rate: 1}))
	p := transfer(t, payer, receiver, 1_00)
	a.send(priority(p))
	for seen := 0; seen < 2; {
		for _, tx := range got[*iso20022.Pacs008](b).Transactions {
			require.Equal(t, p.EndToEndID, tx.EndToEndID)
			seen++
		}
	}
	b.answer("", same(p.EndToEndID))
	require.Equal(t, iso20022.ACSC, a.told().Status)
	require.Equal(t, iso20022.ACCC, b.told().Status)
}

func TestForwardingIsDropped(t *testing.T) {
	t.Parallel()
	bank, _ := start(t, brief(always(spitest.AtForward, spitest.Drop, 0)))
	a, b := join(t, bank, pix.CPM, payer), join(t, bank, pix.CPM, receiver)
	p := transfer(t, payer, receiver, 1_00)
	a.send(priority(p))
	require.EqualValues(t, "AB03", a.refused(string(p.EndToEndID)))
	require.EqualValues(t, "AB03", b.refused(string(p.EndToEndID)), "told of what it never saw")
}

// TestAnswersComeLate: the receiver said ACSP in time, the SPI took it after AB03, or never.
func TestAnswersComeLate(t *testing.T) {
	t.Parallel()
	bank, spi := start(t, brief(always(spitest.AtAnswer, spitest.Late, 0)))
	a, b := join(t, bank, pix.CPM, payer), join(t, bank, pix.CPM, receiver)
	silent := func() {
		p := transfer(t, payer, receiver, 1_00)
		a.send(priority(p))
		got[*iso20022.Pacs008](b)
		b.answer("", same(p.EndToEndID))
		require.EqualValues(t, "AB03", a.refused(string(p.EndToEndID)))
		require.EqualValues(t, "AB03", b.refused(string(p.EndToEndID)))
	}
	silent()
	require.Eventually(t, func() bool { return spi.Books(false).Counters.LateAnswers == 1 }, wait, tick)
	require.NoError(t, spi.SetFaults(spitest.Fault{At: spitest.AtAnswer, Do: spitest.Drop, Rate: 1}))
	silent()
	require.Equal(t, 1, spi.Books(false).Counters.LateAnswers)
}

func TestAnswersAreDelayed(t *testing.T) {
	t.Parallel()
	bank, _ := start(t, always(spitest.AtAnswer, spitest.Delay, soon))
	a, b := join(t, bank, pix.CPM, payer), join(t, bank, pix.CPM, receiver)
	begin := time.Now()
	pay(a, b, 1_00)
	require.Greater(t, time.Since(begin), soon)
}

// TestOneOfTenIsRefused: its message goes back whole each time; taken apart, the others pass.
func TestOneOfTenIsRefused(t *testing.T) {
	t.Parallel()
	bank, spi := start(t, spitest.Config{
		Faults: []spitest.Fault{{At: spitest.AtOrder, Do: spitest.Refuse, Rate: 0.1}},
	})
	a := join(t, bank, pix.CPM, payer)
	var bad iso20022.CreditTransfer
	var ten []iso20022.CreditTransfer
	for bad.Amount == 0 || len(ten) < 9 {
		p := transfer(t, payer, spitest.VirtualISPB, 1)
		a.send(priority(p))
		if _, refused := a.next().Document.(*iso20022.Admi002); refused {
			bad = p
		} else if len(ten) < 9 {
			ten = append(ten, p)
		}
	}
	a.send(priority(bad))
	require.NotEmpty(t, got[*iso20022.Admi002](a).Ref, "one operation has one fate")
	books := spi.Books(false)
	a.send(priority(append(ten, bad)...))
	require.NotEmpty(t, got[*iso20022.Admi002](a).Ref, "and its message with it")
	require.Equal(t, books.Account(payer), spi.Books(false).Account(payer))
}
