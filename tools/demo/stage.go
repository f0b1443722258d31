package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
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

	"github.com/cabine-pix/cabine/libs/bus"
	"github.com/cabine-pix/cabine/libs/devstack"
	"github.com/cabine-pix/cabine/libs/icom/icomtest"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
)

const ispb = pix.ISPB("12345678")

// The times of the demo: the bank holds a read for one second, and everything else is
// short in proportion, so that a minute shows what production shows in several. The
// inequalities are those of production; the services refuse anything else.
const (
	bankHold = time.Second
	ttl      = 6 * time.Second
)

func timing() map[string]any {
	return map[string]any{
		"ttl": ttl.String(), "longest_ttl": ttl.String(), "bank_hold": "2500ms", "receive_timeout": "2s",
		"user_timeout": "500ms", "heartbeat": "500ms", "renew_timeout": "500ms", "no_replicas": true,
	}
}

// stage is everything but the replicas: servers, bank, programs.
type stage struct {
	dir   string
	stack *devstack.Stack
	logs  logs
	bank  *process
	ready bankReady
	dsn   string
	db    *store.DB
}

// bankReady is the line with which the bank says where it is.
type bankReady struct {
	CPM     string                      `json:"cpm"`
	CSM     string                      `json:"csm"`
	Control string                      `json:"control"`
	Seed    uint64                      `json:"seed"`
	Clients map[pix.ISPB]icomtest.Files `json:"clients"`
}

// setUp builds the programs, starts the servers and the bank, and migrates.
func setUp(ctx context.Context, o options, progress io.Writer) (s *stage, err error) {
	say := func(what string) { _, _ = fmt.Fprintln(progress, "demo:", what) }
	dir, err := os.MkdirTemp("", "cabine-demo-")
	if err != nil {
		return nil, err
	}
	s = &stage{dir: dir, logs: logs{dir: o.keep}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.tearDown())
		}
	}()
	say("compilando os programas")
	if err := s.build(ctx, o); err != nil {
		return nil, err
	}
	say("iniciando Postgres, Redis e NATS")
	if s.stack, err = devstack.Start(ctx, devstack.Options{Postgres: true, Redis: true, NATS: true, Progress: progress}); err != nil {
		return nil, err
	}
	if err := s.stack.Postgres.CreateDatabase(ctx, "cabine"); err != nil {
		return nil, err
	}
	s.dsn = s.stack.Postgres.DSN("cabine")
	say("migrando o banco de dados e criando os streams")
	if err := s.migrate(ctx); err != nil {
		return nil, err
	}
	if s.db, err = store.Open(ctx, store.Config{URL: s.dsn, Application: "demo"}); err != nil {
		return nil, err
	}
	say("iniciando o banco simulado")
	return s, s.startBank(ctx, o)
}

func (s *stage) tearDown() error {
	var errs []error
	if s.db != nil {
		s.db.Close()
	}
	if s.bank != nil {
		errs = append(errs, s.bank.stop(5*time.Second))
	}
	if s.stack != nil {
		errs = append(errs, s.stack.Stop())
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}

func (s *stage) program(name string) string { return filepath.Join(s.dir, name) }

// build compiles every program with the go command that runs the demo.
func (s *stage) build(ctx context.Context, o options) error {
	const module = "github.com/cabine-pix/cabine/"
	args := []string{"build", "-o", s.dir + string(filepath.Separator)}
	if o.withoutCap {
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
func environ(more map[string]string) []string {
	env := []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir(), "HOME=" + os.Getenv("HOME")}
	for k, v := range more {
		env = append(env, k+"="+v)
	}
	return env
}

func (s *stage) migrate(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, s.program("migrate"), "up")
	cmd.Env = environ(map[string]string{"DATABASE_URL": s.dsn, "NATS_URL": s.stack.NATS.URL()})
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("migrate: %w\n%s", err, out)
	}
	return nil
}

