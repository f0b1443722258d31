package coreevent

import (
	"errors"
	"fmt"
	"time"

	"github.com/cabine-pix/cabine/libs/pix"
)

// Config says how events are taken. The zero value of each field but ISPB and Channels means its default.
type Config struct {
	// ISPB is the participant whose core it is. Required.
	ISPB pix.ISPB
	// Channels are those that orders go out on. Required.
	Channels []pix.Channel
	// Workers is how many events a replica books at once. Default 4.
	Workers int
	// Batch is how many a worker answers together, each in a transaction of its own. Default 16.
	Batch int
	// MaxBody bounds an event in bytes. Default 16 KiB, as the HTTP interface's; the stream takes up to 64 KiB.
	MaxBody int
	// TxTimeout bounds one transaction. Default 5 s.
	TxTimeout time.Duration
	// TellTimeout bounds each publication. Default 5 s.
	TellTimeout time.Duration
	// RetryDelay is when one without a verdict comes again; it doubles each time, up to 30 s. Default 1 s.
	RetryDelay time.Duration
	// MaxFailures is how often we may fail with an event by a fault of our own before it is refused. Default 5.
	MaxFailures int
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
	number(&c.Workers, 4)
	number(&c.Batch, 16)
	number(&c.MaxBody, 16<<10)
	number(&c.MaxFailures, 5)
	duration(&c.TxTimeout, 5*time.Second)
	duration(&c.TellTimeout, 5*time.Second)
	duration(&c.RetryDelay, time.Second)
	duration(&c.DrainTimeout, 5*time.Second)
	return c
}

// Validate names every field that is wrong.
func (c Config) Validate() error {
	var errs []error
	if _, err := pix.ParseISPB(string(c.ISPB)); err != nil {
		errs = append(errs, err)
	}
	if len(c.Channels) == 0 {
		errs = append(errs, errors.New("no channel: no order would go out"))
	}
	for _, f := range []struct {
		name        string
		n           int
		least, most int
	}{
		{"Workers", c.Workers, 1, 64},
		{"Batch", c.Batch, 1, 256},
		{"MaxBody", c.MaxBody, 4 << 10, 64 << 10},
		{"MaxFailures", c.MaxFailures, 1, 1000},
	} {
		if f.n < f.least || f.n > f.most {
			errs = append(errs, fmt.Errorf("%s is %d, want %d to %d", f.name, f.n, f.least, f.most))
		}
	}
	for _, f := range []struct {
		name string
		d    time.Duration
	}{
		{"TxTimeout", c.TxTimeout},
		{"TellTimeout", c.TellTimeout},
		{"RetryDelay", c.RetryDelay},
		{"DrainTimeout", c.DrainTimeout},
	} {
		if f.d < time.Millisecond {
			errs = append(errs, fmt.Errorf("%s is %v, want at least 1ms", f.name, f.d))
		}
	}
	return errors.Join(errs...)
}
