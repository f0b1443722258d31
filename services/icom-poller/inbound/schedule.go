package inbound

import (
	"errors"
	"fmt"
	"time"

	"github.com/cabine-pix/cabine/libs/transport"
)

// Poll is what a schedule knows about a slot.
type Poll struct {
	// Slot counts from 1.
	Slot int
	// Now is the wall clock.
	Now time.Time
	// Took is how long the last poll of the stint lasted. First says that there was none.
	Took  time.Duration
	First bool
	// Messages is how many it brought. Failed says that it ended with an error, for which
	// the back-off has been waited already.
	Messages int
	Failed   bool
}

// Schedule says how long a slot waits before its next poll.
type Schedule interface {
	Wait(p Poll) time.Duration
}

// Continuous asks again at once, as the ICOM wants it: its long poll is the pause.
type Continuous struct {
	// Floor is the least time between the beginnings of two polls when the first
	// brought nothing, for a bank that answers early. Default 200 ms.
	Floor time.Duration
}

// Wait implements Schedule.
func (c Continuous) Wait(p Poll) time.Duration {
	if p.First || p.Failed || p.Messages > 0 {
		return 0
	}
	return max(0, c.Floor-p.Took)
}

// Aligned polls on the Unix clock: slot n at multiples of Cycle plus (n-1) x Stagger. All
// slots together cover the cycle evenly, whichever replica holds them and whenever it
// started, so that a restart makes no herd.
type Aligned struct {
	// Cycle is the time between two polls of a slot. Default 4167 ms.
	Cycle time.Duration
	// Stagger is the offset from one slot to the next. Default 694 ms, a sixth of the cycle.
	Stagger time.Duration
	// Floor is the least wait: a tick that is nearer is not met exactly, so that a clock
	// that was stepped makes no burst. Default 100 ms.
	Floor time.Duration
}

// Wait implements Schedule. A read that was full is followed at once: there is more.
func (a Aligned) Wait(p Poll) time.Duration {
	if !p.First && p.Messages >= transport.MaxMessages {
		return 0
	}
	offset := time.Duration(p.Slot-1) * a.Stagger
	into := (time.Duration(p.Now.UnixNano()) - offset) % a.Cycle
	if into < 0 {
		into += a.Cycle
	}
	if into == 0 && p.First {
		return 0
	}
	return max(a.Floor, a.Cycle-into)
}

// Validate names the numbers that do not fit.
func (a Aligned) Validate() error {
	var errs []error
	if a.Cycle <= 0 || a.Stagger < 0 || a.Stagger >= a.Cycle {
		errs = append(errs, fmt.Errorf("cycle is %v and stagger %v, want 0 <= stagger < cycle", a.Cycle, a.Stagger))
	}
	if a.Floor < 0 || a.Floor >= a.Cycle {
		errs = append(errs, fmt.Errorf("floor is %v, want 0 <= floor < cycle %v", a.Floor, a.Cycle))
	}
	return errors.Join(errs...)
}
