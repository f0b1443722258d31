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
	"sync"
	"syscall"
	"time"
)

// RedisOptions configure one redis-server. They hold for every start of it.
type RedisOptions struct {
	// AppendOnly keeps an append-only file, so that the data outlive a restart. Default: off.
	AppendOnly bool

	// AppendFsync is when that file is flushed: "always", "everysec" or "no". Default: "everysec".
	AppendFsync string

	// Save are the save points in Redis' words, "60 1" say. Default: none, so that without AppendOnly a restart comes
	// back empty.
	Save string

	// MaxMemory is the memory limit in Redis' words, "2mb" say. Default: none.
	MaxMemory string

	// MaxMemoryPolicy is what happens at MaxMemory. Default: "noeviction", as leases demand.
	MaxMemoryPolicy string

	// MinReplicasToWrite refuses writes while fewer replicas are in sync. Default 0: never refuses.
	MinReplicasToWrite int

	// MinReplicasMaxLag is how long a replica may be silent and still count; whole seconds. Default: 1 s.
	MinReplicasMaxLag time.Duration

	// Password is what clients must present. Default: none.
	Password string

	// Extra are further arguments in Redis' words, {"--hz", "100"} say. Default: none.
	Extra []string
}

// WithDefaults returns a copy in which every option left out has its default.
func (o RedisOptions) WithDefaults() RedisOptions {
	if o.AppendFsync == "" {
		o.AppendFsync = "everysec"
	}
	if o.MaxMemoryPolicy == "" {
		o.MaxMemoryPolicy = "noeviction"
	}
	if o.MinReplicasMaxLag == 0 {
		o.MinReplicasMaxLag = time.Second
	}
	return o
}

const (
	snapshotFile  = "dump.rdb"
	appendOnlyDir = "appendonlydir"
	// stopGrace is how long a server may take to end by itself before it is killed.
	stopGrace = 10 * time.Second
)

// Snapshot is the content of an RDB file: what a server holds at one moment, to come back to later.
type Snapshot []byte

// Redis is one redis-server. Its address stays the same for as long as the stack lives. Safe for concurrent use; a
// start and a stop exclude each other.
type Redis struct {
	stack    *Stack
	programs programs
	options  RedisOptions
	dir      string
	master   *Redis // nil unless made by AddReplica

	mu     sync.Mutex
	port   int
	proc   *process
	paused bool
}

// StartRedis starts one more redis-server, 7.0 or later.
func (s *Stack) StartRedis(ctx context.Context, o RedisOptions) (*Redis, error) {
	return s.startRedis(ctx, o, nil)
}

func (s *Stack) startRedis(ctx context.Context, o RedisOptions, master *Redis) (*Redis, error) {
	found, err := s.finder.find(ctx, redisSoftware())
	if err != nil {
		return nil, err
	}
	dir, err := s.newServerDir("redis")
	if err != nil {
		return nil, err
	}
	defer step(s.progress, "starting Redis "+found.version.String())()
	r := &Redis{stack: s, programs: found, options: o.WithDefaults(), dir: dir, master: master}
	for range portTries {
		if r.port, err = freePort(); err != nil {
			return nil, err
		}
		if err = r.Start(ctx); err == nil || !portTaken(r.log()) {
			break
		}
		if err := os.Remove(r.log()); err != nil {
			return nil, fmt.Errorf("devstack: forget the log of a lost port: %w", err)
		}
	}
	if err != nil {
		return nil, err
	}
	return r, s.own(r)
}

// Addr is "127.0.0.1:port".
func (r *Redis) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(r.port)) }

// PID is the process id of the running server, or of the last one.
func (r *Redis) PID() int {
	if proc := r.running(); proc != nil {
		return proc.pid
	}
	return 0
}

// Version is what the server calls itself, major and minor.
func (r *Redis) Version() string { return r.programs.version.String() }

func (r *Redis) log() string { return filepath.Join(r.dir, "log") }

// Start starts the server again after Stop or Kill, on the same port and with the data on its disk, and waits until it
// has loaded them. A running server is left as it is.
func (r *Redis) Start(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.start(ctx, r.options.AppendOnly)
}

func (r *Redis) start(ctx context.Context, appendOnly bool) error {
	if r.proc.alive() {
		return nil
	}
	proc, err := startProcess(command{
		path: r.programs.path("redis-server"), args: r.args(appendOnly), dir: r.dir, env: r.programs.env(),
		log: r.log(), death: syscall.SIGKILL,
	})
	if err != nil {
		return err
	}
	err = proc.await(ctx, "Redis on "+r.Addr(), func() bool {
		info, err := r.info(ctx)
		// Another server may have taken the port: only our own process counts.
		return err == nil && info["process_id"] == strconv.Itoa(proc.pid) && info["loading"] == "0"
	})
	if err != nil {
		return errors.Join(err, proc.kill())
	}
	r.proc, r.paused = proc, false
	return nil
}

