package spitest

import (
	"context"
	"fmt"
	"time"

	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/signature/signaturetest"
)

// The groups of operations that travel together, beside pacs.008 of one service level.
const (
	groupStatus = "pacs.002"
	groupReturn = "pacs.004"
)

// What is said about an order.
const (
	statusDebited  = string(iso20022.ACSC)
	statusCredited = string(iso20022.ACCC)
	statusRejected = string(iso20022.RJCT)
)

// dispatch puts notices on their way, as far as the fault rules let it.
func (s *SPI) dispatch(notices []notice) {
	for _, n := range notices {
		at := AtStatus
		if n.verdict == nil {
			at = AtForward
		}
		fault, hit := s.strike(at, n.order.id, string(n.to))
		later := func() {
			s.agenda.add(s.now().Add(fault.Delay), func(time.Time) { s.outbox.put(n) })
		}
		switch {
		case !hit:
			s.outbox.put(n)
		case fault.Do == Delay:
			later()
		case fault.Do == Repeat:
			s.outbox.put(n)
			later()
		}
	}
}

// write makes messages of what is in the outbox until ctx ends.
func (s *SPI) write(ctx context.Context) error {
	for {
		e, notices, ok := s.outbox.take(ctx)
		if !ok {
			return nil
		}
		s.operations.Add(int64(len(notices)))
		if err := s.send(e.to, e.channel, document(notices)); err != nil {
			return err
		}
	}
}

// document is the message that carries the notices, which are of one envelope.
func document(notices []notice) iso20022.Document {
	if notices[0].verdict != nil {
		d := &iso20022.Pacs002{Statuses: make([]iso20022.PaymentStatus, len(notices))}
		for i, n := range notices {
			d.Statuses[i] = status(n.order, n.verdict)
		}
		return d
	}
	switch first := notices[0].order.body.(type) {
	case payment:
		d := &iso20022.Pacs008{Priority: first.Priority, ServiceLevel: first.ServiceLevel}
		for _, n := range notices {
			d.Transactions = append(d.Transactions, n.order.body.(payment).CreditTransfer)
		}
		return d
	default:
		d := &iso20022.Pacs004{}
		for _, n := range notices {
			d.Returns = append(d.Returns, n.order.body.(iso20022.PaymentReturn))
		}
		return d
	}
}

func status(o *order, v *verdict) iso20022.PaymentStatus {
	st := iso20022.PaymentStatus{
		OriginalInstrID: o.id, OriginalEndToEndID: pix.EndToEndID(o.original), Status: iso20022.Status(v.status),
	}
	if v.reason != "" {
		st.Reasons = []iso20022.StatusReason{{Code: iso20022.ReasonCode(v.reason), Info: v.info}}
	}
	if !v.at.IsZero() {
		at, day := v.at.UTC(), accountingDate(v.at)
		st.SettledAt, st.AccountingDate = &at, &day
	}
	return st
}

// accountingDate is the day in Brasília, which keeps no summer time since 2019.
func accountingDate(at time.Time) string { return at.UTC().Add(-3 * time.Hour).Format(time.DateOnly) }

// send signs a message and puts it into the participant's queue.
func (s *SPI) send(to pix.ISPB, channel pix.Channel, d iso20022.Document) error {
	now := s.now().UTC().Truncate(time.Millisecond)
	h := iso20022.Header{From: pix.SPI, To: to, MsgID: s.mint.msgID(now), Created: now}
	body, err := s.cfg.Versions.Build(h, d)
	if err != nil {
		return fmt.Errorf("spitest: write %s for %s: %w", d.MsgType(), to, err)
	}
	if body, err = s.cfg.Signer.Sign(body); err != nil {
		return fmt.Errorf("spitest: sign %s for %s: %w", d.MsgType(), to, err)
	}
	if s.cfg.WrapSignatures {
		body = signaturetest.Wrap(body)
	}
	s.sent.Add(1)
	s.bank.Enqueue(channel, to, body)
	return nil
}
