package inbound

import "time"

// PublisherConfig configures a Publisher.
type PublisherConfig struct {
	// QueueRows bounds the rows of one stream in memory. Default 256.
	QueueRows int
	// BatchRows bounds what is published at once. Default 256.
	BatchRows int
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
	// MaxAttempts is how often such a row is published again before it goes to the dead
	// letters, and how often the bus may refuse a row before it does. Default 10.
	MaxAttempts int
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
	num(&c.BatchRows, 256)
	num(&c.MaxAttempts, 10)
	def(&c.PublishTimeout, 10*time.Second)
	def(&c.RepublishEvery, 30*time.Second)
	def(&c.RepublishAge, 5*time.Second)
	def(&c.SweepEvery, time.Minute)
	def(&c.StuckAge, 5*time.Minute)
	def(&c.StuckMost, max(time.Hour, c.StuckAge))
	def(&c.BackoffFirst, 200*time.Millisecond)
	def(&c.BackoffMost, 5*time.Second)
	return c
}
