package main

import (
	"go.uber.org/fx"

	"github.com/cabine-pix/cabine/services/internal/core"
)

// wire is the service: orders over HTTP and messages from the bus become payments in
// Postgres, what is to be said to the SPI is announced to the sender, and what stays open is watched.
func wire(cfg Config) fx.Option {
	return fx.Options(
		core.Postgres(cfg.Postgres),
		core.NATS(cfg.NATS, false), // away, orders are taken and wait in the outbox
		fx.Module("payments",
			fx.Supply(cfg),
			fx.Provide(newBooks, newVerifier, newCore, newAnnouncer, newProcessor, newWatch, newAPI),
			// In the order of starting; stopping goes the other way: the announcer ends last.
			fx.Invoke(runAnnouncer, runWatch, runProcessor, runAPI),
		),
	)
}
