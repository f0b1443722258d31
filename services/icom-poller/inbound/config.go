package inbound

import (
	"errors"
	"fmt"
	"time"

	"github.com/cabine-pix/cabine/libs/lease"
	"github.com/cabine-pix/cabine/libs/pix"
)

// Config of a Poller. Times of the permit are not here: they belong to the lease.
type Config struct {
	// ISPB of the participant.
	ISPB pix.ISPB
	// Owner names this replica in icom_sessions, for people.
	Owner string
	// Workers per channel: the most slots that pollers may hold, as no replica can hold
	// more. Required for each channel.
	Workers map[pix.Channel]int
	// OnlyLeading makes the poller poll only while Lead runs. Default: it polls whenever it gets a slot.
	OnlyLeading bool
	// Schedule of the polls. Default Continuous with a floor of 200 ms.
	Schedule Schedule
	// CloseTimeout is the wait for the answer to a DELETE. Default 2 s.
	CloseTimeout time.Duration
	// EndPolls is how long polls may take to end by themselves when the service stops: more than
	// a poll and a DELETE. Default 10 s.
	EndPolls time.Duration
	// BackoffFirst and BackoffMost bound the pause after an error. Defaults 200 ms, 30 s.
	BackoffFirst, BackoffMost time.Duration
	// ThrottleMost bounds what a bank may ask for with Retry-After. Default 5 min.
	ThrottleMost time.Duration
	// FailuresPerStint is how many errors in a row end a stint, so that another replica may try. Default 3.
	FailuresPerStint int
	// MalformedAttempts is how often an unreadable answer is asked for again. Default 3.
	MalformedAttempts int
	// UserTimeout is u as B assumes it: a transport whose sockets deliver for longer is not used. Default 1.5 s.
	UserTimeout time.Duration
	// StoreTimeout bounds one transaction. Default 5 s.
	StoreTimeout time.Duration
	// StoreHold is how long a slot is kept while the store does not answer. Default 5 s.
	StoreHold time.Duration
	// ReadyEvery is the period of the readiness check while all is well. Default 30 s; after a
	// failure it backs off from BackoffFirst to 5 s.
	ReadyEvery time.Duration
	// WatchEvery is the period at which the slots are read from Redis. Default 5 s.
	WatchEvery time.Duration
	// IdleAlarm is M: how long a channel may be without any poller anywhere before that is critical. Default 2 min.
	IdleAlarm time.Duration
	// MaxMessageBytes bounds one message; a larger one is a dead letter. Default 1 MiB.
	MaxMessageBytes int
	// Publisher has its own.
	Publisher PublisherConfig
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
	if c.Schedule == nil {
		c.Schedule = Continuous{Floor: 200 * time.Millisecond}
	}
	def(&c.CloseTimeout, 2*time.Second)
	def(&c.EndPolls, 10*time.Second)
	def(&c.BackoffFirst, 200*time.Millisecond)
	def(&c.BackoffMost, 30*time.Second)
	def(&c.ThrottleMost, 5*time.Minute)
	num(&c.FailuresPerStint, 3)
	num(&c.MalformedAttempts, 3)
	def(&c.UserTimeout, 1500*time.Millisecond)
	def(&c.StoreTimeout, 5*time.Second)
	def(&c.StoreHold, 5*time.Second)
	def(&c.ReadyEvery, 30*time.Second)
	def(&c.WatchEvery, 5*time.Second)
	def(&c.IdleAlarm, 2*time.Minute)
	num(&c.MaxMessageBytes, 1<<20)
	c.Publisher = c.Publisher.withDefaults()
	return c
}

// Validate names what does not fit.
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
	if c.BackoffFirst > c.BackoffMost {
		errs = append(errs, fmt.Errorf("first back-off is %v, want at most %v", c.BackoffFirst, c.BackoffMost))
	}
	errs = append(errs, c.Publisher.validate())
	return errors.Join(errs...)
}
