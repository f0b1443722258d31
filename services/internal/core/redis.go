package core

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"go.uber.org/fx"

	"github.com/cabine-pix/cabine/libs/lease"
	"github.com/cabine-pix/cabine/libs/telemetry"
)

// RedisConfig says how to reach the Redis that decides permits.
type RedisConfig struct {
	// Host and Port. Required; default port 6379.
	Host string `koanf:"host" env:"REDIS_HOST" help:"host do Redis"`
	Port int    `koanf:"port" env:"REDIS_PORT" help:"porta do Redis"`
	// Username of an ACL user; empty for the default one.
	Username string `koanf:"username" env:"REDIS_USERNAME" help:"usuário (ACL)"`
	// Password; empty for none.
	Password string `koanf:"password" env:"REDIS_PASSWORD" secret:"true" help:"senha do Redis"`
	// TLS turns on TLS. Default false.
	TLS bool `koanf:"tls" env:"REDIS_TLS" help:"usa TLS (produção)"`
	// CAFile holds the PEM certificates that may have signed the server's. Default: the system's.
	CAFile string `koanf:"ca_file" help:"certificados de CA em PEM; vazio: os do sistema"`
	// DB is the database number. Default 0.
	DB int `koanf:"db" help:"número do banco"`
	// Timeout bounds each call. Default 1 s; at most lease.renew_timeout.
	Timeout time.Duration `koanf:"timeout" help:"limite de cada chamada"`
	// PoolSize is the most connections. Default 4.
	PoolSize int `koanf:"pool_size" help:"máximo de conexões"`
}

// DefaultRedis returns the defaults.
func DefaultRedis() RedisConfig {
	return RedisConfig{Port: 6379, Timeout: time.Second, PoolSize: 4}
}

// Validate names every value that does not fit.
func (c RedisConfig) Validate() error {
	var errs []error
	if c.Host == "" {
		errs = append(errs, errors.New("redis.host is empty (REDIS_HOST)"))
	}
	if c.Port < 1 || c.Port > 65535 {
		errs = append(errs, fmt.Errorf("redis.port is %d, want 1 to 65535", c.Port))
	}
	if c.DB < 0 {
		errs = append(errs, fmt.Errorf("redis.db is %d, want 0 or more", c.DB))
	}
	if c.Timeout < time.Millisecond {
		errs = append(errs, fmt.Errorf("redis.timeout is %v, want at least 1ms", c.Timeout))
	}
	if c.PoolSize < 2 {
		errs = append(errs, fmt.Errorf("redis.pool_size is %d, want 2 or more: the heartbeat needs one of its own", c.PoolSize))
	}
	if c.CAFile != "" && !c.TLS {
		errs = append(errs, errors.New("redis.ca_file is set although redis.tls is false"))
	}
	return errors.Join(errs...)
}

func (c RedisConfig) client() (*lease.Client, error) {
	cfg := lease.ClientConfig{
		Addr:     net.JoinHostPort(c.Host, strconv.Itoa(c.Port)),
		Username: c.Username,
		Password: c.Password,
		DB:       c.DB,
		Timeout:  c.Timeout,
		PoolSize: c.PoolSize,
	}
	if c.TLS {
		cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.Host}
		if c.CAFile != "" {
			pem, err := readBounded(c.CAFile, maxConfigBytes)
			if err != nil {
				return nil, Misconfigured(fmt.Errorf("redis.ca_file: %w", err))
			}
			cfg.TLS.RootCAs = x509.NewCertPool()
			if !cfg.TLS.RootCAs.AppendCertsFromPEM(pem) {
				return nil, Misconfigured(fmt.Errorf("redis.ca_file: no certificate in %s", c.CAFile))
			}
		}
	}
	return lease.NewClient(cfg)
}

// Redis provides the *lease.Client, which connects when first used.
func Redis(cfg RedisConfig) fx.Option {
	return fx.Module("redis", fx.Provide(func(r *Runner, h *telemetry.Health) (*lease.Client, error) {
		client, err := cfg.client()
		if err != nil {
			return nil, err
		}
		h.AddReady("redis", cfg.Timeout, client.Ping)
		r.Add(Part{Name: "redis", Stage: Clients, Budget: time.Second, Close: func(context.Context) error { return client.Close() }})
		return client, nil
	}))
}
