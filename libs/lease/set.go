package lease

import (
	"context"
	"errors"
	"time"

	"github.com/cabine-pix/cabine/libs/clock"
)

// Class is a kind of work that competes for the slots of a set.
type Class string

// The classes of a connection semaphore. A set of one (a leader) has only Lead.
const (
	Poll Class = "poll"
	Send Class = "send"
	Lead Class = "lead"
)

// SetConfig describes one set of numbered slots.
type SetConfig struct {
	// Name is the prefix of the set's keys and holds exactly one hash tag:
	// "sem:icom:{cpm:12345678}". Slot n is the key Name:n.
	Name string
	// Slots is N, 1 to 6.
	Slots int
	// Floors gives each class that exists its own slots, which no other class may
	// take; what remains is shared. A class absent from the map does not exist. The
	// lowest numbers belong to the class that sorts first by name.
	Floors map[Class]int
}

// Errors that Acquire and TryAcquire return, besides those of the context.
var (
	// ErrNoSlot: every slot that the class may take is taken.
	ErrNoSlot = errors.New("lease: no free slot")
	// ErrStoreUnavailable wraps whatever kept Redis from deciding. No decision, no permit.
	ErrStoreUnavailable = errors.New("lease: redis cannot decide")
	// ErrClosed: the keeper has stopped.
	ErrClosed = errors.New("lease: keeper stopped")
)

// QuarantineError: Redis lost state; nobody but the holders gets a slot for Remaining.
type QuarantineError struct{ Remaining time.Duration }

// ConflictError: another version of this service with other numbers holds the set.
type ConflictError struct{ Theirs, Ours string }

// LostError is the cause of a lost lease.
type LostError struct {
	// Cause: "expired" (no renewal confirmed in time), "taken" (Redis does not know the token), "closed".
	Cause string
}

var _ = func() {
	type api interface {
		// Acquire waits for a slot that class may take.
		Acquire(ctx context.Context, class Class) (*Lease, error)
		// TryAcquire asks once.
		TryAcquire(ctx context.Context, class Class) (*Lease, error)
	}
	type leaseAPI interface {
		Slot() int                     // number, from 1
		Class() Class                  // class it was granted to
		Grant() string                 // opaque name of the grant, no secret, for logs and transport.Permit.Grant
		StartDeadline() clock.Deadline // D; moves forward with each confirmed renewal, zero once lost or given back
		Lost() <-chan struct{}         // closed when the lease is lost
		Err() error                    // nil while held; *LostError after
		Yield() <-chan struct{}        // closed when somebody else should have the slot: finish the current request, then give back
		Release(ctx context.Context) error                        // the bank has nothing in progress: free at once. Idempotent
		CoolDown(ctx context.Context, last clock.Instant) error // something may be in progress since last (s+)
	}
}
