// Package stage sets up what the demo and the benchmarks play on: real servers, the
// simulated bank and the services as processes, on this machine alone.
package stage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/cabine-pix/cabine/libs/devstack"
	"github.com/cabine-pix/cabine/libs/icom/icomtest"
	"github.com/cabine-pix/cabine/libs/pix"
)

// ISPB is the participant that is there unless others are asked for.
const ISPB = pix.ISPB("12345678")

// Opening is what every participant's PI account holds at the beginning.
const Opening pix.Amount = 1_000_000_000_00

// The bank of the stage holds a read for one second, and all other times are short in
// proportion, so that a minute shows what production shows in several. The inequalities
// are those of production; the services refuse anything else.
const (
	// BankHold is how long the bank waits for a message.
	BankHold = time.Second
	// TTL is the lease.
	TTL = 6 * time.Second
	// userTimeout is u, of the leases and of the sockets.
	userTimeout = "500ms"
)

func timing() map[string]any {
	return map[string]any{
		"ttl": TTL.String(), "longest_ttl": TTL.String(), "bank_hold": "2500ms", "receive_timeout": "2s",
		"user_timeout": userTimeout, "heartbeat": "500ms", "renew_timeout": "500ms", "no_replicas": true,
	}
}

// Config says what to set up.
type Config struct {
	// Seed of the bank; 0 takes one from the clock.
	Seed uint64
	// Examples is a directory of official example messages; empty serves look-alikes.
	Examples string
	// MaxSlots is the most slots per channel that poll.
	MaxSlots int
	// Participants are who has services here, each with a database and a bus of its own.
	// Default: ISPB alone.
	Participants []pix.ISPB
	// Payments puts the SPI behind the bank and builds the services that pay.
	Payments bool
	// Settlement builds the service that nets.
	Settlement bool
	// WithoutCap builds the services so that Redis grants every slot to everybody.
	WithoutCap bool
	// Bank are further flags of the bank.
	Bank []string
	// Logs receives what the processes log.
	Logs Logs
	// Progress is told what takes long.
	Progress io.Writer
}

// Stage is everything but the replicas.
type Stage struct {
	// Stack holds the servers.
	Stack *devstack.Stack
	// Participants are those of Config, in its order.
	Participants []*Participant
	// Seed is the bank's.
	Seed uint64

	cfg   Config
	dir   string
	bank  *Process
	ready bankReady
	http  http.Client
}

// bankReady is the line with which the bank says where it is.
type bankReady struct {
	CPM     string                      `json:"cpm"`
	CSM     string                      `json:"csm"`
	Control string                      `json:"control"`
	Files   string                      `json:"files"`
	Seed    uint64                      `json:"seed"`
	Clients map[pix.ISPB]icomtest.Files `json:"clients"`
	// SPI is the certificate of the SPI's signatures, Signatures are the participants' keys and certificates.
	SPI        string `json:"spi"`
	Signatures map[pix.ISPB]struct {
		Key         string `json:"key"`
		Certificate string `json:"certificate"`
	} `json:"signatures"`
}

// SetUp builds the programs, starts the servers and the bank, and migrates.
func SetUp(ctx context.Context, cfg Config) (*Stage, error) {
	if len(cfg.Participants) == 0 {
		cfg.Participants = []pix.ISPB{ISPB}
	}
	s := &Stage{cfg: cfg, http: http.Client{Timeout: time.Minute}}
	if err := s.setUp(ctx); err != nil {
		return nil, errors.Join(err, s.TearDown())
	}
	return s, nil
}

func (s *Stage) setUp(ctx context.Context) (err error) {
	cfg := s.cfg
	say := func(what string) { _, _ = fmt.Fprintln(cfg.Progress, what) }
	if s.dir, err = os.MkdirTemp("", "cabine-stage-"); err != nil {
		return err
	}
	say("compilando os programas")
	if err := s.build(ctx); err != nil {
		return err
	}
	say("iniciando Postgres, Redis e NATS")
	options := devstack.Options{Postgres: true, Redis: true, NATS: true, Progress: cfg.Progress}
	if s.Stack, err = devstack.Start(ctx, options); err != nil {
		return err
	}
	say("migrando os bancos de dados e criando os streams")
	for i, ispb := range cfg.Participants {
		bus := s.Stack.NATS
		if i > 0 {
			if bus, err = s.Stack.StartNATS(ctx, devstack.NATSOptions{}); err != nil {
				return err
			}
		}
		p := &Participant{ISPB: ispb, NATS: bus, stage: s}
		s.Participants = append(s.Participants, p)
		if err := p.migrate(ctx); err != nil {
			return err
		}
	}
	say("iniciando o banco simulado")
	return s.startBank()
}

