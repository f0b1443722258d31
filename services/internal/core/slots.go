package core

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/lease"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/slotpool"
	"github.com/cabine-pix/cabine/libs/transport"
)

// ChannelSlots is the permits of one channel and the pool of connections that they open.
type ChannelSlots struct {
	Set  *lease.Set
	Pool *slotpool.Pool
}

// ChannelPools are those of the enabled channels.
type ChannelPools map[pix.Channel]ChannelSlots

// PoolConfig returns the configuration of one channel's connections.
func PoolConfig(icom ICOMConfig, l LeaseConfig, name pix.Channel) slotpool.Config {
	return slotpool.Config{
		Channel: name, ISPB: pix.ISPB(icom.ISPB), BankHold: l.BankHold, ReceiveTimeout: l.ReceiveTimeout,
	}
}

// Pools provides the ChannelPools, which need Leases and Transport.
func Pools(icom ICOMConfig, l LeaseConfig) fx.Option {
	return fx.Module("pools", fx.Provide(
		func(keeper *lease.Keeper, t transport.Transport, clk clock.Clock, log *slog.Logger, reg prometheus.Registerer) (ChannelPools, error) {
			out := make(ChannelPools)
			for _, name := range icom.Channels() {
				set, err := keeper.NewSet(icom.Set(name))
				if err != nil {
					return nil, Misconfigured(err)
				}
				pool, err := slotpool.New(PoolConfig(icom, l, name), slotpool.Deps{
					Acquire: slotpool.From(set.Acquire), Transport: t, Clock: clk, Log: log, Metrics: reg,
				})
				if err != nil {
					return nil, Misconfigured(err)
				}
				out[name] = ChannelSlots{Set: set, Pool: pool}
			}
			return out, nil
		}))
}
