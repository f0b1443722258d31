package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/lease"
)

// LeaseConfig holds the times of the permit; lease.Timing says what each is and must be.
type LeaseConfig struct {
	TTL            time.Duration `koanf:"ttl" help:"T: vida da concessão após a última renovação"`
	BankHold       time.Duration `koanf:"bank_hold" help:"B: por quanto tempo o banco ainda pode contar uma requisição"`
	Heartbeat      time.Duration `koanf:"heartbeat" help:"h: período das renovações"`
	RenewTimeout   time.Duration `koanf:"renew_timeout" help:"limite de uma chamada ao Redis"`
	ReceiveTimeout time.Duration `koanf:"receive_timeout" help:"espera máxima por uma resposta do banco; menor que bank_hold"`
	UserTimeout    time.Duration `koanf:"user_timeout" help:"u: TCP_USER_TIMEOUT das conexões com o banco"`
	LongestTTL     time.Duration `koanf:"longest_ttl" help:"maior ttl de qualquer versão que divida este Redis"`
	// MaxLag is Redis' min-replicas-max-lag; ignored where no_replicas is true.
	MaxLag time.Duration `koanf:"max_lag" help:"min-replicas-max-lag do Redis"`
	// NoReplicas: no replica of this Redis can ever be promoted.
	NoReplicas bool `koanf:"no_replicas" help:"o Redis não tem réplica que possa ser promovida"`
}

// DefaultLease returns the library's defaults.
func DefaultLease() LeaseConfig {
	t := lease.Timing{}.WithDefaults()
	return LeaseConfig{
		TTL: t.TTL, BankHold: t.BankHold, Heartbeat: t.Heartbeat, RenewTimeout: t.RenewTimeout,
		ReceiveTimeout: t.ReceiveTimeout, UserTimeout: t.UserTimeout, LongestTTL: t.LongestTTL, MaxLag: t.MaxLag,
	}
}

// Timing returns the library's form of c.
func (c LeaseConfig) Timing() lease.Timing {
	t := lease.Timing{
		TTL: c.TTL, BankHold: c.BankHold, Heartbeat: c.Heartbeat, RenewTimeout: c.RenewTimeout,
		ReceiveTimeout: c.ReceiveTimeout, UserTimeout: c.UserTimeout, LongestTTL: c.LongestTTL,
		MaxLag: c.MaxLag, NoReplicas: c.NoReplicas,
	}
	if t.NoReplicas {
		t.MaxLag = 0
	}
	return t
}

// Validate names the numbers of every inequality that does not hold.
func (c LeaseConfig) Validate() error {
	if err := c.Timing().Validate(); err != nil {
		return fmt.Errorf("lease: %w", err)
	}
	return nil
}

// Leases provides the *lease.Keeper, which needs Redis. A Redis that must not decide permits
// ends the service; one that does not answer is waited for: no permit is granted meanwhile.
func Leases(cfg LeaseConfig) fx.Option {
	return fx.Module("leases", fx.Provide(
		func(r *Runner, id Identity, client *lease.Client, clk clock.Clock, log *slog.Logger, reg prometheus.Registerer) (*lease.Keeper, error) {
			k, err := lease.NewKeeper(lease.Config{
				Replica: id.Replica,
				Owner:   fmt.Sprintf("%s %s pid %d", id.Service, id.Version, os.Getpid()),
				Timing:  cfg.Timing(),
			}, client, clk, log, reg)
			if err != nil {
				return nil, Misconfigured(err)
			}
			// A call under way ends by its own limit, and what is given back then is a second one.
			r.Add(Part{Name: "leases", Stage: Renewing, Budget: 2*cfg.RenewTimeout + time.Second, Run: k.Run})
			r.Add(Part{Name: "redis check", Stage: Renewing, Budget: cfg.RenewTimeout + 500*time.Millisecond, Run: func(ctx context.Context) error {
				return checkRedis(ctx, client, k.Timing(), clk, log)
			}})
			return k, nil
		}))
}

// checkRedis asks the server whether it may decide permits, until it answers once, and then watches it until ctx ends.
func checkRedis(ctx context.Context, client *lease.Client, timing lease.Timing, clk clock.Clock, log *slog.Logger) error {
	for pause := time.Second; ; pause = min(2*pause, 10*time.Second) {
		advice, err := client.Check(ctx, timing)
		var unfit *lease.UnfitError
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &unfit):
			return Misconfigured(err)
		case err == nil:
			for _, a := range advice {
				log.Warn("redis could be safer", "reason", a)
			}
			return watchRedis(ctx, client, timing, clk, log)
		}
		log.Error("redis does not answer, no permit can be granted", "error", err)
		if err := clock.Sleep(ctx, clk, pause); err != nil {
			return err
		}
	}
}

// recheck is how often a Redis that was fit is asked again: somebody may have changed it, or promoted another.
const recheck = time.Minute

// watchRedis says so, again and again, when a Redis that was fit no longer is. It does not
// end the service: that would take the slots from the holders on every replica at once.
func watchRedis(ctx context.Context, client *lease.Client, timing lease.Timing, clk clock.Clock, log *slog.Logger) error {
	for {
		if err := clock.Sleep(ctx, clk, recheck); err != nil {
			return err
		}
		var unfit *lease.UnfitError
		if _, err := client.Check(ctx, timing); errors.As(err, &unfit) {
			log.Error("redis must not decide permits any more", "error", err)
		}
	}
}
