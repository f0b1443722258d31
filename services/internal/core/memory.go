package core

import (
	"os"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

const (
	// gcPercent lets the heap grow to five times what lives before it is collected. A service's live heap is some ten
	// megabytes, and collecting it took a tenth of a poller's processor time at Go's default of 100.
	gcPercent = 400
	// memoryShare of the container's limit is where collections come more often instead.
	memoryShare = 0.8
)

// spendMemory trades memory for processor time, within the container's limit. What the environment says of either (GOGC,
// GOMEMLIMIT) holds. Without a container there is no limit.
func spendMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	if limit, err := memlimit.FromCgroup(); err == nil && limit > 0 {
		debug.SetMemoryLimit(int64(float64(limit) * memoryShare))
	}
}
