package main

import (
	"bufio"
	"encoding/json"
	"errors"
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

// event is a line of a replica's log that says who has a slot.
type event struct {
	Time    time.Time `json:"time"`
	Msg     string    `json:"msg"`
	Channel string    `json:"channel"`
	Slot    int       `json:"slot"`
	At      time.Time `json:"at"`
	How     string    `json:"how"`
	Level   string    `json:"level"`
	replica string
}

// process is one child. It dies with the demo, whatever happens to it.
type process struct {
	name string
	cmd  *exec.Cmd
	done chan struct{}
	err  error // of Wait, once done is closed
}

// start runs a program. Each line of its standard error goes to line and to log.
func start(name, path string, args, env []string, log io.Writer, line func([]byte), stdout io.Writer) (*process, error) {
	p := &process{name: name, cmd: exec.Command(path, args...), done: make(chan struct{})}
	p.cmd.Env = env
	p.cmd.Stdout = stdout
	// A group of its own: Ctrl-C reaches the demo alone, which stops all in order.
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
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}

func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// stop asks a process to end and kills it if it does not within the limit.
func (p *process) stop(within time.Duration) error {
	p.signal(syscall.SIGTERM)
	t := time.NewTimer(within)
	defer t.Stop()
	select {
	case <-p.done:
		return p.err
	case <-t.C:
		p.signal(syscall.SIGKILL)
		<-p.done
		return fmt.Errorf("%s não parou em %v", p.name, within)
	}
}

// logs writes each child's log into a directory, or nowhere.
type logs struct{ dir string }

func (l logs) open(name string) (io.WriteCloser, error) {
	if l.dir == "" {
		return discard{}, nil
	}
	if err := os.MkdirAll(l.dir, 0o755); err != nil { //nolint:gosec // logs are for the user who asked
		return nil, err
	}
	return os.Create(filepath.Join(l.dir, name+".log"))
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) Close() error                { return nil }

// history collects what the replicas say about slots, in the order of their clocks, which is one clock.
type history struct {
	mu     sync.Mutex
	events []event
	errs   []string
}

func (h *history) read(replica string, line []byte) {
	var e event
	if json.Unmarshal(line, &e) != nil {
		return
	}
	e.replica = replica
	h.mu.Lock()
	defer h.mu.Unlock()
	switch e.Msg {
	case "slot granted", "first poll", "slot given":
		h.events = append(h.events, e)
	}
}

type slotID struct {
	channel string
	slot    int
}

// held returns the slots that replica held at a moment.
func (h *history) held(replica string, at time.Time) []slotID {
	h.mu.Lock()
	defer h.mu.Unlock()
	has := make(map[slotID]bool)
	for _, e := range h.events {
		if e.replica != replica || e.Time.After(at) {
			continue
		}
		switch e.Msg {
		case "first poll":
			has[slotID{e.Channel, e.Slot}] = true
		case "slot given":
			delete(has, slotID{e.Channel, e.Slot})
		}
	}
	slots := make([]slotID, 0, len(has))
	for s := range has {
		slots = append(slots, s)
	}
	return slots
}

// polledAfter returns when another replica first polled a slot after a moment.
func (h *history) polledAfter(s slotID, not string, after time.Time) (time.Time, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.events {
		if e.Msg == "first poll" && e.Channel == s.channel && e.Slot == s.slot && e.replica != not && e.At.After(after) {
			return e.At, true
		}
	}
	return time.Time{}, false
}

// killedTakeover is the longest wait from a kill to the next poll of the slots it left.
func (h *history) killedTakeover(f Fault) (ms int64, missing int) {
	ms = -1
	for _, s := range h.held(f.Replica, f.At) {
		at, ok := h.polledAfter(s, f.Replica, f.At)
		if !ok {
			missing++
			continue
		}
		ms = max(ms, at.Sub(f.At).Milliseconds())
	}
	return ms, missing
}

// gracefulTakeover is the longest wait from a slot given back by a stopping replica to its next poll.
func (h *history) gracefulTakeover(f Fault) int64 {
	h.mu.Lock()
	var given []event
	for _, e := range h.events {
		if e.replica == f.Replica && e.Msg == "slot given" && e.Time.After(f.At) {
			given = append(given, e)
		}
	}
	h.mu.Unlock()
	ms := int64(-1)
	for _, g := range given {
		if at, ok := h.polledAfter(slotID{g.Channel, g.Slot}, f.Replica, g.Time); ok {
			ms = max(ms, at.Sub(g.Time).Milliseconds())
		}
	}
	return ms
}

var errGone = errors.New("uma réplica terminou sozinha")
