package guard

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cabine-pix/cabine/libs/clock"
)

// Errors of Write and Arm. A Write that returns one of them has written nothing.
var (
	// ErrPastDeadline: the start deadline had passed before the first byte.
	ErrPastDeadline = errors.New("guard: the start deadline has passed")
	// ErrNotArmed: a write without a permit.
	ErrNotArmed = errors.New("guard: write without a permit")
	// ErrArmed: Arm during a request.
	ErrArmed = errors.New("guard: a request is under way")
)

// Config holds the socket options. All of them bound how long bytes already handed to
// the kernel may go on travelling, and how long a dead network goes unnoticed.
type Config struct {
	// UserTimeout is u, TCP_USER_TIMEOUT: how long the kernel tries to deliver what
	// was written. B, the bank hold, contains it. Default 1.5 s, at least 1 ms.
	UserTimeout time.Duration
	// KeepAlive is the idle time before and between probes, by which a dead network
	// is noticed during a long poll. Default 1 s, at least 1 s (the kernel counts seconds).
	KeepAlive time.Duration
}

// WithDefaults returns a copy in which zero fields have their defaults.
func (c Config) WithDefaults() Config {
	if c.UserTimeout == 0 {
		c.UserTimeout = 1500 * time.Millisecond
	}
	if c.KeepAlive == 0 {
		c.KeepAlive = time.Second
	}
	return c
}

// Validate reports the first field that is out of range.
func (c Config) Validate() error {
	if c.UserTimeout < time.Millisecond {
		return fmt.Errorf("guard: UserTimeout is %v, want at least 1ms", c.UserTimeout)
	}
	if c.KeepAlive < time.Second {
		return fmt.Errorf("guard: KeepAlive is %v, want at least 1s", c.KeepAlive)
	}
	return nil
}

type state int

const (
	open state = iota
	armed
	writing
	shut
)

// Conn is a TCP connection whose writes need a permit. Reads, closing and deadlines
// pass through. One goroutine writes at a time; everything else is safe for
// concurrent use.
type Conn struct {
	// Only net.Conn's own methods pass through: ReadFrom or SyscallConn of a TCP
	// connection would lead past the guard.
	net.Conn
	tcp *net.TCPConn
	sys syscall.RawConn
	clk clock.Clock

	mu        sync.Mutex
	state     state
	deadline  clock.Deadline
	firstByte clock.Instant
}

// Wrap sets the socket options and returns the guarded connection, open for a
// handshake. It takes over tcp: on an error tcp is closed.
func Wrap(tcp *net.TCPConn, clk clock.Clock, cfg Config) (*Conn, error) {
	c, err := wrap(tcp, clk, cfg.WithDefaults())
	if err != nil {
		return nil, errors.Join(err, tcp.Close())
	}
	return c, nil
}

func wrap(tcp *net.TCPConn, clk clock.Clock, cfg Config) (*Conn, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	sys, err := tcp.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("guard: socket: %w", err)
	}
	err = tcp.SetKeepAliveConfig(net.KeepAliveConfig{
		Enable: true, Idle: cfg.KeepAlive, Interval: cfg.KeepAlive, Count: 3,
	})
	if err != nil {
		return nil, fmt.Errorf("guard: keep-alive: %w", err)
	}
	var opt error
	err = sys.Control(func(fd uintptr) {
		opt = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(cfg.UserTimeout.Milliseconds()))
	})
	if err := errors.Join(err, opt); err != nil {
		return nil, fmt.Errorf("guard: TCP_USER_TIMEOUT: %w", err)
	}
	return &Conn{Conn: tcp, tcp: tcp, sys: sys, clk: clk}, nil
}

// Arm allows one request whose first byte is written before d, and forgets the first
// byte of the request before it. It fails with ErrPastDeadline when d has passed and
// with ErrArmed while the request of an earlier Arm is under way.
func (c *Conn) Arm(d clock.Deadline) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == armed || c.state == writing {
		return ErrArmed
	}
	c.state, c.deadline, c.firstByte = shut, d, 0
	if d.Passed(c.clk.Now()) {
		return ErrPastDeadline
	}
	c.state = armed
	return nil
}

// Disarm forbids every further write until the next Arm.
func (c *Conn) Disarm() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state = shut
}

// FirstByte returns the last instant at which the first byte of the request of the
// last Arm was written; zero if nothing was.
func (c *Conn) FirstByte() clock.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.firstByte
}

// Write implements net.Conn and is where the deadline is kept.
func (c *Conn) Write(b []byte) (int, error) {
	switch c.current() {
	case open, writing:
		return c.Conn.Write(b)
	case armed:
		if len(b) == 0 {
			return 0, nil
		}
		n, err := c.writeFirst(b)
		if err != nil || n == len(b) {
			return n, err
		}
		m, err := c.Conn.Write(b[n:])
		return n + m, err
	case shut:
	}
	return 0, ErrNotArmed
}

func (c *Conn) current() state {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// writeFirst hands the first byte to the kernel. The runtime calls attempt again after
// waiting for a full socket, so the clock is read before every system call. The lock
// is held across it: whoever shuts the connection knows that nothing follows.
func (c *Conn) writeFirst(b []byte) (n int, err error) {
	attempt := func(fd uintptr) (done bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.state != armed {
			err = ErrNotArmed
			return true
		}
		for {
			if c.deadline.Passed(c.clk.Now()) {
				c.state = shut
				err = ErrPastDeadline
				return true
			}
			n, err = unix.Write(int(fd), b)
			if err != unix.EINTR {
				break
			}
		}
		switch err {
		case nil:
			c.firstByte = c.clk.Now().Boot
			c.state = writing
			return true
		case unix.EAGAIN:
			return false
		default:
			n, err = 0, &net.OpError{
				Op: "write", Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(),
				Err: os.NewSyscallError("write", err),
			}
			return true
		}
	}
	if sysErr := c.sys.Write(attempt); sysErr != nil {
		return 0, sysErr
	}
	return n, err
}

// Read implements net.Conn. The first bytes of an answer end the leave to write.
func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.mu.Lock()
		if c.state == writing {
			c.state = shut
		}
		c.mu.Unlock()
	}
	return n, err
}

// Alive reports whether an idle connection can carry another request: the peer has
// neither closed it nor sent anything unasked. It does not block and writes nothing.
func (c *Conn) Alive() bool {
	alive := false
	err := c.sys.Control(func(fd uintptr) {
		var b [1]byte
		_, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		alive = err == unix.EAGAIN
	})
	return err == nil && alive
}

// Abort closes the connection so that nothing more leaves the kernel: unsent bytes are
// discarded and the peer gets a reset instead of an orderly end.
func (c *Conn) Abort() error {
	c.Disarm()
	// A connection that is closed already has nothing left to discard.
	_ = c.tcp.SetLinger(0)
	return c.Close()
}
