package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cabine-pix/cabine/libs/bus"
	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/leader"
	"github.com/cabine-pix/cabine/libs/lease"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/libs/telemetry"
	"github.com/cabine-pix/cabine/libs/transport"
	"github.com/cabine-pix/cabine/services/icom-poller/inbound"
	"github.com/cabine-pix/cabine/services/internal/core"
)

func newPoller(
	cfg Config, id core.Identity, pools core.ChannelPools, t transport.Transport, db *store.DB, b *bus.Bus,
	clk clock.Clock, log *slog.Logger, reg prometheus.Registerer,
) (*inbound.Poller, error) {
	inbox := store.NewInbox(db)
	deps := inbound.Deps{
		Slots:     make(map[pix.Channel]inbound.Slots),
		Holders:   make(map[pix.Channel]func(context.Context) ([]lease.Holder, error)),
		Transport: t, Inbox: inbox, Ping: db.Ping,
		Outlet: inbound.Outlet{Carrier: b, Backlog: inbox, Unfinished: inbox},
		Clock:  clk, Log: log, Metrics: reg,
	}
	for name, ch := range pools {
		deps.Slots[name], deps.Holders[name] = ch.Pool, ch.Set.Snapshot
	}
	p, err := inbound.New(cfg.inbound(id.Replica), deps)
	return p, core.Misconfigured(err)
}

// newElector returns the leadership that the placement "leader" is about, nil for "spread".
func newElector(
	cfg Config, id core.Identity, p *inbound.Poller, keeper *lease.Keeper, db *store.DB,
	clk clock.Clock, log *slog.Logger, reg prometheus.Registerer,
) (*leader.Elector, error) {
	if cfg.Poll.Placement != leading {
		return nil, nil //nolint:nilnil // no leadership is no error
	}
	name := "icom-poller:" + cfg.ICOM.ISPB
	set, err := keeper.NewSet(leader.SetConfig(name))
	if err != nil {
		return nil, core.Misconfigured(err)
	}
	e, err := leader.New(leader.Config{Name: name, Owner: id.Replica},
		leader.Deps{Acquire: leader.From(set), Terms: store.NewTerms(db), Clock: clk, Log: log, Metrics: reg},
		leader.Child{Name: "polling", Run: p.Lead})
	return e, core.Misconfigured(err)
}

// lead competes for the leadership. It is added after the poller and so stops before it: the
// next leader may begin while this one's polls end.
func lead(r *core.Runner, e *leader.Elector) {
	if e != nil {
		r.Add(core.Part{Name: "leadership", Stage: core.Work, Budget: 6 * time.Second, Run: e.Run})
	}
}

// show puts the poller's state where operators look.
func show(p *inbound.Poller, h *telemetry.Health, admin *core.AdminServer) {
	h.AddReady("inbound", time.Second, p.Ready)
	admin.Handle("GET /slots", slotsHandler(p))
}
