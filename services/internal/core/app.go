package core

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"
	"go.uber.org/fx/fxevent"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/telemetry"
)

// Identity says who this process is.
type Identity struct {
	// Service is the binary's name, Version its build.
	Service, Version string
	// Replica is unique per process: the configured name and a random part.
	Replica string
}

// NewIdentity names a process that begins now.
func NewIdentity(service, version, replica string) Identity {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return Identity{Service: service, Version: version, Replica: replica + "-" + hex.EncodeToString(b[:])}
}

// startTimeout bounds all of starting: nothing that starts waits for another service to come up.
const startTimeout = 20 * time.Second

// App returns a service's container: the base that every service has, and what wire adds.
// The runner is made outside, because who stops the container must be able to abort.
func App[T Config](id Identity, cfg T, log *slog.Logger, runner *Runner, wire func(T) fx.Option) fx.Option {
	return fx.Options(
		fx.StartTimeout(startTimeout),
		fx.StopTimeout(cfg.common().Stop.Timeout),
		fx.WithLogger(func() fxevent.Logger {
			l := &fxevent.SlogLogger{Logger: log}
			l.UseLogLevel(slog.LevelDebug)
			l.UseErrorLevel(slog.LevelError)
			return l
		}),
		fx.Module("core",
			fx.Supply(id, log, runner, cfg.common().Admin),
			fx.Provide(
				clock.System,
				func() *prometheus.Registry { return telemetry.NewRegistry(id.Service, id.Version) },
				func(r *prometheus.Registry) prometheus.Registerer { return r },
				func(r *prometheus.Registry) prometheus.Gatherer { return r },
				(*Runner).Health,
				NewAdminServer,
			),
			fx.Invoke(hook, func(r *Runner, a *AdminServer) { r.Add(a.part()) }),
		),
		wire(cfg),
	)
}

// construction returns the context of a constructor that has to wait for something: fx
// gives constructors none, and a signal meanwhile ends the process, see serve.
func construction(limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), limit) //nolint:forbidigo // there is no caller's context
}

// misconfigured marks an error as the operator's to mend, for the exit code.
type misconfigured struct{ error }

func (m misconfigured) Unwrap() error { return m.error }

// Misconfigured marks err as caused by the configuration: the process ends with ExitUsage.
func Misconfigured(err error) error {
	if err == nil {
		return nil
	}
	return misconfigured{err}
}

func exitCode(err error) int {
	var m misconfigured
	switch {
	case err == nil:
		return ExitClean
	case errors.As(err, &m):
		return ExitUsage
	default:
		return ExitFailure
	}
}
