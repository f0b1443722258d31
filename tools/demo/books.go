package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/cabine-pix/cabine/libs/icom/icomtest"
	"github.com/cabine-pix/cabine/libs/icom/spitest"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/tools/internal/stage"
)

// ledgers are the books of one participant, by identifier.
type ledgers map[string]store.Payment

// read reads all payments and returns of a participant.
func read(ctx context.Context, p *stage.Participant) (ledgers, error) {
	payments, all := store.NewPayments(p.DB), make(ledgers)
	for after := ""; ; {
		page, next, err := payments.List(ctx, store.Filter{After: after, Limit: 1000})
		if err != nil {
			return nil, err
		}
		for _, row := range page {
			all[row.ID] = row
		}
		if after = next; after == "" {
			return all, nil
		}
	}
}

// bookedTwice counts the payments of a participant that settled, or were rejected, more than once, or both.
func bookedTwice(ctx context.Context, p *stage.Participant, books ledgers) (int, error) {
	payments, twice := store.NewPayments(p.DB), 0
	for id := range books {
		events, err := payments.Events(ctx, id)
		if err != nil {
			return 0, err
		}
		ends := 0
		for _, e := range events {
			if e.Became.Final() && e.Was != e.Became {
				ends++
			}
		}
		if ends > 1 {
			twice++
		}
	}
	return twice, nil
}

// compare holds one participant's books to the bank's orders and names each line that differs, with its amount.
func compare(ispb pix.ISPB, ours ledgers, orders []spitest.Order) (lines []string, difference pix.Amount) {
	differs := func(amount pix.Amount, format string, args ...any) {
		lines = append(lines, fmt.Sprintf(format, args...))
		difference += amount
	}
	at := make(map[string]spitest.Order)
	for _, o := range orders {
		if o.Debited == ispb || o.Credited == ispb {
			at[o.ID] = o
		}
	}
	for id, o := range at {
		row, ok := ours[id]
		direction := pix.In
		if o.Debited == ispb {
			direction = pix.Out
		}
		switch {
		case !ok && o.State == spitest.Rejected && direction == pix.In:
			// The SPI rejected it before it reached us, or told only the payer.
		case !ok:
			differs(o.Amount, "%s: %s %s no banco, ausente em %s", id, o.Amount, o.State, ispb)
		case row.Amount != o.Amount || row.Direction != direction || row.Kind != o.Kind || string(row.State) != string(o.State):
			differs(o.Amount, "%s: %s %s no banco, %s %s %s em %s", id, o.Amount, o.State, row.Amount, row.Direction, row.State, ispb)
		}
	}
	for id, row := range ours {
		if _, ok := at[id]; !ok && row.State != pix.Rejected {
			differs(row.Amount, "%s: %s %s em %s, ausente no banco", id, row.Amount, row.State, ispb)
		}
	}
	slices.Sort(lines)
	return lines, difference
}

// close compares all books once every replica has stopped.
func (t *troupe) close(ctx context.Context, r *Report) error {
	bank, err := t.stage.Report(ctx)
	if err != nil {
		return err
	}
	var violations []icomtest.Violation
	if err := t.stage.Control(ctx, http.MethodGet, "/violations", nil, "", &violations); err != nil {
		return err
	}
	spi, err := t.stage.Books(ctx, true)
	if err != nil {
		return err
	}
	for _, p := range t.stage.Participants {
		if err := t.settle(ctx, r, p, spi); err != nil {
			return err
		}
		counts, err := store.NewInbox(p.DB).Counts(ctx)
		if err != nil {
			return err
		}
		r.Inbound.Stored += int(counts.Received + counts.Published + counts.Done)
		r.Inbound.Published += int(counts.Published + counts.Done)
		r.Inbound.Done += int(counts.Done)
		r.Inbound.DeadLetters += int(counts.Dead)
	}
	r.Leader = t.hearing.leaders()
	r.JetStream.Lines = t.hearing.silent
	r.JetStream.Timeouts = len(t.hearing.silent)
	for _, heard := range t.creations {
		r.JetStream.Creates += len(heard.Subjects())
		heard.Close()
	}
	for _, broken := range spi.Broken {
		r.broke("Books agree: o próprio banco: %s", broken)
	}
	r.LatencyMS.Payer, r.LatencyMS.Receiver = stage.Latencies(spi.Orders)
	for _, p := range bank.Participants {
		r.Inbound.SentByBank += int(p.Enqueued)
		r.Inbound.Unconfirmed += int(p.Enqueued - p.Acked)
		r.Inbound.Redelivered += int(p.Redelivered)
	}
	// The inbox keeps an identifier once, and only the bank makes identifiers: what is missing in number is lost.
	r.Inbound.Lost = max(0, r.Inbound.SentByBank-r.Inbound.Stored)
	r.Inbound.Duplicated = max(0, r.Inbound.Stored-r.Inbound.SentByBank)
	r.judge(bank, violations)
	return nil
}

// settle adds one participant's books to the report.
func (t *troupe) settle(ctx context.Context, r *Report, p *stage.Participant, spi spitest.Report) error {
	rows, err := read(ctx, p)
	if err != nil {
		return err
	}
	twice, err := bookedTwice(ctx, p, rows)
	if err != nil {
		return err
	}
	out := &r.Outbound
	out.DoubleBooked += twice
	for _, row := range rows {
		if row.State == pix.Settled {
			r.Books.Ours += row.Amount
		}
		if row.Direction != pix.Out || row.Kind != pix.Payment {
			continue
		}
		switch row.State {
		case pix.Settled:
			out.Settled++
		case pix.Rejected:
			out.Rejected++
		case pix.Created, pix.Sent, pix.Unknown, pix.Accepted:
			out.UnknownOpen++
		}
	}
	a := spi.Account(p.ISPB)
	r.Books.Bank += a.Debits + a.Credits
	n, err := net(ctx, p, rows)
	if err != nil {
		return err
	}
	r.settled(p, n)
	lines, difference := compare(p.ISPB, rows, spi.Orders)
	r.Books.Lines = append(r.Books.Lines, lines...)
	r.Books.Difference += difference
	return nil
}
