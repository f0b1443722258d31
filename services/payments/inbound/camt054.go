package inbound

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
)

// entry is what the SPI says about one entry of our account, and the payment it is about.
type entry struct {
	iso20022.Notification
	id      string
	payment store.Payment
	known   bool
}

// entries makes what the SPI says about entries of our account true in the books.
func (p *Processor) entries(ctx context.Context, a *arrival, doc *iso20022.Camt054) (effect, error) {
	var all []entry
	for _, n := range doc.Notifications {
		if n.Owner != p.cfg.ISPB {
			return nil, dead{deadAddressee, "camt.054 is about the account of " + string(n.Owner)}
		}
		if n.Domain == iso20022.DomainAccount { // a deposit or a withdrawal: no payment
			continue
		}
		e := entry{Notification: n, id: subject(n)}
		var err error
		e.payment, err = p.deps.Books.Payments.Get(ctx, e.id)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, err
		}
		e.known = err == nil
		all = append(all, e)
	}
	// In the order of their keys, as everything locks them.
	slices.SortStableFunc(all, func(x, y entry) int { return cmp.Compare(x.id, y.id) })
	return func(ctx context.Context, tx *store.Tx, out *outcome) error {
		var moves []store.Move
		var last entry
		for _, e := range all {
			if last.known && last.id == e.id { // the account has it twice
				e.payment, e.known = last.payment, true
			}
			asked, err := p.answered(ctx, tx, e)
			if err != nil {
				return err
			}
			if asked && !e.known && e.Status == iso20022.Booked && e.Side == iso20022.Credit {
				if e.payment, e.known, err = p.found(ctx, tx, a, e, out); err != nil {
					return err
				}
				last = e
				continue
			}
			m, err := p.entry(ctx, tx, a, e, out)
			if err != nil {
				return err
			}
			moves = append(moves, m...)
		}
		return p.move(ctx, tx, moves, out)
	}, nil
}

// subject is the payment or the return that an entry is about. What the SPI has no payment for begins with L.
func subject(n iso20022.Notification) string {
	d := n.Details
	if d.InstrID != "" && (n.SubFamily == iso20022.SubFamilyReturn || d.EndToEndID[:1] == "L") {
		return d.InstrID
	}
	return d.EndToEndID
}

// entry returns the move that an entry asks for, if any.
func (p *Processor) entry(ctx context.Context, tx *store.Tx, a *arrival, e entry, out *outcome) ([]store.Move, error) {
	switch e.Status {
	case iso20022.Booked:
		if e.known && (e.Amount != e.payment.Amount || e.Side != sideOf(e.payment)) {
			out.contradictions++
			out.dead = append(out.dead, dead{
				deadContradiction,
				fmt.Sprintf("%s is booked by the SPI as %s of %v, by us as %s of %v", e.id, e.Side, e.Amount, sideOf(e.payment), e.payment.Amount),
			})
			return nil, nil
		}
		return []store.Move{{ID: e.id, To: pix.Settled, Who: bySPI, Reason: booked, SettledAt: e.settledAt(a)}}, nil
	case iso20022.NotSettled:
		return p.info(ctx, tx, a, e)
	}
	return nil, nil
}

// booked is what the SPI says of an entry that is settled.
const booked = "BOOK"

// settledAt is when the SPI settled a booked entry.
func (e entry) settledAt(a *arrival) time.Time {
	if e.StatusAt != nil {
		return *e.StatusAt
	}
	return a.head.Created
}

func sideOf(p store.Payment) iso20022.Side {
	if p.Direction == pix.Out {
		return iso20022.Debit
	}
	return iso20022.Credit
}

// info decides what "not settled" means: the end for a payment whose time is over and that
// cannot go out any more, nothing yet for every other.
func (p *Processor) info(ctx context.Context, tx *store.Tx, a *arrival, e entry) ([]store.Move, error) {
	if !e.known {
		return nil, nil // nothing was booked here or there
	}
	reason, why := cmp.Or(e.ErrorCode, "INFO"), "the SPI says that it is not settled"
	over, err := p.over(ctx, tx, a, e)
	if err != nil {
		return nil, err
	}
	switch {
	case p.cfg.NoEntryCode != "" && e.ErrorCode == p.cfg.NoEntryCode:
		why = "the SPI has no such entry"
	case e.Error != "": // a code with a text is about the question, a code alone about the payment
		over, why = false, "the enquiry was not answered"
	}
	if over {
		return []store.Move{{ID: e.id, To: pix.Rejected, Who: bySPI, Reason: reason, Detail: why}}, nil
	}
	return nil, p.deps.Books.Payments.Note(ctx, tx, e.id, bySPI, reason, why)
}

// over reports that the SPI could settle a payment no more when it spoke: by then the payment was accepted, and booked
// here, longer ago than its limit and a margin. If it is ours no copy of it may go out yet, and the last one went out as
// long ago: of a return the SPI's limit begins with its receipt.
func (p *Processor) over(ctx context.Context, tx *store.Tx, a *arrival, e entry) (bool, error) {
	limit := p.cfg.SettleWithin
	if e.Details.ServiceLevel == iso20022.PAGAGD || e.payment.Channel == pix.CSM {
		limit = p.cfg.ScheduledWithin
	}
	since := later(e.payment.AcceptedAt, e.payment.CreatedAt)
	if e.payment.Direction == pix.Out {
		sends, err := p.deps.Books.Outbound.Sends(ctx, tx, e.id)
		if err != nil || sends.Open {
			return false, err
		}
		touched, err := p.deps.Books.Outbound.Touched(ctx, tx, e.id)
		if err != nil {
			return false, err
		}
		since = later(since, touched)
	}
	// The answer may have waited for us, and tells of the time before it did.
	said := a.head.Created
	if a.at.Before(said) {
		said = a.at
	}
	return said.Sub(since) >= limit+p.cfg.InfoMargin, nil
}

func later(x, y time.Time) time.Time {
	if x.After(y) {
		return x
	}
	return y
}
