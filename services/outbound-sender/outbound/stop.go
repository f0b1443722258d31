package outbound

import (
	"context"
	"time"

	"github.com/cabine-pix/cabine/libs/drain"
)

// abortBudget is one Disconnect, one Linger, one call to Redis, one of the store, and slack.
const abortBudget = 8 * time.Second

// StopPhases is the order in which a sender stops. Deliveries that are in no message go back to
// the bus; POSTs in flight end, under leases that are still renewed, and what is ready follows them;
// permits are given back and outcomes recorded. What is left after that budget is cut and
// cools down; what was not sent is released to the other replicas.
func (s *Sender) StopPhases() []drain.Phase {
	return []drain.Phase{
		{Name: "take no more operations", Budget: time.Second, Always: true, Run: func(context.Context) error {
			s.StopTaking()
			return nil
		}},
		{Name: "end posts, give permits back", Budget: s.cfg.EndPosts, Run: s.Quiet},
		{Name: "abort posts, cool slots down", Budget: abortBudget, Always: true, Run: func(ctx context.Context) error {
			s.Abort()
			return s.Quiet(ctx)
		}},
	}
}
