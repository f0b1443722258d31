package announce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cabine-pix/cabine/libs/bus"
	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/store"
)

// Carrier tells the sender.
type Carrier interface {
	// PublishOutbound tells of operations in their order and returns one result for each, nil for what is stored at the other end.
	PublishOutbound(ctx context.Context, operations []bus.Outbound) bus.Results
}

// Outbox is the table that holds what is to be said.
type Outbox interface {
	// Unpublished returns rows that were added longer ago than olderThan and never published.
	Unpublished(ctx context.Context, olderThan time.Duration, limit int) ([]store.Operation, error)
	MarkPublished(ctx context.Context, ids []int64) error
	// Stuck returns rows that were published and that no message carries: the first time after
	// the time first, then after twice as long each time, up to most.
	Stuck(ctx context.Context, first, most time.Duration, limit int) ([]store.Operation, error)
	// Republished counts an attempt and starts the wait anew.
	Republished(ctx context.Context, stuck []store.Operation) error
}

// Deps are what an Announcer needs from outside.
type Deps struct {
	Carrier Carrier
	Outbox  Outbox
	Clock   clock.Clock
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Announcer publishes outbox rows. One goroutine, Run, publishes; Announce only notes.
type Announcer struct {
	cfg  Config
	deps Deps
	m    *metrics
	wake chan struct{}

	mu    sync.Mutex
	queue []store.Operation

	// Only Run's goroutine uses these.
	republish, sweep clock.Reading // when they were last done
	failing          bool
}

// New returns an announcer that has started nothing.
func New(cfg Config, deps Deps) (*Announcer, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("announce config: %w", err)
	}
	m, err := newMetrics(deps.Metrics)
	if err != nil {
		return nil, fmt.Errorf("announce metrics: %w", err)
	}
	return &Announcer{cfg: cfg, deps: deps, m: m, wake: make(chan struct{}, 1)}, nil
}