// TearDown stops the bank and the servers and removes every file.
func (s *Stage) TearDown() error {
	var errs []error
	for _, p := range s.Participants {
		errs = append(errs, p.close())
	}
	if s.bank != nil {
		errs = append(errs, s.bank.Stop(5*time.Second))
	}
	if s.Stack != nil {
		errs = append(errs, s.Stack.Stop())
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}

func (s *Stage) program(name string) string { return filepath.Join(s.dir, name) }

// build compiles every program with the go command that is on the machine.
func (s *Stage) build(ctx context.Context) error {
	const module = "github.com/cabine-pix/cabine/"
	args := []string{"build", "-o", s.dir + string(filepath.Separator)}
	if s.cfg.WithoutCap {
		args = append(args, "-tags", "cabine_without_cap")
	}
	args = append(args, module+"services/icom-poller", module+"services/migrate",
		module+"plugins/transport-bacen", module+"tools/bacen-sim")
	if s.cfg.Payments {
		args = append(args, module+"services/payments", module+"services/outbound-sender", module+"tools/core-sim")
	}
	if s.cfg.Settlement {
		args = append(args, module+"services/settlement-scheduler")
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

// environ is what a child inherits: nothing but where programs and temporary files are.
func environ(more ...string) []string {
	return append([]string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir(), "HOME=" + os.Getenv("HOME")}, more...)
}

func (s *Stage) startBank() error {
	out, in, err := os.Pipe()
	if err != nil {
		return err
	}
	defer out.Close() //nolint:errcheck // read to its line
	log, err := s.cfg.Logs.Open("bacen-sim")
	if err != nil {
		return err
	}
	args := []string{
		"--pki-dir", filepath.Join(s.dir, "pki"), "--hold", BankHold.String(),
		"--redeliver-after", "8s", "--stream-expiry", "20s", "--seed", strconv.FormatUint(s.cfg.Seed, 10),
	}
	for _, ispb := range s.cfg.Participants {
		args = append(args, "--ispb", string(ispb))
		if s.cfg.Payments {
			args = append(args, "--participant", string(ispb)+"="+Opening.String())
		}
	}
	if s.cfg.Examples != "" {
		args = append(args, "--examples", s.cfg.Examples)
	}
	s.bank, err = Start("bacen-sim", s.program("bacen-sim"), append(args, s.cfg.Bank...), environ(), log, func([]byte) {}, in)
	if err != nil {
		return err
	}
	_ = in.Close()
	if err := out.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return err
	}
	if err := json.NewDecoder(io.LimitReader(out, 1<<20)).Decode(&s.ready); err != nil {
		return fmt.Errorf("bacen-sim: %w", err)
	}
	s.Seed = s.ready.Seed
	return nil
}

// Control asks the bank's control port; the answer goes to into unless that is nil.
func (s *Stage) Control(ctx context.Context, method, path string, query url.Values, body string, into any) error {
	u := url.URL{Scheme: "http", Host: s.ready.Control, Path: path, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader([]byte(body)))
	if err != nil {
		return err
	}
	res, err := s.http.Do(req)
	if err != nil {
		return fmt.Errorf("bacen-sim: %w", err)
	}
	defer res.Body.Close() //nolint:errcheck // read below
	if res.StatusCode/100 != 2 {
		b, _ := io.ReadAll(io.LimitReader(res.Body, 1<<12))
		return fmt.Errorf("bacen-sim: %s: %s", res.Status, bytes.TrimSpace(b))
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(res.Body).Decode(into)
}

// Report is the bank's own count.
func (s *Stage) Report(ctx context.Context) (r icomtest.Report, err error) {
	return r, s.Control(ctx, http.MethodGet, "/report", nil, "", &r)
}

// Addr returns where the bank serves a channel.
func (s *Stage) Addr(channel pix.Channel) string {
	if channel == pix.CSM {
		return s.ready.CSM
	}
	return s.ready.CPM
}

// FilesURL is where the bank's files of entries are fetched; empty without Config.Payments.
func (s *Stage) FilesURL() string {
	if s.ready.Files == "" {
		return ""
	}
	return "https://" + s.ready.Files
}

func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o600)
}

// Versions says what runs.
func (s *Stage) Versions() map[string]string {
	v := map[string]string{
		"go": runtime.Version(), "redis": s.Stack.Redis.Version(),
		"postgres": s.Stack.Postgres.Version(), "nats": s.Stack.NATS.Version(),
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		v["cabine"] = info.Main.Version
	}
	return v
}
