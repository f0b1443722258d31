package inbound

import (
	"errors"
	"fmt"
	"time"
)

// BatchRows is the default of PublisherConfig.BatchRows.
const BatchRows = 256

// PublisherConfig configures a Publisher.
type PublisherConfig struct {
	// QueueRows bounds the rows of one stream in memory. Default 256.
	QueueRows int
	// BatchRows bounds what is published at once; the bus must be able to have as many in flight. Default 256.
	BatchRows int
	// Gather is the shortest time from one publication to the next: what comes alone goes out at once, what comes in numbers
	// goes out together. Default 5 ms.
	Gather time.Duration
	// MarkAfter is how long a published row may wait until the table is told; BatchRows of them do not wait. It is much
	// shorter than RepublishAge, after which others publish what is not marked. Default 100 ms, at most half of RepublishAge.
	MarkAfter time.Duration
	// PublishTimeout bounds one batch. Default 10 s.
	PublishTimeout time.Duration
	// RepublishEvery is the period of the look for what nobody published, RepublishAge how
	// old a row must be to be among it. Defaults 30 s, 5 s.
	RepublishEvery, RepublishAge time.Duration
	// SweepEvery is the period of the look for what was published and is not done. Default 1 min.
	SweepEvery time.Duration
	// StuckAge is how long after its publication such a row goes out again. The time doubles
	// with each attempt, up to StuckMost: a consumer that is away for long is not buried in
	// repetitions. Defaults 5 min, 1 h.
	StuckAge, StuckMost time.Duration
	// AlarmAttempts is after how many such repetitions a row is logged as an error. It goes on
	// being published. Default 3, half an hour.
	AlarmAttempts int
	// BackoffFirst and BackoffMost bound the pause after a failure. Defaults 200 ms, 5 s.
	BackoffFirst, BackoffMost time.Duration
}

func (c PublisherConfig) withDefaults() PublisherConfig {
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
	num(&c.QueueRows, 256)
	num(&c.BatchRows, BatchRows)
	num(&c.AlarmAttempts, 3)
	def(&c.PublishTimeout, 10*time.Second)
	def(&c.RepublishEvery, 30*time.Second)
	def(&c.RepublishAge, 5*time.Second)
	def(&c.Gather, 5*time.Millisecond)
	def(&c.MarkAfter, min(100*time.Millisecond, c.RepublishAge/2))
	def(&c.SweepEvery, time.Minute)
	def(&c.StuckAge, 5*time.Minute)
	def(&c.StuckMost, max(time.Hour, c.StuckAge))
	def(&c.BackoffFirst, 200*time.Millisecond)
	def(&c.BackoffMost, 5*time.Second)
	return c
}

func (c PublisherConfig) validate() error {
	var errs []error
	if shortest := min(c.Gather, c.PublishTimeout, c.RepublishEvery, c.RepublishAge, c.SweepEvery, c.StuckAge, c.BackoffFirst); shortest <= 0 {
		errs = append(errs, fmt.Errorf("publisher has a time of %v, want more than zero", shortest))
	}
	if c.MarkAfter < 0 || c.MarkAfter > c.RepublishAge/2 {
		errs = append(errs, fmt.Errorf("publisher marks after %v, want at most half of the %v after which others publish what is not marked",
			c.MarkAfter, c.RepublishAge))
	}
	if c.StuckMost < c.StuckAge || c.BackoffMost < c.BackoffFirst {
		errs = append(errs, fmt.Errorf("publisher repeats after %v to %v and backs off %v to %v, want the first of each at most the second",
			c.StuckAge, c.StuckMost, c.BackoffFirst, c.BackoffMost))
	}
	if least := min(c.QueueRows, c.BatchRows, c.AlarmAttempts); least < 1 {
		errs = append(errs, fmt.Errorf("publisher has a number of %d, want at least 1", least))
	}
	return errors.Join(errs...)
}
