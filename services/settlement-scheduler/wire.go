package main

import (
	"go.uber.org/fx"

	"github.com/cabine-pix/cabine/services/internal/core"
)

// wire is the service: obligations from the bus into Postgres on every replica, and under a lease in Redis and a term in
// Postgres what only one replica does.
func wire(cfg Config) fx.Option {
	return fx.Options(
		core.Redis(cfg.Redis),
		core.Leases(cfg.Lease),
		core.Postgres(cfg.Postgres),
		core.NATS(cfg.NATS, false), // away, cycles are kept and what is due waits in the table
		core.Leadership(),
		fx.Module("settlement",
			fx.Supply(cfg),
			fx.Provide(newBooks, newWorker, newCoreEvents, newScheduler, newRepublisher, newKeeper, newBucket, newImporter, newReconciler, newElector),
			// In the order of starting; stopping goes the other way: the leadership ends first.
			fx.Invoke(runWorker, runCoreEvents, lead),
		),
	)
}
