package outbound

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cabine-pix/cabine/libs/drain"
)

// abortBudget is one Disconnect, one Linger, one call to Redis, one of the store, and slack.
const abortBudget = 8 * time.Second

// StopPhases is the order in which a sender stops. Deliveries that are in no message go back to
// the bus; POSTs in flight end, under leases that are still renewed, and what is ready follows them;
// permits are given back and outcomes recorded. What is left after that budget is cut and
// cools down; what was not sent is released to the other replicas. The stop fails only if that cost something: a POST that
// was cut, an outcome that is not recorded, a message that others get only after a while. A permit that is not given back
// ends by itself.
func (s *Sender) StopPhases() []drain.Phase {
	return []drain.Phase{
		{Name: "take no more operations", Budget: time.Second, Always: true, Run: func(context.Context) error {
			s.StopTaking()
			return nil
		}},
		{Name: "end posts, give permits back", Budget: s.cfg.EndPosts, Waits: true, Run: s.Quiet},
		{Name: "abort posts, cool slots down", Budget: abortBudget, Always: true, Run: func(ctx context.Context) error {
			s.Abort()
			return errors.Join(s.Quiet(ctx), s.gaveUp())
		}},
	}
}

// gaveUp says what the end of the sender cost.
func (s *Sender) gaveUp() error {
	var n int64
	for _, c := range s.channels {
		n += c.given.Load()
	}
	if n == 0 {
		return nil
	}
	return fmt.Errorf("%d posts, outcomes or messages were given up, see the log", n)
}
