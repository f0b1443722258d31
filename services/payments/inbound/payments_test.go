package inbound_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/corebank"
	"github.com/cabine-pix/cabine/libs/corebank/corebanktest"
	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/services/payments/inbound"
)

func TestAPaymentIsAskedAboutAnsweredAndSettled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := transfer(t)
	w.handle(w.receive(pacs008(p)))
	id := string(p.EndToEndID)
	require.Equal(t, pix.Accepted, w.state(id))
	require.Equal(t, iso20022.ACSP, w.answers()[id].Status)
	w.handle(w.receive(status(id, p.EndToEndID, iso20022.ACCC)))
	row := w.payment(id)
	require.Equal(t, pix.Settled, row.State)
	require.Equal(t, them, row.Counterparty)
	require.False(t, row.SettledAt.IsZero())
	require.Equal(t, []string{"core >accepted", "spi accepted>settled ACCC"}, w.events(id))
	require.Zero(t, w.open())
}

func TestTenPaymentsAreDecidedAtOnceAndWrittenTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	doc := pacs008()
	for range 10 {
		doc.Transactions = append(doc.Transactions, transfer(t))
	}
	refused := string(doc.Transactions[3].EndToEndID)
	w.bank.Decide(corebank.Answer{EndToEndID: refused, Decision: corebank.Rejected, Reason: "AC03", Detail: "conta encerrada"})
	release := w.bank.Hold()
	ended := make(chan error, 1)
	go func() { ended <- w.processor.Handle(t.Context(), w.receive(doc)) }()
	require.Eventually(t, func() bool { return w.bank.Report().Payments == 10 }, long, time.Millisecond, "all ten are asked while none is answered")
	release()
	require.NoError(t, <-ended)
	answers := w.answers()
	require.Len(t, answers, 10)
	require.Equal(t, iso20022.RJCT, answers[refused].Status)
	require.Equal(t, []iso20022.StatusReason{{Code: "AC03"}}, answers[refused].Reasons, "the detail stays here")
	row := w.payment(refused)
	require.Equal(t, []any{pix.Rejected, "AC03", "conta encerrada"}, []any{row.State, row.Reason, row.Detail})
	require.Equal(t, []string{"core >rejected AC03"}, w.events(refused))
}

func TestTheSameMessageAtOnceAndAgainHasOneEffect(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := transfer(t)
	m := w.receive(pacs008(p))
	release := w.bank.Hold()
	var both sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		both.Go(func() { errs[i] = w.processor.Handle(t.Context(), m) })
	}
	require.Eventually(t, func() bool { return w.bank.Asked(string(p.EndToEndID)) == len(errs) }, long, time.Millisecond)
	release()
	both.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	require.Len(t, w.answers(), 1)
	require.Len(t, w.events(string(p.EndToEndID)), 1)
	w.handle(m)
	require.Equal(t, len(errs), w.bank.Asked(string(p.EndToEndID)), "what is done is not asked about again")

	w.handle(w.receive(pacs008(p)))
	require.Equal(t, len(errs), w.bank.Asked(string(p.EndToEndID)), "nor what another message brought")
	require.Len(t, w.answers(), 1)
	p.Amount++
	w.handle(w.receive(pacs008(p)))
	kinds, dead := w.dead()
	require.Equal(t, map[string]int{"contradiction": 1}, kinds)
	require.EqualValues(t, 1, dead)
	require.EqualValues(t, 1234, w.payment(string(p.EndToEndID)).Amount)
}

func TestACrashBetweenDecisionAndCommitAsksAgainAndBooksOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := transfer(t)
	m := w.receive(pacs008(p))
	release := w.bank.Hold()
	ctx, crash := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.processor.Handle(ctx, m) }()
	require.Eventually(t, func() bool { return w.bank.Asked(string(p.EndToEndID)) == 1 }, long, time.Millisecond)
	crash()
	require.ErrorIs(t, <-ended, context.Canceled)
	release()
	_, err := w.books.Payments.Get(t.Context(), string(p.EndToEndID))
	require.Error(t, err, "nothing was written")
	require.EqualValues(t, 1, w.open())
	w.handle(m)
	require.Equal(t, 2, w.bank.Asked(string(p.EndToEndID)))
	require.Len(t, w.answers(), 1)
	require.Equal(t, pix.Accepted, w.state(string(p.EndToEndID)))
}

func TestASilentCoreRefusesByRule(t *testing.T) {
	t.Parallel()
	for _, fault := range []corebanktest.Fault{
		corebanktest.Dead, corebanktest.Hang, corebanktest.BadJSON, corebanktest.BadSignature, corebanktest.UnknownCode, corebanktest.HugeBody,
	} {
		t.Run(string(fault), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.bank.SetFault(fault)
			p := transfer(t)
			w.handle(w.receive(pacs008(p)))
			id := string(p.EndToEndID)
			require.Equal(t, []iso20022.StatusReason{{Code: "AB09"}}, w.answers()[id].Reasons)
			require.Equal(t, []string{"payments >rejected AB09"}, w.events(id))
			require.Contains(t, w.payment(id).Detail, "core is silent")
		})
	}
}

