package watch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/services/payments/enquiry"
)

// Config says how often and after how long. The zero value of each field but ISPB means its default.
type Config struct {
	// ISPB of the participant. Required.
	ISPB pix.ISPB
	// Every is the time between two turns. Default 5 s.
	Every time.Duration
	// EnquireAfter is how long a payment may stand before the SPI is asked; above the SPI's 40 s.
	// EnquireMost is the longest pause between two enquiries. Defaults 60 s, 30 min.
	EnquireAfter, EnquireMost time.Duration
	// EnquireRows bounds the enquiries of one turn: they pass through the same permits as payments. Default 100.
	EnquireRows int
}

// WithDefaults returns a copy in which zero fields have their defaults.
func (c Config) WithDefaults() Config {
	duration := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	duration(&c.Every, 5*time.Second)
	duration(&c.EnquireAfter, time.Minute)
	duration(&c.EnquireMost, 30*time.Minute)
	if c.EnquireRows == 0 {
		c.EnquireRows = 100
	}
	return c
}

// Validate names every field that is wrong.
func (c Config) Validate() error {
	var errs []error
	if _, err := pix.ParseISPB(string(c.ISPB)); err != nil {
		errs = append(errs, err)
	}
	for _, f := range []struct {
		name string
		d    time.Duration
	}{
		{"Every", c.Every},
		{"EnquireAfter", c.EnquireAfter},
		{"EnquireMost", c.EnquireMost},
	} {
		if f.d < time.Millisecond {
			errs = append(errs, fmt.Errorf("%s is %v, want at least 1ms", f.name, f.d))
		}
	}
	if c.EnquireMost < c.EnquireAfter {
		errs = append(errs, fmt.Errorf("EnquireMost is %v, want at least EnquireAfter %v", c.EnquireMost, c.EnquireAfter))
	}
	if c.EnquireRows < 1 || c.EnquireRows > 10_000 {
		errs = append(errs, fmt.Errorf("EnquireRows is %d, want 1 to 10000", c.EnquireRows))
	}
	return errors.Join(errs...)
}

// Announcer is told of outbox rows that were committed. It never waits.
type Announcer interface {
	Announce(ctx context.Context, rows []store.Operation)
}

// Deps are what a Watch needs from outside.
type Deps struct {
	DB        *store.DB
	Payments  *store.Payments
	Outbox    *store.Outbox
	Announcer Announcer
	Clock     clock.Clock
	Log       *slog.Logger
	Metrics   prometheus.Registerer
}

// Watch looks at what is open.
type Watch struct {
	cfg  Config
	deps Deps
	m    *metrics

	failing bool // of Run's goroutine alone
}

// New returns a watch that has started nothing.
func New(cfg Config, deps Deps) (*Watch, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("watch config: %w", err)
	}
	m, err := newMetrics(deps.Metrics)
	if err != nil {
		return nil, fmt.Errorf("watch metrics: %w", err)
	}
	return &Watch{cfg: cfg, deps: deps, m: m}, nil
}

// Run takes turns until ctx ends.
func (w *Watch) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		w.report(ctx, errors.Join(w.count(ctx), w.ask(ctx)))
		_ = clock.Sleep(ctx, w.deps.Clock, w.cfg.Every) // the loop looks at ctx
	}
	return nil
}

// report tells when turns begin to fail, and when they work again. The end of ctx is neither.
func (w *Watch) report(ctx context.Context, err error) {
	failing := err != nil
	if failing == w.failing || ctx.Err() != nil {
		return
	}
	w.failing = failing
	if failing {
		w.deps.Log.Error("watching fails, open payments are not counted or asked about", slog.Any("error", err))
	} else {
		w.deps.Log.Info("watching again")
	}
}

func (w *Watch) count(ctx context.Context) error {
	counts, err := w.deps.Payments.OpenCounts(ctx)
	if err != nil {
		return err
	}
	for state, c := range counts {
		w.m.open.WithLabelValues(string(state)).Set(float64(c.Count))
		w.m.oldest.WithLabelValues(string(state)).Set(c.Oldest.Seconds())
	}
	b, err := w.deps.Outbox.Backlog(ctx)
	if err != nil {
		return err
	}
	w.m.outbox.WithLabelValues("created").Set(float64(b.Created))
	w.m.outbox.WithLabelValues("published").Set(float64(b.Published))
	w.m.outboxOldest.Set(b.Lag.Seconds())
	w.m.outboxAttempts.Set(float64(b.Attempts))
	return nil
}

// ask enquires about what is due, one bounded transaction.
func (w *Watch) ask(ctx context.Context) error {
	desk := enquiry.Desk{Owner: w.cfg.ISPB, Payments: w.deps.Payments, Outbox: w.deps.Outbox}
	ctx, cancel := context.WithTimeout(ctx, txTimeout)
	defer cancel()
	var asked []store.Operation
	err := w.deps.DB.InTx(ctx, func(ctx context.Context, tx *store.Tx) error {
		due, err := w.deps.Payments.EnquiriesDue(ctx, tx, enquiry.Reason,
			w.cfg.EnquireAfter, w.cfg.EnquireAfter, w.cfg.EnquireMost, w.cfg.EnquireRows)
		if err != nil || len(due) == 0 {
			return err
		}
		subjects := make([]enquiry.Subject, len(due))
		for i, d := range due {
			subjects[i] = enquiry.Subject{ID: d.ID, Channel: d.Channel, Why: fmt.Sprintf("%s for too long, asked %d times before", d.State, d.Times)}
		}
		asked, err = desk.Ask(ctx, tx, subjects)
		return err
	})
	if err != nil {
		return err
	}
	if len(asked) > 0 {
		w.m.enquiries.Add(float64(len(asked)))
		w.deps.Log.Warn("asking the SPI about payments that do not end", slog.Int("payments", len(asked)),
			slog.String("first", asked[0].PaymentID))
		w.deps.Announcer.Announce(ctx, asked)
	}
	return nil
}

// txTimeout bounds one transaction.
const txTimeout = 10 * time.Second