func (s *stage) startBank(ctx context.Context, o options) error {
	out, in, err := os.Pipe()
	if err != nil {
		return err
	}
	defer out.Close() //nolint:errcheck // read to its line
	log, err := s.logs.open("bacen-sim")
	if err != nil {
		return err
	}
	args := []string{
		"--pki-dir", filepath.Join(s.dir, "pki"), "--ispb", string(ispb), "--hold", bankHold.String(),
		"--redeliver-after", "8s", "--stream-expiry", "20s", "--seed", strconv.FormatUint(o.seed, 10),
	}
	if o.examples != "" {
		args = append(args, "--examples", o.examples)
	}
	if s.bank, err = start("bacen-sim", s.program("bacen-sim"), args, environ(nil), log, func([]byte) {}, in); err != nil {
		return err
	}
	_ = in.Close()
	if err := out.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return err
	}
	return json.NewDecoder(io.LimitReader(out, 1<<20)).Decode(&s.ready)
}

// control asks the bank's control port.
func (s *stage) control(ctx context.Context, method, path string, query url.Values, into any) error {
	u := url.URL{Scheme: "http", Host: s.ready.Control, Path: path, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("banco simulado: %w", err)
	}
	defer res.Body.Close() //nolint:errcheck // read below
	if res.StatusCode/100 != 2 {
		b, _ := io.ReadAll(io.LimitReader(res.Body, 1<<12))
		return fmt.Errorf("banco simulado: %s: %s", res.Status, bytes.TrimSpace(b))
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(res.Body).Decode(into)
}

// config writes what a replica is told.
func (s *stage) config(o options, name string) (string, error) {
	host, port, err := net.SplitHostPort(s.stack.Redis.Addr())
	if err != nil {
		return "", err
	}
	files := s.ready.Clients[ispb]
	channels := map[string]any{
		"cpm": map[string]any{"url": "https://" + s.ready.CPM, "server_name": "localhost"},
		"csm": map[string]any{"url": "https://" + s.ready.CSM, "server_name": "localhost"},
	}
	bacen, err := json.Marshal(map[string]any{
		"channels": channels, "ca": files.CA,
		"participants": map[string]any{string(ispb): map[string]any{"cert": files.Cert, "key": files.Key}},
	})
	if err != nil {
		return "", err
	}
	bacenPath := filepath.Join(s.dir, "bacen.json")
	if err := os.WriteFile(bacenPath, bacen, 0o600); err != nil {
		return "", err
	}
	// JSON is YAML.
	text, err := json.MarshalIndent(map[string]any{
		"replica":  name,
		"admin":    map[string]any{"listen": "127.0.0.1:0"},
		"icom":     map[string]any{"ispb": ispb, "max_slots": o.slots},
		"lease":    timing(),
		"redis":    map[string]any{"host": host, "port": json.Number(port), "timeout": "500ms"},
		"postgres": map[string]any{"url": s.dsn},
		"nats":     map[string]any{"url": s.stack.NATS.URL()},
		"transport": map[string]any{
			"plugin": s.program("transport-bacen"), "env": map[string]any{"CABINE_BACEN": bacenPath},
		},
	}, "", "  ")
	if err != nil {
		return "", err
	}
	path := filepath.Join(s.dir, name+".yaml")
	return path, os.WriteFile(path, text, 0o600)
}

// versions says what ran.
func (s *stage) versions() map[string]string {
	v := map[string]string{
		"go": runtime.Version(), "redis": s.stack.Redis.Version(),
		"postgres": s.stack.Postgres.Version(), "nats": s.stack.NATS.Version(),
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		v["cabine"] = info.Main.Version
	}
	return v
}

// consume stands in for the core banking: it takes messages off the bus and marks them done.
func (s *stage) consume(ctx context.Context, b *books) error {
	log := slog.New(slog.DiscardHandler)
	conn, err := bus.Connect(ctx, bus.Config{URL: s.stack.NATS.URL()}, log)
	if err != nil {
		return err
	}
	inbox := store.NewInbox(s.db)
	err = conn.ConsumeInbound(ctx, bus.ConsumeConfig{Durable: bus.ConsumerPayments, Concurrency: 4, Prefetch: 64},
		func(ctx context.Context, m bus.Inbound) error {
			closed, err := inbox.MarkDone(ctx, []string{m.MessageID}, m.Source)
			if err == nil {
				b.done(m.MessageID, int(closed))
			}
			return err
		})
	closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return errors.Join(err, conn.Close(closeCtx))
}
