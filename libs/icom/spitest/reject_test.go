package spitest_test

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/icom/spitest"
	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
)

// edited signs what build would not write: a document with one text replaced.
func (m *member) edited(d iso20022.Document, old, with string) []byte {
	m.t.Helper()
	message, err := iso20022.DefaultVersions().Build(m.header(), d)
	require.NoError(m.t, err)
	require.Contains(m.t, string(message), old)
	message, err = m.signer.Sign(bytes.ReplaceAll(message, []byte(old), []byte(with)))
	require.NoError(m.t, err)
	return message
}

// dated is an identifier of ispb whose minute lies off now.
func dated(t *testing.T, ispb pix.ISPB, off time.Duration) pix.EndToEndID {
	t.Helper()
	id := []byte(transfer(t, ispb, receiver, 1).EndToEndID)
	return pix.EndToEndID(slices.Concat(id[:9], []byte(now().Add(off).Format("200601021504")), id[21:]))
}

// TestTheSPIRejectsPayments: nothing of these is forwarded, and the others of the message go on.
func TestTheSPIRejectsPayments(t *testing.T) {
	t.Parallel()
	bank, spi := start(t, spitest.Config{})
	a, b := join(t, bank, pix.CPM, payer), join(t, bank, pix.CPM, receiver)
	cash := func(parts ...iso20022.CashPart) *iso20022.Remittance {
		return &iso20022.Remittance{Cash: &iso20022.Cash{Agent: iso20022.AGTEC, Facilitator: receiver, Parts: parts}}
	}
	tax := &iso20022.Tax{Reference: "1", Records: []iso20022.TaxRecord{
		{Type: iso20022.CBSSplit, Amount: 60}, {Type: iso20022.IBSSplit, Amount: 60},
	}}
	for _, tt := range []struct {
		code   iso20022.ReasonCode
		change func(*iso20022.CreditTransfer)
	}{
		{"AG12", func(p *iso20022.CreditTransfer) { p.CreditorAgent = payer }},
		{"RC10", func(p *iso20022.CreditTransfer) { p.CreditorAgent = "55555555" }},
		{"RC09", func(p *iso20022.CreditTransfer) { p.DebtorAgent = "55555555" }},
		{"AGNT", func(p *iso20022.CreditTransfer) { p.DebtorAgent, p.CreditorAgent = receiver, payer }},
		{"DS27", func(p *iso20022.CreditTransfer) { p.CreditorAgent = closed }},
		{"AM01", func(p *iso20022.CreditTransfer) { p.Amount = 0 }},
		{"FF08", func(p *iso20022.CreditTransfer) { p.EndToEndID = dated(t, receiver, 0) }},
		{"FF08", func(p *iso20022.CreditTransfer) { p.EndToEndID = dated(t, payer, -13*time.Hour) }},
		{"FF08", func(p *iso20022.CreditTransfer) { p.EndToEndID = dated(t, payer, 24*time.Hour) }},
		{"AB11", func(p *iso20022.CreditTransfer) { p.AcceptedAt = p.AcceptedAt.Add(-35 * time.Second) }},
		{"FF07", func(p *iso20022.CreditTransfer) { p.Purpose = iso20022.PurposeChange }},
		{"FF07", func(p *iso20022.CreditTransfer) {
			p.Remittance = cash(iso20022.CashPart{Amount: 100, Kind: iso20022.CashNotes})
		}},
		{"AM12", func(p *iso20022.CreditTransfer) {
			p.Purpose, p.Remittance = iso20022.PurposeWithdrawal, cash(iso20022.CashPart{Amount: 99, Kind: iso20022.CashNotes})
		}},
		{"RR06", func(p *iso20022.CreditTransfer) { p.Tax = tax }},
		{"AM23", func(p *iso20022.CreditTransfer) {
			p.Tax, p.Debtor.ID, p.CreditorID = tax, "11222333000181", "1A222333000181"
		}},
	} {
		bad, good := transfer(t, payer, receiver, 1_00), transfer(t, payer, receiver, 1_00)
		tt.change(&bad)
		a.send(priority(bad, good))
		require.Equal(t, tt.code, a.refused(string(bad.EndToEndID)))
		require.Equal(t, good.EndToEndID, got[*iso20022.Pacs008](b).Transactions[0].EndToEndID)
	}
	p := transfer(t, payer, receiver, 1_00)
	a.post(a.edited(priority(p), "HIGH", "NORM"))
	require.EqualValues(t, "CH16", a.refused(string(p.EndToEndID)))
	p = transfer(t, payer, receiver, 1_00)
	id := "<EndToEndId>" + string(p.EndToEndID) + "</EndToEndId>"
	a.post(a.edited(priority(p), id, id+"<TxId>a1</TxId>"))
	require.EqualValues(t, "BE15", a.refused(string(p.EndToEndID)))
	require.Zero(t, spi.Books(false).Counters.Refused)
}

