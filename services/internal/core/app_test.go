package core_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"
	"golang.org/x/sys/unix"

	"github.com/cabine-pix/cabine/libs/bus"
	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/devstack"
	"github.com/cabine-pix/cabine/libs/devstack/devtest"
	"github.com/cabine-pix/cabine/libs/leader"
	"github.com/cabine-pix/cabine/libs/store"
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

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

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
			core.Redis(c.Redis), core.Leases(c.Lease), core.Postgres(c.Postgres), core.NATS(c.NATS, true),
			core.Transport(c.Transport), core.Leadership(),
			fx.Invoke(func(*store.DB, *bus.Bus, transport.Transport, *core.Electors, *core.AdminServer) {}),
		)
	})))
}

type config struct{ sample }

func (c config) Validate() error { return c.all() }

// A service with every means runs on real servers, becomes ready without holding anything,
// and gives the leadership back before its clients close.
func TestEveryMeansOnRealServers(t *testing.T) {
	t.Parallel()
	cfg := defaults()
	redis, dsn := devtest.Redis(t), devtest.Postgres(t)
	require.NoError(t, store.Migrate(t.Context(), dsn))
	host, port, err := net.SplitHostPort(redis.Addr())
	require.NoError(t, err)
	cfg.Redis.Host = host
	cfg.Redis.Port, err = strconv.Atoi(port)
	require.NoError(t, err)
	cfg.Postgres.URL, cfg.NATS.URL, cfg.Admin.Listen = dsn, devtest.NATS(t).URL(), "127.0.0.1:0"
	cfg.ICOM.ISPB, cfg.Transport.Plugin, cfg.Replica = "00038166", "/bin/sh", "a"
	cfg.Lease.NoReplicas = true
	require.NoError(t, cfg.all())
	runner := newRunner(cfg.Stop)
	w := newWorker()
	app := fxtest.New(t, core.App(core.NewIdentity("sample", "1", "a"), config{cfg}, quiet(), runner, func(c config) fx.Option {
		return fx.Options(
			core.Redis(c.Redis), core.Leases(c.Lease), core.Postgres(c.Postgres), core.NATS(c.NATS, true), core.Leadership(),
			fx.Provide(func(e *core.Electors) (*leader.Elector, error) { return e.New("test:" + t.Name()) }),
			fx.Supply(w),
			fx.Invoke(func(*bus.Bus, *leader.Elector) {}, core.Run[*worker]),
		)
	}))
	app.RequireStart()
	<-w.began
	require.Eventually(t, func() bool { return runner.Health().Ready(t.Context()).OK() }, 10*time.Second, 10*time.Millisecond)
	require.Len(t, runner.Health().Ready(t.Context()).Checks, 3)
	var names []string
	for _, p := range runner.Phases() {
		names = append(names, p.Name)
	}
	require.Equal(t, []string{
		"end *core_test.worker", "end leadership test:" + t.Name(), "end redis check", "end leases", "end nats", "end postgres", "end redis", "end admin server",
	}, sorted(names, "end postgres", "end redis"))
	app.RequireStop()
	<-w.ended
	runner.Disarm()
}

// A Redis that does not answer, from the beginning or since a leadership began, costs a stop some seconds and does not make it
// fail: what was not given back ends by itself.
func TestStopWhileRedisDoesNotAnswer(t *testing.T) {
	t.Parallel()
	for name, since := range map[string]bool{"never answered": false, "since it led": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := devtest.Proxy(t, devtest.OwnRedis(t, devstack.RedisOptions{}).Addr())
			dsn := devtest.Postgres(t)
			require.NoError(t, store.Migrate(t.Context(), dsn))
			cfg := defaults()
			host, port, err := net.SplitHostPort(proxy.Addr())
			require.NoError(t, err)
			cfg.Redis.Host = host
			cfg.Redis.Port, err = strconv.Atoi(port)
			require.NoError(t, err)
			cfg.Postgres.URL, cfg.Admin.Listen, cfg.Replica = dsn, "127.0.0.1:0", "a"
			cfg.Lease.NoReplicas = true
			cfg.Lease.TTL, cfg.Lease.LongestTTL, cfg.Lease.BankHold, cfg.Lease.ReceiveTimeout = 4*time.Second, 4*time.Second, time.Second, 500*time.Millisecond
			cfg.Lease.UserTimeout, cfg.Lease.Heartbeat = 100*time.Millisecond, 500*time.Millisecond
			runner := newRunner(cfg.Stop)
			var elector *leader.Elector
			app := fxtest.New(t, core.App(core.NewIdentity("sample", "1", "a"), config{cfg}, quiet(), runner, func(c config) fx.Option {
				return fx.Options(
					core.Redis(c.Redis), core.Leases(c.Lease), core.Postgres(c.Postgres), core.Leadership(),
					fx.Provide(func(e *core.Electors) (*leader.Elector, error) { return e.New("test") }),
					fx.Populate(&elector),
				)
			}))
			if !since {
				proxy.Blackhole(devstack.Both)
			}
			app.RequireStart()
			if since {
				require.Eventually(t, func() bool { _, leads := elector.Term(); return leads }, 30*time.Second, 10*time.Millisecond)
				proxy.Blackhole(devstack.Both)
			}
			app.RequireStop()
			runner.Disarm()
		})
	}
}

// sorted puts two names whose order does not matter into that of the arguments.
func sorted(names []string, a, b string) []string {
	i, j := slices.Index(names, a), slices.Index(names, b)
	if i > j && j >= 0 {
		names[i], names[j] = names[j], names[i]
	}
	return names
}

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
