package store

import (
	"context"
	"fmt"

	"github.com/cabine-pix/cabine/libs/store/db"
)

// Reign is what a leader writes under: a leadership and its term.
type Reign struct {
	// Name of the leadership, as Mint was given it.
	Name string
	Term int64
}

// Terms mints the terms of leaders and guards writes by them.
type Terms struct {
	db *DB
	q  *db.Queries
}

// NewTerms returns the terms kept in d.
func NewTerms(d *DB) *Terms { return &Terms{db: d, q: db.New()} }

// Mint returns a new term of name, greater than every one minted before. It waits for
// guarded transactions of the term that it ends. After ErrUnavailable a term may have
// been minted and lost, which leaves a gap and nothing else.
func (t *Terms) Mint(ctx context.Context, name, owner string) (int64, error) {
	var term int64
	err := t.db.call(ctx, "mint term", func(ctx context.Context, conn db.DBTX) (err error) {
		term, err = t.q.MintTerm(ctx, conn, db.MintTermParams{Name: name, Owner: owner})
		return err
	})
	return term, err
}

// GuardTx makes a transaction depend on a term: it fails with ErrStaleTerm unless term
// is the newest of name, and it keeps a newer one from being minted until the
// transaction has ended. Call it first in InTx.
func (t *Terms) GuardTx(ctx context.Context, tx *Tx, name string, term int64) error {
	newest, err := t.q.HoldTerm(ctx, tx.tx, name)
	if err != nil {
		return translate("guard term", err)
	}
	if newest != term {
		return fmt.Errorf("guard term %q: have %d, newest is %d: %w", name, term, newest, ErrStaleTerm)
	}
	return nil
}

// InTx runs fn in one transaction that belongs to a reign: ErrStaleTerm, and nothing written, unless its term is the newest.
func (t *Terms) InTx(ctx context.Context, by Reign, fn func(ctx context.Context, tx *Tx) error) error {
	return t.db.InTx(ctx, func(ctx context.Context, tx *Tx) error {
		if err := t.GuardTx(ctx, tx, by.Name, by.Term); err != nil {
			return err
		}
		return fn(ctx, tx)
	})
}

// isNewest fails with ErrStaleTerm if the reign is over. It holds nothing: GuardTx decides.
func (t *Terms) isNewest(ctx context.Context, tx *Tx, by Reign) error {
	newest, err := t.q.NewestTerm(ctx, tx.tx, by.Name)
	if err == nil && newest != by.Term {
		err = fmt.Errorf("%q: have %d, newest is %d: %w", by.Name, by.Term, newest, ErrStaleTerm)
	}
	return translate("term", err)
}
