package reconciliation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cabine-pix/cabine/libs/calendar"
	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/statement"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/services/settlement-scheduler/singleton"
)

// FileHost has the bank's files.
type FileHost interface {
	// Fetch writes the archive of a hash to w and returns its size.
	Fetch(ctx context.Context, ispb pix.ISPB, hash string, w io.Writer) (int64, error)
}

// Bucket is where the importer finds files.
type Bucket interface {
	// Put writes an object whole or not at all.
	Put(ctx context.Context, name string, from io.Reader) error
}

// Deps are what a Reconciler needs from outside.
type Deps struct {
	Books   *store.Reconciliations
	Files   *store.Files
	Host    FileHost
	Bucket  Bucket
	Days    *calendar.Calendar
	Clock   clock.Clock
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Reconciler compares our books with the bank's account. It is a leader's child.
type Reconciler struct {
	cfg  Config
	deps Deps
	m    *metrics

	retries map[int64]*retry // of Run's goroutine alone
}

const (
	// who is named in events, and reason is that of every enquiry: payments counts its pauses from it.
	who    = "settlement-scheduler"
	reason = "enquiry"
)

// What is asked, as the metric has it.
const (
	subjectEntries = "entries"
	subjectEntry   = "entry"
)

// New returns a reconciler that has started nothing.
func New(cfg Config, deps Deps) (*Reconciler, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("reconciliation config: %w", err)
	}
	m, err := newMetrics(deps.Metrics)
	if err != nil {
		return nil, fmt.Errorf("reconciliation metrics: %w", err)
	}
	return &Reconciler{cfg: cfg, deps: deps, m: m}, nil
}

// Run reconciles until ctx ends, or until its term is over: then it fails with store.ErrStaleTerm.
func (r *Reconciler) Run(ctx context.Context, term int64) error {
	defer r.m.nothing()
	r.retries = map[int64]*retry{}
	by := store.Reign{Name: r.cfg.Leadership, Term: term}
	return singleton.Repeat(ctx, r.deps.Clock, r.cfg.Look, func(ctx context.Context) error { return r.step(ctx, by) }, r.turned)
}

func (r *Reconciler) turned(err error) {
	if err != nil {
		r.deps.Log.Error("books are not reconciled", slog.Any("error", err))
	} else {
		r.deps.Log.Info("books are reconciled again")
	}
}

// step does whatever is to be done now. What fails with one reconciliation holds up no other.
func (r *Reconciler) step(ctx context.Context, by store.Reign) error {
	errs := []error{r.begin(ctx, by)}
	open, err := r.deps.Books.Open(ctx)
	errs = append(errs, err)
	for _, a := range open {
		errs = append(errs, r.advance(ctx, by, a))
	}
	unresolved, err := r.deps.Books.Unresolved(ctx, r.cfg.ResolveWithin)
	errs = append(errs, err)
	for _, a := range unresolved {
		errs = append(errs, r.resolve(ctx, by, a))
	}
	agreement, err := r.deps.Books.Agreement(ctx)
	if err == nil {
		r.m.agreement(agreement)
	}
	return errors.Join(append(errs, err)...)
}

// begin starts what is due.
func (r *Reconciler) begin(ctx context.Context, by store.Reign) error {
	s, err := r.deps.Books.Standing(ctx)
	if err != nil {
		return fmt.Errorf("reading reconciliations: %w", err)
	}
	for _, a := range r.cfg.due(s, r.deps.Days) {
		questions, err := r.questions(a)
		if err != nil {
			return err
		}
		id, err := r.deps.Books.Start(ctx, by, a, questions)
		if err = moved(err); err != nil {
			return fmt.Errorf("starting a reconciliation: %w", err)
		}
		if id == 0 {
			continue // somebody began it since
		}
		r.m.questions.WithLabelValues(subjectEntries).Inc()
		a.ID = id
		r.deps.Log.InfoContext(ctx, "reconciliation begins", named(a)...)
	}
	return nil
}

