package inbound_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/devstack/devtest"
	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
)

// reconcile begins a reconciliation and returns it with the MsgIds of its questions for the file and for the balance.
func (w *world) reconcile() (id int64, file, balance pix.MsgID) {
	w.t.Helper()
	const name = "settlement"
	term, err := store.NewTerms(w.books.DB).Mint(w.t.Context(), name, "test")
	require.NoError(w.t, err)
	q := store.Inquiry{MsgType: "camt.060", Channel: pix.CPM, Body: json.RawMessage("{}")}
	b := q
	b.Balance = true
	id, err = w.books.Reconciliations.Start(w.t.Context(), store.Reign{Name: name, Term: term}, store.Reconciliation{
		Cause: store.CauseManual, From: now().Add(-time.Hour), To: now(), Active: true,
	}, []store.Inquiry{q, b})
	require.NoError(w.t, err)
	rows, err := w.books.Outbox.Unpublished(w.t.Context(), 0, 10)
	require.NoError(w.t, err)
	require.Len(w.t, rows, 2)
	return id, w.build(1, rows[0]), w.build(1, rows[1])
}

// exec runs SQL for what no program here does.
func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	database, _, _ := strings.Cut(w.dsn[strings.LastIndex(w.dsn, "/")+1:], "?")
	require.NoError(w.t, devtest.PostgresServer(w.t).Exec(w.t.Context(), database, fmt.Sprintf(sql, args...)))
}

// askAbout writes a line of a reconciliation and asks about it, as the leader does. It returns the MsgId of the question.
func (w *world) askAbout(reconciliation int64, payment string) pix.MsgID {
	w.t.Helper()
	w.exec("INSERT INTO reconciliation_lines (reconciliation_id, payment_id, finding, our_state, their_entries) VALUES (%d, '%s', 'missing_here', '', 1)",
		reconciliation, payment)
	var rows []store.Operation
	require.NoError(w.t, w.books.DB.InTx(w.t.Context(), func(ctx context.Context, tx *store.Tx) (err error) {
		rows, err = w.books.Outbox.Add(ctx, tx, []store.Operation{{PaymentID: payment, MsgType: "camt.060", Channel: pix.CPM, Body: []byte("{}")}})
		return err
	}))
	w.exec("INSERT INTO reconciliation_questions (operation_id, reconciliation_id, subject, payment_id) VALUES (%d, %d, 'entry', '%s')",
		rows[0].ID, reconciliation, payment)
	return w.build(1, rows[0])
}

// line returns what was answered about a payment.
func (w *world) line(reconciliation int64, payment string) string {
	w.t.Helper()
	lines, err := w.books.Reconciliations.Lines(w.t.Context(), reconciliation, "", 100)
	require.NoError(w.t, err)
	for _, l := range lines {
		if l.PaymentID == payment {
			return l.Answer
		}
	}
	return "no such line"
}

// credit is what the SPI says of an incoming payment that it settled.
func credit(t *testing.T, question pix.MsgID, transfer iso20022.CreditTransfer) *iso20022.Camt054 {
	t.Helper()
	doc := notification(t, transfer.EndToEndID, iso20022.Credit, iso20022.Booked, "", "")
	n := &doc.Notifications[0]
	n.ID, n.Amount = question, transfer.Amount
	accepted := transfer.AcceptedAt
	n.Details = iso20022.EntryDetails{
		EndToEndID: string(transfer.EndToEndID), DebtorAgent: transfer.DebtorAgent, CreditorAgent: transfer.CreditorAgent, AcceptedAt: &accepted,
		LocalInstrument: transfer.LocalInstrument, Purpose: transfer.Purpose,
		Parties: &iso20022.EntryParties{
			Debtor: transfer.Debtor, DebtorAccount: transfer.DebtorAccount, CreditorID: transfer.CreditorID,
			CreditorAccount: transfer.CreditorAccount, Proxy: transfer.Proxy,
		},
	}
	return doc
}

func (w *world) obligations(id string) (n int) {
	w.t.Helper()
	obligations, err := store.NewObligations(w.books.DB, nil)
	require.NoError(w.t, err)
	due, err := obligations.Due(w.t.Context(), 100)
	require.NoError(w.t, err)
	for _, d := range due {
		if d.PaymentID == id {
			n++
		}
	}
	return n
}

