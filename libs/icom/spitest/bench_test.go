package spitest_test

import (
	"bytes"
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/icom/icomtest"
	"github.com/cabine-pix/cabine/libs/icom/spitest"
	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
)

// sink is a bank that counts the operations it is given and keeps nothing.
type sink struct{ forwarded, told atomic.Int64 }

// Enqueue counts.
func (s *sink) Enqueue(_ pix.Channel, _ pix.ISPB, bodies ...[]byte) []string {
	for _, b := range bodies {
		s.forwarded.Add(int64(bytes.Count(b, []byte("</CdtTrfTxInf>"))))
		s.told.Add(int64(bytes.Count(b, []byte("</TxInfAndSts>"))))
	}
	return nil
}

// BenchmarkSettle is a payment from the order to what both sides are told, in messages of ten and of one: all that the
// SPI does, without the bank's HTTP and without what participants do.
func BenchmarkSettle(b *testing.B) {
	for name, group := range map[string]int{"groups": 10, "alone": 1} {
		b.Run(name, func(b *testing.B) { settle(b, group) })
	}
}

func settle(b *testing.B, group int) {
	b.Helper()
	c, err := shared()
	require.NoError(b, err)
	signer, err := c.identities[pix.SPI].Signer()
	require.NoError(b, err)
	cfg := spitest.Config{Signer: signer, SettleWithin: time.Hour}
	for _, ispb := range []pix.ISPB{payer, receiver} {
		cfg.Participants = append(cfg.Participants, spitest.Participant{
			ISPB: ispb, Balance: 1_000_000_000_00, Certificates: certificates(c.identities[ispb]),
		})
	}
	spi, err := spitest.New(cfg)
	require.NoError(b, err)
	a, r := &member{t: b, ispb: payer}, &member{t: b, ispb: receiver}
	a.signer, err = c.identities[payer].Signer()
	require.NoError(b, err)
	r.signer, err = c.identities[receiver].Signer()
	require.NoError(b, err)
	var orders, answers [][]byte
	for made := 0; made < b.N; made += group {
		order, answer := &iso20022.Pacs008{Priority: iso20022.High, ServiceLevel: iso20022.PAGPRI}, &iso20022.Pacs002{}
		for range group {
			p := transfer(b, payer, receiver, 1)
			order.Transactions = append(order.Transactions, p)
			answer.Statuses = append(answer.Statuses, iso20022.PaymentStatus{
				OriginalInstrID: string(p.EndToEndID), OriginalEndToEndID: p.EndToEndID, Status: iso20022.ACSP,
			})
		}
		orders, answers = append(orders, a.signed(a.header(), order)), append(answers, r.signed(r.header(), answer))
	}
	total := int64(len(orders) * group)
	var bank sink
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- spi.Run(ctx, &bank) }()
	b.ResetTimer()
	for _, m := range orders {
		spi.Receive(icomtest.Received{Channel: pix.CPM, ISPB: payer, ResourceID: "x", Body: m})
	}
	require.Eventually(b, func() bool { return bank.forwarded.Load() == total }, time.Minute, time.Millisecond)
	for _, m := range answers {
		spi.Receive(icomtest.Received{Channel: pix.CPM, ISPB: receiver, ResourceID: "x", Body: m})
	}
	require.Eventually(b, func() bool { return bank.told.Load() == 2*total }, time.Minute, time.Millisecond)
	b.StopTimer()
	b.ReportMetric(float64(total)/b.Elapsed().Seconds(), "payments/s")
	cancel()
	require.NoError(b, <-ended)
	books := spi.Books(false)
	require.Empty(b, books.Broken)
	b.ReportMetric(float64(books.Counters.Sent)/float64(total), "signatures/payment")
	require.EqualValues(b, total, books.Account(payer).PaymentsOut.Settled)
}
