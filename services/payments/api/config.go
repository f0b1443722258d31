package api

import (
	"errors"
	"fmt"
	"time"

	"github.com/cabine-pix/cabine/libs/edge"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
)

// Config says how the API is served.
type Config struct {
	// ISPB is the participant whose orders these are. Required.
	ISPB pix.ISPB
	// Channels are those that orders go out on. Default: both.
	Channels []pix.Channel
	// Listen is host:port; port 0 takes a free one, which the log names. Required.
	Listen string
	// Tokens are the clients' bearer tokens, as edge.ParseTokens reads them. Required: without any the API does not
	// open. A secret.
	Tokens string
	// TLS is optional where something before us ends it; tokens and orders travel in the clear then.
	TLS TLSConfig
	// Throttle limits each client, in this process.
	Throttle edge.ThrottleConfig
	// MaxBody bounds a request's body in bytes. The longest valid order has under 4 KiB. Default 16 KiB.
	MaxBody int64
	// RequestTimeout bounds a request's handling; at most half of what makes its key free again. Default 4 s.
	RequestTimeout time.Duration
	// DrainTimeout is how long stopping waits for the requests under way; not below RequestTimeout. Default 4.5 s, which
	// fits the five seconds that a service's work is given to end.
	DrainTimeout time.Duration
}

// TLSConfig names PEM files, which are read once.
type TLSConfig struct {
	// Cert and Key are both given, or neither.
	Cert, Key string
	// ClientCA makes clients prove with a certificate of it who they are, beside their token. Needs Cert.
	ClientCA string
}

// WithDefaults returns a copy in which zero fields have their defaults.
func (c Config) WithDefaults() Config {
	if len(c.Channels) == 0 {
		c.Channels = pix.Channels()
	}
	if c.MaxBody == 0 {
		c.MaxBody = 16 << 10
	}
	if c.RequestTimeout == 0 {
		c.RequestTimeout = 4 * time.Second
	}
	if c.DrainTimeout == 0 {
		c.DrainTimeout = 4500 * time.Millisecond
	}
	c.Throttle = c.Throttle.WithDefaults()
	return c
}

// Validate names every field that is wrong. It reads no files.
func (c Config) Validate() error {
	var errs []error
	if _, err := pix.ParseISPB(string(c.ISPB)); err != nil {
		errs = append(errs, err)
	}
	if c.Listen == "" {
		errs = append(errs, errors.New("listen is empty, want host:port"))
	}
	if _, err := edge.ParseTokens(c.Tokens); err != nil {
		errs = append(errs, fmt.Errorf("tokens: %w", err))
	}
	if (c.TLS.Cert == "") != (c.TLS.Key == "") {
		errs = append(errs, errors.New("tls: cert and key are given both or neither"))
	}
	if c.TLS.ClientCA != "" && c.TLS.Cert == "" {
		errs = append(errs, errors.New("tls: a client CA needs cert and key"))
	}
	if err := c.Throttle.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("throttle: %w", err))
	}
	if c.MaxBody < 4<<10 || c.MaxBody > 1<<20 {
		errs = append(errs, fmt.Errorf("body is bounded by %d bytes, want 4096 to 1048576", c.MaxBody))
	}
	if c.RequestTimeout < time.Millisecond || c.RequestTimeout > store.KeyAbandonedAfter/2 {
		errs = append(errs, fmt.Errorf("request timeout is %v, want 1ms to %v", c.RequestTimeout, store.KeyAbandonedAfter/2))
	}
	if c.DrainTimeout < c.RequestTimeout {
		errs = append(errs, fmt.Errorf("drain timeout is %v, want at least the request timeout %v", c.DrainTimeout, c.RequestTimeout))
	}
	return errors.Join(errs...)
}
