package obligation

import (
	"errors"
	"fmt"
	"time"
)

// Config says how obligations are written. The zero value of each field means its default.
type Config struct {
	// Workers is how many batches a replica writes at once. Default 2.
	Workers int
	// Batch is the most obligations of one transaction. Default 200.
	Batch int
	// TxTimeout bounds one transaction. Default 5 s.
	TxTimeout time.Duration
	// RetryDelay is when one that could not be written comes again; it doubles each time, up to 30 s. Default 1 s.
	RetryDelay time.Duration
	// MaxDeliveries is how often one comes for whose time no cycle is open, until it is left to the next announcement.
	// Default 5.
	MaxDeliveries int
	// DrainTimeout is how long what is in hand may take at the end. Default 5 s.
	DrainTimeout time.Duration
}

// WithDefaults returns a copy in which zero fields have their defaults.
func (c Config) WithDefaults() Config {
	number := func(n *int, v int) {
		if *n == 0 {
			*n = v
		}
	}
	duration := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	number(&c.Workers, 2)
	number(&c.Batch, 200)
	number(&c.MaxDeliveries, 5)
	duration(&c.TxTimeout, 5*time.Second)
	duration(&c.RetryDelay, time.Second)
	duration(&c.DrainTimeout, 5*time.Second)
	return c
}

// Validate names every field that is wrong.
func (c Config) Validate() error {
	var errs []error
	for _, f := range []struct {
		name string
		n    int
		most int
	}{{"Workers", c.Workers, 64}, {"Batch", c.Batch, 1000}, {"MaxDeliveries", c.MaxDeliveries, 1000}} {
		if f.n < 1 || f.n > f.most {
			errs = append(errs, fmt.Errorf("%s is %d, want 1 to %d", f.name, f.n, f.most))
		}
	}
	for _, f := range []struct {
		name string
		d    time.Duration
	}{{"TxTimeout", c.TxTimeout}, {"RetryDelay", c.RetryDelay}, {"DrainTimeout", c.DrainTimeout}} {
		if f.d < time.Millisecond {
			errs = append(errs, fmt.Errorf("%s is %v, want at least 1ms", f.name, f.d))
		}
	}
	return errors.Join(errs...)
}
