// Package singleton is the loop of what one replica does while it leads: a step every so
// often, until the leadership is over.
package singleton

import (
	"context"
	"errors"
	"time"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/store"
)

// Repeat takes a step every so often until ctx ends, or until a step finds that its term is over: then it fails with
// store.ErrStaleTerm. Any other error is the step's until it works again: turned is told when steps begin to fail, and,
// with nil, when they work again.
func Repeat(ctx context.Context, clk clock.Clock, every time.Duration, step func(context.Context) error, turned func(error)) error {
	for failing := false; ; {
		err := step(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, store.ErrStaleTerm) {
			return err
		}
		if (err != nil) != failing {
			failing = err != nil
			turned(err)
		}
		if err := clock.Sleep(ctx, clk, every); err != nil {
			return err
		}
	}
}
