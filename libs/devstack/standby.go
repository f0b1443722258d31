package devstack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// replicationSettings are those of a server that may have a standby, and of the standby.
func replicationSettings() []string {
	return []string{
		"max_wal_senders=4", // a copy takes two
		"hot_standby=on",
		// Files of the cluster's own directory: what Lose leaves behind goes with it.
		"dynamic_shared_memory_type=mmap",
	}
}

// AddStandby makes a standby of a running server that allows replication, and waits until both are in sync: from then on
// no commit of this server is answered before the standby has it on disk. addr is where the standby reaches this server:
// its Addr, or a [Proxy]'s before it. A server has one standby.
func (p *Postgres) AddStandby(ctx context.Context, addr string) (*Postgres, error) {
	if !p.options.Replication {
		return nil, errors.New("devstack: this PostgreSQL was started without Replication")
	}
	standby, err := p.stack.startPostgres(ctx, p.options, func(ctx context.Context, standby *Postgres) error {
		return standby.copyOf(ctx, addr)
	})
	if err != nil {
		return nil, err
	}
	// Only now: a standby that copied this setting would wait for itself once it is promoted.
	for _, sql := range []string{
		fmt.Sprintf(`ALTER SYSTEM SET synchronous_standby_names = '"%s"'`, standby.name()), "SELECT pg_reload_conf()",
	} {
		if err := p.Exec(ctx, "postgres", sql); err != nil {
			return nil, err
		}
	}
	inSync := fmt.Sprintf(`DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_stat_replication WHERE application_name = '%s' AND sync_state = 'sync')
		THEN RAISE EXCEPTION 'not in sync'; END IF; END $$`, standby.name())
	err = standby.running().await(ctx, fmt.Sprintf("standby %s to be in sync", standby.Addr()), func() bool {
		return p.Exec(ctx, "postgres", inSync) == nil
	})
	if err != nil {
		return nil, err
	}
	return standby, nil
}

// Promote makes a standby a server of its own, as a failover does, and waits until it takes writes. Its commits wait for
// nobody until it gets a standby itself.
func (p *Postgres) Promote(ctx context.Context) error {
	return p.Exec(ctx, "postgres", `DO $$ BEGIN IF NOT pg_promote(true, 60) THEN RAISE EXCEPTION 'not promoted in time'; END IF; END $$`)
}

// Lose ends the server as the loss of its machine does: it and everything that it forked are killed at once, and nobody
// says a last word to a client or a standby. (Kill lets the server end its children.) Start may bring it back.
func (p *Postgres) Lose() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.proc.alive() {
		return nil
	}
	memory, known := p.sharedMemory()
	if err := p.proc.kill(); err != nil { // first, so that nothing more is forked
		return err
	}
	if err := killAllIn(p.dir); err != nil { // each backend is a process group of its own
		return err
	}
	if known {
		_, _, _ = syscall.Syscall(syscall.SYS_SHMCTL, memory, 0, 0) // 0 is IPC_RMID; gone already is as good
	}
	return nil
}

// killAllIn ends the processes that work in dir and waits until they are gone.
func killAllIn(dir string) error {
	tick, limit := time.NewTicker(time.Millisecond), time.NewTimer(killWait)
	defer tick.Stop()
	defer limit.Stop()
	for killIn(dir) > 0 {
		select {
		case <-tick.C:
		case <-limit.C:
			return fmt.Errorf("devstack: processes in %s still there %s after SIGKILL", dir, killWait)
		}
	}
	return nil
}

// sharedMemory is the id of the segment by which the server keeps a second one off its cluster. The kernel keeps it until
// somebody removes it; the pid file has it in its seventh line, after its key.
func (p *Postgres) sharedMemory() (id uintptr, known bool) {
	text, err := os.ReadFile(p.pidFile())
	lines := strings.Split(string(text), "\n")
	if err != nil || len(lines) < 7 {
		return 0, false
	}
	fields := strings.Fields(lines[6])
	if len(fields) != 2 {
		return 0, false
	}
	n, err := strconv.ParseUint(fields[1], 10, 31)
	return uintptr(n), err == nil
}

// running is the process of a server that was started.
func (p *Postgres) running() *process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.proc
}

// name is what a standby calls itself to its primary.
func (p *Postgres) name() string { return filepath.Base(p.dir) }

// copyOf gives the server the cluster of the one at addr, as its standby.
func (p *Postgres) copyOf(ctx context.Context, addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("devstack: address of the primary: %w", err)
	}
	if err := os.Mkdir(p.data(), 0o700); err != nil {
		return fmt.Errorf("devstack: make cluster directory: %w", err)
	}
	if err := p.user.chown(p.data()); err != nil {
		return err
	}
	proc, err := startProcess(command{
		path: p.programs.path("pg_basebackup"),
		args: []string{
			"--pgdata", p.data(), "--write-recovery-conf", "--checkpoint", "fast",
			"--no-sync", // the copy is synced by the server that uses it
			"--dbname", fmt.Sprintf("host=%s port=%s user=%s application_name=%s sslmode=disable gssencmode=disable",
				host, port, pgUser, p.name()),
		},
		dir: p.data(), env: p.programs.env(), log: filepath.Join(p.dir, "copy.log"), user: p.user, death: syscall.SIGKILL,
	})
	if err != nil {
		return err
	}
	select {
	case <-proc.done:
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("devstack: wait for pg_basebackup: %w", context.Cause(ctx)), proc.kill())
	}
	// It names its manifest when all the rest is there.
	if _, err := os.Stat(filepath.Join(p.data(), "backup_manifest")); err != nil {
		return fmt.Errorf("devstack: pg_basebackup failed:\n%s", tail(proc.log))
	}
	return nil
}
