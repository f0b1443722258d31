package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

const usage = `migrate: prepara o banco de dados e o JetStream para esta versão da Cabine

Uso:
  migrate up      aplica as migrações pendentes e cria fluxos e consumidores que faltam
  migrate status  mostra o que está aplicado, pendente, ausente ou divergente
  migrate down    desfaz as últimas migrações e APAGA o que elas guardam

Opções:
  --database-url URL   conexão com o Postgres, senha incluída (ambiente: DATABASE_URL)
  --nats-url URL       servidores NATS separados por vírgula (ambiente: NATS_URL)
  --provision=false    up, status: não toca nem consulta o JetStream
  --update-streams     up: altera fluxos e consumidores que divergem do declarado
  --replicas N         up, status: réplicas de cada fluxo, 1, 3 ou 5 (padrão 1; ambiente: NATS_REPLICAS)
  --steps N            down: quantas migrações desfazer (padrão 1)
  --yes                down: não pergunta
  --dry-run            up, down: mostra o que seria feito e não faz
  --timeout DURAÇÃO    limite de tudo, esperas incluídas (padrão 5m)
  --help, --version

Prefira o ambiente às opções para as URLs: a linha de comando aparece na lista de processos.
Duas execuções ao mesmo tempo são seguras: uma trabalha, a outra espera.

Termina com 0 se está tudo em ordem, 1 se algo falhou ou, em status, se algo está pendente,
ausente ou divergente, e 2 se o uso está errado.
`

// errUsage marks a mistake of the caller: exit code 2.
var errUsage = errors.New("uso incorreto")

// options is what the command line and the environment say.
type options struct {
	command              string
	databaseURL, natsURL string
	provision, update    bool
	replicas, steps      int
	yes, dryRun, version bool
	timeout              time.Duration
}

// parse reads the command and its flags, in any order. flag.ErrHelp asks for the help text.
func parse(args []string, getenv func(string) string) (options, error) {
	o := options{databaseURL: first(getenv, "DATABASE_URL", "CABINE_POSTGRES_URL"), natsURL: first(getenv, "NATS_URL", "CABINE_NATS_URL")}
	f := flag.NewFlagSet("migrate", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&o.databaseURL, "database-url", o.databaseURL, "")
	f.StringVar(&o.natsURL, "nats-url", o.natsURL, "")
	f.BoolVar(&o.provision, "provision", true, "")
	f.BoolVar(&o.update, "update-streams", false, "")
	f.IntVar(&o.replicas, "replicas", 1, "")
	f.IntVar(&o.steps, "steps", 1, "")
	f.BoolVar(&o.yes, "yes", false, "")
	f.BoolVar(&o.dryRun, "dry-run", false, "")
	f.BoolVar(&o.version, "version", false, "")
	f.DurationVar(&o.timeout, "timeout", 5*time.Minute, "")
	if n := getenv("NATS_REPLICAS"); n != "" {
		if err := f.Set("replicas", n); err != nil {
			return o, fmt.Errorf("%w: NATS_REPLICAS: quero um número", errUsage)
		}
	}
	for len(args) > 0 {
		if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
			return o, err
		} else if err != nil {
			return o, fmt.Errorf("%w: %w", errUsage, err)
		}
		if args = f.Args(); len(args) == 0 {
			break
		}
		if o.command != "" {
			return o, fmt.Errorf("%w: argumento a mais: %q", errUsage, args[0])
		}
		o.command, args = args[0], args[1:]
	}
	return o, o.validate()
}

func (o options) validate() error {
	if o.version {
		return nil
	}
	var errs []error
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	bad(o.command != "up" && o.command != "status" && o.command != "down",
		"comando %q: quero up, status ou down", o.command)
	bad(o.databaseURL == "", "falta DATABASE_URL")
	bad(o.wantsBus() && o.natsURL == "", "falta NATS_URL (ou --provision=false)")
	bad(o.replicas != 1 && o.replicas != 3 && o.replicas != 5, "--replicas é %d, quero 1, 3 ou 5", o.replicas)
	bad(o.steps < 1, "--steps é %d, quero pelo menos 1", o.steps)
	bad(o.timeout <= 0, "--timeout é %v, quero mais que zero", o.timeout)
	bad(o.update && o.command != "up", "--update-streams só vale para up")
	bad(o.dryRun && o.command == "status", "status nunca muda nada: --dry-run não se aplica")
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", errUsage, errors.Join(errs...))
}

// wantsBus reports whether the command has anything to do with JetStream.
func (o options) wantsBus() bool { return o.provision && (o.command == "up" || o.command == "status") }

func first(getenv func(string) string, names ...string) string {
	for _, name := range names {
		if v := strings.TrimSpace(getenv(name)); v != "" {
			return v
		}
	}
	return ""
}

// confirmed asks on out and reads the answer from in. Without a terminal nobody is there to answer, and the answer is no.
func confirmed(in io.Reader, out io.Writer, question string) bool {
	if file, ok := in.(*os.File); ok {
		if info, err := file.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
			return false
		}
	}
	fmt.Fprintf(out, "%s Digite \"apagar\" para continuar: ", question)
	var answer string
	if _, err := fmt.Fscanln(in, &answer); err != nil {
		return false
	}
	return answer == "apagar"
}
