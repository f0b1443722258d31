package core

import (
	"fmt"
	"log/slog"
	"time"

	"go.uber.org/fx"

	"github.com/cabine-pix/cabine/libs/bus"
	"github.com/cabine-pix/cabine/libs/telemetry"
)

// NATSConfig says how to reach the message bus.
type NATSConfig struct {
	// URL is one server or several, separated by commas, with the password if there is one. Required.
	URL string `koanf:"url" env:"NATS_URL" secret:"dsn" help:"servidores NATS, separados por vírgula"`
	// CredsFile holds a user's JWT and seed. Optional.
	CredsFile string `koanf:"creds_file" help:"arquivo .creds do usuário"`
	// CAFile holds the authorities that may have signed the server's certificate. Optional.
	CAFile string `koanf:"ca_file" help:"certificados de CA em PEM; vazio: os do sistema"`
	// CertFile and KeyFile are the client's certificate. Optional, both or neither.
	CertFile string `koanf:"cert_file" help:"certificado de cliente"`
	KeyFile  string `koanf:"key_file" help:"chave do certificado de cliente"`
	// RequireTLS refuses a server without TLS. Default false.
	RequireTLS bool `koanf:"require_tls" help:"recusa servidor sem TLS"`
	// MaxInFlight bounds messages that wait for their acknowledgement. Default 512.
	MaxInFlight int `koanf:"max_in_flight" help:"máximo de publicações à espera de confirmação"`
	// AckTimeout is how long one waits. Default 5 s.
	AckTimeout time.Duration `koanf:"ack_timeout" help:"espera máxima por uma confirmação"`
}

// DefaultNATS returns the library's defaults.
func DefaultNATS() NATSConfig {
	d := bus.Config{}.WithDefaults()
	return NATSConfig{MaxInFlight: d.MaxInFlight, AckTimeout: d.AckTimeout}
}

func (c NATSConfig) bus(name string) bus.Config {
	return bus.Config{
		URL: c.URL, Name: name, CredsFile: c.CredsFile, CAFile: c.CAFile, CertFile: c.CertFile, KeyFile: c.KeyFile,
		RequireTLS: c.RequireTLS, MaxInFlight: c.MaxInFlight, AckTimeout: c.AckTimeout,
	}.WithDefaults()
}

// Validate names every value that does not fit.
func (c NATSConfig) Validate() error {
	if err := c.bus("check").Validate(); err != nil {
		return fmt.Errorf("nats: %w", err)
	}
	return nil
}

// NATS provides the *bus.Bus. A server that does not answer does not keep the service from
// starting: what is received is kept and published later. ready false leaves it out of
// readiness, for a service that works without it.
func NATS(cfg NATSConfig, ready bool) fx.Option {
	return fx.Module("nats", fx.Provide(func(r *Runner, id Identity, h *telemetry.Health, log *slog.Logger) (*bus.Bus, error) {
		ctx, cancel := construction(connectWithin)
		defer cancel()
		b, err := bus.Connect(ctx, cfg.bus(id.Replica), log)
		if err != nil {
			return nil, Misconfigured(err)
		}
		if ready {
			h.AddReady("nats", 2*time.Second, b.Ping)
		}
		r.Add(Part{Name: "nats", Stage: Messaging, Budget: 5 * time.Second, Close: b.Close})
		return b, nil
	}))
}
