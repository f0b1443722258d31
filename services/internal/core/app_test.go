package core_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"
	"golang.org/x/sys/unix"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/lease"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/libs/telemetry"
	"github.com/cabine-pix/cabine/libs/transport"
	"github.com/cabine-pix/cabine/services/internal/core"
)

// unread returns how many bytes wait in a pipe.
func unread(f *os.File) (int, error) { return unix.IoctlGetInt(int(f.Fd()), unix.TIOCINQ) }

type worker struct{ began, ended chan struct{} }

func newWorker() *worker {
	return &worker{began: make(chan struct{}), ended: make(chan struct{})}
}

func (w *worker) Run(ctx context.Context) error {
	close(w.began)
	<-ctx.Done()
	close(w.ended)
	return ctx.Err()
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func newRunner(cfg core.StopConfig) *core.Runner {
	return core.NewRunner(cfg, clock.System(), quiet(), func(int) { panic("the watchdog bit") })
}

// The graph of a service with every means is complete.
func TestGraphIsComplete(t *testing.T) {
	t.Parallel()
	cfg := defaults()
	runner := newRunner(cfg.Stop)
	require.NoError(t, fx.ValidateApp(core.App(core.NewIdentity("sample", "1", "a"), config{cfg}, quiet(), runner, func(c config) fx.Option {
		return fx.Options(
			core.Redis(c.Redis), core.Leases(c.Lease), core.Postgres(c.Postgres), core.Transport(c.Transport),
			fx.Invoke(func(*lease.Keeper, *store.DB, transport.Transport, *core.AdminServer, *telemetry.Health, core.Identity) {
			}),
		)
	})))
}

type config struct{ sample }

func (c config) Validate() error { return c.all() }

func TestContainerStartsAndStops(t *testing.T) {
	t.Parallel()
	cfg := defaults()
	cfg.Admin.Listen = "127.0.0.1:0"
	runner := newRunner(cfg.Stop)
	w := newWorker()
	app := fxtest.New(t, core.App(core.NewIdentity("sample", "1", "a"), config{cfg}, quiet(), runner, func(config) fx.Option {
		return fx.Options(fx.Supply(w), fx.Invoke(core.Run[*worker]))
	}))
	app.RequireStart()
	<-w.began
	app.RequireStop()
	<-w.ended
	runner.Disarm()
}

func TestRunnerOrder(t *testing.T) {
	t.Parallel()
	runner := newRunner(core.StopConfig{Timeout: 50 * time.Second, Platform: 60 * time.Second})
	told := make(chan string, 20)
	part := func(name string, stage core.Stage) core.Part {
		return core.Part{
			Name: name, Stage: stage, Budget: time.Second,
			Start: func(context.Context) error { told <- "start " + name; return nil },
			Run:   func(ctx context.Context) error { <-ctx.Done(); told <- "return " + name; return nil },
			Close: func(context.Context) error { told <- "close " + name; return nil },
		}
	}
	runner.Add(part("redis", core.Clients))
	runner.Add(part("work", core.Work))
	runner.Add(part("bus", core.Messaging))
	runner.Add(part("postgres", core.Clients))
	runner.Add(part("renewing", core.Renewing))
	require.NoError(t, runner.Start(t.Context(), func(err error) { panic(err) }))
	require.NoError(t, runner.Stop(t.Context()))
	runner.Disarm()
	close(told)
	var story []string
	for s := range told {
		story = append(story, s)
	}
	require.Equal(t, []string{
		"start redis", "start postgres", "start bus", "start renewing", "start work",
		"return work", "close work", "return renewing", "close renewing", "return bus", "close bus",
		"return postgres", "close postgres", "return redis", "close redis",
	}, story)
}

func TestRunnerEndsWhatStartedWhenOneDoesNot(t *testing.T) {
	t.Parallel()
	runner := newRunner(core.StopConfig{Timeout: 50 * time.Second, Platform: 60 * time.Second})
	broken := errors.New("broken")
	ended := make(chan struct{})
	runner.Add(core.Part{Name: "admin", Stage: core.Admin, Run: func(ctx context.Context) error {
		<-ctx.Done()
		close(ended)
		return nil
	}})
	runner.Add(core.Part{Name: "bus", Stage: core.Messaging, Start: func(context.Context) error { return broken }})
	runner.Add(core.Part{Name: "work", Stage: core.Work, Run: func(context.Context) error { panic("never started") }})
	require.ErrorIs(t, runner.Start(t.Context(), func(err error) { panic(err) }), broken)
	<-ended
	runner.Disarm()
}

func TestRunnerReportsWhatEndedBadly(t *testing.T) {
	t.Parallel()
	runner := newRunner(core.StopConfig{Timeout: 50 * time.Second, Platform: 60 * time.Second})
	broken := errors.New("broken")
	runner.Add(core.Part{Name: "work", Stage: core.Work, Run: func(ctx context.Context) error {
		<-ctx.Done()
		return broken
	}})
	require.NoError(t, runner.Start(t.Context(), func(err error) { panic(err) }))
	require.True(t, runner.Health().Ready(t.Context()).OK())
	err := runner.Stop(t.Context())
	require.ErrorIs(t, err, broken)
	require.ErrorContains(t, err, "stopping, end work")
	require.False(t, runner.Health().Ready(t.Context()).OK())
	runner.Disarm()
}