func (r *Redis) args(appendOnly bool) []string {
	o := r.options
	args := []string{
		"--port", strconv.Itoa(r.port), "--bind", "127.0.0.1", "--daemonize", "no", "--dir", r.dir,
		"--appendonly", yesNo(appendOnly), "--appendfsync", o.AppendFsync, "--save", o.Save,
		"--maxmemory-policy", o.MaxMemoryPolicy, "--enable-debug-command", "local",
		"--min-replicas-to-write", strconv.Itoa(o.MinReplicasToWrite),
		"--min-replicas-max-lag", strconv.Itoa(int(o.MinReplicasMaxLag / time.Second)),
		"--repl-diskless-sync-delay", "0", // a replica syncs at once instead of waiting 5 s for company
	}
	if o.MaxMemory != "" {
		args = append(args, "--maxmemory", o.MaxMemory)
	}
	if o.Password != "" {
		args = append(args, "--requirepass", o.Password, "--masterauth", o.Password)
	}
	if r.master != nil {
		args = append(args, "--replicaof", "127.0.0.1 "+strconv.Itoa(r.master.port))
	}
	return append(args, o.Extra...)
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}

// Stop ends the server in order; it saves first if it has save points. The data stay for Start.
func (r *Redis) Stop() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stop()
}

func (r *Redis) stop() error {
	if err := r.resume(); err != nil {
		return err
	}
	return r.proc.stop(syscall.SIGTERM, stopGrace)
}

// Kill ends the server with SIGKILL: nothing is flushed, connections are reset by the kernel.
func (r *Redis) Kill() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.proc.kill()
}

func (r *Redis) shutdown() error { return r.Kill() } // the directory goes with the stack: nothing to save

// Pause freezes the server with SIGSTOP: connections stay open and nothing answers.
func (r *Redis) Pause() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.proc.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	r.paused = true
	return nil
}

// Resume lets a paused server go on; it then works off what arrived meanwhile.
func (r *Redis) Resume() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.resume()
}

func (r *Redis) resume() error {
	if !r.paused {
		return nil
	}
	r.paused = false
	return r.proc.signal(syscall.SIGCONT)
}

// Restart stops and starts the server, keeping what it has on its disk. Without AppendOnly and Save that is nothing.
func (r *Redis) Restart(ctx context.Context) error {
	return r.restart(ctx, func() (bool, error) { return r.options.AppendOnly, nil })
}

// RestartEmpty stops the server, removes its data and starts it: a new run_id and a new replication id.
func (r *Redis) RestartEmpty(ctx context.Context) error {
	return r.restart(ctx, func() (bool, error) { return r.options.AppendOnly, r.wipe() })
}

// RestartFrom stops the server and starts it with the data of an older moment, as a restored backup would.
func (r *Redis) RestartFrom(ctx context.Context, old Snapshot) error {
	err := r.restart(ctx, func() (bool, error) {
		if err := r.wipe(); err != nil {
			return false, err
		}
		// With an append-only file configured, Redis would not look at the snapshot: it is switched on after loading.
		if err := os.WriteFile(filepath.Join(r.dir, snapshotFile), old, 0o600); err != nil {
			return false, fmt.Errorf("devstack: write old snapshot: %w", err)
		}
		return false, nil
	})
	if err != nil || !r.options.AppendOnly {
		return err
	}
	if _, err = r.Do(ctx, "CONFIG", "SET", "appendonly", "yes"); err != nil {
		return err
	}
	// While it writes its first append-only file, Redis refuses to end.
	return r.running().await(ctx, "Redis on "+r.Addr()+" to write its append-only file", func() bool {
		info, err := r.info(ctx)
		return err == nil && info["aof_rewrite_in_progress"] == "0" && info["aof_rewrite_scheduled"] == "0"
	})
}

// running is the process of the last start.
func (r *Redis) running() *process {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.proc
}

func (r *Redis) restart(ctx context.Context, between func() (appendOnly bool, err error)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.stop(); err != nil {
		return err
	}
	appendOnly, err := between()
	if err != nil {
		return err
	}
	return r.start(ctx, appendOnly)
}

func (r *Redis) wipe() error {
	err := errors.Join(os.RemoveAll(filepath.Join(r.dir, snapshotFile)), os.RemoveAll(filepath.Join(r.dir, appendOnlyDir)))
	if err != nil {
		return fmt.Errorf("devstack: wipe redis data: %w", err)
	}
	return nil
}

// Snapshot saves the data and returns them, for RestartFrom later.
func (r *Redis) Snapshot(ctx context.Context) (Snapshot, error) {
	if _, err := r.Do(ctx, "SAVE"); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(filepath.Join(r.dir, snapshotFile))
	if err != nil {
		return nil, fmt.Errorf("devstack: read snapshot: %w", err)
	}
	return data, nil
}

// Do runs one command on a connection of its own and returns its answer: string, int64, nil, or []any of these. It is
// for what a test does to the server (FLUSHALL, CONFIG SET), not for measuring. WAIT counts the writes of its own
// connection, so it says nothing here: poll the replica.
func (r *Redis) Do(ctx context.Context, args ...string) (any, error) {
	return respDo(ctx, r.Addr(), r.options.Password, args...)
}

// info returns the fields of INFO.
func (r *Redis) info(ctx context.Context) (map[string]string, error) {
	answer, err := r.Do(ctx, "INFO")
	if err != nil {
		return nil, err
	}
	text, _ := answer.(string)
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields, nil
}
