package main

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/corebank/corebanktest"
	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
)

func TestOrdersAndPaymentsReachTheSender(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.start("a", nil).ready()
	status, body := a.order("one-order-one-key-0001")
	require.Equal(t, http.StatusCreated, status, body)
	w.eventually("the order to be announced", func() bool { return w.heard("pacs.008") == 1 })
	status, again := a.order("one-order-one-key-0001")
	require.Equal(t, []any{http.StatusCreated, body}, []any{status, again})
	require.Equal(t, 1, w.heard("pacs.008"))

	var took []time.Duration
	for i := range 20 {
		p := transfer(t)
		publish := w.receive(pacs008(p))
		began := time.Now()
		publish(0)
		w.eventually("the answer to be announced", func() bool { return w.heard("pacs.002") == i+1 })
		took = append(took, time.Since(began))
		require.Equal(t, pix.Accepted, w.state(p.EndToEndID))
	}
	slices.Sort(took)
	t.Logf("from the bus to the bus, the core included: p50 %v, worst %v", took[len(took)/2], took[len(took)-1])
	status, metrics := a.admin("/metrics")
	require.Equal(t, http.StatusOK, status)
	for _, name := range []string{
		"cabine_payments_open{", "cabine_payments_open_oldest_seconds{", "cabine_decisions_total{", "cabine_outbox_published_total{",
		"cabine_payments_dead_letters_total{", "cabine_payments_contradictions_total", "cabine_resilience_breaker_open{",
	} {
		require.Contains(t, metrics, name)
	}
	a.signal()
	require.Zero(t, a.wait())
}

func TestWhatIsInHandIsDrained(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.start("a", nil).ready()
	release := w.bank.Hold()
	p := transfer(t)
	w.receive(pacs008(p), 0)
	w.eventually("the core to be asked", func() bool { return w.bank.Asked(string(p.EndToEndID)) == 1 })
	a.signal()
	a.logged("told to stop", "signal")
	w.eventually("the api to be closed", func() bool { status, _ := a.order("never-taken-key-000001"); return status == 0 })
	release()
	require.Zero(t, a.wait())
	require.Equal(t, pix.Accepted, w.state(p.EndToEndID))
	require.Zero(t, w.open())
	w.eventually("the answer to be announced before the end", func() bool { return w.heard("pacs.002") == 1 })
}

func TestAKilledReplicaLeavesNothingHalfDone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.start("a", nil).ready()
	release := w.bank.Hold()
	p := transfer(t)
	again := w.receive(pacs008(p), 0)
	w.eventually("the core to be asked", func() bool { return w.bank.Asked(string(p.EndToEndID)) == 1 })
	a.kill()
	release()
	require.Empty(t, w.state(p.EndToEndID))
	w.start("b", nil).ready()
	again(1) // as the poller's sweep does
	w.eventually("the payment to be accepted", func() bool { return w.state(p.EndToEndID) == pix.Accepted })
	w.eventually("the answer to be announced", func() bool { return w.heard("pacs.002") == 1 })
	require.Zero(t, w.open())
}

func TestTheBusIsAwayOrdersAreTaken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.start("a", nil).ready()
	require.NoError(t, w.nats.Stop())
	for i := range 5 {
		status, body := a.order(fmt.Sprintf("while-the-bus-is-away-%d", i))
		require.Equal(t, http.StatusCreated, status, body)
	}
	require.NoError(t, w.nats.Start(t.Context()))
	w.eventually("all to be announced", func() bool { return w.heard("pacs.008") == 5 })
	a.signal()
	require.Zero(t, a.wait())
}

func TestTheDatabaseIsAwayNothingIsLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.start("a", nil).ready()
	w.postgres.Refuse()
	w.postgres.Cut()
	p := transfer(t)
	w.receive(pacs008(p), 0)
	a.logged("message failed", "subject")
	status, _ := a.admin("/health/ready")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Zero(t, w.bank.Asked(string(p.EndToEndID)))
	w.postgres.Pass()
	w.eventually("the payment to be accepted", func() bool { return w.state(p.EndToEndID) == pix.Accepted })
	require.Zero(t, w.open())
}

func TestTwoReplicasUnderFaultsBookEachPaymentOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, name := range []string{"a", "b"} {
		w.start(name, nil).ready()
	}
	const messages = 30
	var ids []pix.EndToEndID
	w.bank.SetFault(corebanktest.Unavailable)
	for i := range messages {
		if i == messages/3 {
			w.bank.SetFault(corebanktest.None)
		}
		doc := pacs008()
		for range 10 {
			p := transfer(t)
			doc.Transactions = append(doc.Transactions, p)
			ids = append(ids, p.EndToEndID)
		}
		w.receive(doc, 0, 1, 2) // three copies, to whoever
	}
	w.eventually("all to be done", func() bool { return w.open() == 0 })
	w.eventually("all to be answered", func() bool { return w.heard("pacs.002") == len(ids) })
	for _, id := range ids {
		require.Contains(t, []pix.State{pix.Accepted, pix.Rejected}, w.state(id))
		events, err := w.payments.Events(t.Context(), string(id))
		require.NoError(t, err)
		require.Len(t, events, 1)
	}
}

func TestOpenPaymentsAreAskedAbout(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start("a", map[string]string{"CABINE_WATCH_ENQUIRE_AFTER": "500ms", "CABINE_WATCH_EVERY": "100ms"}).ready()
	p := transfer(t)
	w.receive(pacs008(p), 0)
	w.eventually("the SPI to be asked", func() bool { return w.heard("camt.060") >= 2 })
	require.Equal(t, pix.Accepted, w.state(p.EndToEndID))
	at := now()
	w.receive(&iso20022.Camt054{Notifications: []iso20022.Notification{{
		ID: "M12345678" + "00000000000000000000001", Owner: us, Amount: p.Amount, Side: iso20022.Credit, Status: iso20022.Booked, StatusAt: &at,
		Domain: iso20022.DomainPayments, Family: iso20022.FamilyCredit, SubFamily: iso20022.SubFamilyPayment, Origin: "pacs.008",
		Details: iso20022.EntryDetails{EndToEndID: string(p.EndToEndID)},
	}}}, 0)
	w.eventually("the payment to be settled", func() bool { return w.state(p.EndToEndID) == pix.Settled })
}
