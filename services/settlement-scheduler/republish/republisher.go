package republish

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cabine-pix/cabine/libs/bus"
	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/services/settlement-scheduler/singleton"
)

// Config says how what is due is announced. The zero value of each field but Leadership means its default.
type Config struct {
	// Leadership is the name under which terms are minted. Required.
	Leadership string
	// Every is how often the table is read. Default 1 s.
	Every time.Duration
	// Batch is the most that is published at a time; at most what the bus may have in flight. Default 256.
	Batch int
	// Again is when one that nobody wrote is announced again, Most the longest pause. Defaults 5 min, 1 h.
	Again, Most time.Duration
	// AlarmAttempts is from which repetition on the log has it as an error. Default 3.
	AlarmAttempts int
	// PublishTimeout bounds one publication. Default 5 s.
	PublishTimeout time.Duration
}

// WithDefaults returns a copy in which zero fields have their defaults.
func (c Config) WithDefaults() Config {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&c.Every, time.Second)
	def(&c.Again, 5*time.Minute)
	def(&c.Most, time.Hour)
	def(&c.PublishTimeout, 5*time.Second)
	if c.Batch == 0 {
		c.Batch = 256
	}
	if c.AlarmAttempts == 0 {
		c.AlarmAttempts = 3
	}
	return c
}

// Validate names every field that is wrong.
func (c Config) Validate() error {
	var errs []error
	if c.Leadership == "" {
		errs = append(errs, errors.New("leadership is empty"))
	}
	if c.Batch < 1 || c.Batch > 5000 {
		errs = append(errs, fmt.Errorf("batch is %d, want 1 to 5000", c.Batch))
	}
	if c.AlarmAttempts < 1 {
		errs = append(errs, fmt.Errorf("AlarmAttempts is %d, want at least 1", c.AlarmAttempts))
	}
	for _, f := range []struct {
		name string
		d    time.Duration
	}{{"Every", c.Every}, {"Again", c.Again}, {"Most", c.Most}, {"PublishTimeout", c.PublishTimeout}} {
		if f.d < time.Millisecond {
			errs = append(errs, fmt.Errorf("%s is %v, want at least 1ms", f.name, f.d))
		}
	}
	if c.Most < c.Again {
		errs = append(errs, fmt.Errorf("most is %v, want at least again %v", c.Most, c.Again))
	}
	return errors.Join(errs...)
}

// Carrier takes announcements to the workers.
type Carrier interface {
	PublishObligations(ctx context.Context, due []bus.Obligation) bus.Results
}

// Deps are what a Republisher needs from outside.
type Deps struct {
	Carrier     Carrier
	Obligations *store.Obligations
	Terms       *store.Terms
	Clock       clock.Clock
	Log         *slog.Logger
	Metrics     prometheus.Registerer
}

// Republisher announces what is due. It is a leader's child.
type Republisher struct {
	cfg  Config
	deps Deps
	m    *metrics
}

// New returns a republisher that has started nothing.
func New(cfg Config, deps Deps) (*Republisher, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("republish config: %w", err)
	}
	m, err := newMetrics(deps.Metrics)
	if err != nil {
		return nil, fmt.Errorf("republish metrics: %w", err)
	}
	return &Republisher{cfg: cfg, deps: deps, m: m}, nil
}

// Run announces until ctx ends, or until its term is over: then it fails with store.ErrStaleTerm.
func (r *Republisher) Run(ctx context.Context, term int64) error {
	by := store.Reign{Name: r.cfg.Leadership, Term: term}
	defer r.m.nothing()
	return singleton.Repeat(ctx, r.deps.Clock, r.cfg.Every, func(ctx context.Context) error { return r.announce(ctx, by) }, r.turned)
}

func (r *Republisher) turned(err error) {
	if err != nil {
		r.deps.Log.Error("obligations are not announced, they wait in the table", slog.Any("error", err))
	} else {
		r.deps.Log.Info("obligations are announced again")
	}
}

// announce publishes all that is due now, a batch at a time.
func (r *Republisher) announce(ctx context.Context, by store.Reign) error {
	backlog, err := r.deps.Obligations.Backlog(ctx)
	if err != nil {
		return fmt.Errorf("reading what is due: %w", err)
	}
	r.m.backlog(backlog)
	for {
		due, err := r.deps.Obligations.Due(ctx, r.cfg.Batch)
		if err != nil {
			return fmt.Errorf("reading what is due: %w", err)
		}
		if len(due) == 0 {
			return nil
		}
		if err := r.carry(ctx, by, due); err != nil {
			return err
		}
		if len(due) < r.cfg.Batch {
			return nil
		}
	}
}

// carry publishes a batch and notes what arrived.
func (r *Republisher) carry(ctx context.Context, by store.Reign, due []store.DueObligation) error {
	publishing, cancel := context.WithTimeout(ctx, r.cfg.PublishTimeout)
	defer cancel()
	messages, worst := make([]bus.Obligation, len(due)), 0
	for i, d := range due {
		messages[i] = bus.Obligation{ID: d.PaymentID, Attempt: d.Attempts}
		worst = max(worst, d.Attempts)
	}
	if worst >= r.cfg.AlarmAttempts {
		r.deps.Log.Error("announcing again what nobody writes", slog.Int("obligations", len(due)), slog.Int("attempts", worst))
	}
	results := r.deps.Carrier.PublishObligations(publishing, messages)
	arrived := make([]store.DueObligation, 0, len(due))
	for _, i := range results.Acked() {
		arrived = append(arrived, due[i])
	}
	r.m.published.Add(float64(len(arrived)))
	r.m.errors.Add(float64(len(due) - len(arrived)))
	if len(arrived) == 0 {
		return results.Err()
	}
	err := r.deps.Terms.InTx(ctx, by, func(ctx context.Context, tx *store.Tx) error {
		return r.deps.Obligations.Announced(ctx, tx, arrived, r.cfg.Again, r.cfg.Most)
	})
	if err != nil {
		return fmt.Errorf("noting what was announced: %w", err)
	}
	return results.Err()
}
