package reconciliation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/statement"
	"github.com/cabine-pix/cabine/libs/store"
)

// untrustedError says that a file is not the one that was announced and asked for.
type untrustedError struct{ why string }

func (e *untrustedError) Error() string { return e.why }

// anotherPeriod: a file of another period says nothing of this one, also if we have it already.
const anotherPeriod = "the file is not of the account and the period that were asked for"

// isOf reports that a file is of the account and the period that a reconciliation asked for.
func (r *Reconciler) isOf(a store.Reconciliation, ispb pix.ISPB, from, to time.Time) bool {
	return ispb == r.cfg.ISPB && from.Equal(a.From) && to.Equal(a.To)
}

// hashOf reads the hash of a file from what the camt.052 says: the one word of 64 hexadecimal digits in it.
func hashOf(info string) (string, bool) {
	var found []string
	for _, word := range strings.FieldsFunc(info, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}) {
		if hash, ok := statement.Hash(statement.Name(word)); ok {
			found = append(found, hash)
		}
	}
	if len(found) != 1 {
		return "", false
	}
	return found[0], true
}

// retry is when a download that failed may be tried again.
type retry struct {
	clock.Backoff
	until clock.Deadline
}

// fetch brings the announced file into the bucket. A failure of the way to it is tried again later.
func (r *Reconciler) fetch(ctx context.Context, by store.Reign, a store.Reconciliation) error {
	hash, ok := hashOf(a.FileHash)
	if !ok {
		return r.again(ctx, by, a, "the answer names no hash")
	}
	known, err := r.deps.Files.Get(ctx, store.EntriesFile, hash)
	switch {
	case err == nil && !r.isOf(a, known.ISPB, known.From, known.To):
		return r.again(ctx, by, a, anotherPeriod)
	case err == nil:
		return r.brought(ctx, by, a) // an earlier look, or another reconciliation of the period, brought it
	case !errors.Is(err, store.ErrNotFound):
		return fmt.Errorf("looking for the file: %w", err)
	}
	if a.Now.Sub(a.AnnouncedAt) > r.cfg.FetchWithin {
		return r.again(ctx, by, a, "the file could not be fetched")
	}
	wait := r.retries[a.ID]
	if wait != nil && !wait.until.Passed(r.deps.Clock.Now()) {
		return nil
	}
	err = r.download(ctx, a, hash)
	var wrong *untrustedError
	switch {
	case err == nil:
		r.m.downloads.WithLabelValues(fetched).Inc()
		return r.brought(ctx, by, a)
	case errors.As(err, &wrong):
		r.m.downloads.WithLabelValues(untrusted).Inc()
		return r.again(ctx, by, a, wrong.why)
	case ctx.Err() != nil:
		return ctx.Err()
	}
	r.m.downloads.WithLabelValues(away).Inc()
	if wait == nil {
		wait = &retry{Backoff: clock.Backoff{First: r.cfg.RetryFirst, Most: r.cfg.RetryMost}}
		r.retries[a.ID] = wait
		r.deps.Log.WarnContext(ctx, "file of entries cannot be fetched yet", slog.Int64("reconciliation", a.ID), slog.Any("error", err))
	}
	wait.until = r.deps.Clock.Now().Deadline(wait.Next())
	return nil
}

// brought records that the file is where the importer finds it.
func (r *Reconciler) brought(ctx context.Context, by store.Reign, a store.Reconciliation) error {
	delete(r.retries, a.ID)
	if err := r.deps.Books.Fetched(ctx, by, a); err != nil {
		return moved(fmt.Errorf("noting the file: %w", err))
	}
	return nil
}

// download fetches a file, looks through all of it and puts it into the bucket.
func (r *Reconciler) download(ctx context.Context, a store.Reconciliation, hash string) (err error) {
	file, err := os.CreateTemp(r.cfg.Scratch, "cabine-entries-*")
	if err != nil {
		return fmt.Errorf("local copy: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := os.Remove(file.Name()); err != nil { // whoever is killed leaves nothing behind
		return fmt.Errorf("local copy: %w", err)
	}
	size, err := r.deps.Host.Fetch(ctx, r.cfg.ISPB, hash, file)
	if err != nil {
		return err
	}
	if err := r.trust(ctx, file, size, a, hash); err != nil {
		return err
	}
	return r.deps.Bucket.Put(ctx, statement.Name(hash), io.NewSectionReader(file, 0, size))
}

// trust reads a file to its end: it is whole, its text has the hash that was announced, and it is of our account and period.
func (r *Reconciler) trust(ctx context.Context, file io.ReaderAt, size int64, a store.Reconciliation, hash string) error {
	in, err := statement.Open(file, size, statement.Limits{MaxText: r.cfg.MaxText})
	var broken *statement.FileError
	if errors.As(err, &broken) {
		return &untrustedError{broken.Error()}
	}
	if err != nil {
		return fmt.Errorf("reading the file: %w", err)
	}
	defer in.Close() //nolint:errcheck // it was only read
	h := in.Header()
	if h.Kind != statement.Entries || !r.isOf(a, h.ISPB, h.From, h.To) {
		return &untrustedError{anotherPeriod}
	}
	for n := 0; ; n++ {
		if n%4096 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		err := in.Skip()
		var row *statement.RowError
		switch {
		case err == nil, errors.As(err, &row): // the importer lists what cannot be read
			continue
		case errors.As(err, &broken):
			return &untrustedError{broken.Error()}
		case !errors.Is(err, io.EOF):
			return fmt.Errorf("reading the file: %w", err)
		}
		if in.Summary().Hash != hash {
			return &untrustedError{"the file has another hash than was announced"}
		}
		return nil
	}
}
