package inbound_test

import (
	"crypto/rand"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/services/payments/inbound"
)

func replaceOnce(s, from, to string) string { return strings.Replace(s, from, to, 1) }

func unsigned(t *testing.T, doc iso20022.Document) []byte {
	t.Helper()
	id, err := pix.NewMsgID(pix.SPI, rand.Reader)
	require.NoError(t, err)
	envelope, err := iso20022.DefaultVersions().Build(iso20022.Header{From: pix.SPI, To: us, MsgID: id, Created: now(), MsgType: doc.MsgType()}, doc)
	require.NoError(t, err)
	return envelope
}

func TestAnAnswerMayComeBeforeOurOwn201AndTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id, row := w.order()
	msg := w.build(1, row)
	w.handle(w.receive(status(string(id), id, iso20022.ACSC)))
	require.Equal(t, pix.Settled, w.state(string(id)))
	w.sent(msg, "r1")
	require.Equal(t, pix.Settled, w.state(string(id)), "the 201 takes nothing back")
	w.handle(w.receive(status(string(id), id, iso20022.ACSC)))
	require.Equal(t, []string{"api >created", "spi created>settled ACSC"}, w.events(string(id)))
	_, dead := w.dead()
	require.Zero(t, dead)
}

func TestARejectionKeepsItsReason(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id, row := w.order()
	w.sent(w.build(1, row), "r1")
	doc := status(string(id), id, iso20022.RJCT, "AM04")
	doc.Statuses[0].Reasons[0].Info = []string{"saldo insuficiente de 529.982.247-25"}
	w.handle(w.receive(doc))
	p := w.payment(string(id))
	require.Equal(t, []any{pix.Rejected, "AM04"}, []any{p.State, p.Reason})
	require.Contains(t, p.Detail, "saldo insuficiente")
	require.NotContains(t, p.Detail, "529.982", "no document in what people read")
}

func TestTimeoutRejectsWhatWasAcceptedAndALateContradictionIsToldAndNotBelieved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := transfer(t)
	id := string(p.EndToEndID)
	w.handle(w.receive(pacs008(p)))
	w.handle(w.receive(status(id, p.EndToEndID, iso20022.RJCT, "AB03")))
	require.Equal(t, pix.Rejected, w.state(id))
	w.handle(w.receive(status(id, p.EndToEndID, iso20022.ACCC)))
	require.Equal(t, pix.Rejected, w.state(id), "a final state stays")
	kinds, dead := w.dead()
	require.Equal(t, map[string]int{"contradiction": 1}, kinds)
	require.EqualValues(t, 1, dead)
	require.Equal(t, []string{"core >accepted", "spi accepted>rejected AB03", "spi rejected>rejected ACCC"}, w.events(id))
	require.Zero(t, w.open())
}

func TestWhatTheBooksDoNotKnowIsADeadLetter(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	known, row := w.order()
	w.sent(w.build(1, row), "r1")
	strange := e2e(t, us)
	doc := status(string(strange), strange, iso20022.ACSC)
	doc.Statuses = append(doc.Statuses, status(string(known), known, iso20022.ACSC).Statuses...)
	w.handle(w.receive(doc))
	require.Equal(t, pix.Settled, w.state(string(known)), "the rest of the message counts")
	kinds, dead := w.dead()
	require.Equal(t, map[string]int{"unknown_id": 1}, kinds)
	require.EqualValues(t, 1, dead)
}

