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

const usage = `bacen-sim plays BACEN's ICOM on both channels, over mutual TLS, and judges its clients.

When it listens it prints one line of JSON with the addresses it is bound to, and the
certificate files of every --ispb. It ends cleanly on SIGINT and SIGTERM.

The control port answers GET /report, /violations, /ids, /requests and takes POST /enqueue,
/faults, /cut; it authenticates nobody. A client's certificate names its ISPB (CN); Host
must carry no port.

With --participant or --participants the SPI is behind the bank: it reads what is sent,
settles between the participants' PI accounts and answers. Signature keys are made under
--pki-dir for participants that name no certificate. The control port then answers GET /books
and /spi/faults too, and takes POST /participants, /pay and /spi/faults.

`

// options are the flags.
type options struct {
	cpm     string
	csm     string
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
	CPM     string                      `json:"cpm"`
	CSM     string                      `json:"csm"`
	Control string                      `json:"control"`
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
		return opt, "", fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case opt.pkiDir == "":
		return opt, "", errors.New("--pki-dir is required")
	case opt.rate < 0 || opt.rate > 0 && len(opt.ispbs) == 0:
		return opt, "", fmt.Errorf("--rate %g must not be negative and needs an --ispb", opt.rate)
	case b.Validates && len(opt.members) > 0:
		return opt, "", errors.New("--validate is the bank's, and the SPI behind it complains by itself")
	}
	if b.Seed == 0 {
		b.Seed = uint64(time.Now().UnixNano())
	}
	return opt, "", b.WithDefaults().Validate()
}

func (opt *options) define(fs *flag.FlagSet) {
	fs.StringVar(&opt.cpm, "listen-cpm", "127.0.0.1:0", "address of the primary channel; port 0 takes a free one")
	fs.StringVar(&opt.csm, "listen-csm", "127.0.0.1:0", "address of the secondary channel")
	fs.StringVar(&opt.control, "control", "127.0.0.1:0", "address of the control port, plain HTTP")
	fs.StringVar(&opt.pkiDir, "pki-dir", "", "directory of the certificates, made if absent (required)")
	fs.Func("ispb", "participant to make a client certificate for; repeatable", func(s string) error {
		ispb, err := pix.ParseISPB(s)
		opt.ispbs = append(opt.ispbs, ispb)
		return err
	})
	fs.Float64Var(&opt.rate, "rate", 0, "messages per second enqueued for each --ispb on each channel")
	b := &opt.bank
	fs.DurationVar(&b.Hold, "hold", 5*time.Second, "how long a read waits for a message")
	fs.IntVar(&b.Cap, "cap", 6, "most requests at once per channel and ISPB before a violation")
	fs.IntVar(&b.Limit, "limit", 6, "most at once per channel and ISPB before 429")
	fs.StringVar((*string)(&b.CountBy), "count-by", string(icomtest.ByRequests),
		"what --limit counts: requests or streams")
	fs.DurationVar(&b.RedeliverAfter, "redeliver-after", 30*time.Second,
		"idle time after which an unconfirmed delivery comes again")
	fs.DurationVar(&b.StreamExpiry, "stream-expiry", 2*time.Minute, "idle time after which a stream is gone")
	fs.Uint64Var(&b.Seed, "seed", 0, "seed of every random choice; 0 takes one from the clock")
	fs.StringVar(&b.Examples, "examples", "", "directory of official example messages to serve instead of look-alikes")
	fs.BoolVar(&b.Unmetered, "unmetered", false, "switch the traffic buckets off")
	fs.BoolVar(&b.Validates, "validate", false, "complain with admi.002 about malformed messages")
	fs.BoolVar(&b.NoGzip, "no-gzip", false, "answer plain even when the client accepts gzip")
	opt.defineSPI(fs)
	fs.BoolVar(&b.ForgetIDs, "forget-ids", false, "keep no list of message identifiers, for long runs")
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
	listeners, err := listen(ctx, opt.cpm, opt.csm, opt.control)
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
		runs = append(runs, func(ctx context.Context) error { return spi.Run(ctx, bank) })
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