// Files and balances are noted with the reconciliation that asked, once; what nobody asked for is counted and no dead letter.
func TestAnswersAreNotedWithTheirReconciliation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id, file, balance := w.reconcile()
	at := now()
	statement := func(msg string) *iso20022.Camt053 {
		return &iso20022.Camt053{Statements: []iso20022.Statement{{ID: msg, Owner: us, Balances: []iso20022.AccountBalance{
			{Type: iso20022.BalanceBlocked, Amount: 3, At: at}, {Type: iso20022.BalanceAvailable, Amount: 40, At: at},
		}}}}
	}
	report := func(msg pix.MsgID, owner pix.ISPB) *iso20022.Camt052 {
		return &iso20022.Camt052{Reports: []iso20022.FileReport{{ID: msg, Owner: owner, Entries: 7, Info: "abc"}}}
	}
	w.handle(w.receive(report(file, us)))
	w.handle(w.receive(statement(string(balance))))
	r, err := w.books.Reconciliations.Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, []any{store.ReconciliationAnnounced, "abc", int64(7), pix.Amount(43)}, []any{r.State, r.FileHash, r.FileEntries, r.Balance})
	require.True(t, r.BalanceAt.Equal(at))

	stranger, err := pix.NewMsgID(us, rand.Reader)
	require.NoError(t, err)
	w.handle(w.receive(report(stranger, us)))
	w.handle(w.receive(report(balance, us)))
	w.handle(w.receive(statement(strings.Repeat("0", 32))))
	w.handle(w.receive(&iso20022.Camt053{Statements: []iso20022.Statement{{ID: string(balance), Owner: us, Balances: []iso20022.AccountBalance{
		{Type: iso20022.BalanceBlocked, Amount: 3, At: at},
	}}}}))
	_, dead := w.dead()
	require.Zero(t, dead)
	require.Equal(t, map[string]int{"camt.052": 2, "camt.053": 1}, w.counter("cabine_payments_unasked_total", "msg_type"))
	w.handle(w.receive(report(file, them)))
	kinds, _ := w.dead()
	require.Equal(t, map[string]int{"addressee": 1}, kinds)
	require.Zero(t, w.open())
}

// A credit that we do not know is booked once if a reconciliation asked about it, with its reason and its obligation; its
// pacs.008 may come later and is not answered. Nobody asked: it is a dead letter, as is a debit in any case.
func TestACreditThatOnlyTheBankKnowsIsBooked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r, _, _ := w.reconcile()
	incoming := transfer(t)
	id := string(incoming.EndToEndID)
	question := w.askAbout(r, id)
	doc := credit(t, question, incoming)
	w.handle(w.receive(doc))
	p := w.payment(id)
	require.Equal(t, []any{pix.Settled, pix.In, pix.Payment, incoming.Amount, them, "BOOK"},
		[]any{p.State, p.Direction, p.Kind, p.Amount, p.Counterparty, p.Reason})
	require.True(t, p.SettledAt.Equal(*doc.Notifications[0].StatusAt))
	require.Equal(t, []string{"spi >settled BOOK"}, w.events(id))
	require.Equal(t, 1, w.obligations(id))
	require.Equal(t, "BOOK", w.line(r, id))
	var document iso20022.CreditTransfer
	require.NoError(t, json.Unmarshal(p.Document, &document))
	require.Equal(t, incoming, document, "as its pacs.008 would have brought it")

	w.handle(w.receive(doc))
	w.handle(w.receive(pacs008(incoming)))
	w.handle(w.receive(status(id, incoming.EndToEndID, iso20022.ACCC)))
	require.Equal(t, []string{"spi >settled BOOK"}, w.events(id))
	require.Empty(t, w.answers())
	require.Equal(t, 1, w.obligations(id))
	_, dead := w.dead()
	require.Zero(t, dead)

	unasked := transfer(t)
	w.handle(w.receive(credit(t, question, unasked)))
	debit := e2e(t, us)
	asked := w.askAbout(r, string(debit))
	ours := notification(t, debit, iso20022.Debit, iso20022.Booked, "", "")
	ours.Notifications[0].ID, ours.Notifications[0].Details.DebtorAgent = asked, us
	w.handle(w.receive(ours))
	nameless := transfer(t)
	nameless.DebtorAgent = ""
	w.handle(w.receive(credit(t, w.askAbout(r, string(nameless.EndToEndID)), nameless)))
	kinds, _ := w.dead()
	require.Equal(t, map[string]int{"unknown_id": 3}, kinds)
	for _, id := range []string{string(unasked.EndToEndID), string(debit), string(nameless.EndToEndID)} {
		_, err := w.books.Payments.Get(t.Context(), id)
		require.ErrorIs(t, err, store.ErrNotFound)
	}
	require.Equal(t, "BOOK", w.line(r, string(debit)), "what the SPI says is kept with the line")
}