// questions asks for the file of a period and, in the chain, for the balance.
func (r *Reconciler) questions(a store.Reconciliation) ([]store.Inquiry, error) {
	asked := []*iso20022.Camt060{iso20022.Entries(r.cfg.ISPB, a.From, a.To)}
	if a.Cause.Chained() && a.BalanceAt.IsZero() {
		asked = append(asked, iso20022.Balance(r.cfg.ISPB))
	}
	all := make([]store.Inquiry, len(asked))
	for i, q := range asked {
		body, err := json.Marshal(q)
		if err != nil {
			return nil, fmt.Errorf("write question: %w", err)
		}
		all[i] = store.Inquiry{MsgType: q.MsgType(), Channel: r.cfg.Channel, Body: body, Balance: i > 0}
	}
	return all, nil
}

// advance takes a reconciliation on by one step, if that is possible now.
func (r *Reconciler) advance(ctx context.Context, by store.Reign, a store.Reconciliation) error {
	switch a.State {
	case store.ReconciliationAsked:
		switch {
		case a.Asked == 0:
			return r.ask(ctx, by, a, "")
		case a.Now.Sub(a.AskedAt) > r.cfg.AnswerWithin:
			return r.again(ctx, by, a, "the SPI does not answer")
		}
	case store.ReconciliationAnnounced:
		return r.fetch(ctx, by, a)
	case store.ReconciliationImporting:
		return r.imported(ctx, by, a)
	case store.ReconciliationCompared, store.ReconciliationFailed:
	}
	return nil
}

// ask asks for the file of a period, by a new question.
func (r *Reconciler) ask(ctx context.Context, by store.Reign, a store.Reconciliation, why string) error {
	questions, err := r.questions(a)
	if err != nil {
		return err
	}
	if err := r.deps.Books.Ask(ctx, by, a, why, questions); err != nil {
		return moved(fmt.Errorf("asking for entries: %w", err))
	}
	r.m.questions.WithLabelValues(subjectEntries).Inc()
	return nil
}

// again asks anew because of what went wrong, or gives up.
func (r *Reconciler) again(ctx context.Context, by store.Reign, a store.Reconciliation, why string) error {
	delete(r.retries, a.ID)
	attrs := append(named(a), slog.String("reason", why), slog.Int("asked", a.Asked))
	if a.Asked < r.cfg.Asks {
		r.deps.Log.WarnContext(ctx, "asking for entries again", attrs...)
		return r.ask(ctx, by, a, why)
	}
	if err := r.deps.Books.Fail(ctx, by, a.ID, why); err != nil {
		return moved(fmt.Errorf("giving up: %w", err))
	}
	r.m.ended.WithLabelValues(string(store.ReconciliationFailed)).Inc()
	r.deps.Log.ErrorContext(ctx, "reconciliation failed", attrs...)
	return nil
}

// imported compares once the file is in the tables.
func (r *Reconciler) imported(ctx context.Context, by store.Reign, a store.Reconciliation) error {
	hash, ok := hashOf(a.FileHash)
	if !ok {
		return r.again(ctx, by, a, "the answer names no hash")
	}
	file, err := r.deps.Files.Get(ctx, store.EntriesFile, hash)
	switch {
	case err == nil && !r.isOf(a, file.ISPB, file.From, file.To):
		return r.again(ctx, by, a, anotherPeriod)
	case err == nil:
		return r.compare(ctx, by, a, file)
	case !errors.Is(err, store.ErrNotFound):
		return fmt.Errorf("looking for the file: %w", err)
	}
	why, err := r.deps.Books.ImportRefused(ctx, hash, statement.Name(hash), a.AnnouncedAt)
	switch {
	case err == nil:
		return r.again(ctx, by, a, why)
	case !errors.Is(err, store.ErrNotFound):
		return fmt.Errorf("looking for the file: %w", err)
	case a.Now.Sub(a.FetchedAt) > r.cfg.ImportWithin:
		return r.again(ctx, by, a, "the file was not imported")
	}
	return nil
}