func TestElevenOperationsAreTooMany(t *testing.T) {
	t.Parallel()
	bank, _ := start(t, spitest.Config{})
	a := join(t, bank, pix.CPM, payer)
	var eleven []iso20022.CreditTransfer
	for range 11 {
		eleven = append(eleven, transfer(t, payer, receiver, 1))
	}
	message, err := iso20022.DefaultVersions().Build(a.header(), priority(eleven[:10]...))
	require.NoError(t, err)
	other, err := iso20022.DefaultVersions().Build(a.header(), priority(eleven[10]))
	require.NoError(t, err)
	const open, end = "<CdtTrfTxInf>", "</CdtTrfTxInf>"
	one := other[bytes.Index(other, []byte(open)) : bytes.Index(other, []byte(end))+len(end)]
	message = bytes.Replace(message, []byte(open), slices.Concat(one, []byte(open)), 1)
	message = bytes.Replace(message, []byte("<NbOfTxs>10<"), []byte("<NbOfTxs>11<"), 1)
	message, err = a.signer.Sign(message)
	require.NoError(t, err)
	a.post(message)
	for told := 0; told < 11; {
		for _, st := range got[*iso20022.Pacs002](a).Statuses {
			require.EqualValues(t, "AM18", st.Reasons[0].Code)
			told++
		}
	}
}

// TestTheSPIRejectsReturns as it does payments, and holds them to what was paid.
func TestTheSPIRejectsReturns(t *testing.T) {
	t.Parallel()
	bank, spi := start(t, spitest.Config{})
	a, b := join(t, bank, pix.CPM, payer), join(t, bank, pix.CPM, receiver)
	paid := pay(a, b, 100_00)
	never := transfer(t, payer, receiver, 1_00)
	returned := func(m *member, change func(*iso20022.PaymentReturn)) iso20022.ReasonCode {
		r := giveBack(t, paid, 1_00)
		change(&r)
		m.send(&iso20022.Pacs004{Returns: []iso20022.PaymentReturn{r}})
		return m.refused(string(r.ReturnID))
	}
	require.EqualValues(t, "CH16", returned(b, func(r *iso20022.PaymentReturn) { r.OriginalEndToEndID = never.EndToEndID }))
	require.EqualValues(t, "CH16", returned(b, func(r *iso20022.PaymentReturn) { r.DebtorAgent = spitest.VirtualISPB }))
	require.EqualValues(t, "AM01", returned(b, func(r *iso20022.PaymentReturn) { r.Amount = 0 }))
	require.EqualValues(t, "AM09", returned(b, func(r *iso20022.PaymentReturn) { r.Amount = 100_01 }))
	require.EqualValues(t, "RC10", returned(b, func(r *iso20022.PaymentReturn) { r.CreditorAgent = "55555555" }))
	require.EqualValues(t, "FF08", returned(a, func(*iso20022.PaymentReturn) {}), "the identifier is the receiver's")
	require.EqualValues(t, "AG13", returned(a, func(r *iso20022.PaymentReturn) {
		id := dated(t, payer, 0)
		r.ReturnID = "D" + pix.ReturnID(id[1:])
	}))

	// What waits counts, and what was rejected does not.
	first, second := giveBack(t, paid, 60_00), giveBack(t, paid, 40_00)
	b.send(&iso20022.Pacs004{Returns: []iso20022.PaymentReturn{first}})
	got[*iso20022.Pacs004](a)
	require.EqualValues(t, "AM09", returned(b, func(r *iso20022.PaymentReturn) { r.Amount = 40_01 }))
	a.answer("AC06", [2]string{string(first.ReturnID), string(paid.EndToEndID)})
	require.EqualValues(t, "AC06", b.refused(string(first.ReturnID)))
	b.send(&iso20022.Pacs004{Returns: []iso20022.PaymentReturn{second}})
	got[*iso20022.Pacs004](a)
	a.answer("", [2]string{string(second.ReturnID), string(paid.EndToEndID)})
	settled(t, b.told(), string(second.ReturnID), iso20022.ACSC)
	settled(t, a.told(), string(second.ReturnID), iso20022.ACCC)
	require.EqualValues(t, "AM09", returned(b, func(r *iso20022.PaymentReturn) { r.Amount = 60_01 }))
	require.Equal(t, spitest.Totals{Settled: 1, Rejected: 8, Amount: 40_00}, spi.Books(false).Account(receiver).ReturnsOut)
}

