package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/cabine-pix/cabine/libs/devstack"
)

// Report is what REPORT=<file> receives.
type Report struct {
	// PingUS is the median of one PING round trip, in microseconds.
	PingUS float64 `json:"ping_us"`
	// AcquireReleaseUS is the median of acquire and release together, in microseconds, by library.
	AcquireReleaseUS map[string]float64 `json:"acquire_release_us,omitempty"`
	// HeldRequestRedisCalls is how many commands Redis executed per request under a held lease.
	HeldRequestRedisCalls float64 `json:"held_request_redis_calls"`
	// Renew is the cost of keeping slots, by how many one replica holds.
	Renew map[string]Renewal `json:"renew,omitempty"`
	// Inbound is durable messages per second against a bare read loop, by bank delay.
	Inbound map[string]Inbound `json:"inbound,omitempty"`
	// Versions of what was measured.
	Versions map[string]string `json:"versions"`
}

// config is the command line.
type config struct {
	report string
	only   string
	rounds int
	ops    int
	window time.Duration
}

func run(args []string, out, errOut io.Writer) int {
	var c config
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(errOut)
	fs.StringVar(&c.report, "report", "", "write the figures as JSON to this file")
	fs.StringVar(&c.only, "only", "", "measure one part: permit, renew or inbound (default: all)")
	fs.IntVar(&c.rounds, "rounds", 30, "rounds of the permit part; in each round every library has its turn")
	fs.IntVar(&c.ops, "ops", 300, "operations per library and round")
	fs.DurationVar(&c.window, "window", 8*time.Second, "how long each renewal and inbound measurement lasts")
	fs.Usage = func() {
		_, _ = fmt.Fprintln(errOut, "bench: permits, renewals and durable inbound messages, measured against peers in one run.\n\nFlags:")
		fs.PrintDefaults()
	}
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	if fs.NArg() > 0 || c.rounds < 1 || c.ops < 1 || c.window < time.Second {
		_, _ = fmt.Fprintln(errOut, "bench: unexpected argument, or rounds, ops or window too small; see --help")
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := measure(ctx, c, out, errOut); err != nil {
		_, _ = fmt.Fprintln(errOut, "bench:", err)
		return 1
	}
	return 0
}

func measure(ctx context.Context, c config, out, errOut io.Writer) (err error) {
	stack, err := devstack.Start(ctx, devstack.Options{Redis: true, Progress: errOut})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stack.Stop()) }()
	r := &Report{Versions: map[string]string{"redis": stack.Redis.Version()}}
	parts := []struct {
		name string
		run  func(context.Context, config, *devstack.Stack, *Report, io.Writer) error
	}{
		{"permit", permits},
		{"renew", renewals},
		{"inbound", inbound},
	}
	for _, p := range parts {
		if c.only != "" && c.only != p.name {
			continue
		}
		_, _ = fmt.Fprintf(errOut, "measuring %s\n", p.name)
		if err := p.run(ctx, c, stack, r, out); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	if c.report == "" {
		return nil
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(c.report, append(b, '\n'), 0o644)
}
