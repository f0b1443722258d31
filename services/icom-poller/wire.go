package main

import (
	"go.uber.org/fx"

	"github.com/cabine-pix/cabine/services/icom-poller/inbound"
	"github.com/cabine-pix/cabine/services/internal/core"
)

// wire is the service: permits from Redis, requests through the transport's process,
// messages into Postgres, from there to NATS.
func wire(cfg Config) fx.Option {
	return fx.Options(
		core.Redis(cfg.Redis),
		core.Leases(cfg.Lease),
		core.Postgres(cfg.Postgres),
		core.NATS(cfg.NATS, false), // away, the inbox fills and polling goes on
		core.Transport(cfg.Transport),
		core.Pools(cfg.ICOM, cfg.Lease),
		fx.Module("inbound",
			fx.Supply(cfg),
			fx.Provide(newPoller, newElector),
			fx.Invoke(core.Run[*inbound.Poller], lead, show),
		),
	)
}