// pay makes a payment to its settlement and reads what both are told.
func pay(from, to *member, amount pix.Amount) iso20022.CreditTransfer {
	from.t.Helper()
	p := transfer(from.t, from.ispb, to.ispb, amount)
	from.send(priority(p))
	got[*iso20022.Pacs008](to)
	to.answer("", same(p.EndToEndID))
	require.Equal(from.t, iso20022.ACSC, from.told().Status)
	require.Equal(from.t, iso20022.ACCC, to.told().Status)
	return p
}

func TestTheReceiverRejects(t *testing.T) {
	t.Parallel()
	bank, _ := start(t, spitest.Config{})
	a, b := join(t, bank, pix.CPM, payer), join(t, bank, pix.CPM, receiver)
	p := transfer(t, payer, receiver, 1_00)
	a.send(priority(p))
	got[*iso20022.Pacs008](b)
	b.answer("AC03", same(p.EndToEndID))
	st := a.told()
	require.Equal(t, []iso20022.StatusReason{{Code: "AC03", Info: []string{"porque sim"}}}, st.Reasons)
	b.nothing()
}

func TestShortBalance(t *testing.T) {
	t.Parallel()
	bank, spi := start(t, spitest.Config{})
	a, b := join(t, bank, pix.CPM, payer), join(t, bank, pix.CPM, receiver)
	p := transfer(t, payer, receiver, 1000_01)
	a.send(priority(p))
	got[*iso20022.Pacs008](b)
	b.answer("", same(p.EndToEndID))
	require.EqualValues(t, "AM04", a.refused(string(p.EndToEndID)))
	require.EqualValues(t, "AM04", b.refused(string(p.EndToEndID)))
	require.Equal(t, pix.Amount(1000_00), spi.Books(false).Account(payer).Balance)
}

