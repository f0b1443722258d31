package inbound

import (
	"context"
	"log/slog"
	"time"

	"github.com/cabine-pix/cabine/libs/drain"
)

// Budgets of stopping that do not follow from the configuration.
const (
	abortBudget = 7 * time.Second // one Disconnect, one Linger, one call to Redis, and slack
	flushBudget = 3 * time.Second
)

// StopPhases is the order in which a poller stops. Within "end polls" each slot goes its own
// way: its poll ends, its stream is deleted, it is released; the leases are renewed meanwhile.
// What is left after that budget is cut and cools down.
func (p *Poller) StopPhases() []drain.Phase {
	return []drain.Phase{
		{Name: "take no more slots", Budget: time.Second, Always: true, Run: func(context.Context) error {
			p.StopTaking()
			return nil
		}},
		{Name: "end polls, close streams, give slots back", Budget: p.cfg.EndPolls, Run: p.Quiet},
		{Name: "abort polls, cool slots down", Budget: abortBudget, Always: true, Run: func(ctx context.Context) error {
			p.Abort()
			return p.Quiet(ctx)
		}},
		{Name: "publish what is in memory", Budget: flushBudget, Run: func(ctx context.Context) error {
			if err := p.Flush(ctx); err != nil {
				// Not a failure of stopping: the rows are in the table, and the other replicas look there.
				p.deps.Log.Warn("not everything was published", slog.Any("error", err))
			}
			return nil
		}},
	}
}