func TestWhatCannotHaveBeenForwardedIsADeadLetterAndTheRestIsDone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	good, foreign, nothing := transfer(t), transfer(t), transfer(t)
	foreign.CreditorAgent = "11111111"
	nothing.Amount = 0
	w.handle(w.receive(pacs008(good, foreign, nothing)))
	require.Len(t, w.answers(), 1)
	require.Equal(t, pix.Accepted, w.state(string(good.EndToEndID)))
	kinds, dead := w.dead()
	require.Equal(t, map[string]int{"addressee": 1, "syntax": 1}, kinds)
	require.EqualValues(t, 1, dead, "one message")
	require.Zero(t, w.bank.Asked(string(foreign.EndToEndID))+w.bank.Asked(string(nothing.EndToEndID)))
	require.Zero(t, w.open())
}

func TestWhatIsTooLateIsRefusedWithoutAsking(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	late, scheduled := transfer(t), transfer(t)
	late.AcceptedAt = now().Add(-39 * time.Second)
	w.handle(w.receive(pacs008(late)))
	id := string(late.EndToEndID)
	require.Equal(t, []iso20022.StatusReason{{Code: "AB09"}}, w.answers()[id].Reasons)
	require.Contains(t, w.payment(id).Detail, "the SPI's time is over")
	require.Zero(t, w.bank.Asked(id))
	require.Equal(t, map[string]int{"late": 1}, w.counter("cabine_payments_refusals_total", "why"))
	// The SPI says the same in its own word, which changes nothing.
	w.handle(w.receive(status(id, late.EndToEndID, iso20022.RJCT, "AB03")))
	require.Len(t, w.events(id), 1)

	scheduled.AcceptedAt = now().Add(-30 * time.Minute)
	doc := &iso20022.Pacs008{Priority: iso20022.Normal, ServiceLevel: iso20022.PAGAGD, Transactions: []iso20022.CreditTransfer{scheduled}}
	w.handle(w.receive(doc))
	require.Equal(t, pix.Accepted, w.state(string(scheduled.EndToEndID)))
	_, dead := w.dead()
	require.Zero(t, dead)
}

// The time that counts is the database's: a replica whose clock is off refuses nobody. Its
// questions carry its own time, though, and the core refuses those: that is silence, with its reason.
func TestAReplicaWhoseClockIsOff(t *testing.T) {
	t.Parallel()
	for _, skew := range []time.Duration{12 * time.Hour, -12 * time.Hour} {
		t.Run(skew.String(), func(t *testing.T) {
			t.Parallel()
			w := newWorldWith(t, skew, nil)
			p := transfer(t)
			w.handle(w.receive(pacs008(p)))
			id := string(p.EndToEndID)
			require.Contains(t, w.payment(id).Detail, "core is silent: wrong_answer")
			require.Empty(t, w.counter("cabine_payments_refusals_total", "why"), "not for being late")
			require.Len(t, w.answers(), 1)
			// The other side's clock is off: accepted in 12 hours, or 12 hours ago.
			other := newWorld(t)
			p = transfer(t)
			p.AcceptedAt = p.AcceptedAt.Add(skew)
			other.handle(other.receive(pacs008(p)))
			want := map[bool]pix.State{true: pix.Accepted, false: pix.Rejected}[skew > 0]
			require.Equal(t, want, other.state(string(p.EndToEndID)))
		})
	}
}

func TestOnlyWhatTheSPISignedForUsIsBelieved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := transfer(t)
	tampered := w.receive(pacs008(p))
	for name, m := range map[string][]byte{
		"tampered":  []byte(replaceOnce(string(tampered.Payload), "12.34", "99.34")),
		"unsigned":  unsigned(t, pacs008(p)),
		"no XML":    []byte("\x00\x01"),
		"empty":     {},
		"truncated": tampered.Payload[:len(tampered.Payload)/2],
	} {
		w.handle(w.store("pacs.008", m))
		require.Zero(t, w.bank.Report().Calls, name)
	}
	kinds, dead := w.dead()
	require.Equal(t, map[string]int{"signature": 5}, kinds)
	require.EqualValues(t, 5, dead)

	other := w.receiveFrom(iso20022.Header{From: pix.SPI, To: them}, pacs008(p))
	w.handle(other)
	forged := w.receiveFrom(iso20022.Header{From: them, To: us}, pacs008(p))
	w.handle(forged)
	strange := w.receive(&iso20022.Pibr001{Data: "x"})
	w.handle(strange)
	kinds, _ = w.dead()
	require.Equal(t, map[string]int{"signature": 5, "addressee": 2, "unknown_type": 1}, kinds)
	require.Empty(t, w.told())
	w.handle(tampered)
	require.Equal(t, pix.Accepted, w.state(string(p.EndToEndID)), "the true one is")
	require.Zero(t, w.open())
}

func TestAShortVersionListRefusesTheRest(t *testing.T) {
	t.Parallel()
	w := newWorldWith(t, 0, func(c *inbound.Config) {
		c.Versions = iso20022.DefaultVersions()
		c.Versions["pacs.008"] = []string{"1.17"}
	})
	w.handle(w.receive(pacs008(transfer(t))))
	kinds, _ := w.dead()
	require.Equal(t, map[string]int{"syntax": 1}, kinds)
}
