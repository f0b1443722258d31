package cycle

import (
	"errors"
	"fmt"
	"time"
)

// Config says how cycles are kept. The zero value of each field but Leadership means its default.
type Config struct {
	// Leadership is the name under which terms are minted. Required.
	Leadership string
	// Every is how often there is a look whether a cycle is to be opened, sealed or closed. Default 1 s.
	Every time.Duration
	// Grace is the least time from the end of a cycle until it takes nothing more. Default 1 min.
	Grace time.Duration
	// Patience is the most time that a cycle waits, after its end, for what settled before it and is not written yet.
	// Default 30 min.
	Patience time.Duration
	// Recheck is how many days back closed cycles are netted again and compared when a leader begins. Default 2.
	Recheck int
}

// WithDefaults returns a copy in which zero fields have their defaults.
func (c Config) WithDefaults() Config {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&c.Every, time.Second)
	def(&c.Grace, time.Minute)
	def(&c.Patience, 30*time.Minute)
	if c.Recheck == 0 {
		c.Recheck = 2
	}
	return c
}

// Validate names every field that is wrong.
func (c Config) Validate() error {
	var errs []error
	if c.Leadership == "" {
		errs = append(errs, errors.New("leadership is empty"))
	}
	for _, f := range []struct {
		name string
		d    time.Duration
	}{{"Every", c.Every}, {"Grace", c.Grace}, {"Patience", c.Patience}} {
		if f.d < time.Millisecond {
			errs = append(errs, fmt.Errorf("%s is %v, want at least 1ms", f.name, f.d))
		}
	}
	if c.Patience < c.Grace {
		errs = append(errs, fmt.Errorf("patience is %v, want at least grace %v", c.Patience, c.Grace))
	}
	if c.Recheck < 1 || c.Recheck > 31 {
		errs = append(errs, fmt.Errorf("recheck is %d, want 1 to 31", c.Recheck))
	}
	return errors.Join(errs...)
}
