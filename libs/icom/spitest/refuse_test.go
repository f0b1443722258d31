package spitest_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/icom/spitest"
	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
)

// TestRefusedMessages: admi.002 on the sender's own channel for what is wrong with a message as a whole, which does nothing.
func TestRefusedMessages(t *testing.T) {
	t.Parallel()
	bank, spi := start(t, spitest.Config{})
	a, b := join(t, bank, pix.CSM, payer), join(t, bank, pix.CPM, receiver)
	order := func() *iso20022.Pacs008 {
		return priority(transfer(t, payer, receiver, 1_00), transfer(t, payer, receiver, 2_00))
	}
	header := func(change func(*iso20022.Header)) iso20022.Header {
		h := a.header()
		change(&h)
		return h
	}
	unsigned, err := iso20022.DefaultVersions().Build(a.header(), order())
	require.NoError(t, err)
	strange := join(t, bank, pix.CSM, receiver).signed(a.header(), order())
	for reason, message := range map[string][]byte{
		"not XML":          []byte("<Envelope>"),
		"empty":            {},
		"unknown element":  a.edited(order(), "<ChrgBr>SLEV</ChrgBr>", "<ChrgBr>SLEV</ChrgBr><Extra/>"),
		"unknown version":  a.edited(order(), "1.16", "1.99"),
		"count":            a.edited(order(), "<NbOfTxs>2<", "<NbOfTxs>3<"),
		"unsigned":         unsigned,
		"changed":          bytes.Replace(a.signed(a.header(), order()), []byte("1.00"), []byte("9.00"), 1),
		"another's key":    strange,
		"Fr":               a.signed(header(func(h *iso20022.Header) { h.From = receiver }), order()),
		"To":               a.signed(header(func(h *iso20022.Header) { h.To = receiver }), order()),
		"BizMsgIdr":        a.signed(header(func(h *iso20022.Header) { h.MsgID = b.header().MsgID }), order()),
		"for participants": a.signed(a.header(), &iso20022.Pibr002{OriginalData: "x"}),
		"another's money":  a.signed(a.header(), iso20022.Balance(receiver)),
		"no such question": a.signed(a.header(), iso20022.CashReport(payer, now())),
	} {
		id := a.post(message)
		d := got[*iso20022.Admi002](a)
		require.Equal(t, id, d.Ref, reason)
		require.NotEmpty(t, d.Reason, reason)
		require.NotEmpty(t, d.Description, reason)
	}
	require.Empty(t, spi.Books(true).Orders)
	require.Equal(t, 14, spi.Books(false).Counters.Refused)
	b.nothing()
}

// TestForeignAnswers: who is not credited cannot answer, and one such status refuses its whole message.
func TestForeignAnswers(t *testing.T) {
	t.Parallel()
	bank, spi := start(t, spitest.Config{RefByMsgID: true})
	a, b := join(t, bank, pix.CPM, payer), join(t, bank, pix.CPM, receiver)
	p, never := transfer(t, payer, receiver, 1_00), transfer(t, payer, receiver, 1_00)
	a.send(priority(p))
	got[*iso20022.Pacs008](b)
	refused := func(m *member, message []byte, h iso20022.Header) {
		id := m.post(message)
		d := got[*iso20022.Admi002](m)
		require.Equal(t, string(h.MsgID), d.Ref)
		require.Equal(t, id, d.Data)
	}
	accept := func(ids ...[2]string) *iso20022.Pacs002 {
		d := &iso20022.Pacs002{}
		for _, id := range ids {
			d.Statuses = append(d.Statuses, iso20022.PaymentStatus{
				OriginalInstrID: id[0], OriginalEndToEndID: pix.EndToEndID(id[1]), Status: iso20022.ACSP,
			})
		}
		return d
	}
	h := a.header()
	refused(a, a.signed(h, accept(same(p.EndToEndID))), h)
	h = b.header()
	refused(b, b.signed(h, accept(same(p.EndToEndID), same(never.EndToEndID))), h)
	h = b.header()
	refused(b, b.signed(h, accept([2]string{string(p.EndToEndID), string(never.EndToEndID)})), h)
	for _, lie := range []string{"ACSC", "ACCC", "RJCT"} {
		id := b.post(b.edited(accept(same(p.EndToEndID)), "ACSP", lie))
		require.Equal(t, id, got[*iso20022.Admi002](b).Data)
	}
	require.Equal(t, 3, spi.Books(false).Counters.ForeignAnswers)
	require.Equal(t, 1, spi.Books(false).Account(payer).PaymentsOut.Waiting)
	b.answer("", same(p.EndToEndID))
	require.Equal(t, iso20022.ACSC, a.told().Status)
}

func TestEcho(t *testing.T) {
	t.Parallel()
	bank, _ := start(t, spitest.Config{})
	a := join(t, bank, pix.CPM, payer)
	a.send(&iso20022.Pibr001{Data: "está aí?"})
	require.Equal(t, &iso20022.Pibr002{OriginalData: "está aí?"}, got[*iso20022.Pibr002](a))
}

func TestBalance(t *testing.T) {
	t.Parallel()
	bank, _ := start(t, spitest.Config{})
	a, b := join(t, bank, pix.CPM, payer), join(t, bank, pix.CPM, receiver)
	pay(a, b, 100_00)
	balance := func(q *iso20022.Camt060) pix.Amount {
		_, h := b.send(q)
		d := got[*iso20022.Camt053](b)
		require.Equal(t, string(h.MsgID), d.Statements[0].ID)
		require.Equal(t, receiver, d.Statements[0].Owner)
		require.Equal(t, iso20022.BalanceAvailable, d.Statements[0].Balances[0].Type)
		return d.Statements[0].Balances[0].Amount
	}
	require.EqualValues(t, 1100_00, balance(iso20022.Balance(receiver)))
	require.EqualValues(t, 1000_00, balance(iso20022.BalanceOn(receiver, now().Add(-48*time.Hour))))
	require.EqualValues(t, 1100_00, balance(iso20022.BalanceOn(receiver, now())))
}

