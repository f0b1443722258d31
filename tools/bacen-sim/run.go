package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/cabine-pix/cabine/libs/icom/icomtest"
	"github.com/cabine-pix/cabine/libs/icom/spitest"
	"github.com/cabine-pix/cabine/libs/pix"
)

const (
	exitClean    = 0
	exitFailure  = 1
	exitWrongUse = 2
)

const usage = `bacen-sim faz o papel da ICOM do BACEN nos dois canais, por mTLS, e julga seus clientes.

Ao escutar, imprime uma linha de JSON com os endereços em que está e os arquivos de certificado
de cada --ispb. Termina com código 0 em SIGINT e SIGTERM.

A porta de controle responde GET /report, /violations, /ids, /requests e aceita POST /enqueue,
/faults, /cut; não autentica ninguém. O certificado do cliente traz o ISPB dele (CN); Host
não pode trazer porta.

Com --participant ou --participants, o SPI fica atrás do banco: lê o que é enviado, liquida
entre as contas PI dos participantes e responde. Para quem não indica certificado, as chaves de
assinatura são criadas em --pki-dir. A porta de controle então também responde GET /books e
/spi/faults e aceita POST /participants, /pay e /spi/faults. Os arquivos de lançamentos, que respondem
a camt.060 REL, ficam em https://<--listen-files>/api/v1/download/<ISPB>/extrato/<HASH>.zip, com o mesmo
mTLS dos canais; o que foi feito, baixado e estragado por falhas está em "files" de /books.

`

// options are the flags.
type options struct {
	cpm     string
	csm     string
	files   string
	control string
	pkiDir  string
	ispbs   []pix.ISPB
	rate    float64
	bank    icomtest.Config
	members []participantFile
	spi     spitest.Config
}

// ready is the line that says where everything is.
type ready struct {
	CPM     string `json:"cpm"`
	CSM     string `json:"csm"`
	Control string `json:"control"`
	// Files is the file host's address, with --participant.
	Files   string                      `json:"files,omitempty"`
	PKIDir  string                      `json:"pki_dir"`
	PID     int                         `json:"pid"`
	Seed    uint64                      `json:"seed"`
	Clients map[pix.ISPB]icomtest.Files `json:"clients"`
	// SPI is the certificate with which the SPI signs, and Signatures the files of its participants, with --participant.
	SPI        string                      `json:"spi,omitempty"`
	Signatures map[pix.ISPB]signatureFiles `json:"signatures,omitempty"`
}

// run is main with everything passed in. It returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	opt, help, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, help)
		return exitClean
	}
	if err != nil {
		fmt.Fprintf(stderr, "bacen-sim: %v\n", err)
		return exitWrongUse
	}
	if err := serve(ctx, opt, stdout); err != nil {
		fmt.Fprintf(stderr, "bacen-sim: %v\n", err)
		return exitFailure
	}
	return exitClean
}

