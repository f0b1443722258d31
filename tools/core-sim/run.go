package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cabine-pix/cabine/libs/corebank"
	"github.com/cabine-pix/cabine/libs/corebank/corebanktest"
)

const (
	exitClean    = 0
	exitFailure  = 1
	exitWrongUse = 2
)

const usage = `core-sim faz o papel do núcleo bancário do participante: confere a assinatura HMAC
de cada consulta, decide se credita e assina a resposta. Serve para testes e demonstrações;
não guarda dinheiro nem contas.

Ao escutar, imprime uma linha de JSON com o endereço. Termina com código 0 em SIGINT e SIGTERM.

  POST /decisao    uma consulta (contrato: libs/corebank)
  GET  /report     o que foi perguntado até agora
  PUT  /falha      corpo: uma falha, ou vazio para voltar ao normal

Falhas: %s.

`

// options are the flags.
type options struct {
	listen  string
	keyFile string
	keyID   string
	core    corebanktest.Config
}

// ready is the line that says where the core is.
type ready struct {
	URL  string `json:"url"`
	PID  int    `json:"pid"`
	Seed uint64 `json:"seed"`
}

// run is main with everything passed in. It returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	opt, help, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, help)
		return exitClean
	}
	if err != nil {
		fmt.Fprintf(stderr, "core-sim: %v\n", err)
		return exitWrongUse
	}
	if err := serve(ctx, opt, stdout); err != nil {
		fmt.Fprintf(stderr, "core-sim: %v\n", err)
		return exitFailure
	}
	return exitClean
}

// parse reads the flags. help is the text for flag.ErrHelp.
func parse(args []string) (opt options, help string, err error) {
	fs := flag.NewFlagSet("core-sim", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	opt.define(fs)
	if err := fs.Parse(args); err != nil {
		var text strings.Builder
		fmt.Fprintf(&text, usage, names())
		fs.SetOutput(&text)
		fs.PrintDefaults()
		return opt, text.String(), err
	}
	if fs.NArg() > 0 {
		return opt, "", fmt.Errorf("argumento inesperado %q", fs.Arg(0))
	}
	if opt.keyFile == "" {
		return opt, "", errors.New("falta --key-file")
	}
	secret, err := os.ReadFile(opt.keyFile)
	if err != nil {
		return opt, "", fmt.Errorf("chave: %w", err)
	}
	opt.core.Keys = corebank.Keys{{ID: opt.keyID, Secret: []byte(strings.TrimRight(string(secret), "\r\n"))}}
	return opt, "", opt.core.WithDefaults().Validate()
}

func (opt *options) define(fs *flag.FlagSet) {
	fs.StringVar(&opt.listen, "listen", "127.0.0.1:0", "endereço; porta 0 escolhe uma livre")
	fs.StringVar(&opt.keyID, "key-id", "k1", "nome da chave HMAC")
	fs.StringVar(&opt.keyFile, "key-file", "", "arquivo com o segredo HMAC, 32 bytes ou mais (obrigatório)")
	c := &opt.core
	fs.Uint64Var(&c.Seed, "seed", 1, "semente de toda decisão sorteada")
	fs.Float64Var(&c.RejectShare, "reject", 0, "fração dos pagamentos recusados com AC03, de 0 a 1")
	fs.Float64Var(&c.FaultShare, "faults", 0, "fração das consultas que sofrem a falha, de 0 a 1")
	fs.Func("fault", "falha sorteada por --faults (padrão unavailable)", func(s string) error {
		c.Fault = corebanktest.Fault(s)
		return known(c.Fault)
	})
	fs.DurationVar(&c.DelayLeast, "delay-least", 0, "menor tempo para decidir")
	fs.DurationVar(&c.DelayMost, "delay-most", 20*time.Millisecond, "maior tempo para decidir")
}

func names() string {
	var all []string
	for _, f := range corebanktest.Faults() {
		all = append(all, string(f))
	}
	return strings.Join(all, ", ")
}

func known(f corebanktest.Fault) error {
	if f != corebanktest.None && !slices.Contains(corebanktest.Faults(), f) {
		return fmt.Errorf("falha desconhecida %q, use uma de: %s", f, names())
	}
	return nil
}

// serve runs the core until ctx ends.
func serve(ctx context.Context, opt options, stdout io.Writer) error {
	core, err := corebanktest.New(opt.core)
	if err != nil {
		return err
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", opt.listen)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: routes(core), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		if server.Shutdown(last) != nil {
			_ = server.Close() // whoever still asks is cut off
		}
	}()
	line := ready{URL: "http://" + ln.Addr().String() + "/decisao", PID: os.Getpid(), Seed: opt.core.Seed}
	if err := json.NewEncoder(stdout).Encode(line); err != nil {
		return fmt.Errorf("write ready line: %w", err)
	}
	if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	<-stopped
	return nil
}

func routes(core *corebanktest.Core) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /decisao", core)
	mux.HandleFunc("GET /report", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(core.Report()) // the caller may have gone away
	})
	mux.HandleFunc("PUT /falha", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(http.MaxBytesReader(w, r.Body, 100))
		fault := corebanktest.Fault(strings.TrimSpace(string(body)))
		if err := known(fault); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		core.SetFault(fault)
	})
	return mux
}
