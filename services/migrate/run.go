package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/cabine-pix/cabine/libs/bus"
	"github.com/cabine-pix/cabine/libs/store"
)

// The exit codes of every binary.
const (
	exitClean   = 0
	exitFailure = 1
	exitUsage   = 2
)

// retryPause lies between two attempts at a server that is not there yet: a deploy often starts everything at once.
const retryPause = 500 * time.Millisecond

// errUnsettled says that status found something to do.
var errUnsettled = errors.New("há pendências")

// process is what main has from the operating system.
type process struct {
	args     []string
	getenv   func(string) string
	in       io.Reader
	out, err io.Writer
}

// run does what the command line says and returns the exit code.
func run(ctx context.Context, p process) int {
	o, err := parse(p.args, p.getenv)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(p.out, usage)
		return exitClean
	case err != nil:
		fmt.Fprintf(p.err, "migrate: %v\nVeja migrate --help.\n", err)
		return exitUsage
	case o.version:
		fmt.Fprintln(p.out, "migrate", version())
		return exitClean
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	command := map[string]func(context.Context, process, options) error{"up": up, "status": status, "down": down}[o.command]
	if err := command(ctx, p, o); err != nil {
		fmt.Fprintf(p.err, "migrate: %v\n", err)
		return exitFailure
	}
	return exitClean
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "(desconhecida)"
}

func up(ctx context.Context, p process, o options) error {
	err := withMigrator(ctx, o, func(m *store.Migrator) error {
		if o.dryRun {
			return pending(ctx, p, m)
		}
		applied, err := retry(ctx, store.ErrUnavailable, func() ([]store.Migration, error) { return m.Up(ctx) })
		for _, a := range applied {
			fmt.Fprintf(p.out, "aplicada    %s (%v)\n", a.Name, a.Took.Round(time.Millisecond))
		}
		if err == nil && len(applied) == 0 {
			fmt.Fprintln(p.out, "banco       nada a aplicar")
		}
		return err
	})
	if err != nil || !o.provision {
		return err
	}
	return withBus(ctx, p, o, func(b *bus.Bus) error {
		changes, err := retry(ctx, bus.ErrUnavailable, func() ([]bus.Change, error) {
			if o.dryRun {
				return b.Inspect(ctx, bus.Declared(o.replicas))
			}
			return b.Provision(ctx, bus.Declared(o.replicas), o.update)
		})
		show(p, changes)
		return err
	})
}

func status(ctx context.Context, p process, o options) error {
	settled := true
	err := withMigrator(ctx, o, func(m *store.Migrator) error {
		all, err := retry(ctx, store.ErrUnavailable, func() ([]store.Migration, error) { return m.Status(ctx) })
		for _, s := range all {
			if s.Pending() {
				settled = false
				fmt.Fprintf(p.out, "pendente    %s\n", s.Name)
				continue
			}
			fmt.Fprintf(p.out, "aplicada    %s em %s\n", s.Name, s.AppliedAt.UTC().Format(time.RFC3339))
		}
		return err
	})
	if err == nil && o.provision {
		err = withBus(ctx, p, o, func(b *bus.Bus) error {
			changes, err := retry(ctx, bus.ErrUnavailable, func() ([]bus.Change, error) {
				return b.Inspect(ctx, bus.Declared(o.replicas))
			})
			settled = show(p, changes) && settled
			return err
		})
	}
	if err == nil && !settled {
		return errUnsettled
	}
	return err
}

func down(ctx context.Context, p process, o options) error {
	return withMigrator(ctx, o, func(m *store.Migrator) error {
		all, err := retry(ctx, store.ErrUnavailable, func() ([]store.Migration, error) { return m.Status(ctx) })
		if err != nil {
			return err
		}
		doomed := newestApplied(all, o.steps)
		if len(doomed) == 0 {
			fmt.Fprintln(p.out, "banco       nada a desfazer")
			return nil
		}
		for _, d := range doomed {
			fmt.Fprintf(p.out, "a desfazer  %s\n", d.Name)
		}
		if o.dryRun {
			return nil
		}
		if !o.yes && !confirmed(p.in, p.out, "As tabelas acima serão apagadas com tudo o que guardam.") {
			return errors.New("nada foi desfeito: falta a confirmação (ou --yes)")
		}
		undone, err := m.Down(ctx, len(doomed))
		for _, u := range undone {
			fmt.Fprintf(p.out, "desfeita    %s (%v)\n", u.Name, u.Took.Round(time.Millisecond))
		}
		return err
	})
}

func newestApplied(all []store.Migration, steps int) []store.Migration {
	var doomed []store.Migration
	for i := len(all) - 1; i >= 0 && len(doomed) < steps; i-- {
		if !all[i].Pending() {
			doomed = append(doomed, all[i])
		}
	}
	return doomed
}

func pending(ctx context.Context, p process, m *store.Migrator) error {
	all, err := retry(ctx, store.ErrUnavailable, func() ([]store.Migration, error) { return m.Status(ctx) })
	for _, s := range all {
		if s.Pending() {
			fmt.Fprintf(p.out, "a aplicar   %s\n", s.Name)
		}
	}
	return err
}

// show prints one line per stream and consumer and reports whether all are as declared.
func show(p process, changes []bus.Change) (settled bool) {
	settled = true
	for _, c := range changes {
		settled = settled && c.Settled()
		word := "em ordem"
		switch {
		case c.Missing:
			word = "ausente"
		case c.Created:
			word = "criado"
		case c.Updated:
			word = "alterado"
		case c.Drifted():
			word = "divergente"
		}
		fmt.Fprintf(p.out, "%-11s %s\n", word, c.Object)
		for _, d := range c.Drift {
			fmt.Fprintf(p.out, "            %s\n", d)
		}
	}
	return settled
}

func withMigrator(_ context.Context, o options, use func(*store.Migrator) error) error {
	m, err := store.OpenMigrator(o.databaseURL)
	if err != nil {
		return err
	}
	return errors.Join(use(m), m.Close())
}

func withBus(ctx context.Context, p process, o options, use func(*bus.Bus) error) error {
	log := slog.New(slog.NewTextHandler(p.err, &slog.HandlerOptions{Level: slog.LevelError}))
	b, err := bus.Connect(ctx, bus.Config{URL: o.natsURL, Name: "cabine-migrate"}, log)
	if err != nil {
		return err
	}
	err = use(b)
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return errors.Join(err, b.Close(closing))
}

// retry repeats do while it fails with the given error, until ctx ends.
func retry[T any](ctx context.Context, while error, do func() (T, error)) (T, error) {
	for {
		result, err := do()
		if !errors.Is(err, while) {
			return result, err
		}
		timer := time.NewTimer(retryPause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return result, err
		case <-timer.C:
		}
	}
}
