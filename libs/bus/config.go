package bus

import (
	"errors"
	"fmt"
	"time"
)

// Config says how to reach NATS. The zero value of each field but URL means its default.
type Config struct {
	// URL is one server or several, separated by commas: "nats://a:4222,nats://b:4222".
	// It may carry a password and is never logged.
	URL string
	// Name is what the server shows for the connection. Default "cabine".
	Name string
	// CredsFile holds a user's JWT and seed. Default: none.
	CredsFile string
	// CAFile holds the authorities that the server's certificate must come from. Default: the system's.
	CAFile string
	// CertFile and KeyFile are the client's certificate, both or neither.
	CertFile, KeyFile string
	// RequireTLS refuses a server that does not offer TLS. Implied by CAFile and CertFile.
	RequireTLS bool
	// ConnectTimeout bounds one attempt to connect to one server. Default 2 s.
	ConnectTimeout time.Duration
	// ReconnectWait is the pause between two attempts at the same server, to which up to as
	// much again is added at random. Attempts never end. Default 500 ms.
	ReconnectWait time.Duration
	// PingInterval is how often an idle connection is tested; after two pings without an
	// answer it is given up. Default 10 s.
	PingInterval time.Duration
	// MaxInFlight bounds the published messages of this process that wait for their
	// acknowledgement, and so the largest batch. Default 512.
	MaxInFlight int
	// AckTimeout is how long a published message waits for its acknowledgement. Default 5 s.
	AckTimeout time.Duration
}

// WithDefaults returns a copy in which zero fields have their defaults.
func (c Config) WithDefaults() Config {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	if c.Name == "" {
		c.Name = "cabine"
	}
	if c.MaxInFlight == 0 {
		c.MaxInFlight = 512
	}
	def(&c.ConnectTimeout, 2*time.Second)
	def(&c.ReconnectWait, 500*time.Millisecond)
	def(&c.PingInterval, 10*time.Second)
	def(&c.AckTimeout, 5*time.Second)
	return c
}

// Validate names every field that is wrong.
func (c Config) Validate() error {
	var errs []error
	if c.URL == "" {
		errs = append(errs, errors.New("URL is empty"))
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		errs = append(errs, errors.New("CertFile and KeyFile go together"))
	}
	if c.MaxInFlight < 1 || c.MaxInFlight > 100_000 {
		errs = append(errs, fmt.Errorf("MaxInFlight is %d, want 1 to 100000", c.MaxInFlight))
	}
	for _, f := range []struct {
		name string
		d    time.Duration
	}{
		{"ConnectTimeout", c.ConnectTimeout},
		{"ReconnectWait", c.ReconnectWait},
		{"PingInterval", c.PingInterval},
		{"AckTimeout", c.AckTimeout},
	} {
		if f.d < time.Millisecond {
			errs = append(errs, fmt.Errorf("%s is %v, want at least 1ms", f.name, f.d))
		}
	}
	return errors.Join(errs...)
}
