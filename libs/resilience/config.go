package resilience

import (
	"errors"
	"fmt"
	"time"
)

// Config describes one policy. The zero value of each field but Name means its default.
type Config struct {
	// Name of what is called, for metrics and logs: a word as "core".
	Name string
	// Timeout bounds a call, all attempts and pauses together. Default 8 s.
	Timeout time.Duration
	// AttemptTimeout bounds one attempt. Default: half of Timeout.
	AttemptTimeout time.Duration
	// Attempts is how often fn is tried at most. Default 2.
	Attempts int
	// Pause is the wait before the second attempt; it doubles with each, up to PauseMost, and
	// moves by up to half of itself at random. Defaults 50 ms, 1 s.
	Pause, PauseMost time.Duration
	// FailureShare of the calls within Window, in percent, opens the breaker, once there were at
	// least WindowCalls. Defaults 50 %, 10 s, 20 calls.
	FailureShare int
	Window       time.Duration
	WindowCalls  int
	// OpenFor is how long an open breaker refuses before it lets Probes calls through, which
	// must all succeed to close it. Defaults 5 s, 3.
	OpenFor time.Duration
	Probes  int
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
	duration(&c.Timeout, 8*time.Second)
	duration(&c.AttemptTimeout, c.Timeout/2)
	number(&c.Attempts, 2)
	duration(&c.Pause, 50*time.Millisecond)
	duration(&c.PauseMost, time.Second)
	number(&c.FailureShare, 50)
	duration(&c.Window, 10*time.Second)
	number(&c.WindowCalls, 20)
	duration(&c.OpenFor, 5*time.Second)
	number(&c.Probes, 3)
	return c
}

// Validate names every field that is wrong, with its numbers.
func (c Config) Validate() error {
	var errs []error
	if c.Name == "" {
		errs = append(errs, errors.New("no Name"))
	}
	for _, f := range []struct {
		name string
		d    time.Duration
	}{
		{"Timeout", c.Timeout},
		{"AttemptTimeout", c.AttemptTimeout},
		{"Pause", c.Pause},
		{"PauseMost", c.PauseMost},
		{"Window", c.Window},
		{"OpenFor", c.OpenFor},
	} {
		if f.d < time.Millisecond {
			errs = append(errs, fmt.Errorf("%s is %v, want at least 1ms", f.name, f.d))
		}
	}
	if c.AttemptTimeout > c.Timeout {
		errs = append(errs, fmt.Errorf("AttemptTimeout is %v, want at most Timeout %v", c.AttemptTimeout, c.Timeout))
	}
	if c.PauseMost < c.Pause {
		errs = append(errs, fmt.Errorf("PauseMost is %v, want at least Pause %v", c.PauseMost, c.Pause))
	}
	if c.Attempts < 1 || c.Attempts > 10 {
		errs = append(errs, fmt.Errorf("%d Attempts, want 1 to 10", c.Attempts))
	}
	if c.FailureShare < 1 || c.FailureShare > 100 {
		errs = append(errs, fmt.Errorf("FailureShare is %d, want 1 to 100", c.FailureShare))
	}
	if c.WindowCalls < 1 || c.Probes < 1 {
		errs = append(errs, fmt.Errorf("WindowCalls is %d and Probes %d, want at least 1", c.WindowCalls, c.Probes))
	}
	return errors.Join(errs...)
}
