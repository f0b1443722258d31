package main

import (
	"go.uber.org/fx"

	"github.com/cabine-pix/cabine/services/internal/core"
	"github.com/cabine-pix/cabine/services/outbound-sender/outbound"
)

// wire is the service: operations from NATS, their messages in Postgres, permits from Redis, requests through the
// transport's process.
func wire(cfg Config) fx.Option {
	return fx.Options(
		core.Redis(cfg.Redis),
		core.Leases(cfg.Lease),
		core.Postgres(cfg.Postgres),
		core.NATS(cfg.NATS, true),
		core.Transport(cfg.Transport),
		core.Pools(cfg.ICOM, cfg.Lease),
		fx.Module("outbound",
			fx.Supply(cfg),
			fx.Provide(newSigner, newSender),
			fx.Invoke(core.Run[*outbound.Sender], show),
		),
	)
}