// An answer in which the entry stands twice, as in an account that has it twice, books it once; another amount the second time
// is a contradiction.
func TestACreditThatIsThereTwiceIsBookedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r, _, _ := w.reconcile()
	for _, more := range []pix.Amount{0, 1} {
		incoming := transfer(t)
		id := string(incoming.EndToEndID)
		doc := credit(t, w.askAbout(r, id), incoming)
		twice := doc.Notifications[0]
		twice.Amount += more
		doc.Notifications = append(doc.Notifications, twice)
		w.handle(w.receive(doc))
		require.Equal(t, []string{"spi >settled BOOK"}, w.events(id))
		require.Equal(t, incoming.Amount, w.payment(id).Amount)
		require.Equal(t, 1, w.obligations(id))
		kinds, _ := w.dead()
		require.Equal(t, int(more), kinds["contradiction"])
	}
	require.Zero(t, w.open())
}

// The pacs.008 and the answer are handled at once: one of them books, and both agree.
func TestACreditIsBookedOnceWhoeverIsFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r, _, _ := w.reconcile()
	for range 20 {
		incoming := transfer(t)
		id := string(incoming.EndToEndID)
		answer, order := w.receive(credit(t, w.askAbout(r, id), incoming)), w.receive(pacs008(incoming))
		var both sync.WaitGroup
		both.Go(func() {
			for w.processor.Handle(t.Context(), answer) != nil {
				continue // it comes again until it is done
			}
		})
		both.Go(func() { w.handle(order) })
		both.Wait()
		require.Equal(t, pix.Settled, w.state(id))
		require.Equal(t, 1, w.obligations(id))
	}
	_, dead := w.dead()
	require.Zero(t, dead)
	require.Zero(t, w.open())
}

// A return that only the bank knows is booked against its original, within what is left of it.
func TestAReturnThatOnlyTheBankKnowsIsBooked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r, _, _ := w.reconcile()
	original := w.settledOrder()
	back := func(amount pix.Amount) string {
		id, err := pix.NewReturnID(them, now(), rand.Reader)
		require.NoError(t, err)
		doc := notification(t, original, iso20022.Credit, iso20022.Booked, "", "")
		n := &doc.Notifications[0]
		n.ID, n.Amount, n.SubFamily, n.Origin = w.askAbout(r, string(id)), amount, iso20022.SubFamilyReturn, "pacs.004"
		n.Details = iso20022.EntryDetails{
			InstrID: string(id), EndToEndID: string(original), DebtorAgent: us, CreditorAgent: them, Return: &iso20022.ReturnReason{Code: "MD06"},
		}
		w.handle(w.receive(doc))
		return string(id)
	}
	id := back(1000)
	p := w.payment(id)
	require.Equal(t, []any{pix.Return, pix.In, pix.Settled, them, string(original)}, []any{p.Kind, p.Direction, p.State, p.Counterparty, p.OriginalID})
	require.Equal(t, pix.Amount(1000), w.payment(string(original)).Returned)
	require.Equal(t, 1, w.obligations(id))
	_, err := w.books.Payments.Get(t.Context(), back(1000))
	require.ErrorIs(t, err, store.ErrNotFound, "more than is left")
	kinds, _ := w.dead()
	require.Equal(t, map[string]int{"contradiction": 1}, kinds)
}

// What the SPI says of a payment that we know is noted with the line as well, whatever it says.
func TestAnswersAboutKnownPaymentsAreNoted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r, _, _ := w.reconcile()
	sent, row := w.order()
	w.sent(w.build(1, row), "r1")
	doc := notification(t, sent, iso20022.Debit, iso20022.NotSettled, "ED05", "sem lançamento")
	doc.Notifications[0].ID = w.askAbout(r, string(sent))
	w.handle(w.receive(doc))
	require.Equal(t, "INFO ED05", w.line(r, string(sent)))
	doc = notification(t, sent, iso20022.Debit, iso20022.Booked, "", "")
	w.handle(w.receive(doc))
	require.Equal(t, "INFO ED05", w.line(r, string(sent)), "that was not its answer")
	require.Equal(t, pix.Settled, w.state(string(sent)))
}
