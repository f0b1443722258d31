package store

import (
	"errors"
	"fmt"
	"time"
)

// Config says how to reach the database and how long anything may take. The zero value
// of each field but URL means its default.
type Config struct {
	// URL is the connection string, as a URL or as key=value pairs. It carries the
	// password: it is never logged and never part of an error.
	URL string
	// Application is the application_name that pg_stat_activity shows. Default "cabine".
	Application string
	// MaxConns bounds the pool of this process. Each poller slot uses one connection for
	// well under a millisecond per batch, so few serve many; every one costs the server a
	// process. Default 8.
	MaxConns int32
	// AcquireTimeout bounds the wait for a free connection, a dial included. Default 2 s.
	AcquireTimeout time.Duration
	// CallTimeout bounds one call from the moment it has its connection. Default 5 s.
	CallTimeout time.Duration
	// StatementTimeout is enforced by the server, so that a statement does not outlive a
	// caller who left. It must not be longer than CallTimeout. Default 4 s.
	StatementTimeout time.Duration
	// IdleInTransaction is how long a transaction may stand still before the server ends
	// it with its locks; what a paused process may hold back others for. Default 10 s.
	IdleInTransaction time.Duration
	// ConnMaxLifetime is when a connection is replaced, so that a failover or a changed
	// address is noticed. Jittered by a tenth. Default 30 min.
	ConnMaxLifetime time.Duration
}

// WithDefaults returns a copy in which zero fields have their defaults.
func (c Config) WithDefaults() Config {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	if c.Application == "" {
		c.Application = "cabine"
	}
	if c.MaxConns == 0 {
		c.MaxConns = 8
	}
	def(&c.AcquireTimeout, 2*time.Second)
	def(&c.CallTimeout, 5*time.Second)
	def(&c.StatementTimeout, 4*time.Second)
	def(&c.IdleInTransaction, 10*time.Second)
	def(&c.ConnMaxLifetime, 30*time.Minute)
	return c
}

// Validate names every field that is wrong.
func (c Config) Validate() error {
	var errs []error
	if c.URL == "" {
		errs = append(errs, errors.New("URL is empty"))
	}
	if c.MaxConns < 1 || c.MaxConns > 200 {
		errs = append(errs, fmt.Errorf("MaxConns is %d, want 1 to 200", c.MaxConns))
	}
	for _, f := range []struct {
		name string
		d    time.Duration
	}{
		{"AcquireTimeout", c.AcquireTimeout},
		{"CallTimeout", c.CallTimeout},
		{"StatementTimeout", c.StatementTimeout},
		{"IdleInTransaction", c.IdleInTransaction},
		{"ConnMaxLifetime", c.ConnMaxLifetime},
	} {
		if f.d < time.Millisecond {
			errs = append(errs, fmt.Errorf("%s is %v, want at least 1ms", f.name, f.d))
		}
	}
	if c.StatementTimeout > c.CallTimeout {
		errs = append(errs, fmt.Errorf("StatementTimeout is %v, want at most CallTimeout %v", c.StatementTimeout, c.CallTimeout))
	}
	return errors.Join(errs...)
}
