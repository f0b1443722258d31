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
	"net"
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
	"github.com/cabine-pix/cabine/libs/store"
)

// ISPB is the participant that everything here is.
const ISPB = pix.ISPB("12345678")

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
	// Stack holds the servers, DB is the services' database.
	Stack *devstack.Stack
	DB    *store.DB
	// Seed is the bank's.
	Seed uint64

	cfg   Config
	dir   string
	dsn   string
	bank  *Process
	ready bankReady
	http  http.Client
}

// bankReady is the line with which the bank says where it is.
type bankReady struct {
	CPM     string                      `json:"cpm"`
	CSM     string                      `json:"csm"`
	Control string                      `json:"control"`
	Seed    uint64                      `json:"seed"`
	Clients map[pix.ISPB]icomtest.Files `json:"clients"`
}

// SetUp builds the programs, starts the servers and the bank, and migrates.
func SetUp(ctx context.Context, cfg Config) (*Stage, error) {
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
	if err := s.Stack.Postgres.CreateDatabase(ctx, "cabine"); err != nil {
		return err
	}
	s.dsn = s.Stack.Postgres.DSN("cabine")
	say("migrando o banco de dados e criando os streams")
	if err := s.migrate(ctx); err != nil {
		return err
	}
	if s.DB, err = store.Open(ctx, store.Config{URL: s.dsn, Application: "stage"}); err != nil {
		return err
	}
	say("iniciando o banco simulado")
	return s.startBank()
}

// TearDown stops the bank and the servers and removes every file.
func (s *Stage) TearDown() error {
	var errs []error
	if s.DB != nil {
		s.DB.Close()
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

func (s *Stage) migrate(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, s.program("migrate"), "up")
	cmd.Env = environ("DATABASE_URL="+s.dsn, "NATS_URL="+s.Stack.NATS.URL())
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("migrate: %w\n%s", err, out)
	}
	return nil
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
		"--pki-dir", filepath.Join(s.dir, "pki"), "--ispb", string(ISPB), "--hold", BankHold.String(),
		"--redeliver-after", "8s", "--stream-expiry", "20s", "--seed", strconv.FormatUint(s.cfg.Seed, 10),
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

// Addr returns where the bank serves a channel, and Files the participant's certificate.
func (s *Stage) Addr(channel pix.Channel) string {
	if channel == pix.CSM {
		return s.ready.CSM
	}
	return s.ready.CPM
}

// Files returns the participant's certificate.
func (s *Stage) Files() icomtest.Files { return s.ready.Clients[ISPB] }

// Poller starts a replica of the icom-poller; each line of its log goes to line. more are
// settings over those of the stage, by section.
func (s *Stage) Poller(name string, line func([]byte), more map[string]any) (*Process, error) {
	path, err := s.config(name, more)
	if err != nil {
		return nil, err
	}
	log, err := s.cfg.Logs.Open(name)
	if err != nil {
		return nil, err
	}
	return Start(name, s.program("icom-poller"), []string{"--config", path}, environ(), log, line, nil)
}

// config writes what a replica is told. JSON is YAML.
func (s *Stage) config(name string, more map[string]any) (string, error) {
	host, port, err := net.SplitHostPort(s.Stack.Redis.Addr())
	if err != nil {
		return "", err
	}
	files := s.Files()
	bacen := filepath.Join(s.dir, "bacen.json")
	err = writeJSON(bacen, map[string]any{
		"channels": map[string]any{
			"cpm": map[string]any{"url": "https://" + s.ready.CPM, "server_name": "localhost"},
			"csm": map[string]any{"url": "https://" + s.ready.CSM, "server_name": "localhost"},
		},
		"ca":           files.CA,
		"user_timeout": userTimeout,
		"participants": map[string]any{string(ISPB): map[string]any{"cert": files.Cert, "key": files.Key}},
	})
	if err != nil {
		return "", err
	}
	settings := map[string]any{
		"replica":  name,
		"admin":    map[string]any{"listen": "127.0.0.1:0"},
		"icom":     map[string]any{"ispb": ISPB, "max_slots": s.cfg.MaxSlots},
		"lease":    timing(),
		"redis":    map[string]any{"host": host, "port": json.Number(port), "timeout": "500ms"},
		"postgres": map[string]any{"url": s.dsn},
		"nats":     map[string]any{"url": s.Stack.NATS.URL()},
		"transport": map[string]any{
			"plugin": s.program("transport-bacen"), "env": map[string]any{"CABINE_BACEN": bacen},
		},
	}
	for section, v := range more {
		settings[section] = v
	}
	path := filepath.Join(s.dir, name+".yaml")
	return path, writeJSON(path, settings)
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

// NATSURL returns where the bus is.
func (s *Stage) NATSURL() string { return s.Stack.NATS.URL() }