// TestEntries: BOOK on both sides when it is settled; INFO with the reason, with nothing while it waits, and for nothing.
func TestEntries(t *testing.T) {
	t.Parallel()
	bank, _ := start(t, spitest.Config{})
	a, b := join(t, bank, pix.CPM, payer), join(t, bank, pix.CPM, receiver)
	entry := func(m *member, id string) iso20022.Notification {
		_, h := m.send(iso20022.Entry(m.ispb, id))
		d := got[*iso20022.Camt054](m)
		require.Len(t, d.Notifications, 1)
		require.Equal(t, h.MsgID, d.Notifications[0].ID)
		return d.Notifications[0]
	}
	paid := pay(a, b, 100_00)
	n := entry(a, string(paid.EndToEndID))
	require.Equal(t, iso20022.Booked, n.Status)
	require.Equal(t, iso20022.Debit, n.Side)
	require.EqualValues(t, 100_00, n.Amount)
	require.NotNil(t, n.AccountingDate)
	require.Equal(t, paid.Debtor, n.Details.Parties.Debtor)
	n = entry(b, string(paid.EndToEndID))
	require.Equal(t, iso20022.Credit, n.Side)
	require.Equal(t, iso20022.FamilyCredit, n.Family)

	waiting := transfer(t, payer, receiver, 1_00)
	a.send(priority(waiting))
	got[*iso20022.Pacs008](b)
	n = entry(a, string(waiting.EndToEndID))
	require.Equal(t, iso20022.NotSettled, n.Status)
	require.Empty(t, n.ErrorCode)
	b.answer("AC07", same(waiting.EndToEndID))
	require.EqualValues(t, "AC07", a.refused(string(waiting.EndToEndID)))
	n = entry(a, string(waiting.EndToEndID))
	require.Equal(t, iso20022.NotSettled, n.Status)
	require.Equal(t, "AC07", n.ErrorCode)

	back := giveBack(t, paid, 1_00)
	b.send(&iso20022.Pacs004{Returns: []iso20022.PaymentReturn{back}})
	got[*iso20022.Pacs004](a)
	n = entry(b, string(back.ReturnID))
	require.Equal(t, iso20022.SubFamilyReturn, n.SubFamily)
	require.Equal(t, "pacs.004", n.Origin)
	require.Equal(t, &back.Reason, n.Details.Return)

	never, unmade := transfer(t, payer, receiver, 1_00), giveBack(t, paid, 1_00)
	for _, id := range []string{string(never.EndToEndID), string(unmade.ReturnID), "STR202601021234567890"[:20]} {
		n = entry(a, id)
		require.Equal(t, iso20022.NotSettled, n.Status)
		require.Equal(t, "ED05", n.ErrorCode)
		require.NotEmpty(t, n.Error)
	}
}

func TestControl(t *testing.T) {
	t.Parallel()
	bank, spi := start(t, spitest.Config{})
	a, b := join(t, bank, pix.CPM, payer), join(t, bank, pix.CPM, receiver)
	p := pay(a, b, 1_00)
	do := func(method, path, body string) (int, string) {
		w := httptest.NewRecorder()
		spi.Control().ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
		return w.Code, w.Body.String()
	}
	code, text := do(http.MethodGet, "/books?orders=1", "")
	require.Equal(t, http.StatusOK, code)
	var books spitest.Report
	require.NoError(t, json.Unmarshal([]byte(text), &books))
	require.Equal(t, spi.Books(true).Orders[0].Ended.UnixNano(), books.Orders[0].Ended.UnixNano())
	require.Equal(t, string(p.EndToEndID), books.Orders[0].ID)
	require.Equal(t, spi.Books(false).Participants, books.Participants)

	rule := `[{"at":"answer","do":"late","rate":0.25}]`
	code, text = do(http.MethodPost, "/spi/faults", rule)
	require.Equal(t, http.StatusOK, code)
	require.JSONEq(t, rule, text)
	code, _ = do(http.MethodPost, "/participants", `{"ispb":"13131313","balance":5}`)
	require.Equal(t, http.StatusOK, code)
	require.EqualValues(t, 5, spi.Books(false).Account("13131313").Balance)
	for path, body := range map[string]string{
		"/participants": `{"ispb":"13131313"}`, "/participants?again": `{"ispb":"1"}`, "/participants?other": `{"name":"x"}`,
		"/participants?spi": `{"ispb":"00038166"}`, "/participants?poor": `{"ispb":"13131314","balance":-1}`,
		"/spi/faults":  `[{"at":"order","do":"drop","rate":1}]`,
		"/spi/faults?": `[{"at":"status","do":"delay","rate":1}]`, "/spi/faults?a": `[{"at":"status","do":"drop","rate":2}]`,
		"/pay":   "",
		"/pay?a": "",
		"/pay?channel=cpm&from=12345678&to=87654321&amount=1.00&n=1": "",
		"/pay?channel=cpm&from=99999A04&to=87654321&amount=1.00&n=0": "",
	} {
		code, _ = do(http.MethodPost, path, body)
		require.Equal(t, http.StatusBadRequest, code, path)
	}
}