// compare writes the lines and tells how many there are.
func (r *Reconciler) compare(ctx context.Context, by store.Reign, a store.Reconciliation, file store.File) error {
	began := r.deps.Clock.Now()
	judged, err := r.deps.Books.Compare(ctx, by, a.ID, file, r.cfg.Tolerance)
	if err != nil {
		return moved(fmt.Errorf("comparing: %w", err))
	}
	r.m.took.Observe(r.deps.Clock.Now().Elapsed(began).Seconds())
	r.m.ended.WithLabelValues(string(store.ReconciliationCompared)).Inc()
	done, err := r.deps.Books.Get(ctx, a.ID)
	if err != nil {
		return fmt.Errorf("reading what was compared: %w", err)
	}
	attrs := append(named(done), slog.Int64("entries", done.Entries))
	level := slog.LevelInfo
	if done.Reason != "" {
		level = slog.LevelError
	}
	for _, f := range store.Findings() {
		attrs = append(attrs, slog.Int64(string(f), done.Found[f]))
		if done.Found[f] > 0 {
			level = slog.LevelError
		}
	}
	r.deps.Log.Log(ctx, level, "books were compared with the bank's account", append(attrs, slog.String("reason", done.Reason))...)
	return r.balance(ctx, judged)
}

// balance tells of a balance that was judged.
func (r *Reconciler) balance(ctx context.Context, id int64) error {
	if id == 0 {
		return nil
	}
	a, err := r.deps.Books.Get(ctx, id)
	if err != nil {
		return fmt.Errorf("reading a balance: %w", err)
	}
	if difference := int64(a.Balance) - a.Expected; difference != 0 {
		r.deps.Log.ErrorContext(ctx, "the balance is not what the entries come to", append(named(a), slog.Int64("difference_centavos", difference))...)
	}
	return nil
}

// resolve asks about open lines, if it may, and looks which of them our books and the SPI have settled.
func (r *Reconciler) resolve(ctx context.Context, by store.Reign, a store.Reconciliation) error {
	if a.Active && a.Unresolved < int64(r.cfg.EntriesMost) {
		asked, err := r.deps.Books.AskLines(ctx, by, a.ID, store.EntryQuestions{
			MsgType: (&iso20022.Camt060{}).MsgType(), Channel: r.cfg.Channel, Who: who, Reason: reason,
			Again: r.cfg.EntryAgain, Most: r.cfg.EntryAsks, AtOnce: r.cfg.EntriesAtOnce,
			Body: func(id string) (json.RawMessage, error) { return json.Marshal(iso20022.Entry(r.cfg.ISPB, id)) },
		})
		if err != nil {
			return fmt.Errorf("asking about lines: %w", err)
		}
		if asked > 0 {
			r.m.questions.WithLabelValues(subjectEntry).Add(float64(asked))
			r.deps.Log.WarnContext(ctx, "asking the SPI about lines that differ", append(named(a), slog.Int("lines", asked))...)
		}
	}
	resolved, err := r.deps.Books.Resolve(ctx, by, a.ID)
	if err != nil {
		return fmt.Errorf("resolving lines: %w", err)
	}
	if resolved > 0 {
		r.deps.Log.InfoContext(ctx, "lines are resolved", append(named(a), slog.Int64("lines", resolved), slog.Int64("open", a.Unresolved-resolved))...)
	}
	return nil
}

// moved makes nothing of a reconciliation that stands otherwise by now than it was read: the next look sees how.
func moved(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

func named(a store.Reconciliation) []any {
	return []any{
		slog.Int64("reconciliation", a.ID), slog.String("cause", string(a.Cause)), slog.Time("from", a.From), slog.Time("to", a.To),
	}
}
