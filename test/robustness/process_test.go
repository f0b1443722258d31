package robustness_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// process is one child. It dies with the test, whatever happens to that.
type process struct {
	name string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended and its log was read

	mu      sync.Mutex
	address string        // of a replica of payments: where its API listens
	plugin  int           // of a poller or sender: the process of its transport
	listens chan struct{} // closed when address is set
}

// start runs a program. Its log goes to a file of its name; stdout, if not nil, gets what it prints.
func (w *world) start(name, path string, args []string, stdout *os.File) (*process, error) {
	if name != simulatedBank {
		// Tests of other packages run beside this one and measure time; the bank, which measures too, keeps its place.
		path, args = "nice", append([]string{"-n", "5", path}, args...)
	}
	p := &process{name: name, cmd: exec.Command(path, args...), done: make(chan struct{}), listens: make(chan struct{})}
	p.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir()}
	if stdout != nil {
		p.cmd.Stdout = stdout
	}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	log, err := os.Create(filepath.Join(w.logs, name+".log"))
	if err != nil {
		return nil, err
	}
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	started := make(chan error, 1)
	go func() {
		// The signal of the parent's death comes when the thread that forked dies, so it stays for the child's life.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.read(stderr, log)
		}
		_ = log.Close()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}

// read follows the log to its end.
func (p *process) read(stderr io.Reader, log io.Writer) {
	in := bufio.NewScanner(stderr)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		_, _ = fmt.Fprintf(log, "%s\n", in.Bytes())
		var said struct {
			Msg     string `json:"msg"`
			Address string `json:"address"`
			PID     int    `json:"pid"`
		}
		if json.Unmarshal(in.Bytes(), &said) != nil {
			continue
		}
		p.mu.Lock()
		switch said.Msg {
		case "api listens":
			p.address = said.Address
			close(p.listens)
		case "transport process started":
			p.plugin = said.PID
		}
		p.mu.Unlock()
	}
	_ = p.cmd.Wait() // the code is read from ProcessState
}

func (p *process) transport() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.plugin
}

func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) } // it may have ended

// kill ends the process as a lost machine does.
func (p *process) kill() {
	p.signal(syscall.SIGCONT)
	p.signal(syscall.SIGKILL)
	<-p.done
}

// stop ends the process in order.
func (p *process) stop(within time.Duration) error {
	p.signal(syscall.SIGTERM)
	limit := time.NewTimer(within)
	defer limit.Stop()
	select {
	case <-p.done:
	case <-limit.C:
		p.kill()
		return fmt.Errorf("%s did not end within %v of SIGTERM", p.name, within)
	}
	// 1 says that not everything was in order: while other faults last, a phase may need more than its budget.
	if code := p.cmd.ProcessState.ExitCode(); code != 0 && code != 1 {
		return fmt.Errorf("%s ended with code %d after SIGTERM", p.name, code)
	}
	return nil
}

// api is where a replica of payments takes orders, empty before it listens.
func (p *process) api() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.address
}