func TestADuplicateIsNoEvidenceWhenWeSentTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id, row := w.order()
	msg := w.build(2, row)
	require.NoError(t, w.books.Outbound.Unknown(t.Context(), []pix.MsgID{msg}, "timeout"))
	w.handle(w.receive(status(string(id), id, iso20022.RJCT, "DUPL")))
	require.Equal(t, pix.Unknown, w.state(string(id)))
	asked := w.told()
	require.Len(t, asked, 1)
	require.Equal(t, []string{"camt.060", string(id)}, []string{asked[0].MsgType, asked[0].PaymentID})
	w.sent(msg, "r2")
	w.handle(w.receive(status(string(id), id, iso20022.ACSC)))
	w.handle(w.receive(status(string(id), id, iso20022.RJCT, "DUPL")))
	require.Equal(t, pix.Settled, w.state(string(id)))
	_, dead := w.dead()
	require.Zero(t, dead, "an answer to a copy contradicts nothing")

	once, row := w.order()
	w.sent(w.build(1, row), "r3")
	w.handle(w.receive(status(string(once), once, iso20022.RJCT, "DUPL")))
	require.Equal(t, pix.Rejected, w.state(string(once)), "sent once: somebody else has the identifier")
	require.Len(t, w.told(), 1)
}

func TestARefusedGroupIsTakenApartAndASingleMessageIsRejected(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var rows []store.Operation
	for range 10 {
		_, row := w.order()
		rows = append(rows, row)
	}
	group := w.build(1, rows...)
	w.sent(group, "resource-of-the-group")
	refusal := &iso20022.Admi002{Ref: "resource-of-the-group", Reason: "XML is not valid", Description: "o nome Fulano de Tal"}
	m := w.receive(refusal)
	w.handle(m)
	w.handle(m)
	apart, err := w.books.Outbox.Unpublished(t.Context(), 0, 100)
	require.NoError(t, err)
	require.Len(t, apart, 10)
	for _, op := range apart {
		require.True(t, op.Alone)
		require.Equal(t, pix.Sent, w.state(op.PaymentID))
	}
	bad := apart[4]
	single := w.build(1, bad)
	w.sent(single, "resource-of-one")
	w.handle(w.receive(&iso20022.Admi002{Ref: string(single), Reason: "XML is not valid", Location: "IntrBkSttlmAmt"}))
	p := w.payment(bad.PaymentID)
	require.Equal(t, pix.Rejected, p.State)
	require.Equal(t, "admi.002: XML is not valid at IntrBkSttlmAmt", p.Reason)
	for _, op := range apart {
		if op.ID != bad.ID {
			require.Equal(t, pix.Sent, w.state(op.PaymentID))
		}
	}
	// Some name the MsgId in the data and something of their own in the reference.
	id, row := w.order()
	other := w.build(1, row)
	w.sent(other, "resource-of-another")
	w.handle(w.receive(&iso20022.Admi002{Ref: "nonsense", Reason: "x", Data: "id " + string(other)}))
	require.Equal(t, pix.Rejected, w.state(string(id)))
	w.handle(w.receive(&iso20022.Admi002{Ref: "nonsense", Reason: "x"}))
	kinds, _ := w.dead()
	require.Equal(t, map[string]int{"unknown_id": 1}, kinds)
}

func TestARefusalOfWhatSettledIsAContradiction(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	refuse := func(settled pix.EndToEndID, msg pix.MsgID) {
		w.handle(w.receive(status(string(settled), settled, iso20022.ACSC)))
		w.handle(w.receive(&iso20022.Admi002{Ref: string(msg), Reason: "XML is not valid"}))
		require.Equal(t, pix.Settled, w.state(string(settled)))
	}
	twice, row := w.order()
	msg := w.build(2, row)
	require.NoError(t, w.books.Outbound.Unknown(t.Context(), []pix.MsgID{msg}, "timeout"))
	refuse(twice, msg)
	kinds, _ := w.dead()
	require.Empty(t, kinds, "one of two copies may be refused")

	once, row := w.order()
	msg = w.build(1, row)
	w.sent(msg, "r1")
	refuse(once, msg)
	kinds, dead := w.dead()
	require.Equal(t, map[string]int{"contradiction": 1}, kinds)
	require.EqualValues(t, 1, dead)

	grouped, row := w.order()
	other, second := w.order()
	msg = w.build(1, row, second)
	w.sent(msg, "r2")
	refuse(grouped, msg)
	kinds, _ = w.dead()
	require.Equal(t, map[string]int{"contradiction": 2}, kinds)
	require.Equal(t, pix.Sent, w.state(string(other)), "the rest of the group goes alone")
	require.Zero(t, w.open())
	letters, err := w.books.Inbox.DeadLetters(t.Context(), 0, 10)
	require.NoError(t, err)
	require.Contains(t, letters[1].Reason, string(grouped))
}

