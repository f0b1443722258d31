package devstack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// pgUser is the superuser of the cluster, who is let in without a password on 127.0.0.1.
const pgUser = "postgres"

// PostgresOptions configure one PostgreSQL server. They hold for every start of it.
type PostgresOptions struct {
	// Replication lets the server have a standby (AddStandby). Default: none, and nothing is spent on it.
	Replication bool
}

// Postgres is one PostgreSQL server. Its address stays the same for as long as the stack lives. Safe for concurrent
// use; a start and a stop exclude each other.
type Postgres struct {
	stack    *Stack
	programs programs
	options  PostgresOptions
	user     *account
	dir      string

	mu   sync.Mutex
	port int
	proc *process
}

// StartPostgres starts one more PostgreSQL server, 14 or later, with an empty cluster.
func (s *Stack) StartPostgres(ctx context.Context, o PostgresOptions) (*Postgres, error) {
	return s.startPostgres(ctx, o, s.layOutCluster)
}

// startPostgres starts a server whose cluster is what layOut makes.
func (s *Stack) startPostgres(
	ctx context.Context, o PostgresOptions, layOut func(context.Context, *Postgres) error,
) (*Postgres, error) {
	found, err := s.finder.find(ctx, postgresSoftware())
	if err != nil {
		return nil, err
	}
	user, err := postgresAccount()
	if err != nil {
		return nil, err
	}
	if err := reachable(s.dir, user); err != nil {
		return nil, err
	}
	dir, err := s.newServerDir("postgres")
	if err != nil {
		return nil, err
	}
	defer step(s.progress, "starting PostgreSQL "+found.version.String())()
	p := &Postgres{stack: s, programs: found, options: o, user: user, dir: dir}
	if err := layOut(ctx, p); err != nil {
		return nil, err
	}
	for range portTries {
		if p.port, err = freePort(); err != nil {
			return nil, err
		}
		if err = p.Start(ctx); err == nil || !portTaken(p.log()) {
			break
		}
		if err := os.Remove(p.log()); err != nil {
			return nil, fmt.Errorf("devstack: forget the log of a lost port: %w", err)
		}
	}
	if err != nil {
		return nil, err
	}
	return p, s.own(p)
}

// Addr is "127.0.0.1:port".
func (p *Postgres) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)) }

// DSN is the connection string of a database, for the superuser. "postgres" is there from the beginning.
func (p *Postgres) DSN(database string) string {
	return DSNThrough(p.Addr(), database)
}

// DSNThrough is the connection string of a database whose server is reached through addr, a [Proxy]'s say.
func DSNThrough(addr, database string) string {
	dsn := url.URL{
		Scheme: "postgres", User: url.User(pgUser), Host: addr, Path: "/" + database, RawQuery: "sslmode=disable",
	}
	return dsn.String()
}

// PID is the process id of the running postmaster, or of the last one.
func (p *Postgres) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.proc == nil {
		return 0
	}
	return p.proc.pid
}

// Version is what the server calls itself, major and minor.
func (p *Postgres) Version() string { return p.programs.version.String() }

func (p *Postgres) log() string  { return filepath.Join(p.dir, "log") }
func (p *Postgres) data() string { return filepath.Join(p.dir, "data") }

// Start starts the server again after Stop or Kill, on the same port and with its data, and waits until it accepts
// connections; after Kill that includes crash recovery. A running server is left as it is.
func (p *Postgres) Start(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.proc.alive() {
		return nil
	}
	if err := os.RemoveAll(p.pidFile()); err != nil { // left by Kill, and it would look like the new server's
		return fmt.Errorf("devstack: remove old pid file: %w", err)
	}
	proc, err := startProcess(command{
		path: p.programs.path("postgres"), args: p.args(), dir: p.data(), env: p.programs.env(), log: p.log(), user: p.user,
		death: syscall.SIGQUIT, // the postmaster takes its children along; SIGKILL would leave that to them
	})
	if err != nil {
		return err
	}
	if err := proc.await(ctx, "PostgreSQL on "+p.Addr(), func() bool { return p.ready(proc.pid) }); err != nil {
		return errors.Join(err, proc.kill())
	}
	p.proc = proc
	return nil
}

// args tunes the server for many short-lived databases on a small machine. Nothing here weakens durability.
func (p *Postgres) args() []string {
	args := []string{"-D", p.data()}
	settings := []string{
		"port=" + strconv.Itoa(p.port),
		"listen_addresses=127.0.0.1",
		"unix_socket_directories=",                     // paths of sockets are limited to 107 bytes, those of temporary directories are not
		"synchronous_commit=on", "full_page_writes=on", // and fsync, by default: a test of its loss can ALTER SYSTEM
		"max_connections=300",
		"shared_buffers=64MB",
		"max_wal_size=1GB", "checkpoint_timeout=15min", // fewer checkpoints: tests come and go before one is due
		"wal_level=replica",
		"jit=off",
		"log_timezone=GMT", "timezone=GMT",
		"log_min_messages=warning", "log_line_prefix=%m [%p] %d ",
	}
	if p.options.Replication {
		settings = append(settings, replicationSettings()...)
	} else {
		settings = append(settings, "max_wal_senders=0")
	}
	for _, setting := range settings {
		args = append(args, "-c", setting)
	}
	return args
}

func (p *Postgres) pidFile() string { return filepath.Join(p.data(), "postmaster.pid") }

// ready reads the pid file as pg_ctl does: process id in the first line, "ready" in the eighth once it is.
func (p *Postgres) ready(pid int) bool {
	text, err := os.ReadFile(p.pidFile())
	if err != nil {
		return false
	}
	lines := strings.Split(string(text), "\n")
	return len(lines) >= 8 && lines[0] == strconv.Itoa(pid) && strings.TrimSpace(lines[7]) == "ready"
}

// Stop ends the server in order: open transactions are rolled back, everything is flushed. The data stay for Start.
func (p *Postgres) Stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.proc.stop(syscall.SIGINT, stopGrace) // "fast": does not wait for clients to go
}

// Kill ends the server as a crash would: nothing is flushed, and the next Start recovers from the write-ahead log.
func (p *Postgres) Kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.proc.stop(syscall.SIGQUIT, stopGrace) // "immediate": the postmaster kills its children and leaves
}

func (p *Postgres) shutdown() error { return p.Kill() } // the directory goes with the stack: nothing to flush

// Restart stops the server in order and starts it again.
func (p *Postgres) Restart(ctx context.Context) error {
	if err := p.Stop(); err != nil {
		return err
	}
	return p.Start(ctx)
}

// CreateDatabase makes a database. Names are taken as they are, quotes not allowed.
func (p *Postgres) CreateDatabase(ctx context.Context, name string) error {
	return p.Exec(ctx, "postgres", `CREATE DATABASE "`+name+`"`)
}

// DropDatabase removes a database and disconnects whoever uses it.
func (p *Postgres) DropDatabase(ctx context.Context, name string) error {
	return p.Exec(ctx, "postgres", `DROP DATABASE IF EXISTS "`+name+`" WITH (FORCE)`)
}

// Exec runs one statement in a database as the superuser and throws its rows away. It is for what a test does to the
// server (ALTER SYSTEM, pg_terminate_backend), not for reading.
func (p *Postgres) Exec(ctx context.Context, database, sql string) error {
	return pgExec(ctx, p.Addr(), pgUser, database, sql)
}