// TestSilence: AB03 to both at the limit, and what the receiver says then is late.
func TestSilence(t *testing.T) {
	t.Parallel()
	const limit = 300 * time.Millisecond
	bank, spi := start(t, spitest.Config{SettleWithin: limit, OrderWithin: time.Minute})
	a, b := join(t, bank, pix.CPM, payer), join(t, bank, pix.CPM, receiver)
	p := transfer(t, payer, receiver, 1_00)
	a.send(priority(p))
	got[*iso20022.Pacs008](b)
	require.EqualValues(t, "AB03", a.refused(string(p.EndToEndID)))
	require.EqualValues(t, "AB03", b.refused(string(p.EndToEndID)))
	require.Greater(t, time.Since(p.AcceptedAt), limit)
	b.answer("", same(p.EndToEndID))
	require.Eventually(t, func() bool { return spi.Books(false).Counters.LateAnswers == 1 }, wait, tick)
	a.nothing()

	// A payment under suspicion has its time from the receipt.
	p = transfer(t, payer, receiver, 1_00)
	p.AcceptedAt = p.AcceptedAt.Add(-time.Minute)
	sent := time.Now()
	a.send(&iso20022.Pacs008{
		Priority: iso20022.Normal, ServiceLevel: iso20022.PAGFRD, Transactions: []iso20022.CreditTransfer{p},
	})
	require.EqualValues(t, "AB03", a.refused(string(p.EndToEndID)))
	require.Greater(t, time.Since(sent), limit)

	// An acceptance in the future counts as the receipt; a scheduled one has more time.
	ahead, scheduled := transfer(t, payer, receiver, 1_00), transfer(t, payer, receiver, 1_00)
	ahead.AcceptedAt = ahead.AcceptedAt.Add(11 * time.Hour)
	scheduled.AcceptedAt = scheduled.AcceptedAt.Add(-time.Minute)
	a.send(&iso20022.Pacs008{
		Priority: iso20022.Normal, ServiceLevel: iso20022.PAGAGD, Transactions: []iso20022.CreditTransfer{scheduled},
	})
	a.send(priority(ahead))
	require.EqualValues(t, "AB03", a.refused(string(ahead.EndToEndID)))
	require.Equal(t, 1, spi.Books(false).Account(payer).PaymentsOut.Waiting)
}

// TestAgain: the very same order is told its end again; anything else under its identifier is a duplicate.
func TestAgain(t *testing.T) {
	t.Parallel()
	bank, spi := start(t, spitest.Config{})
	a, b := join(t, bank, pix.CPM, payer), join(t, bank, pix.CPM, receiver)
	p := transfer(t, payer, receiver, 1_00)
	a.send(priority(p))
	got[*iso20022.Pacs008](b)
	a.send(priority(p))
	a.nothing()
	b.nothing()
	b.answer("", same(p.EndToEndID))
	first := a.told()
	b.told()
	a.send(priority(p))
	require.Equal(t, first, a.told())
	b.nothing()
	other := p
	other.Amount++
	a.send(priority(other))
	require.EqualValues(t, "DUPL", a.refused(string(p.EndToEndID)))
	other = transfer(t, receiver, payer, 1_00)
	other.EndToEndID = p.EndToEndID
	b.send(priority(other))
	require.EqualValues(t, "DUPL", b.refused(string(p.EndToEndID)))
	b.answer("", same(p.EndToEndID))
	require.Eventually(t, func() bool { return spi.Books(false).Counters.RepeatedAnswers == 1 }, wait, tick)
	c := spi.Books(false).Counters
	require.Equal(t, 2, c.RepeatedOrders)
	require.Equal(t, 2, c.Duplicates)
	require.Equal(t, pix.Amount(999_00), spi.Books(false).Account(payer).Balance)
}

func TestRefuseRepeats(t *testing.T) {
	t.Parallel()
	bank, spi := start(t, spitest.Config{RefuseRepeats: true})
	a, b := join(t, bank, pix.CPM, payer), join(t, bank, pix.CPM, receiver)
	p := pay(a, b, 1_00)
	a.send(priority(p))
	require.EqualValues(t, "DUPL", a.refused(string(p.EndToEndID)))
	require.Equal(t, 1, spi.Books(false).Account(payer).PaymentsOut.Settled)
}

func TestVirtualAcceptsAndTheSecondaryChannelAnswersItself(t *testing.T) {
	t.Parallel()
	bank, spi := start(t, spitest.Config{})
	a := join(t, bank, pix.CSM, payer)
	p := transfer(t, payer, spitest.VirtualISPB, 1_00)
	a.send(priority(p))
	settled(t, a.told(), string(p.EndToEndID), iso20022.ACSC)
	_, err := spi.Pay(pix.CSM, payer, receiver, 1, 1)
	require.Error(t, err, "it is not virtual")
	ids, err := spi.Pay(pix.CSM, spitest.VirtualISPB, payer, 40, 2)
	require.NoError(t, err)
	got[*iso20022.Pacs008](a)
	a.answer("", same(ids[0]))
	settled(t, a.told(), string(ids[0]), iso20022.ACCC)
	require.Equal(t, pix.Amount(999_40), spi.Books(false).Account(payer).Balance)
}
