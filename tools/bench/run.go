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

	// Outbound, Capacity and Settle are reports of their own.
	Outbound *Outbound           `json:"-"`
	Capacity map[string]Capacity `json:"-"`
	Settle   *Settle             `json:"-"`
}

// written is what a part's report file holds.
func (r *Report) written(only string) any {
	switch only {
	case "outbound":
		return r.Outbound
	case "settle":
		return r.Settle
	case "capacity":
		whole := map[string]any{"versions": r.Versions}
		for name, measured := range r.Capacity {
			whole[name] = measured
		}
		return whole
	default:
		return r
	}
}

// config is the command line.
type config struct {
	report string
	only   string
	rounds int
	ops    int
	window time.Duration
	minute time.Duration
}

func run(args []string, out, errOut io.Writer) int {
	var c config
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(errOut)
	fs.StringVar(&c.report, "report", "", "grava os números em JSON neste arquivo")
	fs.StringVar(&c.only, "only", "", "mede uma parte: permit, renew, inbound, outbound, capacity ou settle (sem ela, as três primeiras)")
	fs.IntVar(&c.rounds, "rounds", 90, "rodadas da parte permit; em cada uma, toda biblioteca tem a sua vez")
	fs.IntVar(&c.ops, "ops", 100, "operações por biblioteca e rodada")
	fs.DurationVar(&c.window, "window", 8*time.Second, "quanto dura cada medição de renew, inbound e outbound")
	fs.DurationVar(&c.minute, "minute", capacityMinute, "quanto do minuto de ordens do BACEN a parte capacity dá")
	fs.Usage = func() {
		_, _ = fmt.Fprintln(errOut, "bench: permissões, renovações, recebimento durável, pagamentos enviados, o teste de capacidade do BACEN e a compensação,\nmedidos contra outros ou contra o seu limite numa só execução. Os resultados saem em inglês.")
		fs.PrintDefaults()
	}
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	if fs.NArg() > 0 || c.rounds < 1 || c.ops < 1 || c.window < time.Second || c.minute < time.Second {
		_, _ = fmt.Fprintln(errOut, "bench: argumento inesperado, ou rounds, ops, window ou minute pequenos demais; veja --help")
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
		name  string
		run   func(context.Context, config, *devstack.Stack, *Report, io.Writer) error
		alone bool // only when asked for
	}{
		{"permit", permits, false},
		{"renew", renewals, false},
		{"inbound", inbound, false},
		{"outbound", outbound, true},
		{"capacity", capacity, true},
		{"settle", settlement, true},
	}
	for _, p := range parts {
		if c.only != p.name && (c.only != "" || p.alone) {
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
	b, err := json.MarshalIndent(r.written(c.only), "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(c.report, append(b, '\n'), 0o644)
}
