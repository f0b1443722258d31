package announce

import (
	"errors"
	"fmt"
	"time"

	"github.com/cabine-pix/cabine/libs/pix"
)

// Config says how rows are carried. The zero value of each field but ISPB means its default.
type Config struct {
	// ISPB of the participant, which names the subjects. Required.
	ISPB pix.ISPB
	// QueueRows bounds the rows in memory. Default 4096.
	QueueRows int
	// BatchRows bounds one publication; at most what the bus may have in flight. Default 256.
	BatchRows int
	// PublishTimeout bounds one publication. Default 5 s.
	PublishTimeout time.Duration
	// RepublishEvery is how often the table is read for rows never published, and RepublishAge
	// how old they are then. Defaults 1 s, 2 s.
	RepublishEvery, RepublishAge time.Duration
	// SweepEvery is how often it is read for rows that were published and that no message carries,
	// StuckAge when that is first held against one, StuckMost the longest pause. Defaults 1 s, 3 s, 10 min.
	SweepEvery, StuckAge, StuckMost time.Duration
	// AlarmAttempts is from which repetition on the log has it as an error. Default 4.
	AlarmAttempts int
}

// WithDefaults returns a copy in which zero fields have their defaults.
func (c Config) WithDefaults() Config {
	duration := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	number := func(n *int, v int) {
		if *n == 0 {
			*n = v
		}
	}
	number(&c.QueueRows, 4096)
	number(&c.BatchRows, 256)
	number(&c.AlarmAttempts, 4)
	duration(&c.PublishTimeout, 5*time.Second)
	duration(&c.RepublishEvery, time.Second)
	duration(&c.RepublishAge, 2*time.Second)
	duration(&c.SweepEvery, time.Second)
	duration(&c.StuckAge, 3*time.Second)
	duration(&c.StuckMost, 10*time.Minute)
	return c
}

// Validate names every field that is wrong.
func (c Config) Validate() error {
	var errs []error
	if _, err := pix.ParseISPB(string(c.ISPB)); err != nil {
		errs = append(errs, err)
	}
	for _, f := range []struct {
		name string
		n    int
	}{{"QueueRows", c.QueueRows}, {"BatchRows", c.BatchRows}, {"AlarmAttempts", c.AlarmAttempts}} {
		if f.n < 1 {
			errs = append(errs, fmt.Errorf("%s is %d, want at least 1", f.name, f.n))
		}
	}
	for _, f := range []struct {
		name string
		d    time.Duration
	}{
		{"PublishTimeout", c.PublishTimeout},
		{"RepublishEvery", c.RepublishEvery},
		{"RepublishAge", c.RepublishAge},
		{"SweepEvery", c.SweepEvery},
		{"StuckAge", c.StuckAge},
		{"StuckMost", c.StuckMost},
	} {
		if f.d < time.Millisecond {
			errs = append(errs, fmt.Errorf("%s is %v, want at least 1ms", f.name, f.d))
		}
	}
	if c.StuckMost < c.StuckAge {
		errs = append(errs, fmt.Errorf("StuckMost is %v, want at least StuckAge %v", c.StuckMost, c.StuckAge))
	}
	return errors.Join(errs...)
}
