package outbound

import (
	"errors"
	"fmt"
	"time"

	"github.com/cabine-pix/cabine/libs/lease"
	"github.com/cabine-pix/cabine/libs/pix"
)

// MaxGroup is the most operations that one message may hold (AM18 beyond it).
const MaxGroup = 10

// Groups says how many operations go together in one message, 1 to MaxGroup. Other kinds of message hold one.
type Groups struct {
	// Pacs008 is for payments. Default 1: a group that the SPI refuses with admi.002 delays ten payers.
	Pacs008 int
	// Pacs002 is for our answers. Default 10: they are built from what the SPI sent us, and have 40 s.
	Pacs002 int
	// Pacs004 is for returns. Default 1.
	Pacs004 int
}

func (g Groups) size(msgType string) int {
	switch msgType {
	case msgPacs008:
		return g.Pacs008
	case msgPacs002:
		return g.Pacs002
	case msgPacs004:
		return g.Pacs004
	default:
		return 1
	}
}

// Resend says when the same bytes go out again.
type Resend struct {
	// Every is the period of the look for what is due. Default 500 ms.
	Every time.Duration
	// First is the pause after the first unknown outcome; it doubles up to Most. Defaults 2 s, 30 s.
	First, Most time.Duration
	// Attempts is how many POSTs may have stored a message before it is left to enquiries. Default 6.
	Attempts int
	// LostAfter is after how long without an outcome a stored message counts as left behind by
	// its sender. It must be longer than a POST and its recording. Default 10 s.
	LostAfter time.Duration
}

// Traffic is about the bank's token buckets.
type Traffic struct {
	// Enforce waits while our share of the bucket is empty. Default: only observed.
	Enforce bool
	// Replicas is how many senders share the participant's bucket. Default 1.
	Replicas int
}

// Config of a Sender. Times of the permit are not here: they belong to the lease.
type Config struct {
	// ISPB of the participant.
	ISPB pix.ISPB
	// Workers per channel: how many POSTs this replica may have in flight. Required for each channel.
	Workers map[pix.Channel]int
	// Groups has its own defaults.
	Groups Groups
	// InHand is how many deliveries of a channel may wait to become messages. Default 400.
	InHand int
	// Ahead is how many messages are prepared per worker while POSTs are in flight. Default 10, a POST's worth.
	Ahead int
	// IdleAfter is how long a permit is kept without work. Default 1 s.
	IdleAfter time.Duration
	// Resend has its own defaults.
	Resend Resend
	// Traffic has its own defaults.
	Traffic Traffic
	// BackoffFirst and BackoffMost bound the pause after something that failed before the bank was reached. Defaults 100 ms, 5 s.
	BackoffFirst, BackoffMost time.Duration
	// ThrottleFirst is the least pause after a 429, doubling with each in a row; ThrottleMost bounds
	// what a bank may ask for with Retry-After. Defaults 200 ms, 5 min.
	ThrottleFirst, ThrottleMost time.Duration
	// HaltFirst and HaltMost bound the pause of a halted channel. Defaults 5 s, 1 min.
	HaltFirst, HaltMost time.Duration
	// RefusalsInARow halts the channel. Default 3.
	RefusalsInARow int
	// UserTimeout is u as B assumes it: a transport whose sockets deliver for longer is not used. Default 1.5 s.
	UserTimeout time.Duration
	// ReadyEvery is the period of the readiness check while all is well. Default 30 s.
	ReadyEvery time.Duration
	// WatchEvery is the period at which the gauges are read from the store. Default 5 s.
	WatchEvery time.Duration
	// StoreTimeout bounds one call of the store. Default 5 s.
	StoreTimeout time.Duration
	// EndPosts is how long POSTs, and messages that are ready, may take when the service stops. Default 10 s.
	EndPosts time.Duration
}

// WithDefaults returns a copy in which zero fields have their defaults.
func (c Config) WithDefaults() Config {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	num := func(n *int, v int) {
		if *n == 0 {
			*n = v
		}
	}
	num(&c.Groups.Pacs008, 1)
	num(&c.Groups.Pacs002, MaxGroup)
	num(&c.Groups.Pacs004, 1)
	num(&c.InHand, 400)
	num(&c.Ahead, maxBatch)
	num(&c.Resend.Attempts, 6)
	num(&c.Traffic.Replicas, 1)
	num(&c.RefusalsInARow, 3)
	def(&c.IdleAfter, time.Second)
	def(&c.Resend.Every, 500*time.Millisecond)
	def(&c.Resend.First, 2*time.Second)
	def(&c.Resend.Most, max(30*time.Second, c.Resend.First))
	def(&c.Resend.LostAfter, 10*time.Second)
	def(&c.BackoffFirst, 100*time.Millisecond)
	def(&c.BackoffMost, 5*time.Second)
	def(&c.ThrottleFirst, 200*time.Millisecond)
	def(&c.ThrottleMost, 5*time.Minute)
	def(&c.HaltFirst, 5*time.Second)
	def(&c.HaltMost, max(time.Minute, c.HaltFirst))
	def(&c.UserTimeout, 1500*time.Millisecond)
	def(&c.ReadyEvery, 30*time.Second)
	def(&c.WatchEvery, 5*time.Second)
	def(&c.StoreTimeout, 5*time.Second)
	def(&c.EndPosts, 10*time.Second)
	return c
}

// Validate names what does not fit, with its numbers.
func (c Config) Validate() error {
	var errs []error
	if _, err := pix.ParseISPB(string(c.ISPB)); err != nil {
		errs = append(errs, err)
	}
	for name, n := range c.Workers {
		if n < 1 || n > lease.MaxSlots {
			errs = append(errs, fmt.Errorf("channel %s has %d workers, want 1 to %d", name, n, lease.MaxSlots))
		}
	}
	for _, g := range []struct {
		name string
		n    int
	}{{msgPacs008, c.Groups.Pacs008}, {msgPacs002, c.Groups.Pacs002}, {msgPacs004, c.Groups.Pacs004}} {
		if g.n < 1 || g.n > MaxGroup {
			errs = append(errs, fmt.Errorf("group of %s is %d, want 1 to %d", g.name, g.n, MaxGroup))
		}
	}
	if least := min(c.InHand, c.Ahead, c.Resend.Attempts, c.Traffic.Replicas, c.RefusalsInARow); least < 1 {
		errs = append(errs, fmt.Errorf("a number is %d, want at least 1", least))
	}
	for _, p := range []struct {
		what        string
		first, most time.Duration
	}{
		{"resend", c.Resend.First, c.Resend.Most},
		{"back-off", c.BackoffFirst, c.BackoffMost},
		{"throttle", c.ThrottleFirst, c.ThrottleMost},
		{"halt", c.HaltFirst, c.HaltMost},
	} {
		if p.first < time.Millisecond || p.first > p.most {
			errs = append(errs, fmt.Errorf("%s pauses from %v to %v, want at least 1ms and the first at most the second", p.what, p.first, p.most))
		}
	}
	if least := min(c.IdleAfter, c.Resend.Every, c.Resend.LostAfter, c.ReadyEvery, c.WatchEvery, c.StoreTimeout, c.EndPosts); least < time.Millisecond {
		errs = append(errs, fmt.Errorf("a time is %v, want at least 1ms", least))
	}
	return errors.Join(errs...)
}
