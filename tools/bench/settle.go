package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/cabine-pix/cabine/libs/devstack"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/tools/internal/stage"
)

// Settle is what one replica of the settlement-scheduler does.
type Settle struct {
	// ObligationsPerS were announced, carried and written, out of Settled payments that were due at once.
	ObligationsPerS float64 `json:"obligations_per_s"`
	Settled         int     `json:"settled"`
	// Net1MS is how long closing a cycle of a million obligations with 800 parties took, in seconds.
	Net1MS float64 `json:"net_1m_s"`
	// NetRSSMiB is the most memory that the replica had until then.
	NetRSSMiB float64 `json:"net_rss_mib"`
	// Reconcile1MS is how long it took to import a file of a million entries and to compare it with as many payments, in
	// seconds; ReconcileImportS and ReconcileCompareS are its parts.
	Reconcile1MS      float64 `json:"reconcile_1m_s"`
	ReconcileImportS  float64 `json:"reconcile_import_s"`
	ReconcileCompareS float64 `json:"reconcile_compare_s"`
	// ReconcileRSSMiB is the most memory that the replica had which did that.
	ReconcileRSSMiB float64           `json:"reconcile_rss_mib"`
	Versions        map[string]string `json:"versions"`
}

const (
	netted  = 1_000_000
	settled = 50_000
	// leadership is the replica's, under which the benchmark opens cycles before it.
	leadership = "settlement:"
)

// settlement measures a replica that has a cycle of a million obligations to close, and then payments that settled, and
// another that reconciles.
func settlement(ctx context.Context, _ config, _ *devstack.Stack, r *Report, out io.Writer) (err error) {
	m := &Settle{Settled: settled}
	r.Settle = m
	s, err := stage.SetUp(ctx, stage.Config{MaxSlots: 4, Settlement: true, Progress: io.Discard})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.TearDown()) }()
	m.Versions = s.Versions()
	p := s.Participants[0]
	if err := nets(ctx, p, m, out); err != nil {
		return err
	}
	return reconcile(ctx, p, m, out)
}

// nets measures what a replica nets and writes.
func nets(ctx context.Context, p *stage.Participant, m *Settle, out io.Writer) (err error) {
	over, err := openCycles(ctx, p)
	if err != nil {
		return err
	}
	if err := p.Exec(ctx, fmt.Sprintf(`
		INSERT INTO obligations (payment_id, cycle_id, kind, direction, amount, party, settled_at)
		SELECT 'E12345678202612010000' || lpad(n::text, 11, '0'), %d, 'payment', CASE n %% 2 WHEN 0 THEN 'in' ELSE 'out' END,
			1 + n %% 100000, lpad((n::bigint * 7919 %% 800)::text, 8, '0'), now()
		FROM generate_series(1, %d) AS n`, over, netted)); err != nil {
		return err
	}
	replica, err := p.Scheduler("settle", func([]byte) {}, map[string]any{"cycles": map[string]any{"grace": "1ms"}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, replica.Stop(20*time.Second)) }()
	if m.Net1MS, err = closing(ctx, store.NewCycles(p.DB), over); err != nil {
		return err
	}
	if m.NetRSSMiB, err = replica.PeakMiB(); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "%d obligations of 800 parties netted in %.1f s, the replica had %.0f MiB\n", netted, m.Net1MS, m.NetRSSMiB)
	if m.ObligationsPerS, err = writing(ctx, p); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "%.0f obligations/s of %d that were due\n", m.ObligationsPerS, settled)
	return nil
}

// openCycles opens a cycle that is over, and one that is not.
func openCycles(ctx context.Context, p *stage.Participant) (over int64, err error) {
	by := store.Reign{Name: leadership + string(p.ISPB)}
	if by.Term, err = store.NewTerms(p.DB).Mint(ctx, by.Name, "bench"); err != nil {
		return 0, err
	}
	now := time.Now().UTC()
	day := now.Truncate(24 * time.Hour)
	cycles, err := store.NewCycles(p.DB).Open(ctx, by, []store.Window{
		{Date: day, Type: "over", OpensAt: now.Add(-2 * time.Hour), ClosesAt: now.Add(-time.Hour)},
		{Date: day, Type: "open", ClosesAt: now.Add(time.Hour)},
	})
	if err != nil {
		return 0, err
	}
	return cycles[0].ID, nil
}

// closing waits until a cycle is closed, and returns how long that took since it was sealed.
func closing(ctx context.Context, cycles *store.Cycles, id int64) (float64, error) {
	var c store.Cycle
	err := eventually(ctx, 5*time.Minute, "the cycle to be closed", func() (bool, error) {
		var err error
		c, err = cycles.Get(ctx, id)
		return c.State == store.CycleClosed, err
	})
	if err == nil && c.Obligations != netted {
		err = fmt.Errorf("%d obligations were netted, not %d", c.Obligations, netted)
	}
	return c.ClosedAt.Sub(c.SealedAt).Seconds(), err
}

// writing settles payments in one transaction, and returns how many obligations per second were written from then on.
func writing(ctx context.Context, p *stage.Participant) (float64, error) {
	obligations, err := store.NewObligations(p.DB, nil)
	if err != nil {
		return 0, err
	}
	if err := p.Exec(ctx, fmt.Sprintf(`
		INSERT INTO payments (id, kind, direction, state, amount, channel, counterparty, document, accepted_at, settled_at)
		SELECT 'E87654321202612010000' || lpad(n::text, 11, '0'), 'payment', 'in', 'settled', 1, 'cpm', lpad((n %% 800)::text, 8, '0'),
			'{}', now(), now()
		FROM generate_series(1, %d) AS n;
		INSERT INTO obligations_due (payment_id, settled_at) SELECT id, settled_at FROM payments WHERE state = 'settled'`, settled)); err != nil {
		return 0, err
	}
	began := time.Now()
	err = eventually(ctx, 5*time.Minute, "all obligations to be written", func() (bool, error) {
		b, err := obligations.Backlog(ctx)
		return b.Due == 0, err
	})
	return settled / time.Since(began).Seconds(), err
}
