package core

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"go.uber.org/fx"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/telemetry"
)

// The exit codes of every binary.
const (
	ExitClean   = 0
	ExitFailure = 1
	ExitUsage   = 2
)

// Main is a service's main: it reads flags and configuration, runs what wire describes
// until a signal or a failure, and ends the process. version may be empty: the build's own then.
func Main[T Config](name, version string, defaults T, wire func(T) fx.Option) {
	spendMemory()
	p := process{args: os.Args[1:], environ: os.Environ(), stdout: os.Stdout, stderr: os.Stderr, exit: os.Exit}
	os.Exit(run(p, name, version, defaults, wire))
}

// process is what Main has from the operating system.
type process struct {
	args, environ  []string
	stdout, stderr io.Writer
	exit           func(int)
}

func run[T Config](p process, name, version string, defaults T, wire func(T) fx.Option) int {
	o, err := parseOptions(p, name, func() { help(p.stdout, name, defaults) })
	if errors.Is(err, flag.ErrHelp) {
		return ExitClean
	}
	if err != nil {
		return refuse(p, name, err)
	}
	if version == "" {
		version = buildVersion()
	}
	if o.version {
		fmt.Fprintln(p.stdout, name, version)
		return ExitClean
	}
	cfg, warnings, err := Load(defaults, Source{File: o.config, Environ: p.environ})
	if err != nil {
		return refuse(p, name, err)
	}
	if o.print {
		for _, w := range warnings {
			fmt.Fprintf(p.stderr, "%s: %s\n", name, w)
		}
		if err := Print(p.stdout, cfg); err != nil {
			return refuse(p, name, err)
		}
	}
	if err := cfg.Validate(); err != nil {
		return refuse(p, name, err)
	}
	if o.print {
		return ExitClean
	}
	id := NewIdentity(name, version, cfg.common().Replica)
	log := telemetry.New(telemetry.LogConfig{
		Level: cfg.common().Log.Level, Service: name, Version: version, Replica: id.Replica,
	}, p.stderr)
	for _, w := range warnings {
		log.Warn("configuration has no effect", "reason", w)
	}
	return serve(p, id, cfg, log, wire)
}

type options struct {
	config         string
	print, version bool
}

func parseOptions(p process, name string, usage func()) (options, error) {
	var o options
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	flags.StringVar(&o.config, "config", "", "")
	flags.BoolVar(&o.print, "print-config", false, "")
	flags.BoolVar(&o.version, "version", false, "")
	if err := flags.Parse(p.args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			usage()
		}
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	for _, pair := range p.environ {
		if v, ok := strings.CutPrefix(pair, configVariable+"="); ok && o.config == "" {
			o.config = v
		}
	}
	return o, nil
}

// refuse says why the process does not start, one reason per line.
func refuse(p process, name string, err error) int {
	fmt.Fprintf(p.stderr, "%s: configuração recusada (veja %s --help)\n", name, name)
	for reason := range strings.Lines(telemetry.Redact(err.Error())) {
		fmt.Fprintf(p.stderr, "  - %s\n", strings.TrimSpace(reason))
	}
	return ExitUsage
}

// serve runs the container from start to end.
func serve[T Config](p process, id Identity, cfg T, log *slog.Logger, wire func(T) fx.Option) int {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)

	runner := NewRunner(cfg.common().Stop, clock.System(), log, p.exit)
	defer runner.Disarm()
	told, end := armed(runner, signals)
	defer end()
	// Built beside the signals: a constructor may be waiting for a database, and nothing has started yet.
	built := make(chan *fx.App, 1)
	go func() { built <- fx.New(App(id, cfg, log, runner, wire)) }()
	var app *fx.App
	select {
	case app = <-built:
	case s := <-told:
		log.Info("told to stop before the start", "signal", s.String())
		return ExitClean
	}
	if err := app.Err(); err != nil {
		log.Error("not started", "error", err)
		return exitCode(err)
	}
	ending := app.Wait()

	if early, err := start(app, log, told); err != nil {
		if early {
			return ExitClean
		}
		log.Error("not started", "error", err)
		return exitCode(err)
	} else if early {
		return stop(app, runner, log, told)
	}
	log.Info("started")
	code := ExitClean
	select {
	case s := <-told:
		log.Info("told to stop", "signal", s.String())
	case end := <-ending:
		code = end.ExitCode
		if code == ExitClean {
			// The container hears signals too and was quicker. Ours is the same one and no second
			// wish to stop, which would abort.
			log.Info("told to stop", "signal", end.Signal.String())
			same := clock.System().NewTimer(time.Second)
			defer same.Stop()
			select {
			case <-told:
			case <-same.C():
			}
		}
	}
	return max(code, stop(app, runner, log, told))
}

// armed passes signals on and arms the watchdog where the first arrives: everything after
// may hang, the log too. end stops the passing on.
func armed(runner *Runner, signals <-chan os.Signal) (told <-chan os.Signal, end func()) {
	passed, ended := make(chan os.Signal, cap(signals)), make(chan struct{})
	go func() {
		for {
			select {
			case s := <-signals:
				runner.Arm()
				select {
				case passed <- s:
				case <-ended:
				}
			case <-ended:
				return
			}
		}
	}()
	return passed, func() { close(ended) }
}

// start starts the container. told: a signal came meanwhile, which is no failure.
func start(app *fx.App, log *slog.Logger, signals <-chan os.Signal) (told bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), app.StartTimeout())
	defer cancel()
	started := make(chan error, 1)
	go func() { started <- app.Start(ctx) }()
	select {
	case err := <-started:
		return false, err
	case s := <-signals:
		log.Info("told to stop while starting", "signal", s.String())
		cancel()
		return true, <-started
	}
}

// stop drains. A signal that comes meanwhile aborts.
func stop(app *fx.App, runner *Runner, log *slog.Logger, signals <-chan os.Signal) int {
	ctx, cancel := context.WithTimeout(context.Background(), app.StopTimeout())
	defer cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- app.Stop(ctx) }()
	for {
		select {
		case s := <-signals:
			log.Warn("told to stop again, aborting", "signal", s.String())
			runner.Abort()
		case err := <-stopped:
			if err != nil {
				log.Error("not stopped in order", "error", err)
				return ExitFailure
			}
			return ExitClean
		}
	}
}

// buildVersion is the module's version, or the revision it was built from.
func buildVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	version, revision := info.Main.Version, ""
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			revision = s.Value[:min(len(s.Value), 12)]
		}
	}
	if version == "" || version == "(devel)" {
		version = "devel"
	}
	if revision != "" {
		return version + " " + revision
	}
	return version
}
