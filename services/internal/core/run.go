package core

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/fx"

	"github.com/cabine-pix/cabine/libs/drain"
)

// Runnable is the work of a service. Run works until ctx ends and returns when everything it started has ended.
type Runnable interface {
	Run(ctx context.Context) error
}

// Drainable is implemented by work that wants more than the end of its context: the
// phases run, in their order, before the context is cancelled.
type Drainable interface {
	StopPhases() []drain.Phase
}

// Run makes r the service's work: fx.Invoke(core.Run[*inbound.Poller]). It runs in the
// background; when the service stops, its phases are run, its context is cancelled and its
// return awaited for at most five seconds.
func Run[R Runnable](runner *Runner, r R) {
	p := Part{Name: fmt.Sprintf("%T", r), Stage: Work, Budget: 5 * time.Second, Run: r.Run}
	if d, ok := any(r).(Drainable); ok {
		p.Stop = d.StopPhases()
	}
	runner.Add(p)
}

// hook ties the runner to the container, in the service's only hook.
func hook(lc fx.Lifecycle, stopper fx.Shutdowner, runner *Runner) {
	lc.Append(fx.Hook{
		OnStart: func(ctx context.Context) error {
			return runner.Start(ctx, func(err error) {
				// Refused only when the application is stopping already.
				_ = stopper.Shutdown(fx.ExitCode(exitCode(err)))
			})
		},
		OnStop: runner.Stop,
	})
}
