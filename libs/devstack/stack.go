package devstack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
)

// Options say which servers a stack starts with.
type Options struct {
	// Postgres, Redis and NATS choose the servers that Start starts. More can be added later with StartRedis and
	// its like. Default: none.
	Postgres, Redis, NATS bool

	// PostgresOptions configure the server that Postgres asks for.
	PostgresOptions PostgresOptions

	// RedisOptions configure the server that Redis asks for.
	RedisOptions RedisOptions

	// NATSOptions configure the server that NATS asks for.
	NATSOptions NATSOptions

	// Dir is the directory in which the stack makes its own. Default: one per user under os.TempDir. A stack of root
	// needs one that the user postgres can reach.
	Dir string

	// Progress receives a line for every step that takes longer than two seconds (an installation, say), and again
	// when it is done. Default: nothing is written.
	Progress io.Writer
}

// WithDefaults returns a copy in which every option left out has its default.
func (o Options) WithDefaults() Options {
	if o.Dir == "" {
		o.Dir = filepath.Join(os.TempDir(), fmt.Sprintf("cabine-devstack-%d", os.Geteuid()))
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	o.RedisOptions = o.RedisOptions.WithDefaults()
	return o
}

// Stack is a set of running servers and the directory they live in.
type Stack struct {
	// Postgres, Redis and NATS are the servers that Options asked for, nil otherwise. They do not change after Start.
	Postgres *Postgres
	Redis    *Redis
	NATS     *NATS

	finder   finder
	progress io.Writer
	base     string // shared by the stacks of this user: templates and locks
	dir      string // of this stack alone
	lock     *os.File

	mu      sync.Mutex
	servers []stopper // in the order they were started
	names   int
	stopped bool
}

// stopper is a server or a proxy: something that Stop ends for good.
type stopper interface{ shutdown() error }

// Start makes a directory, removes those that killed processes left behind, and starts the servers of o side by side.
// ctx bounds the start alone. On an error nothing is left running.
func Start(ctx context.Context, o Options) (*Stack, error) {
	o = o.WithDefaults()
	dir, lock, err := newRunDir(o.Dir)
	if err != nil {
		return nil, err
	}
	s := &Stack{finder: newFinder(o.Progress, o.Dir), progress: o.Progress, base: o.Dir, dir: dir, lock: lock}

	var group sync.WaitGroup
	var errPostgres, errRedis, errNATS error
	if o.Postgres {
		group.Go(func() { s.Postgres, errPostgres = s.StartPostgres(ctx, o.PostgresOptions) })
	}
	if o.Redis {
		group.Go(func() { s.Redis, errRedis = s.StartRedis(ctx, o.RedisOptions) })
	}
	if o.NATS {
		group.Go(func() { s.NATS, errNATS = s.StartNATS(ctx, o.NATSOptions) })
	}
	group.Wait()
	if err := errors.Join(errPostgres, errRedis, errNATS); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// Dir is the directory of this stack. It is removed by Stop.
func (s *Stack) Dir() string { return s.dir }

// Stop ends every server, newest first, and removes the directory. It is idempotent; servers that a test stopped or
// killed already are no error.
func (s *Stack) Stop() error {
	s.mu.Lock()
	if s.stopped {
		s.mu.Unlock()
		return nil
	}
	s.stopped = true
	servers := s.servers
	s.servers = nil
	s.mu.Unlock()

	var errs []error
	for i := len(servers) - 1; i >= 0; i-- {
		errs = append(errs, servers[i].shutdown())
	}
	if err := os.RemoveAll(s.dir); err != nil {
		errs = append(errs, fmt.Errorf("devstack: remove directory: %w", err))
	}
	errs = append(errs, s.lock.Close())
	return errors.Join(errs...)
}

// newServerDir makes a directory for one more server of this stack.
func (s *Stack) newServerDir(kind string) (string, error) {
	s.mu.Lock()
	s.names++
	dir := filepath.Join(s.dir, fmt.Sprintf("%s-%d", kind, s.names))
	s.mu.Unlock()
	// 0711: the user of PostgreSQL passes through the directories of root, and reads none.
	if err := os.Mkdir(dir, 0o711); err != nil {
		return "", fmt.Errorf("devstack: directory of %s: %w", kind, err)
	}
	return dir, nil
}

// own remembers a started server for Stop. A server that came up while Stop was running is ended at once.
func (s *Stack) own(server stopper) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return errors.Join(errors.New("devstack: the stack was stopped meanwhile"), server.shutdown())
	}
	s.servers = append(s.servers, server)
	return nil
}
