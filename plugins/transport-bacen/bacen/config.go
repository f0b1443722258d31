package bacen

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/icom"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/transport/guard"
)

// EnvConfig is the environment variable that holds the configuration: a JSON document,
// or the path of a file with one.
const EnvConfig = "CABINE_BACEN"

// Config of the transport, as JSON. It names files with secrets and holds none.
type Config struct {
	// Version is what Capabilities reports. Default "dev".
	Version string `json:"version"`
	// Channels that are served, "cpm" and "csm", at least one.
	Channels map[pix.Channel]Channel `json:"channels"`
	// Participants that are served, by ISPB, at least one.
	Participants map[pix.ISPB]Identity `json:"participants"`
	// CA is the path of the PEM file with the authorities that may sign the bank's
	// certificate. The system's own are not trusted.
	CA string `json:"ca"`
	// SingleMessage reads one message at a time instead of up to ten.
	SingleMessage bool `json:"single_message"`
	// AnySubject accepts a client certificate whose subject does not name the ISPB, as
	// a settlement agent's may.
	AnySubject bool `json:"any_subject"`
	// DialTimeout bounds name resolution and TCP connect. Default 2 s.
	DialTimeout Duration `json:"dial_timeout"`
	// HandshakeTimeout bounds the TLS handshake. Default 2 s.
	HandshakeTimeout Duration `json:"handshake_timeout"`
	// UserTimeout is u, TCP_USER_TIMEOUT; the bank hold B contains it, so it must not be
	// longer than the UserTimeout of the leases. Default 1.5 s.
	UserTimeout Duration `json:"user_timeout"`
	// KeepAlive is the pause between TCP probes. Default 1 s.
	KeepAlive Duration `json:"keep_alive"`
	// MaxIdle closes a connection on which nothing was asked for so long; shorter than
	// the bank's own limit. Default 20 s.
	MaxIdle Duration `json:"max_idle"`
	// MaxConnectionAge is how long a connection may serve: it bounds how long a name
	// that points elsewhere by now, or a rotated certificate, goes unnoticed. Default 2 min.
	MaxConnectionAge Duration `json:"max_connection_age"`
}

// Channel is where one channel is served.
type Channel struct {
	// URL of the bank, https, host and port only.
	URL string `json:"url"`
	// ServerName that the bank's certificate must have. Default: the URL's host.
	ServerName string `json:"server_name"`
	// Gzip compresses what is sent: recommended on the primary channel, mandatory on
	// the secondary.
	Gzip bool `json:"gzip"`
}

// Identity is a participant's client certificate, as paths of PEM files. They are read
// for each new connection.
type Identity struct {
	Cert string `json:"cert"`
	Key  string `json:"key"`
}

// Duration is a time.Duration that JSON writes as "1.5s".
type Duration time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = Duration(v)
	return err
}

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// WithDefaults returns a copy in which zero fields have their defaults.
func (c Config) WithDefaults() Config {
	def := func(d *Duration, v time.Duration) {
		if *d == 0 {
			*d = Duration(v)
		}
	}
	if c.Version == "" {
		c.Version = "dev"
	}
	def(&c.DialTimeout, 2*time.Second)
	def(&c.HandshakeTimeout, 2*time.Second)
	def(&c.UserTimeout, 1500*time.Millisecond)
	def(&c.KeepAlive, time.Second)
	def(&c.MaxIdle, 20*time.Second)
	def(&c.MaxConnectionAge, 2*time.Minute)
	return c
}

// Validate reports everything that is wrong, without touching a file.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(c.Channels) == 0 {
		bad("channels: none")
	}
	for name, ch := range c.Channels {
		if _, err := pix.ParseChannel(string(name)); err != nil {
			bad("channels: %w", err)
		}
		if _, err := icom.ParseBase(ch.URL); err != nil {
			bad("channels.%s.url: %w", name, err)
		}
	}
	if len(c.Participants) == 0 {
		bad("participants: none")
	}
	for ispb, id := range c.Participants {
		if _, err := pix.ParseISPB(string(ispb)); err != nil {
			bad("participants: %w", err)
		}
		if id.Cert == "" || id.Key == "" {
			bad("participants.%s: cert and key are both needed", ispb)
		}
	}
	if c.CA == "" {
		bad("ca: no file")
	}
	for name, d := range map[string]Duration{
		"dial_timeout": c.DialTimeout, "handshake_timeout": c.HandshakeTimeout,
		"max_idle": c.MaxIdle, "max_connection_age": c.MaxConnectionAge,
	} {
		if d < Duration(time.Millisecond) {
			bad("%s is %v, want at least 1ms", name, time.Duration(d))
		}
	}
	if err := c.guard().Validate(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (c Config) guard() guard.Config {
	return guard.Config{UserTimeout: time.Duration(c.UserTimeout), KeepAlive: time.Duration(c.KeepAlive)}
}

// maxConfigBytes bounds the configuration file.
const maxConfigBytes = 1 << 20

// FromEnv makes the transport from the configuration that EnvConfig holds or names.
func FromEnv(getenv func(string) string, clk clock.Clock, log *slog.Logger) (*Transport, error) {
	text := []byte(getenv(EnvConfig))
	if len(text) == 0 {
		return nil, fmt.Errorf("bacen: %s is not set: want a JSON document or the path of one", EnvConfig)
	}
	if path := string(text); !strings.HasPrefix(strings.TrimSpace(path), "{") {
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("bacen: %s: %w", EnvConfig, err)
		}
		if info.Size() > maxConfigBytes {
			return nil, fmt.Errorf("bacen: %s: file has %d bytes, want at most %d", EnvConfig, info.Size(), maxConfigBytes)
		}
		if text, err = os.ReadFile(path); err != nil {
			return nil, fmt.Errorf("bacen: %s: %w", EnvConfig, err)
		}
	}
	var cfg Config
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&cfg); err != nil {
		return nil, fmt.Errorf("bacen: configuration: %w", err)
	}
	return New(cfg, clk, log)
}