func TestReturnsAreDecidedFromTheBooks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	original := w.settledOrder()
	give := func(amount pix.Amount, change func(*iso20022.PaymentReturn)) string {
		id, err := pix.NewReturnID(them, now(), rand.Reader)
		require.NoError(t, err)
		r := iso20022.PaymentReturn{
			ReturnID: id, OriginalEndToEndID: original, Amount: amount, Priority: iso20022.High,
			Reason: iso20022.ReturnReason{Code: iso20022.ReturnAsked}, DebtorAgent: us, CreditorAgent: them,
		}
		if change != nil {
			change(&r)
		}
		w.handle(w.receive(&iso20022.Pacs004{Returns: []iso20022.PaymentReturn{r}}))
		return string(r.ReturnID)
	}
	first := give(1000, nil)
	require.Equal(t, iso20022.ACSP, w.answers()[first].Status)
	require.Equal(t, original, w.answers()[first].OriginalEndToEndID)
	tooMuch := give(235, nil)
	require.Equal(t, []iso20022.StatusReason{{Code: "AM09"}}, w.answers()[tooMuch].Reasons)
	require.Equal(t, pix.Rejected, w.state(tooMuch))
	w.handle(w.receive(status(first, original, iso20022.RJCT, "AB03")))
	require.Zero(t, w.payment(string(original)).Returned, "what was rejected is given back")
	all := give(1234, nil)
	w.handle(w.receive(status(all, original, iso20022.ACCC)))
	require.Equal(t, pix.Settled, w.state(all))
	require.EqualValues(t, 1234, w.payment(string(original)).Returned)

	foreign := give(1, func(r *iso20022.PaymentReturn) { r.CreditorAgent = "11111111" })
	require.Equal(t, []iso20022.StatusReason{{Code: "AB09"}}, w.answers()[foreign].Reasons)
	unknown := give(1, func(r *iso20022.PaymentReturn) { r.OriginalEndToEndID = e2e(t, us) })
	require.Equal(t, []iso20022.StatusReason{{Code: "AB09"}}, w.answers()[unknown].Reasons)
	kinds, _ := w.dead()
	require.Equal(t, map[string]int{"unknown_id": 1}, kinds)
	require.Equal(t, map[string]int{"exceeds": 1, "original": 2}, w.counter("cabine_payments_refusals_total", "why"))
	require.Zero(t, w.open())
}

func TestAReturnWaitsForTheNewsOfItsOriginal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	original, row := w.order()
	w.sent(w.build(1, row), "r1")
	id, err := pix.NewReturnID(them, now(), rand.Reader)
	require.NoError(t, err)
	m := w.receive(&iso20022.Pacs004{Returns: []iso20022.PaymentReturn{{
		ReturnID: id, OriginalEndToEndID: original, Amount: 1, Priority: iso20022.High,
		Reason: iso20022.ReturnReason{Code: iso20022.ReturnAsked}, DebtorAgent: us, CreditorAgent: them,
	}}})
	require.Error(t, w.processor.Handle(t.Context(), m))
	require.EqualValues(t, 1, w.open())
	w.handle(w.receive(status(string(original), original, iso20022.ACSC)))
	w.handle(m)
	require.Equal(t, pix.Accepted, w.state(string(id)))
}

// notification answers an enquiry about a payment.
func notification(t *testing.T, id pix.EndToEndID, side iso20022.Side, s iso20022.EntryStatus, code, text string) *iso20022.Camt054 {
	t.Helper()
	asked, err := pix.NewMsgID(us, rand.Reader)
	require.NoError(t, err)
	at := now()
	family := iso20022.FamilyDebit
	if side == iso20022.Credit {
		family = iso20022.FamilyCredit
	}
	return &iso20022.Camt054{Notifications: []iso20022.Notification{{
		ID: asked, Owner: us, Amount: 1234, Side: side, Status: s, StatusAt: &at, Domain: iso20022.DomainPayments, Family: family,
		SubFamily: iso20022.SubFamilyPayment, Origin: "pacs.008", Details: iso20022.EntryDetails{EndToEndID: string(id)},
		ErrorCode: code, Error: text,
	}}}
}

