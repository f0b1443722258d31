package main

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cabine-pix/cabine/libs/bus"
	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/leader"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/services/internal/core"
	"github.com/cabine-pix/cabine/services/settlement-scheduler/coreevent"
	"github.com/cabine-pix/cabine/services/settlement-scheduler/cycle"
	"github.com/cabine-pix/cabine/services/settlement-scheduler/fileimport"
	"github.com/cabine-pix/cabine/services/settlement-scheduler/obligation"
	"github.com/cabine-pix/cabine/services/settlement-scheduler/reconciliation"
	"github.com/cabine-pix/cabine/services/settlement-scheduler/republish"
	"github.com/cabine-pix/cabine/services/settlement-scheduler/schedule"
)

// books are the aggregates that this service reads and writes.
type books struct {
	terms       *store.Terms
	obligations *store.Obligations
	cycles      *store.Cycles
	inbox       *store.Inbox
	outbox      *store.Outbox
	keys        *store.Idempotency
}

func newBooks(cfg Config, db *store.DB) (*books, error) {
	parties, err := cfg.Cycles.parties()
	if err != nil {
		return nil, core.Misconfigured(err)
	}
	obligations, err := store.NewObligations(db, parties)
	if err != nil {
		return nil, core.Misconfigured(err)
	}
	return &books{
		terms: store.NewTerms(db), obligations: obligations, cycles: store.NewCycles(db),
		inbox: store.NewInbox(db), outbox: store.NewOutbox(db), keys: store.NewIdempotency(db),
	}, nil
}

func newWorker(cfg Config, b *bus.Bus, in *books, log *slog.Logger, reg prometheus.Registerer) (*obligation.Worker, error) {
	w, err := obligation.New(cfg.obligation(), obligation.Deps{Source: b, Books: in.obligations, Log: log, Metrics: reg})
	return w, core.Misconfigured(err)
}

func newCoreEvents(cfg Config, b *bus.Bus, db *store.DB, clk clock.Clock, log *slog.Logger, reg prometheus.Registerer) (*coreevent.Worker, error) {
	w, err := coreevent.New(cfg.coreEvent(), coreevent.Deps{Bus: b, DB: db, Clock: clk, Log: log, Metrics: reg})
	return w, core.Misconfigured(err)
}

func newScheduler(cfg Config, in *books, clk clock.Clock, log *slog.Logger, reg prometheus.Registerer) (*cycle.Scheduler, error) {
	plan, err := cfg.Cycles.plan()
	if err != nil {
		return nil, core.Misconfigured(err)
	}
	s, err := cycle.New(cfg.cycle(), cycle.Deps{Plan: plan, Cycles: in.cycles, Clock: clk, Log: log, Metrics: reg})
	return s, core.Misconfigured(err)
}

func newRepublisher(cfg Config, b *bus.Bus, in *books, clk clock.Clock, log *slog.Logger, reg prometheus.Registerer) (*republish.Republisher, error) {
	r, err := republish.New(cfg.republish(), republish.Deps{
		Carrier: b, Obligations: in.obligations, Terms: in.terms, Clock: clk, Log: log, Metrics: reg,
	})
	return r, core.Misconfigured(err)
}

func newKeeper(cfg Config, in *books, clk clock.Clock, log *slog.Logger, reg prometheus.Registerer) (*schedule.Keeper, error) {
	k, err := schedule.New(cfg.schedule(), schedule.Deps{
		Terms: in.terms, Inbox: in.inbox, Keys: in.keys, Outbox: in.outbox, Clock: clk, Log: log, Metrics: reg,
	})
	return k, core.Misconfigured(err)
}

// newElector has the singletons under one leadership: they run on the same replica, under one term.
func newElector(
	cfg Config, e *core.Electors, s *cycle.Scheduler, r *republish.Republisher, k *schedule.Keeper, i *fileimport.Importer,
	rec *reconciliation.Reconciler,
) (*leader.Elector, error) {
	return e.Singletons(cfg.leadership(), append(
		reconciling(rec),
		leader.Child{Name: "cycles", Run: s.Run},
		leader.Child{Name: "republisher", Run: r.Run},
		leader.Child{Name: "schedule", Run: k.Run},
		leader.Child{Name: "files", Run: i.Run},
	)...)
}

func runWorker(cfg Config, r *core.Runner, w *obligation.Worker) {
	r.Add(core.Part{Name: "obligations", Stage: core.Work, Budget: cfg.Obligations.DrainTimeout + 3*time.Second, Run: w.Run})
}

func runCoreEvents(cfg Config, r *core.Runner, w *coreevent.Worker) {
	if cfg.CoreEvents.Enabled {
		r.Add(core.Part{Name: "core-events", Stage: core.Work, Budget: cfg.CoreEvents.DrainTimeout + 3*time.Second, Run: w.Run})
	}
}

// lead makes the elector, and with it its part of the service, exist: after the worker.
func lead(*leader.Elector) {}