// parse reads the flags. help is the text for flag.ErrHelp.
func parse(args []string) (opt options, help string, err error) {
	fs := flag.NewFlagSet("bacen-sim", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	opt.define(fs)
	if err := fs.Parse(args); err != nil {
		var text strings.Builder
		text.WriteString(usage)
		fs.SetOutput(&text)
		fs.PrintDefaults()
		return opt, text.String(), err
	}
	b := &opt.bank
	switch {
	case fs.NArg() > 0:
		return opt, "", fmt.Errorf("argumento inesperado %q", fs.Arg(0))
	case opt.pkiDir == "":
		return opt, "", errors.New("falta --pki-dir")
	case opt.rate < 0 || opt.rate > 0 && len(opt.ispbs) == 0:
		return opt, "", fmt.Errorf("--rate %g: não pode ser negativo e precisa de um --ispb", opt.rate)
	case b.Validates && len(opt.members) > 0:
		return opt, "", errors.New("--validate é do banco, e o SPI atrás dele já reclama por si")
	}
	if b.Seed == 0 {
		b.Seed = uint64(time.Now().UnixNano())
	}
	return opt, "", b.WithDefaults().Validate()
}

func (opt *options) define(fs *flag.FlagSet) {
	fs.StringVar(&opt.cpm, "listen-cpm", "127.0.0.1:0", "endereço do canal primário; porta 0 escolhe uma livre")
	fs.StringVar(&opt.csm, "listen-csm", "127.0.0.1:0", "endereço do canal secundário")
	fs.StringVar(&opt.files, "listen-files", "127.0.0.1:0", "endereço dos arquivos de lançamentos, que só há com o SPI")
	fs.StringVar(&opt.control, "control", "127.0.0.1:0", "endereço da porta de controle, HTTP sem TLS")
	fs.StringVar(&opt.pkiDir, "pki-dir", "", "diretório dos certificados, criado se não existe (obrigatório)")
	fs.Func("ispb", "participante para o qual criar um certificado de cliente; pode repetir", func(s string) error {
		ispb, err := pix.ParseISPB(s)
		opt.ispbs = append(opt.ispbs, ispb)
		return err
	})
	fs.Float64Var(&opt.rate, "rate", 0, "mensagens por segundo postas na fila de cada --ispb em cada canal")
	b := &opt.bank
	fs.DurationVar(&b.Hold, "hold", 5*time.Second, "por quanto tempo uma leitura espera por mensagem")
	fs.IntVar(&b.Cap, "cap", 6, "teto de requisições simultâneas por canal e ISPB; acima, é violação")
	fs.IntVar(&b.Limit, "limit", 6, "máximo simultâneo por canal e ISPB; acima, 429")
	fs.StringVar((*string)(&b.CountBy), "count-by", string(icomtest.ByRequests),
		"o que --limit conta: requests ou streams")
	fs.DurationVar(&b.RedeliverAfter, "redeliver-after", 30*time.Second,
		"tempo parado até uma entrega não confirmada voltar")
	fs.DurationVar(&b.StreamExpiry, "stream-expiry", 2*time.Minute, "tempo parado até um stream deixar de existir")
	fs.Uint64Var(&b.Seed, "seed", 0, "semente de toda escolha sorteada; 0 tira uma do relógio")
	fs.StringVar(&b.Examples, "examples", "", "diretório das mensagens de exemplo oficiais, em vez de imitações")
	fs.BoolVar(&b.Unmetered, "unmetered", false, "desliga os baldes de tráfego")
	fs.BoolVar(&b.Validates, "validate", false, "reclama com admi.002 de mensagens malformadas")
	fs.BoolVar(&b.NoGzip, "no-gzip", false, "responde sem gzip mesmo a quem o aceita")
	opt.defineSPI(fs)
	fs.BoolVar(&b.ForgetIDs, "forget-ids", false, "não guarda a lista de identificadores, para execuções longas")
}

// serve runs the bank until ctx ends.
func serve(ctx context.Context, opt options, stdout io.Writer) error {
	line := ready{
		PKIDir: opt.pkiDir, PID: os.Getpid(), Seed: opt.bank.Seed, Clients: make(map[pix.ISPB]icomtest.Files),
	}
	bank, spi, err := open(opt, &line)
	if err != nil {
		return err
	}
	addrs := []string{opt.cpm, opt.csm, opt.control}
	if spi != nil {
		addrs = append(addrs, opt.files)
	}
	listeners, err := listen(ctx, addrs...)
	if err != nil {
		return err
	}
	cpm, csm, control := listeners[0], listeners[1], listeners[2]
	runs := []func(context.Context) error{
		func(ctx context.Context) error { return bank.Serve(ctx, pix.CPM, cpm) },
		func(ctx context.Context) error { return bank.Serve(ctx, pix.CSM, csm) },
		func(ctx context.Context) error { return bank.ServeControl(ctx, control) },
	}
	if spi != nil {
		files := listeners[3]
		line.Files = files.Addr().String()
		runs = append(runs,
			func(ctx context.Context) error { return spi.Run(ctx, bank) },
			func(ctx context.Context) error { return spi.ServeFiles(ctx, files, bank.PKI()) })
	}
	if opt.rate > 0 {
		for _, ispb := range opt.ispbs {
			for _, channel := range pix.Channels() {
				runs = append(runs, func(ctx context.Context) error { return bank.Feed(ctx, channel, ispb, 0, opt.rate) })
			}
		}
	}
	line.CPM, line.CSM, line.Control = cpm.Addr().String(), csm.Addr().String(), control.Addr().String()
	if err := json.NewEncoder(stdout).Encode(line); err != nil {
		return errors.Join(fmt.Errorf("say where it listens: %w", err), closeAll(listeners))
	}
	return together(ctx, runs)
}

// open makes the bank, the SPI behind it if it has participants, and everybody's certificates.
func open(opt options, line *ready) (*icomtest.Bank, *spitest.SPI, error) {
	pki, err := icomtest.OpenPKI(opt.pkiDir)
	if err != nil {
		return nil, nil, err
	}
	clients := opt.ispbs
	for _, m := range opt.members {
		if !m.Virtual {
			clients = append(clients, m.ISPB)
		}
	}
	for _, ispb := range clients {
		if line.Clients[ispb], err = pki.WriteClient(opt.pkiDir, ispb); err != nil {
			return nil, nil, err
		}
	}
	cfg := opt.bank
	cfg.PKI = pki
	var spi *spitest.SPI
	if len(opt.members) > 0 {
		if spi, err = opt.openSPI(line); err != nil {
			return nil, nil, err
		}
		cfg = behind(cfg, spi)
	}
	bank, err := icomtest.New(cfg)
	return bank, spi, err
}

func listen(ctx context.Context, addrs ...string) ([]net.Listener, error) {
	var out []net.Listener
	for _, addr := range addrs {
		ln, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
		if err != nil {
			return nil, errors.Join(err, closeAll(out))
		}
		out = append(out, ln)
	}
	return out, nil
}

func closeAll(listeners []net.Listener) (err error) {
	for _, ln := range listeners {
		err = errors.Join(err, ln.Close())
	}
	return err
}

// together runs everything until ctx ends or one of them does, and waits for all.
func together(ctx context.Context, runs []func(context.Context) error) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, len(runs))
	for _, run := range runs {
		go func() {
			defer cancel()
			ended <- run(ctx)
		}()
	}
	for range runs {
		err = errors.Join(err, <-ended)
	}
	return err
}
