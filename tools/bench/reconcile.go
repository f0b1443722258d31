package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/statement"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/tools/internal/stage"
)

const (
	reconciled = 1_000_000
	// Of each thousand entries one is missing here, one there, and one differs.
	oddEvery = 1000
)

// reconcile measures a replica that finds a file of a million entries in its bucket and compares it with as many payments.
func reconcile(ctx context.Context, p *stage.Participant, m *Settle, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "cabine-bench-files-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	from := time.Now().UTC().Truncate(time.Hour).Add(-3 * time.Hour)
	hash, err := writeEntries(dir, p.ISPB, from)
	if err != nil {
		return err
	}
	if err := p.Exec(ctx, fmt.Sprintf(`
		INSERT INTO payments (id, kind, direction, state, amount, channel, counterparty, document, accepted_at, settled_at)
		SELECT 'E11111111202612010000' || lpad(n::text, 11, '0'), 'payment', CASE n %% 2 WHEN 0 THEN 'in' ELSE 'out' END, 'settled',
			1 + n %% 100000, 'cpm', lpad((n::bigint * 7919 %% 800)::text, 8, '0'), '{}', now(),
			timestamptz '%[1]s' + n * interval '3 milliseconds'
		FROM generate_series(1, %[2]d) AS n WHERE n %% %[3]d <> 1;
		INSERT INTO reconciliations (cause, mode, period_from, period_to, state, asked, asked_at, announced_at, fetched_at, file_hash, file_entries)
		VALUES ('manual', 'observe', '%[1]s', timestamptz '%[1]s' + interval '1 hour', 'importing', 1, now(), now(), now(), '%[4]s', %[5]d)`,
		from.Format(time.RFC3339), reconciled, oddEvery, hash, reconciled-reconciled/oddEvery)); err != nil {
		return err
	}
	files := p.Files()
	replica, err := p.Scheduler("reconcile", func([]byte) {}, map[string]any{
		"files": map[string]any{"bucket": "file://" + dir, "every": "50ms"},
		"reconciliation": map[string]any{
			"files_url": "https://localhost:1", "cert_file": files.Cert, "key_file": files.Key, "ca_file": files.CA, "look": "50ms",
		},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, replica.Stop(20*time.Second)) }()
	if err := compared(ctx, p, m, filepath.Join(dir, "new"), filepath.Join(dir, statement.Name(hash)), hash); err != nil {
		return err
	}
	if m.ReconcileRSSMiB, err = replica.PeakMiB(); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "%d entries imported in %.1f s and compared with as many payments in %.1f s, the replica had %.0f MiB\n",
		reconciled, m.ReconcileImportS, m.ReconcileCompareS, m.ReconcileRSSMiB)
	return nil
}

// writeEntries writes the bank's file as dir/new and returns its hash.
func writeEntries(dir string, ispb pix.ISPB, from time.Time) (hash string, err error) {
	file, err := os.Create(filepath.Join(dir, "new"))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	buffered := bufio.NewWriterSize(file, 1<<20)
	w, err := statement.NewWriter(buffered, statement.Header{Kind: statement.Entries, ISPB: ispb, From: from, To: from.Add(time.Hour)})
	if err != nil {
		return "", err
	}
	for n := 1; n <= reconciled; n++ {
		e := statement.Entry{
			ID: fmt.Sprintf("E11111111202612010000%011d", n), Kind: pix.Payment, Direction: pix.In, Amount: pix.Amount(1 + n%100000),
			SettledAt: from.Add(time.Duration(n) * 3 * time.Millisecond), Counterparty: pix.ISPB(fmt.Sprintf("%08d", n*7919%800)),
		}
		if n%2 == 1 {
			e.Direction = pix.Out
		}
		switch n % oddEvery {
		case 2: // missing there; what is missing here the books leave out
			continue
		case 3:
			e.Amount++
		}
		if err := w.Entry(e); err != nil {
			return "", err
		}
	}
	sum, err := w.Close()
	if err != nil {
		return "", err
	}
	return sum.Hash, buffered.Flush()
}

// compared puts the file where the replica, which leads by then, finds it, and waits for the import and the comparison.
func compared(ctx context.Context, p *stage.Participant, m *Settle, file, object, hash string) error {
	books, imported := store.NewReconciliations(p.DB), store.NewFiles(p.DB)
	// The replica begins a reconciliation of its own as soon as it leads.
	err := eventually(ctx, time.Minute, "the replica to lead", func() (bool, error) {
		all, err := books.Latest(ctx, 2)
		return len(all) == 2, err
	})
	if err != nil {
		return err
	}
	began := time.Now()
	if err := os.Rename(file, object); err != nil {
		return err
	}
	if err := eventually(ctx, 5*time.Minute, "the file to be imported", func() (bool, error) {
		_, err := imported.Get(ctx, store.EntriesFile, hash)
		if errors.Is(err, store.ErrNotFound) {
			return false, nil
		}
		return err == nil, err
	}); err != nil {
		return err
	}
	m.ReconcileImportS = time.Since(began).Seconds()
	var last store.Reconciliation
	err = eventually(ctx, 5*time.Minute, "the books to be compared", func() (bool, error) {
		a, err := books.Agreement(ctx)
		last = a.Last
		return last.State == store.ReconciliationCompared, err
	})
	m.Reconcile1MS = time.Since(began).Seconds()
	m.ReconcileCompareS = m.Reconcile1MS - m.ReconcileImportS
	const odd = reconciled / oddEvery
	if err == nil && (last.Found[store.MissingHere] != odd || last.Found[store.MissingThere] != odd || last.Found[store.Differing] != odd || last.Unresolved != 3*odd) {
		err = fmt.Errorf("%v were found, not %d of each", last.Found, odd)
	}
	return err
}
