package plugin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	goplugin "github.com/hashicorp/go-plugin"
	"golang.org/x/sys/unix"

	"github.com/cabine-pix/cabine/libs/clock"
)

// drainPipes is how long the last lines of a dead process may take to be read.
const drainPipes = 500 * time.Millisecond

// runner is one process, for go-plugin and for the host. go-plugin's own runner waits
// for the pipes before it reaps, so that a grandchild that holds one would hide the
// death; this one reaps first.
type runner struct {
	cfg HostConfig
	clk clock.Clock
	log *slog.Logger
	// env is what go-plugin adds to the environment.
	env []string

	stdout, stderr *os.File
	// gone is closed once the process has been reaped, or never came to be; reaped and exit are set before.
	gone   chan struct{}
	reaped clock.Instant
	exit   error
	// relayed is closed once everything that the process wrote to standard error is logged.
	relayed chan struct{}

	mu     sync.Mutex
	pid    int
	killed bool
}

func newRunner(cfg HostConfig, clk clock.Clock, log *slog.Logger) *runner {
	return &runner{cfg: cfg, clk: clk, log: log, gone: make(chan struct{}), relayed: make(chan struct{})}
}

// Start launches the process from a thread that lives as long as the process: the
// kernel's parent-death signal is tied to the thread, not to the host.
func (r *runner) Start(context.Context) error {
	started := make(chan error, 1)
	go func() {
		// Never unlocked: the thread ends with this goroutine, when the process is gone.
		runtime.LockOSThread()
		cmd, err := r.launch()
		if err != nil {
			r.exit = err
			close(r.gone)
			started <- err
			return
		}
		started <- nil
		r.exit = cmd.Wait()
		r.reaped = r.clk.Now().Boot
		// What is still buffered can be read; what a grandchild holds open must not keep the readers.
		limit := time.Now().Add(drainPipes) //nolint:forbidigo // a file takes no other clock
		_ = r.stdout.SetReadDeadline(limit)
		_ = r.stderr.SetReadDeadline(limit)
		close(r.gone)
	}()
	return <-started
}

func (r *runner) launch() (*exec.Cmd, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.killed {
		return nil, errors.New("transport process: stopped before it was started")
	}
	path, release, err := executable(r.cfg)
	if err != nil {
		return nil, fmt.Errorf("transport executable: %w", err)
	}
	defer release()
	cmd := &exec.Cmd{
		Path: path,
		Args: append([]string{r.cfg.Path}, r.cfg.Args...),
		Env:  append(append([]string{}, r.cfg.Env...), r.env...),
		SysProcAttr: &syscall.SysProcAttr{
			Pdeathsig: syscall.SIGKILL,
			// A group of its own: a Ctrl-C in the host's terminal is the host's alone.
			Setpgid: true,
		},
	}
	cmd.Env = append(cmd.Env, envHostPID+"="+strconv.Itoa(os.Getpid()))
	outR, outW, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("transport process: %w", err)
	}
	errR, errW, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("transport process: %w", err), outR.Close(), outW.Close())
	}
	cmd.Stdout, cmd.Stderr = outW, errW
	err = errors.Join(cmd.Start(), outW.Close(), errW.Close())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("transport process: %w", err), outR.Close(), errR.Close())
	}
	r.stdout, r.stderr, r.pid = outR, errR, cmd.Process.Pid
	go func() {
		defer close(r.relayed)
		relay(errR, r.log)
	}()
	return cmd, nil
}

// executable returns what to run: the path itself, or, where a digest is demanded, the
// very file that was hashed, whatever stands under its name by then.
func executable(cfg HostConfig) (path string, release func(), err error) {
	if cfg.SHA256 == "" {
		return cfg.Path, func() {}, nil
	}
	want, err := hex.DecodeString(cfg.SHA256)
	if err != nil {
		return "", nil, fmt.Errorf("SHA256: %w", err)
	}
	file, err := os.Open(cfg.Path)
	if err != nil {
		return "", nil, err
	}
	path = "/proc/self/fd/" + strconv.Itoa(int(file.Fd()))
	secure := goplugin.SecureConfig{Checksum: want, Hash: sha256.New()}
	ok, err := secure.Check(path)
	if err == nil && !ok {
		err = goplugin.ErrChecksumsDoNotMatch
	}
	if err != nil {
		return "", nil, errors.Join(err, file.Close())
	}
	return path, func() { _ = file.Close() }, nil // read only: closing loses nothing
}

// Wait implements runner.Runner.
func (r *runner) Wait(context.Context) error {
	<-r.gone
	<-r.relayed
	return errors.Join(r.exit, r.stdout.Close(), r.stderr.Close())
}

// Kill implements runner.Runner: SIGKILL for the whole group, which also ends a stopped process.
func (r *runner) Kill(context.Context) error { return r.kill() }

func (r *runner) kill() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.killed = true
	if r.pid == 0 {
		return nil
	}
	select {
	case <-r.gone:
		return nil
	default:
	}
	if err := unix.Kill(-r.pid, unix.SIGKILL); err != nil && err != unix.ESRCH {
		return fmt.Errorf("kill transport process %d: %w", r.pid, err)
	}
	return nil
}

// Stdout implements runner.Runner.
func (r *runner) Stdout() io.ReadCloser { return r.stdout }

// Stderr implements runner.Runner: nothing, because the process' own lines are relayed here.
func (r *runner) Stderr() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }

// Name implements runner.Runner.
func (r *runner) Name() string { return r.cfg.Path }

// ID implements runner.Runner.
func (r *runner) ID() string { return strconv.Itoa(r.process()) }

func (r *runner) process() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pid
}

// Diagnose implements runner.Runner.
func (r *runner) Diagnose(context.Context) string {
	select {
	case <-r.gone:
		return fmt.Sprintf("the process has exited: %v", r.exit)
	default:
		return "the process does not speak the plugin protocol"
	}
}

// PluginToHost implements runner.Runner: both see the same file system.
func (r *runner) PluginToHost(network, addr string) (string, string, error) {
	return network, addr, nil
}

// HostToPlugin implements runner.Runner.
func (r *runner) HostToPlugin(network, addr string) (string, string, error) {
	return network, addr, nil
}
