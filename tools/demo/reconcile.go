package main

import (
	"context"
	"fmt"
	"time"

	"github.com/cabine-pix/cabine/libs/store"
)

// reconcile has the leader of each participant compare its books with the bank's account, for the time of the play: by
// camt.060, camt.052 and the file of entries. What differs is a line of the report.
func (t *troupe) reconcile(ctx context.Context, r *Report, view *table, from time.Time) error {
	if t.o.withoutCap {
		return nil // as in drained
	}
	to := time.Now().UTC()
	for _, p := range t.stage.Participants {
		err := p.Exec(ctx, fmt.Sprintf("INSERT INTO reconciliations (cause, mode, period_from, period_to) VALUES ('%s', 'observe', '%s', '%s')",
			store.CauseManual, from.UTC().Add(-time.Minute).Format(sqlTime), to.Format(sqlTime)))
		if err != nil {
			return err
		}
	}
	compared := func(ctx context.Context) (bool, error) { return t.compared(ctx, r) }
	return t.within(ctx, r, view, time.Minute, "a conciliação com o extrato do banco", compared)
}

// sqlTime is an instant to the millisecond, as questions to the SPI have it.
const sqlTime = "2006-01-02T15:04:05.000Z"

// compared puts the reconciliations into the report once all are over.
func (t *troupe) compared(ctx context.Context, r *Report) (bool, error) {
	var sum Reconciliation
	for _, p := range t.stage.Participants {
		books := store.NewReconciliations(p.DB)
		latest, err := books.Latest(ctx, 10)
		if err != nil {
			return false, err
		}
		over := false
		for _, c := range latest {
			if c.Cause != store.CauseManual || c.State != store.ReconciliationCompared && c.State != store.ReconciliationFailed {
				continue
			}
			over = true
			if c.Reason != "" {
				sum.Lines = append(sum.Lines, fmt.Sprintf("%s: %s: %s", p.ISPB, c.State, c.Reason))
			}
			sum.Entries += c.Entries
			sum.MissingHere += c.Found[store.MissingHere]
			sum.MissingThere += c.Found[store.MissingThere]
			sum.Differing += c.Found[store.Differing]
			sum.Doubled += c.Found[store.Doubled]
			lines, err := books.Lines(ctx, c.ID, "", 20)
			if err != nil {
				return false, err
			}
			for _, l := range lines {
				sum.Lines = append(sum.Lines, fmt.Sprintf("%s: %s: %s: %s %v nos nossos livros, %d lançamentos de %v no banco",
					p.ISPB, l.Finding, l.PaymentID, l.OurState, l.Ours.Amount, l.Entries, l.Theirs.Amount))
			}
		}
		if !over {
			return false, nil
		}
	}
	r.Reconciliation = sum
	return true, nil
}

func (r *Report) judgeReconciliation() {
	c := r.Reconciliation
	if c.Entries == 0 {
		r.broke("A conciliação não comparou nenhum lançamento: nada foi provado")
	}
	if c.MissingHere+c.MissingThere+c.Differing+c.Doubled > 0 {
		r.broke("Books agree: na conciliação %d ausentes aqui, %d ausentes no banco, %d diferentes, %d em dobro no banco",
			c.MissingHere, c.MissingThere, c.Differing, c.Doubled)
	} else if len(c.Lines) > 0 {
		r.broke("Books agree: a conciliação não terminou bem")
	}
}
