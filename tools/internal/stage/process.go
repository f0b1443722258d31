package stage

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// Process is one child. It dies with its parent, whatever happens to that.
type Process struct {
	name string
	cmd  *exec.Cmd
	done chan struct{}
	err  error // of Wait, once done is closed
}

// Start runs a program. Each line of its standard error goes to line and to log, which is closed at its end.
func Start(name, path string, args, env []string, log io.WriteCloser, line func([]byte), stdout io.Writer) (*Process, error) {
	cmd := exec.Command(path, args...) //nolint:noctx // it outlives contexts: Stop ends it in order, and its parent's death
	p := &Process{name: name, cmd: cmd, done: make(chan struct{})}
	p.cmd.Env = env
	p.cmd.Stdout = stdout
	// A group of its own: Ctrl-C reaches the parent alone, which stops all in order.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	started := make(chan error, 1)
	go func() {
		// Pdeathsig follows the thread that forked, so the thread stays for the child's life.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		s := bufio.NewScanner(stderr)
		s.Buffer(nil, 1<<20)
		for s.Scan() {
			_, _ = fmt.Fprintf(log, "%s\n", s.Bytes())
			line(s.Bytes())
		}
		p.err = p.cmd.Wait()
		_ = log.Close()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}

// Signal sends a signal; one to a process that has ended is lost.
func (p *Process) Signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// Done is closed when the process has ended; Err then says how.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err returns how the process ended. Call it after Done.
func (p *Process) Err() error { return p.err }

// PeakMiB returns the most memory that the process had resident, in MiB.
func (p *Process) PeakMiB() (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	var kib float64
	_, peak, ok := strings.Cut(string(status), "VmHWM:")
	if _, err := fmt.Sscanf(peak, "%f kB", &kib); !ok || err != nil {
		return 0, fmt.Errorf("%s: no peak of memory in its status", p.name)
	}
	return kib / 1024, nil
}

// Stop asks a process to end and kills it if it does not within the limit.
func (p *Process) Stop(within time.Duration) error {
	p.Signal(syscall.SIGTERM)
	t := time.NewTimer(within)
	defer t.Stop()
	select {
	case <-p.done:
		if p.err != nil {
			return fmt.Errorf("%s: %w", p.name, p.err)
		}
		return nil
	case <-t.C:
		p.Signal(syscall.SIGKILL)
		<-p.done
		return fmt.Errorf("%s não parou em %v", p.name, within)
	}
}

// Logs writes each child's log into a directory, or nowhere.
type Logs struct{ Dir string }

// Open returns where the child called name logs to.
func (l Logs) Open(name string) (io.WriteCloser, error) {
	if l.Dir == "" {
		return discard{}, nil
	}
	if err := os.MkdirAll(l.Dir, 0o755); err != nil {
		return nil, err
	}
	return os.Create(filepath.Join(l.Dir, name+".log"))
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) Close() error                { return nil }