// Announce hands over rows whose transaction was committed. It never waits.
func (a *Announcer) Announce(_ context.Context, rows []store.Operation) {
	if len(rows) == 0 {
		return
	}
	a.mu.Lock()
	if len(a.queue)+len(rows) <= a.cfg.QueueRows {
		a.queue = append(a.queue, rows...)
	} else {
		a.m.dropped.Add(float64(len(rows))) // the table has them
	}
	a.m.queued.Set(float64(len(a.queue)))
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// take removes the oldest rows from memory.
func (a *Announcer) take() []store.Operation {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := min(len(a.queue), a.cfg.BatchRows)
	rows := slices.Clone(a.queue[:n])
	a.queue = slices.Delete(a.queue, 0, n)
	a.m.queued.Set(float64(len(a.queue)))
	return rows
}

// lastFlush is how long Run goes on for what is in memory when it is told to end.
const lastFlush = 2 * time.Second

// Run publishes until ctx ends.
func (a *Announcer) Run(ctx context.Context) error {
	for {
		err := a.carryFresh(ctx)
		if err == nil {
			err = a.carryTable(ctx)
		}
		if ctx.Err() != nil {
			break
		}
		a.report(err)
		timer := a.deps.Clock.NewTimer(a.untilDue())
		select {
		case <-ctx.Done():
		case <-a.wake:
		case <-timer.C():
		}
		timer.Stop()
		if ctx.Err() != nil {
			break
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastFlush)
	defer cancel()
	if err := a.carryFresh(last); err != nil {
		a.deps.Log.Warn("rows are left to the table", slog.Any("error", err))
	}
	return nil
}

func (a *Announcer) report(err error) {
	if failing := err != nil; failing != a.failing {
		a.failing = failing
		if failing {
			a.deps.Log.Error("announcing fails, rows wait in the outbox", slog.Any("error", err))
		} else {
			a.deps.Log.Info("announcing again")
		}
	}
}

func (a *Announcer) untilDue() time.Duration {
	now := a.deps.Clock.Now()
	return max(time.Millisecond, min(a.cfg.RepublishEvery-now.Elapsed(a.republish), a.cfg.SweepEvery-now.Elapsed(a.sweep)))
}

// carryFresh publishes what is in memory. What fails leaves memory too: it is read from the table later.
func (a *Announcer) carryFresh(ctx context.Context) error {
	for {
		rows := a.take()
		if len(rows) == 0 {
			return nil
		}
		if err := a.carry(ctx, fresh, rows); err != nil {
			return err
		}
	}
}

// carryTable publishes what the table has and is due. A time is noted also for a failure, which is no reason to ask faster.
func (a *Announcer) carryTable(ctx context.Context) error {
	var errs []error
	if now := a.deps.Clock.Now(); now.Elapsed(a.republish) >= a.cfg.RepublishEvery {
		a.republish = now
		errs = append(errs, a.pages(ctx, table, func() ([]store.Operation, error) {
			return a.deps.Outbox.Unpublished(ctx, a.cfg.RepublishAge, a.cfg.BatchRows)
		}))
	}
	if now := a.deps.Clock.Now(); now.Elapsed(a.sweep) >= a.cfg.SweepEvery {
		a.sweep = now
		errs = append(errs, a.pages(ctx, unfinished, func() ([]store.Operation, error) {
			rows, err := a.deps.Outbox.Stuck(ctx, a.cfg.StuckAge, a.cfg.StuckMost, a.cfg.BatchRows)
			a.tell(ctx, rows)
			return rows, err
		}))
	}
	return errors.Join(errs...)
}

func (a *Announcer) pages(ctx context.Context, from string, read func() ([]store.Operation, error)) error {
	for {
		rows, err := read()
		if err != nil {
			return fmt.Errorf("reading the outbox: %w", err)
		}
		if err := a.carry(ctx, from, rows); err != nil {
			return err
		}
		if len(rows) < a.cfg.BatchRows {
			return nil
		}
		if err := a.carryFresh(ctx); err != nil { // what is new does not wait for what is old
			return err
		}
	}
}

// tell says what goes out again, as an error once a row did so too often.
func (a *Announcer) tell(ctx context.Context, rows []store.Operation) {
	if len(rows) == 0 {
		return
	}
	worst := slices.MaxFunc(rows, func(x, y store.Operation) int { return cmp.Compare(x.Attempts, y.Attempts) })
	level := slog.LevelWarn
	if worst.Attempts >= a.cfg.AlarmAttempts {
		level = slog.LevelError
	}
	a.deps.Log.LogAttrs(ctx, level, "announcing again what no message carries", slog.Int("rows", len(rows)),
		slog.Int("attempts", worst.Attempts), slog.String("payment_id", worst.PaymentID), slog.String("msg_type", worst.MsgType))
}

// Where rows come from, as the metric has it.
const (
	fresh      = "fresh"
	table      = "table"
	unfinished = "unfinished"
)

// carry publishes rows and notes what arrived. If noting fails a row is published once more, which the sender can bear.
func (a *Announcer) carry(ctx context.Context, from string, rows []store.Operation) error {
	if len(rows) == 0 {
		return nil
	}
	published, cancel := context.WithTimeout(ctx, a.cfg.PublishTimeout)
	defer cancel()
	results := a.deps.Carrier.PublishOutbound(published, a.notices(rows, from == unfinished))
	arrived := make([]store.Operation, 0, len(rows))
	for _, i := range results.Acked() {
		arrived = append(arrived, rows[i])
	}
	failed := results.Err()
	a.m.errors.Add(float64(len(rows) - len(arrived)))
	a.m.published.WithLabelValues(from).Add(float64(len(arrived)))
	if len(arrived) > 0 {
		if err := a.note(ctx, from, arrived); err != nil {
			failed = errors.Join(failed, fmt.Errorf("noting what was published: %w", err))
		}
	}
	return failed
}

func (a *Announcer) note(ctx context.Context, from string, rows []store.Operation) error {
	if from == unfinished {
		return a.deps.Outbox.Republished(ctx, rows)
	}
	ids := make([]int64, len(rows))
	for i, row := range rows {
		ids[i] = row.ID
	}
	return a.deps.Outbox.MarkPublished(ctx, ids)
}

func (a *Announcer) notices(rows []store.Operation, again bool) []bus.Outbound {
	notices := make([]bus.Outbound, len(rows))
	for i, row := range rows {
		notices[i] = bus.Outbound{ISPB: a.cfg.ISPB, Channel: row.Channel, ID: row.ID, MsgType: row.MsgType, Attempt: row.Attempts}
		if again {
			notices[i].Attempt++
		}
	}
	return notices
}
