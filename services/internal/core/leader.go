package core

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/leader"
	"github.com/cabine-pix/cabine/libs/lease"
	"github.com/cabine-pix/cabine/libs/store"
)

// Electors makes electors from the service's own keeper and database.
type Electors struct {
	runner *Runner
	id     Identity
	keeper *lease.Keeper
	terms  *store.Terms
	clk    clock.Clock
	log    *slog.Logger
	reg    prometheus.Registerer
}

// New returns the elector of one leadership and makes it a part of the service, stopped when
// the work has ended. Names are shared by all replicas: "pollers:12345678". Readiness does
// not know of it.
func (e *Electors) New(name string, children ...leader.Child) (*leader.Elector, error) {
	return e.add(Leading, name, children)
}

// Singletons is New for children that need nothing of the service's other work: they stop before what
// was added earlier, so that the next leader begins while this replica still drains.
func (e *Electors) Singletons(name string, children ...leader.Child) (*leader.Elector, error) {
	return e.add(Work, name, children)
}

func (e *Electors) add(stage Stage, name string, children []leader.Child) (*leader.Elector, error) {
	set, err := e.keeper.NewSet(leader.SetConfig(name))
	if err != nil {
		return nil, Misconfigured(err)
	}
	cfg := leader.Config{Name: name, Owner: e.id.Replica}.WithDefaults()
	elector, err := leader.New(cfg, leader.Deps{
		Acquire: leader.From(set), Terms: e.terms, Clock: e.clk, Log: e.log, Metrics: e.reg,
	}, children...)
	if err != nil {
		return nil, err
	}
	e.runner.Add(Part{
		Name: "leadership " + name, Stage: stage,
		Budget: cfg.StopBudget + cfg.ReleaseTimeout + time.Second, Run: elector.Run,
	})
	return elector, nil
}

// Leadership provides *Electors, which need Leases and Postgres.
func Leadership() fx.Option {
	return fx.Module("leadership", fx.Provide(
		func(r *Runner, id Identity, k *lease.Keeper, db *store.DB, clk clock.Clock, log *slog.Logger, reg prometheus.Registerer) *Electors {
			return &Electors{runner: r, id: id, keeper: k, terms: store.NewTerms(db), clk: clk, log: log, reg: reg}
		}))
}
