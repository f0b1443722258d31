package fileimport

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cabine-pix/cabine/libs/bucket"
	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/services/settlement-scheduler/singleton"
)

// Bucket is where the files are.
type Bucket interface {
	List(ctx context.Context) iter.Seq2[bucket.Object, error]
	Fetch(ctx context.Context, o bucket.Object, most int64) (*bucket.Local, error)
}

// Deps are what an Importer needs from outside.
type Deps struct {
	// Bucket may be nil: there are no files then, and the importer does nothing.
	Bucket  Bucket
	Files   *store.Files
	Clock   clock.Clock
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Importer imports files. It is a leader's child.
type Importer struct {
	cfg  Config
	deps Deps
	m    *metrics
}

// New returns an importer that has started nothing.
func New(cfg Config, deps Deps) (*Importer, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("file import config: %w", err)
	}
	m, err := newMetrics(deps.Metrics)
	if err != nil {
		return nil, fmt.Errorf("file import metrics: %w", err)
	}
	return &Importer{cfg: cfg, deps: deps, m: m}, nil
}

// Run imports what comes until ctx ends, or until its term is over: then it fails with store.ErrStaleTerm.
func (i *Importer) Run(ctx context.Context, term int64) error {
	if i.deps.Bucket == nil {
		i.deps.Log.Info("no files are imported: there is no bucket in the configuration")
		<-ctx.Done()
		return ctx.Err()
	}
	defer i.rest()
	began := i.deps.Clock.Now()
	by := store.Reign{Name: i.cfg.Leadership, Term: term}
	waiting := map[string]string{} // what was told to be waiting: versions by name
	return singleton.Repeat(ctx, i.deps.Clock, i.cfg.Every, func(ctx context.Context) error {
		if err := i.step(ctx, by, waiting); err != nil {
			return err
		}
		return i.ages(ctx, began)
	}, i.turned)
}

// rest takes back what only a leader knows.
func (i *Importer) rest() {
	for _, g := range []prometheus.Gauge{i.m.waiting, i.m.age, i.m.overdue} {
		g.Set(0)
	}
}

func (i *Importer) turned(err error) {
	if err != nil {
		i.deps.Log.Error("files are not imported", slog.Any("error", err))
	} else {
		i.deps.Log.Info("files are imported again")
	}
}

// step imports what is there, page by page. An object that fails does not hold up the others, and is told at the end.
func (i *Importer) step(ctx context.Context, by store.Reign, told map[string]string) error {
	w := &walk{Importer: i, by: by, told: told, waiting: map[string]string{}}
	objects := make([]store.Object, 0, page)
	for o, err := range i.deps.Bucket.List(ctx) {
		if err != nil {
			return fmt.Errorf("looking into the bucket: %w", err)
		}
		if !strings.HasSuffix(strings.ToLower(o.Name), ".zip") {
			continue
		}
		if !utf8.ValidString(o.Name) || strings.ContainsRune(o.Name, 0) {
			w.fail(fmt.Errorf("the name %q cannot be kept", o.Name))
			continue
		}
		objects = append(objects, store.Object(o))
		if len(objects) == page {
			if err := w.page(ctx, objects); err != nil {
				return err
			}
			objects = objects[:0]
		}
	}
	if err := w.page(ctx, objects); err != nil {
		return err
	}
	clear(told)
	for name, version := range w.waiting {
		told[name] = version
	}
	i.m.waiting.Set(float64(len(w.waiting)))
	if w.failed > 0 {
		return fmt.Errorf("%d objects, the first: %w", w.failed, w.first)
	}
	return nil
}

// ages says how old what we have is.
func (i *Importer) ages(ctx context.Context, began clock.Reading) error {
	ages, err := i.deps.Files.Ages(ctx)
	if err != nil {
		return fmt.Errorf("ages of files: %w", err)
	}
	since := i.deps.Clock.Now().Elapsed(began) // of the first file: since somebody looks
	if !ages.To.IsZero() {
		i.m.age.Set(ages.Now.Sub(ages.ImportedAt).Seconds())
		since = ages.Now.Sub(ages.To)
	}
	i.m.overdue.Set(max(0, since-i.cfg.Expected).Seconds())
	return nil
}

// walk is one look at everything.
type walk struct {
	*Importer
	by      store.Reign
	told    map[string]string // versions by name, of the step before
	waiting map[string]string
	failed  int
	first   error
}

func (w *walk) fail(err error) {
	if w.failed++; w.first == nil {
		w.first = err
	}
}

// page imports what of some objects was not seen.
func (w *walk) page(ctx context.Context, objects []store.Object) error {
	if len(objects) == 0 {
		return nil
	}
	unseen, err := w.deps.Files.Unseen(ctx, objects)
	if err != nil {
		return fmt.Errorf("comparing objects: %w", err)
	}
	for _, o := range unseen {
		err := w.object(ctx, o)
		switch {
		case err == nil, errors.Is(err, bucket.ErrChanged), errors.Is(err, bucket.ErrNotFound): // the next look sees what is
		case ctx.Err() != nil, errors.Is(err, store.ErrStaleTerm), errors.Is(err, store.ErrUnavailable):
			return err
		default:
			w.fail(err)
		}
	}
	return nil
}

// object brings one object to its end.
func (w *walk) object(ctx context.Context, o store.Object) error {
	began := w.deps.Clock.Now()
	f := &file{Importer: w.Importer, object: o, spoke: began}
	outcome, reason, err := w.bring(ctx, f)
	log := w.deps.Log.With(slog.String("object", o.Name), slog.Int64("size", o.Size))
	took := w.deps.Clock.Now().Elapsed(began).Round(time.Millisecond)
	switch {
	case err != nil:
		return fmt.Errorf("object %q: %w", o.Name, err)
	case outcome == waits:
		w.waiting[o.Name] = o.Version
		if w.told[o.Name] != o.Version {
			log.Warn("a settlement waits for its cycle to close", slog.String("reason", reason))
		}
		return nil
	case outcome == refused:
		f.known.Reason = reason
		if err := w.deps.Files.Refuse(ctx, w.by, f.known); err != nil {
			return fmt.Errorf("object %q: %w", o.Name, err)
		}
		log.Error("file refused", slog.String("reason", reason))
	case outcome == imported:
		w.m.took.Observe(took.Seconds())
		w.m.rows.Add(float64(f.known.RowsRefused))
		log.Info("file imported", slog.Int64("file", f.known.ID), slog.String("kind", string(f.known.Kind)),
			slog.Int64("records", f.known.Records), slog.Int64("rows_refused", f.known.RowsRefused), slog.Duration("took", took))
	default:
		log.Info("file was imported before", slog.Int64("file", f.known.ID))
	}
	w.m.files.WithLabelValues(outcome).Inc()
	return nil
}
