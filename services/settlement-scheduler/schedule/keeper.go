package schedule

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/services/settlement-scheduler/singleton"
)

// Config says what is due by age. The zero value of each field but Leadership means its default.
type Config struct {
	// Leadership is the name under which terms are minted. Required.
	Leadership string
	// Every is how often there is a look. Default 15 s.
	Every time.Duration
	// Keys, DeadLetters and Orders are ages. Defaults 48 h, 8760 h, 15 min; at least 24 h, 24 h, 1 min.
	Keys, DeadLetters, Orders time.Duration
}

// WithDefaults returns a copy in which zero fields have their defaults.
func (c Config) WithDefaults() Config {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&c.Every, 15*time.Second)
	def(&c.Keys, 48*time.Hour)
	def(&c.DeadLetters, 8760*time.Hour)
	def(&c.Orders, 15*time.Minute)
	return c
}

// Validate names every field that is wrong.
func (c Config) Validate() error {
	var errs []error
	if c.Leadership == "" {
		errs = append(errs, errors.New("leadership is empty"))
	}
	for _, f := range []struct {
		name     string
		d, least time.Duration
	}{
		{"Every", c.Every, time.Millisecond},
		{"Keys", c.Keys, 24 * time.Hour},
		{"DeadLetters", c.DeadLetters, 24 * time.Hour},
		{"Orders", c.Orders, time.Minute},
	} {
		if f.d < f.least {
			errs = append(errs, fmt.Errorf("%s is %v, want at least %v", f.name, f.d, f.least))
		}
	}
	return errors.Join(errs...)
}

// Deps are what a Keeper needs from outside.
type Deps struct {
	Terms   *store.Terms
	Inbox   *store.Inbox
	Keys    *store.Idempotency
	Outbox  *store.Outbox
	Clock   clock.Clock
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Keeper does what is due by age. It is a leader's child.
type Keeper struct {
	cfg   Config
	deps  Deps
	ended *prometheus.CounterVec
}

// What is ended, as the metric has it.
const (
	keys    = "idempotency_keys"
	letters = "dead_letters"
	orders  = "orders"
)

// reason is what an order that was given up says.
const reason = "expired"

// New returns a keeper that has started nothing.
func New(cfg Config, deps Deps) (*Keeper, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("schedule config: %w", err)
	}
	k := &Keeper{cfg: cfg, deps: deps, ended: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "cabine_aged_total", Help: "What was forgotten or given up by age: idempotency_keys, dead_letters, orders.",
	}, []string{"what"})}
	for _, what := range []string{keys, letters, orders} {
		k.ended.WithLabelValues(what)
	}
	if err := deps.Metrics.Register(k.ended); err != nil {
		return nil, fmt.Errorf("schedule metrics: %w", err)
	}
	return k, nil
}

// Run looks until ctx ends, or until its term is over: then it fails with store.ErrStaleTerm.
func (k *Keeper) Run(ctx context.Context, term int64) error {
	by := store.Reign{Name: k.cfg.Leadership, Term: term}
	return singleton.Repeat(ctx, k.deps.Clock, k.cfg.Every, func(ctx context.Context) error {
		return errors.Join(
			k.all(ctx, by, orders, k.expire),
			k.all(ctx, by, keys, func(ctx context.Context, tx *store.Tx) (int64, error) {
				return k.deps.Keys.PurgeTx(ctx, tx, k.cfg.Keys)
			}),
			k.all(ctx, by, letters, func(ctx context.Context, tx *store.Tx) (int64, error) {
				return k.deps.Inbox.PurgeDeadLetters(ctx, tx, k.cfg.DeadLetters)
			}),
		)
	}, k.turned)
}

func (k *Keeper) turned(err error) {
	if err != nil {
		k.deps.Log.Error("what is old is not ended", slog.Any("error", err))
	} else {
		k.deps.Log.Info("what is old is ended again")
	}
}

// all repeats some until there is nothing left, each time in a transaction of its own.
func (k *Keeper) all(ctx context.Context, by store.Reign, what string, some func(context.Context, *store.Tx) (int64, error)) error {
	for {
		var n int64
		err := k.deps.Terms.InTx(ctx, by, func(ctx context.Context, tx *store.Tx) (err error) {
			n, err = some(ctx, tx)
			return err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if n == 0 {
			return nil
		}
		k.ended.WithLabelValues(what).Add(float64(n))
		k.deps.Log.InfoContext(ctx, "ended by age", slog.String("what", what), slog.Int64("number", n))
	}
}

func (k *Keeper) expire(ctx context.Context, tx *store.Tx) (int64, error) {
	moved, err := k.deps.Outbox.Expire(ctx, tx, k.cfg.Orders, "settlement-scheduler", reason)
	return int64(len(moved)), err
}
