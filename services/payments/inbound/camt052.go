package inbound

import (
	"context"

	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
)

// files notes which files are ready with the reconciliations that asked for them.
func (p *Processor) files(doc *iso20022.Camt052) (effect, error) {
	for _, r := range doc.Reports {
		if r.Owner != p.cfg.ISPB {
			return nil, dead{deadAddressee, "camt.052 is about the account of " + string(r.Owner)}
		}
	}
	return func(ctx context.Context, tx *store.Tx, out *outcome) error {
		for _, r := range doc.Reports {
			asked, err := p.deps.Books.Reconciliations.AnswerFile(ctx, tx, r.ID, r.Info, int64(r.Entries))
			if err != nil {
				return err
			}
			if !asked {
				out.unasked++
			}
		}
		return nil
	}, nil
}

// balances notes what the account holds with the reconciliations that asked: what is available and what is blocked,
// together.
func (p *Processor) balances(doc *iso20022.Camt053) (effect, error) {
	for _, s := range doc.Statements {
		if s.Owner != p.cfg.ISPB {
			return nil, dead{deadAddressee, "camt.053 is about the account of " + string(s.Owner)}
		}
	}
	return func(ctx context.Context, tx *store.Tx, out *outcome) error {
		for _, s := range doc.Statements {
			held, tells := holding(s)
			if !tells {
				continue // what the account earned, or what is held elsewhere
			}
			asked, err := p.deps.Books.Reconciliations.AnswerBalance(ctx, tx, pix.MsgID(s.ID), held.Amount, held.At)
			if err != nil {
				return err
			}
			if !asked {
				out.unasked++
			}
		}
		return nil
	}, nil
}

// holding is what an account holds by a statement, which may tell of other things only.
func holding(s iso20022.Statement) (held iso20022.AccountBalance, tells bool) {
	for _, b := range s.Balances {
		if b.Type == iso20022.BalanceAvailable {
			held.At, tells = b.At, true
		}
		if b.Type == iso20022.BalanceAvailable || b.Type == iso20022.BalanceBlocked {
			held.Amount += b.Amount
		}
	}
	return held, tells
}
