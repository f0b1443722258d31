package clock

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// System returns the machine's clock.
func System() Clock { return system{} }

type system struct{}

func (system) Now() Reading {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		// The call cannot fail on a Linux that runs this binary; without it no deadline can be kept.
		panic(fmt.Sprintf("clock: CLOCK_BOOTTIME: %v", err))
	}
	return Reading{Boot: Instant(ts.Nano()), Wall: time.Now().Round(0)}
}

func (system) NewTimer(d time.Duration) Timer { return systemTimer{time.NewTimer(d)} }

type systemTimer struct{ t *time.Timer }

func (s systemTimer) C() <-chan time.Time   { return s.t.C }
func (s systemTimer) Stop() bool            { return s.t.Stop() }
func (s systemTimer) Reset(d time.Duration) { s.t.Reset(d) }