func TestEnquiriesSettleAndRejectOnlyWhatIsOver(t *testing.T) {
	t.Parallel()
	w := newWorldWith(t, 0, func(c *inbound.Config) {
		c.SettleWithin, c.AnswerMargin, c.InfoMargin = 1500*time.Millisecond, time.Millisecond, time.Millisecond
	})
	booked, row := w.order()
	w.sent(w.build(1, row), "r1")
	w.handle(w.receive(notification(t, booked, iso20022.Debit, iso20022.Booked, "", "")))
	require.Equal(t, pix.Settled, w.state(string(booked)))

	fresh, row := w.order()
	w.sent(w.build(1, row), "r2")
	w.handle(w.receive(notification(t, fresh, iso20022.Debit, iso20022.NotSettled, "", "")))
	require.Equal(t, pix.Sent, w.state(string(fresh)), "its time is not over")
	may, row := w.order()
	msg := w.build(1, row)
	require.NoError(t, w.books.Outbound.Unknown(t.Context(), []pix.MsgID{msg}, "timeout"))
	incoming := transfer(t)
	incoming.AcceptedAt = now()
	w.handle(w.receive(pacs008(incoming)))
	require.Eventually(t, func() bool { return time.Since(incoming.AcceptedAt) > 1600*time.Millisecond }, long, 10*time.Millisecond)

	w.handle(w.receive(notification(t, fresh, iso20022.Debit, iso20022.NotSettled, "ED05", "não respondido")))
	require.Equal(t, pix.Sent, w.state(string(fresh)), "an enquiry without an answer says nothing")
	w.handle(w.receive(notification(t, may, iso20022.Debit, iso20022.NotSettled, "", "")))
	require.Equal(t, pix.Unknown, w.state(string(may)), "a copy may still go out")
	w.handle(w.receive(notification(t, fresh, iso20022.Debit, iso20022.NotSettled, "AB03", "")))
	require.Equal(t, pix.Rejected, w.state(string(fresh)))
	require.Equal(t, "AB03", w.payment(string(fresh)).Reason)
	w.handle(w.receive(notification(t, incoming.EndToEndID, iso20022.Credit, iso20022.NotSettled, "", "")))
	require.Equal(t, pix.Rejected, w.state(string(incoming.EndToEndID)))
	_, dead := w.dead()
	require.Zero(t, dead)

	wrong := notification(t, booked, iso20022.Debit, iso20022.Booked, "", "")
	wrong.Notifications[0].Amount = 1
	w.handle(w.receive(wrong))
	w.handle(w.receive(notification(t, e2e(t, us), iso20022.Debit, iso20022.Booked, "", "")))
	kinds, _ := w.dead()
	require.Equal(t, map[string]int{"contradiction": 1, "unknown_id": 1}, kinds, "a debit that we never sent is one of them")
}

func TestEchoesAndBalancesAreKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.handle(w.receive(&iso20022.Pibr002{OriginalData: "x"}))
	asked, err := pix.NewMsgID(us, rand.Reader)
	require.NoError(t, err)
	w.handle(w.receive(&iso20022.Camt053{Statements: []iso20022.Statement{{
		ID: string(asked), Owner: us, Balances: []iso20022.AccountBalance{{Type: iso20022.BalanceAvailable, Amount: 1, At: now()}},
	}}}))
	require.Zero(t, w.open())
	counts, err := w.books.Inbox.Counts(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2, counts.Done)
	body, err := json.Marshal(w.told())
	require.NoError(t, err)
	require.Equal(t, "[]", strings.Replace(string(body), "null", "[]", 1))
}
