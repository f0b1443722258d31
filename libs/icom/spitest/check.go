package spitest

import (
	"errors"
	"strings"
	"time"

	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
)

// payment is one operation of a pacs.008 with what its message says about it.
type payment struct {
	iso20022.CreditTransfer
	Priority     iso20022.Priority
	ServiceLevel iso20022.ServiceLevel
}

// limit is when a payment that nobody answered is interrupted.
func (s *SPI) limit(p payment, now time.Time) time.Time {
	accepted := p.AcceptedAt
	if accepted.After(now) {
		accepted = now
	}
	switch p.ServiceLevel {
	case iso20022.PAGFRD:
		return now.Add(s.cfg.SettleWithin)
	case iso20022.PAGAGD:
		return accepted.Add(s.cfg.ScheduledWithin)
	case iso20022.PAGPRI:
	}
	return accepted.Add(s.cfg.SettleWithin)
}

// fault is what the SPI refuses in an order for its content alone, "" for nothing.
func (s *SPI) fault(o *order) string {
	switch body := o.body.(type) {
	case payment:
		return s.paymentFault(body, o.sender, o.received)
	case iso20022.PaymentReturn:
		return s.returnFault(body, o.sender, o.received)
	}
	return ""
}

func (s *SPI) paymentFault(p payment, sender pix.ISPB, now time.Time) string {
	initiated := p.LocalInstrument == iso20022.INIC || p.LocalInstrument == iso20022.AUTO
	switch {
	case !s.fresh(p.EndToEndID.At(), now), p.EndToEndID.ISPB() != sender && !initiated:
		return "FF08"
	case p.Amount == 0:
		return "AM01"
	case p.ServiceLevel == iso20022.PAGPRI && now.Sub(p.AcceptedAt) > s.cfg.OrderWithin:
		return "AB11"
	}
	if reason := moneyFault(p); reason != "" {
		return reason
	}
	return ruleFault(&iso20022.Pacs008{
		Priority: p.Priority, ServiceLevel: p.ServiceLevel, Transactions: []iso20022.CreditTransfer{p.CreditTransfer},
	})
}

// moneyFault holds the parts of an amount to the whole.
func moneyFault(p payment) string {
	if p.Tax != nil {
		var taxes pix.Amount
		for _, r := range p.Tax.Records {
			taxes += r.Amount
		}
		switch {
		case len(p.Debtor.ID) == lengthCPF || len(p.CreditorID) == lengthCPF:
			return "RR06"
		case taxes > p.Amount:
			return "AM23"
		}
	}
	cash := p.Remittance != nil && p.Remittance.Cash != nil
	if wanted := p.Purpose == iso20022.PurposeChange || p.Purpose == iso20022.PurposeWithdrawal; cash != wanted {
		return "FF07"
	}
	if !cash {
		return ""
	}
	var sum pix.Amount
	for _, part := range p.Remittance.Cash.Parts {
		sum += part.Amount
	}
	if sum != p.Amount {
		return "AM12"
	}
	return ""
}

const lengthCPF = 11

func (s *SPI) returnFault(r iso20022.PaymentReturn, sender pix.ISPB, now time.Time) string {
	if !s.fresh(r.ReturnID.At(), now) || r.ReturnID.ISPB() != sender {
		return "FF08"
	}
	return ruleFault(&iso20022.Pacs004{Returns: []iso20022.PaymentReturn{r}})
}

// fresh reports whether the minute of an identifier is near enough.
func (s *SPI) fresh(at, now time.Time) bool {
	// The minute in the identifier has lost its seconds.
	return now.Sub(at).Abs() <= s.cfg.IDTolerance+time.Minute
}

// ruleFault is the catalogue's rules between the fields of a message, which the SPI answers per operation.
func ruleFault(d iso20022.Document) string {
	err := iso20022.Validate(d)
	if err == nil {
		return ""
	}
	if invalid := (*iso20022.InvalidError)(nil); errors.As(err, &invalid) && strings.HasSuffix(invalid.Path, "/TxId") {
		return "BE15"
	}
	return "CH16"
}
