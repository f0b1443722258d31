package decision

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/cabine-pix/cabine/libs/corebank"
	"github.com/cabine-pix/cabine/libs/resilience"
)

// Silence says what is decided when the core is silent.
type Silence string

// What may be decided then.
const (
	// Reject refuses with AB09: the payer keeps the money and may try again.
	Reject Silence = "reject"
	// Accept promises to credit what the core was not asked about. The participant bears the risk.
	Accept Silence = "accept"
)

// Config says how the core is reached. The zero value of each field without "Required" means its default.
type Config struct {
	// URL that questions are posted to. Required.
	URL string
	// Keys of both directions; the first signs. Required.
	Keys corebank.Keys
	// TLS of the connection. Default: the system's authorities, TLS 1.2 or newer.
	TLS *tls.Config
	// Plaintext allows http:// to another machine: only where something else encrypts.
	Plaintext bool
	// WhenSilent is the decision without the core. Default Reject.
	WhenSilent Silence
	// Concurrency bounds the questions under way. Default 128.
	Concurrency int
	// Timeout of a call and of one attempt, and the attempts. Defaults 8 s, 4 s, 2.
	Timeout, AttemptTimeout time.Duration
	Attempts                int
	// OpenFor is how long the breaker keeps from asking. Default 5 s.
	OpenFor time.Duration
}

// WithDefaults returns a copy in which zero fields have their defaults.
func (c Config) WithDefaults() Config {
	if c.TLS == nil {
		c.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if c.WhenSilent == "" {
		c.WhenSilent = Reject
	}
	if c.Concurrency == 0 {
		c.Concurrency = 128
	}
	p := c.policy().WithDefaults()
	c.Timeout, c.AttemptTimeout, c.Attempts, c.OpenFor = p.Timeout, p.AttemptTimeout, p.Attempts, p.OpenFor
	return c
}

func (c Config) policy() resilience.Config {
	return resilience.Config{
		Name: "core", Timeout: c.Timeout, AttemptTimeout: c.AttemptTimeout, Attempts: c.Attempts, OpenFor: c.OpenFor,
	}
}

// Validate names every field that is wrong; it shows no secret.
func (c Config) Validate() error {
	errs := []error{c.checkURL(), c.Keys.Validate(), c.policy().WithDefaults().Validate()}
	if c.WhenSilent != Reject && c.WhenSilent != Accept {
		errs = append(errs, fmt.Errorf("WhenSilent is %q, want %s or %s", c.WhenSilent, Reject, Accept))
	}
	if c.Concurrency < 1 || c.Concurrency > 10_000 {
		errs = append(errs, fmt.Errorf("%d questions at once (Concurrency), want 1 to 10000", c.Concurrency))
	}
	return errors.Join(errs...)
}

func (c Config) checkURL() error {
	u, err := url.Parse(c.URL)
	switch {
	case err != nil:
		return errors.New("URL is none") // the text may hold a password
	case u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return errors.New("URL is empty or has no host, want https://host/path")
	case u.User != nil:
		return errors.New("URL has a user: the signature says who asks")
	case u.Scheme == "http" && !c.Plaintext && !local(u.Hostname()):
		return errors.New("URL is http to another machine: names and documents would go in the clear; use https, or allow it by name")
	}
	return nil
}

func local(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
