// Command sample is the smallest service: a part that works, phases that stop it, and ways to misbehave.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.uber.org/fx"

	"github.com/cabine-pix/cabine/libs/drain"
	"github.com/cabine-pix/cabine/services/internal/core"
)

func main() { core.Main("sample", "1.2.3", defaults(), wire) }

type config struct {
	core.Base `koanf:",squash"`
	Redis     core.RedisConfig    `koanf:"redis"`
	ICOM      core.ICOMConfig     `koanf:"icom"`
	Throttle  core.ThrottleConfig `koanf:"throttle"`
	// Mode is how it misbehaves.
	Mode string `koanf:"mode"`
	// Wait is the budget of the phase that waits for work to end.
	Wait time.Duration `koanf:"wait"`
}

func defaults() config {
	c := config{
		Base: core.DefaultBase(), Redis: core.DefaultRedis(), ICOM: core.DefaultICOM(),
		Throttle: core.DefaultThrottle(), Wait: time.Second,
	}
	c.Admin.Listen = "127.0.0.1:0"
	return c
}

func (c config) Validate() error {
	return errors.Join(c.Base.Validate(), c.ICOM.Validate(), c.Throttle.Validate())
}

func wire(cfg config) fx.Option {
	return fx.Options(
		fx.Supply(cfg),
		fx.Provide(newWork),
		fx.Invoke(core.Run[*work]),
	)
}

type work struct {
	cfg config
	log *slog.Logger
	end chan struct{}
}

func newWork(cfg config, log *slog.Logger) *work {
	return &work{cfg: cfg, log: log, end: make(chan struct{})}
}

func (w *work) Run(ctx context.Context) error {
	w.log.Info("working", "mode", w.cfg.Mode)
	switch w.cfg.Mode {
	case "fail":
		return errors.New("the work is broken")
	case "end":
		return nil
	case "flood":
		for ctx.Err() == nil {
			w.log.Info(fmt.Sprintf("%01000d", 0))
		}
	}
	<-ctx.Done()
	w.log.Info("work returned")
	return ctx.Err()
}

func (w *work) StopPhases() []drain.Phase {
	return []drain.Phase{
		{Name: "take no more", Budget: 100 * time.Millisecond, Run: func(context.Context) error {
			if w.cfg.Mode != "busy" {
				close(w.end)
			}
			return nil
		}},
		{Name: "let it end", Budget: w.cfg.Wait, Run: func(ctx context.Context) error {
			if w.cfg.Mode == "hang" {
				select {}
			}
			select {
			case <-w.end:
			case <-ctx.Done():
			}
			return ctx.Err()
		}},
		{Name: "release", Budget: time.Second, Always: true, Run: func(ctx context.Context) error {
			w.log.Info("released", "in_time", ctx.Err() == nil)
			return nil
		}},
	}
}
