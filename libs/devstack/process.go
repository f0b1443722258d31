package devstack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// killWait is how long a process may take to disappear after SIGKILL before Stop gives up on it.
const killWait = 10 * time.Second

// command is a server program to start.
type command struct {
	path  string
	args  []string
	dir   string         // working directory; also what finds the process when its parent was killed
	env   []string       // whole environment
	log   string         // file that stdout and stderr are appended to
	user  *account       // nil: as ourselves
	death syscall.Signal // sent by the kernel when we die
}

// process is a server program that cannot outlive us.
type process struct {
	pid  int
	log  string
	proc *os.Process
	done chan struct{} // closed when the process was reaped
}

// startProcess starts c on a thread of its own. The kernel sends Pdeathsig when the thread that forked dies, not when
// the process does, so that thread is kept for as long as the child lives.
func startProcess(c command) (*process, error) {
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("devstack: open server log: %w", err)
	}
	defer func() { _ = log.Close() }() // the child has its own descriptor

	cmd := exec.Command(c.path, c.args...) //nolint:noctx // outlives every context; ended by stop, kill or Pdeathsig
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = c.dir, c.env, log, log
	// Own process group: a Ctrl-C at the terminal is ours to handle, the servers stay up while we drain.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: c.death, Setpgid: true, Credential: c.user.credential()}

	p := &process{log: c.log, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine, after the child
		err := cmd.Start()
		if err == nil {
			p.pid, p.proc = cmd.Process.Pid, cmd.Process
		}
		started <- err
		if err == nil {
			_ = cmd.Wait() // how a server ended is told by its log
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("devstack: start %s: %w", c.path, err)
	}
	return p, nil
}

// alive reports whether the process has not been reaped yet. A nil process is not alive.
func (p *process) alive() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// signal sends sig to the process alone; one that is gone already is no error.
func (p *process) signal(sig syscall.Signal) error {
	if !p.alive() {
		return nil
	}
	if err := p.proc.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("devstack: signal %s to process %d: %w", sig, p.pid, err)
	}
	return nil
}

// stop asks with sig, waits for grace and kills after it.
func (p *process) stop(sig syscall.Signal, grace time.Duration) error {
	if !p.alive() {
		return nil
	}
	if err := p.signal(sig); err != nil {
		return err
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
		return p.kill()
	}
}

// kill sends SIGKILL to the process and its group (Redis forks to save) and waits until it is gone.
func (p *process) kill() error {
	if !p.alive() {
		return nil
	}
	_ = syscall.Kill(-p.pid, syscall.SIGKILL) // gone already is as good
	timer := time.NewTimer(killWait)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
		return fmt.Errorf("devstack: process %d still there %s after SIGKILL", p.pid, killWait)
	}
}

// await polls ready until it says yes, the process ends or ctx does. The error carries the end of the server's log.
func (p *process) await(ctx context.Context, what string, ready func() bool) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ready() {
		select {
		case <-p.done:
			return fmt.Errorf("devstack: %s ended while it started; its log ends with:\n%s", what, tail(p.log))
		case <-ctx.Done():
			return fmt.Errorf("devstack: wait for %s: %w; its log ends with:\n%s", what, context.Cause(ctx), tail(p.log))
		case <-tick.C:
		}
	}
	return nil
}

// tail returns the last lines of a log file, for an error message.
func tail(path string) string {
	const lines, size = 20, 8 << 10
	text, err := os.ReadFile(path)
	if err != nil {
		return "(no log: " + err.Error() + ")"
	}
	if len(text) > size {
		text = text[len(text)-size:]
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// account is the user that PostgreSQL runs as when we are root.
type account struct {
	name     string
	uid, gid int
}

// postgresAccount returns nil when we are not root: PostgreSQL then runs as ourselves.
func postgresAccount() (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, errUID := strconv.Atoi(u.Uid)
		gid, errGID := strconv.Atoi(u.Gid)
		if err := errors.Join(errUID, errGID); err != nil {
			return nil, fmt.Errorf("devstack: user %s: %w", name, err)
		}
		return &account{name: name, uid: uid, gid: gid}, nil
	}
	return nil, errors.New("devstack: PostgreSQL does not run as root, and this machine has neither user postgres nor nobody")
}

// id is the user id that files of the server belong to.
func (a *account) id() int {
	if a == nil {
		return os.Geteuid()
	}
	return a.uid
}

func (a *account) credential() *syscall.Credential {
	if a == nil {
		return nil
	}
	return &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
}

// chown gives path to the account.
func (a *account) chown(path string) error {
	if a == nil {
		return nil
	}
	if err := os.Lchown(path, a.uid, a.gid); err != nil {
		return fmt.Errorf("devstack: give %s to %s: %w", path, a.name, err)
	}
	return nil
}
