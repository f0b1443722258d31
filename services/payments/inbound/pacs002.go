package inbound

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/libs/telemetry"
	"github.com/cabine-pix/cabine/services/payments/enquiry"
)

// bySPI is who says how a payment ended, as payment_events has it.
const bySPI = "spi"

// statuses makes what the SPI says about payments true in the books.
func (p *Processor) statuses(ctx context.Context, a *arrival, doc *iso20022.Pacs002) (effect, error) {
	// Read before the transaction, which holds a connection already.
	repeats := map[string]store.Payment{}
	for _, s := range doc.Statuses {
		if s.Status != iso20022.RJCT || !slices.ContainsFunc(s.Reasons, isDuplicate) {
			continue
		}
		payment, err := p.deps.Books.Payments.Get(ctx, s.OriginalInstrID)
		if err == nil {
			repeats[payment.ID] = payment
		} else if !errors.Is(err, store.ErrNotFound) {
			return nil, err
		}
	}
	return func(ctx context.Context, tx *store.Tx, out *outcome) error {
		var moves []store.Move
		for _, s := range doc.Statuses {
			switch s.Status {
			case iso20022.ACSC, iso20022.ACCC:
				moves = append(moves, p.settled(a, s))
			case iso20022.RJCT:
				if payment, ok := repeats[s.OriginalInstrID]; ok {
					copied, err := p.duplicate(ctx, tx, payment, out)
					if err != nil {
						return err
					}
					if copied {
						continue
					}
				}
				moves = append(moves, rejected(s))
			case iso20022.ACSP:
				out.dead = append(out.dead, dead{deadContradiction, s.OriginalInstrID + " is ACSP, which only receivers say"})
			}
		}
		return p.move(ctx, tx, moves, out)
	}, nil
}

func isDuplicate(r iso20022.StatusReason) bool { return r.Code == duplicated }

// duplicated is the code for an identifier that came before.
const duplicated = "DUPL"

func (p *Processor) settled(a *arrival, s iso20022.PaymentStatus) store.Move {
	m := store.Move{ID: s.OriginalInstrID, To: pix.Settled, Who: bySPI, Reason: string(s.Status), SettledAt: a.head.Created}
	if s.SettledAt != nil {
		m.SettledAt = *s.SettledAt
	}
	return m
}

func rejected(s iso20022.PaymentStatus) store.Move {
	m := store.Move{ID: s.OriginalInstrID, To: pix.Rejected, Who: bySPI, Reason: string(s.Status)}
	var info []string
	for i, r := range s.Reasons {
		if i == 0 && r.Code != "" {
			m.Reason = string(r.Code)
		}
		info = append(info, r.Info...)
	}
	m.Detail = telemetry.Redact(strings.Join(info, "; "))
	return m
}

// maxDetail bounds what others' words take in a row, in bytes.
const maxDetail = 300

// shortened cuts others' words between two characters.
func shortened(words string) string {
	if len(words) <= maxDetail {
		return words
	}
	return strings.ToValidUTF8(words[:maxDetail], "")
}

// duplicate reports that RJCT DUPL only says that the order came twice, which is no evidence
// against the first copy. It is noted, and the SPI is asked while the payment is open.
func (p *Processor) duplicate(ctx context.Context, tx *store.Tx, payment store.Payment, out *outcome) (bool, error) {
	sends, err := p.deps.Books.Outbound.Sends(ctx, tx, payment.ID)
	if err != nil || sends.Attempts <= 1 && !sends.Open {
		return false, err
	}
	if payment.State.Final() {
		return true, p.deps.Books.Payments.Note(ctx, tx, payment.ID, bySPI, duplicated, "a copy that went out again")
	}
	asked, err := p.desk().Ask(ctx, tx, []enquiry.Subject{{
		ID: payment.ID, Channel: payment.Channel, Why: fmt.Sprintf("RJCT DUPL after %d attempts is no evidence", sends.Attempts),
	}})
	out.offer = append(out.offer, asked...)
	return true, err
}

func (p *Processor) desk() enquiry.Desk {
	return enquiry.Desk{Owner: p.cfg.ISPB, Payments: p.deps.Books.Payments, Outbox: p.deps.Books.Outbox}
}

// move changes states by compare-and-set. What the books do not know, and what contradicts
// them, makes the message a dead letter as well.
func (p *Processor) move(ctx context.Context, tx *store.Tx, moves []store.Move, out *outcome) error {
	for i := range moves {
		moves[i].Detail = shortened(moves[i].Detail)
	}
	results, err := p.deps.Books.Payments.Move(ctx, tx, moves)
	if err != nil {
		return err
	}
	// The results are in the order of the moves, those for unknown payments left out.
	next := 0
	for _, m := range moves {
		if next >= len(results) || results[next].ID != m.ID {
			out.dead = append(out.dead, dead{deadUnknown, fmt.Sprintf("%s is said to be %s and is not in the books", m.ID, m.To)})
			continue
		}
		r := results[next]
		next++
		switch {
		case r.Changed:
			out.moved[m.To]++
		case r.Was == m.To: // said before
		default:
			out.contradictions++
			out.dead = append(out.dead, dead{deadContradiction, fmt.Sprintf("%s is %s and is said to be %s (%s)", m.ID, r.Was, m.To, m.Reason)})
			if err := p.deps.Books.Payments.Note(ctx, tx, m.ID, bySPI, m.Reason, "contradiction: said to be "+string(m.To)); err != nil {
				return err
			}
		}
	}
	return nil
}
