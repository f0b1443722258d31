package drain

import (
	"errors"
	"fmt"
	"time"
)

// LongestPlatformStop is the longest time that ECS waits between SIGTERM and SIGKILL on Fargate.
const LongestPlatformStop = 120 * time.Second

// Limits are the times that must enclose one another for a stop to end in order:
// phases, then watchdog, then the container's stop timeout, then the platform's kill.
type Limits struct {
	// Phases is the sum of all budgets, drain.Total.
	Phases time.Duration
	// Stop is the stop timeout of the service's container (fx.StopTimeout).
	Stop time.Duration
	// Platform is the time between SIGTERM and SIGKILL: ECS stopTimeout, Kubernetes terminationGracePeriodSeconds.
	Platform time.Duration
}

// Validate names the numbers of each inequality that does not hold.
func (l Limits) Validate() error {
	var errs []error
	if l.Phases <= 0 {
		errs = append(errs, fmt.Errorf("drain phases take %v, want more than 0s", l.Phases))
	}
	if need := l.Phases + WatchdogSlack; need >= l.Stop {
		errs = append(errs, fmt.Errorf("drain phases %v + watchdog %v = %v, want less than the stop timeout %v",
			l.Phases, WatchdogSlack, need, l.Stop))
	}
	if l.Stop >= l.Platform {
		errs = append(errs, fmt.Errorf("stop timeout is %v, want less than the platform's stopTimeout %v", l.Stop, l.Platform))
	}
	if l.Platform > LongestPlatformStop {
		errs = append(errs, fmt.Errorf("the platform's stopTimeout is %v, want at most %v", l.Platform, LongestPlatformStop))
	}
	return errors.Join(errs...)
}
