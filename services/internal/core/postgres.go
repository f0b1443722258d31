package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.uber.org/fx"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/libs/telemetry"
)

// PostgresConfig says how to reach the database.
type PostgresConfig struct {
	// URL is the connection string, with the password. Required.
	URL string `koanf:"url" env:"DATABASE_URL" secret:"dsn" help:"conexão com o Postgres, senha incluída"`
	// MaxConns bounds the pool. Default 8.
	MaxConns int `koanf:"max_conns" help:"máximo de conexões"`
	// CallTimeout bounds one call once it has a connection. Default 5 s.
	CallTimeout time.Duration `koanf:"call_timeout" help:"limite de uma chamada"`
	// StatementTimeout is enforced by the server; at most CallTimeout. Default 4 s.
	StatementTimeout time.Duration `koanf:"statement_timeout" help:"limite de um comando, imposto pelo servidor"`
	// ConnectWithin is how long a start waits for the database. Default 15 s.
	ConnectWithin time.Duration `koanf:"connect_within" help:"espera máxima pelo banco de dados ao iniciar"`
}

// DefaultPostgres returns the library's defaults.
func DefaultPostgres() PostgresConfig {
	d := store.Config{}.WithDefaults()
	return PostgresConfig{
		MaxConns: int(d.MaxConns), CallTimeout: d.CallTimeout, StatementTimeout: d.StatementTimeout, ConnectWithin: connectWithin,
	}
}

// connectWithin is shorter than startTimeout, which still has to start what needs the connection.
const connectWithin = 15 * time.Second

func (c PostgresConfig) store(application string) store.Config {
	return store.Config{
		URL: c.URL, Application: application, MaxConns: int32(min(c.MaxConns, 1<<20)),
		CallTimeout: c.CallTimeout, StatementTimeout: c.StatementTimeout,
	}.WithDefaults()
}

// Validate names every value that does not fit.
func (c PostgresConfig) Validate() error {
	if err := c.store("check").Validate(); err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	return nil
}

// Postgres provides the *store.DB. It is connected while the service is built, because
// a schema that is too old must keep the service from starting.
func Postgres(cfg PostgresConfig) fx.Option {
	return fx.Module("postgres", fx.Provide(
		func(r *Runner, id Identity, h *telemetry.Health, clk clock.Clock, log *slog.Logger) (*store.DB, error) {
			ctx, cancel := construction(cfg.ConnectWithin)
			defer cancel()
			db, err := openStore(ctx, cfg.store(id.Service), clk, log)
			if errors.Is(err, store.ErrNotDurable) {
				return nil, Misconfigured(fmt.Errorf("postgres: %w", err))
			}
			if err != nil {
				return nil, err
			}
			h.AddReady("postgres", 2*time.Second, db.Ping)
			r.Add(Part{Name: "postgres", Stage: Clients, Budget: 2 * time.Second, Close: func(context.Context) error {
				db.Close()
				return nil
			}})
			return db, nil
		}))
}

// openStore waits for a database that is not there yet, and for nothing else.
func openStore(ctx context.Context, cfg store.Config, clk clock.Clock, log *slog.Logger) (*store.DB, error) {
	for {
		db, err := store.Open(ctx, cfg)
		if err == nil {
			return db, nil
		}
		if !errors.Is(err, store.ErrUnavailable) || ctx.Err() != nil {
			return nil, err
		}
		log.Warn("postgres does not answer yet", "error", err)
		if clock.Sleep(ctx, clk, 500*time.Millisecond) != nil {
			return nil, err
		}
	}
}
