package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// options are the command line.
type options struct {
	duration   time.Duration
	report     string
	replicas   int
	rate       float64
	slots      int
	seed       uint64
	keep       string
	plain      bool
	withoutCap bool
	// spoils name what is broken on purpose; see spoil.
	spoils spoils
}

const usage = `demo: dois participantes pagam um ao outro pelo SPI simulado, por mTLS, em processos reais.

Réplicas do nosso participante são mortas (SIGKILL) e trocadas como num deploy (SIGTERM) enquanto
ordens correm nos dois sentidos. O banco conta por si mesmo as requisições simultâneas e tem os
seus próprios livros. No fim, o relatório compara os nossos livros com os dele, pagamento por
pagamento; a saída é 1 se alguma lei foi quebrada.

`

func run(args []string, out, errOut io.Writer) int {
	var o options
	fs := flag.NewFlagSet("demo", flag.ContinueOnError)
	fs.SetOutput(errOut)
	fs.DurationVar(&o.duration, "duration", time.Minute, "tempo de tráfego, da primeira à última ordem")
	fs.StringVar(&o.report, "report", "", "grava o relatório em JSON neste arquivo")
	fs.IntVar(&o.replicas, "replicas", 3, "réplicas do icom-poller (2 a 6)")
	fs.Float64Var(&o.rate, "rate", 10, "ordens de Pix por segundo em cada sentido")
	fs.IntVar(&o.slots, "slots", 4, "slots de leitura por canal (ICOM_MAX_SLOTS, 1 a 6); o resto é de envio")
	fs.Uint64Var(&o.seed, "seed", 0, "semente do banco simulado; 0 sorteia uma")
	fs.StringVar(&o.keep, "logs", "", "guarda os logs das réplicas neste diretório")
	fs.BoolVar(&o.plain, "plain", false, "uma linha por vez, sem redesenhar a tela")
	fs.BoolVar(&o.withoutCap, "without-cap", false, "")
	fs.Var(&o.spoils, "break", "")
	fs.Usage = func() {
		_, _ = io.WriteString(errOut, usage)
		fs.VisitAll(func(f *flag.Flag) {
			if f.Usage != "" {
				_, _ = fmt.Fprintf(errOut, "  -%-10s %s (padrão: %s)\n", f.Name, f.Usage, cmp.Or(f.DefValue, "nenhum"))
			}
		})
	}
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	if err := o.validate(fs.NArg()); err != nil {
		_, _ = fmt.Fprintln(errOut, "demo:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	report, err := play(ctx, o, out, errOut)
	if err != nil {
		if ctx.Err() != nil {
			err = errors.New("interrompida; tudo foi parado")
		}
		_, _ = fmt.Fprintln(errOut, "demo:", err)
		return 1
	}
	report.print(out)
	if o.report != "" {
		if err := report.write(o.report); err != nil {
			_, _ = fmt.Fprintln(errOut, "demo:", err)
			return 1
		}
	}
	if len(report.Broken) > 0 {
		return 1
	}
	return 0
}

func (o options) validate(rest int) error {
	switch {
	case rest > 0:
		return errors.New("argumento inesperado; veja --help")
	case o.duration < 15*time.Second:
		return fmt.Errorf("-duration é %v, o mínimo é 15s: as trocas precisam de tempo", o.duration)
	case o.replicas < 2 || o.replicas > 6:
		return fmt.Errorf("-replicas é %d, quero 2 a 6", o.replicas)
	case o.rate <= 0 || o.rate > 200:
		return fmt.Errorf("-rate é %g, quero mais que 0 e no máximo 200", o.rate)
	case o.slots < 1 || o.slots > 6:
		return fmt.Errorf("-slots é %d, quero 1 a 6", o.slots)
	}
	return nil
}
