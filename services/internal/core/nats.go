package core

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"go.uber.org/fx"

	"github.com/cabine-pix/cabine/libs/bus"
)

// NATSConfig says how to reach JetStream.
type NATSConfig struct {
	// URL is one server or several, separated by commas; it may carry a password. Required.
	URL string `koanf:"url" env:"NATS_URL" secret:"dsn" help:"servidores NATS, separados por vírgula"`
	// CredsFile holds a user's JWT and seed. Default: none.
	CredsFile string `koanf:"creds_file" help:"arquivo de credenciais (JWT e seed)"`
	// CAFile holds the authorities of the server's certificate. Default: the system's.
	CAFile string `koanf:"ca_file" help:"certificados de CA em PEM; vazio: os do sistema"`
	// CertFile and KeyFile are the client's certificate, both or neither.
	CertFile string `koanf:"cert_file" help:"certificado do cliente em PEM"`
	KeyFile  string `koanf:"key_file" help:"chave do certificado do cliente em PEM"`
	// RequireTLS refuses a server that does not offer TLS.
	RequireTLS bool `koanf:"require_tls" help:"recusa um servidor sem TLS"`
	// AckTimeout is how long a published message waits for its acknowledgement. Default 5 s.
	AckTimeout time.Duration `koanf:"ack_timeout" help:"espera pela confirmação de uma publicação"`
}

// DefaultNATS returns the library's defaults.
func DefaultNATS() NATSConfig {
	return NATSConfig{AckTimeout: bus.Config{}.WithDefaults().AckTimeout}
}

func (c NATSConfig) bus(name string) bus.Config {
	return bus.Config{
		URL: c.URL, Name: name, CredsFile: c.CredsFile, CAFile: c.CAFile,
		CertFile: c.CertFile, KeyFile: c.KeyFile, RequireTLS: c.RequireTLS, AckTimeout: c.AckTimeout,
	}.WithDefaults()
}

// Validate names every value that does not fit.
func (c NATSConfig) Validate() error {
	if err := c.bus("check").Validate(); err != nil {
		return fmt.Errorf("nats: %w", err)
	}
	return nil
}

// NATS provides the *bus.Bus. A server that is away keeps nothing from starting: what is
// received stands in Postgres and goes out when it is back, so readiness does not depend on it.
func NATS(cfg NATSConfig) fx.Option {
	return fx.Module("nats", fx.Provide(func(r *Runner, id Identity, log *slog.Logger) (*bus.Bus, error) {
		b, err := bus.Connect(context.Background(), cfg.bus(id.Service+"/"+id.Replica), log)
		if err != nil {
			return nil, err
		}
		r.Add(Part{Name: "nats", Stage: Messaging, Budget: 5 * time.Second, Close: b.Close})
		return b, nil
	}))
}
