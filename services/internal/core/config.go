package core

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"time"
)

// Config is what Main needs of a service's configuration: a struct that embeds Base.
type Config interface {
	// Validate names every value that does not fit, with its numbers.
	Validate() error
	common() Base
}

// Base is what every service has. Embed it with koanf:",squash".
type Base struct {
	// Replica names this process in logs, metrics and leases. A random part is added, because
	// a restarted process is another replica. Default: the host's name.
	Replica string `koanf:"replica" help:"nome desta réplica nos logs e nas concessões; um sufixo aleatório é acrescentado"`
	// Log configures the log.
	Log LogConfig `koanf:"log"`
	// Admin configures health and metrics.
	Admin AdminConfig `koanf:"admin"`
	// Stop holds the limits of stopping.
	Stop StopConfig `koanf:"stop"`
	// OTel is accepted so that the owner's variables work; nothing is exported.
	OTel OTelConfig `koanf:"otel"`
}

// LogConfig configures the log.
type LogConfig struct {
	// Level is debug, info, warn or error. Default info.
	Level slog.Level `koanf:"level" env:"LOG_LEVEL" help:"debug, info, warn ou error"`
}

// AdminConfig configures the HTTP server for health and metrics.
type AdminConfig struct {
	// Listen is host:port. Default ":8081". Port 0 takes a free one, which the log names.
	Listen string `koanf:"listen" help:"endereço de /health e /metrics"`
}

// StopConfig holds the limits of stopping: phases + 5 s watchdog < Timeout < Platform <= 120 s.
type StopConfig struct {
	// Timeout is what the container gives all of stopping. Default 55 s.
	Timeout time.Duration `koanf:"timeout" help:"limite interno do encerramento; menor que stop.platform"`
	// Platform is the time between SIGTERM and SIGKILL: the task definition's stopTimeout. Default 60 s.
	Platform time.Duration `koanf:"platform" help:"stopTimeout da task no ECS (máximo 120s)"`
}

// OTelConfig holds the owner's OpenTelemetry variables.
type OTelConfig struct {
	// Endpoint of the collector.
	Endpoint string `koanf:"endpoint" env:"OTEL_EXPORTER_OTLP_ENDPOINT" help:"aceito; esta versão não exporta traces"`
	// SampleRate of traces, 0 to 1.
	SampleRate float64 `koanf:"traces_sample_rate" env:"OTEL_TRACES_SAMPLE_RATE" help:"aceito; esta versão não exporta traces"`
}

// DefaultBase returns the defaults of Base.
func DefaultBase() Base {
	return Base{
		Replica: hostName(),
		Admin:   AdminConfig{Listen: ":8081"},
		Stop:    StopConfig{Timeout: 55 * time.Second, Platform: 60 * time.Second},
	}
}

func (b Base) common() Base { return b }

// Validate names every value that does not fit.
func (b Base) Validate() error {
	var errs []error
	if len(b.Replica) > maxReplica || notInName.MatchString(b.Replica) || b.Replica == "" {
		errs = append(errs, fmt.Errorf("replica is %q, want 1 to %d of letters, digits, '.', '_', '-'", b.Replica, maxReplica))
	}
	if b.Admin.Listen == "" {
		errs = append(errs, errors.New("admin.listen is empty, want host:port"))
	}
	if b.OTel.SampleRate < 0 || b.OTel.SampleRate > 1 {
		errs = append(errs, fmt.Errorf("otel.traces_sample_rate is %v, want 0 to 1", b.OTel.SampleRate))
	}
	return errors.Join(errs...)
}

// maxReplica leaves room for the random part in the 64 characters that a lease allows.
const maxReplica = 48

var notInName = regexp.MustCompile(`[^A-Za-z0-9._-]`)

func hostName() string {
	h, err := os.Hostname()
	if err != nil || h == "" {
		return "replica"
	}
	h = notInName.ReplaceAllString(h, "-")
	return h[:min(len(h), maxReplica)]
}

// ThrottleConfig limits requests at the edge.
type ThrottleConfig struct {
	// Disabled turns the limit off. Development only.
	Disabled bool `koanf:"disabled" env:"THROTTLE_DISABLED" help:"desliga o limite; só em desenvolvimento"`
	// Limit is the number of requests per TTL and client. Default 300.
	Limit int `koanf:"limit" env:"THROTTLE_LIMIT" help:"requisições de um cliente por janela, em cada réplica"`
	// TTL is the window. Default 60 s.
	TTL time.Duration `koanf:"ttl" env:"THROTTLE_TTL_MS" unit:"ms" help:"janela do limite"`
	// TrustProxyHops is how many proxies before us may be believed about the client's address. Default 1.
	TrustProxyHops int `koanf:"trust_proxy_hops" env:"TRUST_PROXY_HOPS" help:"proxies confiáveis à frente do serviço"`
}

// DefaultThrottle returns the owner's defaults.
func DefaultThrottle() ThrottleConfig {
	return ThrottleConfig{Limit: 300, TTL: time.Minute, TrustProxyHops: 1}
}

// Validate names every value that does not fit.
func (c ThrottleConfig) Validate() error {
	var errs []error
	if c.Limit < 1 {
		errs = append(errs, fmt.Errorf("throttle.limit is %d, want 1 or more", c.Limit))
	}
	if c.TTL < time.Millisecond {
		errs = append(errs, fmt.Errorf("throttle.ttl is %v, want at least 1ms", c.TTL))
	}
	if c.TrustProxyHops < 0 || c.TrustProxyHops > 10 {
		errs = append(errs, fmt.Errorf("throttle.trust_proxy_hops is %d, want 0 to 10", c.TrustProxyHops))
	}
	return errors.Join(errs...)
}

// CacheConfig configures caches in Redis.
type CacheConfig struct {
	// DefaultTTL is how long an entry lives when nothing else is said. Default 30 s.
	DefaultTTL time.Duration `koanf:"default_ttl" env:"CACHE_DEFAULT_TTL" unit:"s" help:"validade padrão do cache"`
}

// DefaultCache returns the owner's defaults.
func DefaultCache() CacheConfig { return CacheConfig{DefaultTTL: 30 * time.Second} }

// Validate names every value that does not fit.
func (c CacheConfig) Validate() error {
	if c.DefaultTTL < time.Millisecond {
		return fmt.Errorf("cache.default_ttl is %v, want at least 1ms", c.DefaultTTL)
	}
	return nil
}

// QueueConfig configures consumers of queues.
type QueueConfig struct {
	// Concurrency is how much one consumer has in hand at once; of an outbound-sender, the POSTs per channel. Default 3.
	Concurrency int `koanf:"concurrency_default" env:"QUEUE_CONCURRENCY_DEFAULT" help:"trabalhos simultâneos por consumidor; no outbound-sender, POSTs por canal"`
}

// DefaultQueue returns the owner's defaults.
func DefaultQueue() QueueConfig { return QueueConfig{Concurrency: 3} }

// Validate names every value that does not fit.
func (c QueueConfig) Validate() error {
	if c.Concurrency < 1 || c.Concurrency > 1000 {
		return fmt.Errorf("queue.concurrency_default is %d, want 1 to 1000", c.Concurrency)
	}
	return nil
}
