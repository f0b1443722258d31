package plugin

import (
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"time"
)

// HostConfig says which executable carries the requests and how it is kept running.
type HostConfig struct {
	// Path of the executable, absolute.
	Path string
	// Args of the executable, without its name. They are visible to every user of the
	// machine: no secrets.
	Args []string
	// Env is the whole environment of the process, "KEY=value"; it inherits nothing.
	// Secrets go in files whose paths stand here.
	Env []string
	// SHA256 is the hexadecimal digest that the executable must have; the very file
	// that was hashed is run. Empty: not checked.
	SHA256 string
	// SocketDir is where the Unix socket's own directory is made. It must be writable
	// and short (a socket's path has at most 107 bytes). Empty: the system's temporary directory.
	SocketDir string
	// StartTimeout is how long a process may take until it can be called. Default 10 s.
	StartTimeout time.Duration
	// MinBackoff and MaxBackoff bound the pause before a new process: it doubles with
	// each process that lived for less than MaxBackoff, and half of it is random.
	// Defaults 200 ms and 15 s.
	MinBackoff, MaxBackoff time.Duration
	// StopGrace is how long a process may take to leave when asked, before it is killed. Default 2 s.
	StopGrace time.Duration
	// PingInterval is the pause between two looks at whether the process answers. Default 1 s.
	PingInterval time.Duration
	// SilenceLimit is how long a process may leave such a look unanswered before it is
	// killed and replaced. Too small, and a busy machine kills a healthy process. Default 5 s.
	SilenceLimit time.Duration
	// ConnectBudget is the longest time from a call to its first byte: name
	// resolution, dial, handshake. Default 6 s.
	ConnectBudget time.Duration
	// AnswerSlack is how much longer than its own timeouts a call may take to answer,
	// and how long a cancelled call is given to say what happened. Default 500 ms.
	AnswerSlack time.Duration
}

// WithDefaults returns a copy in which zero fields have their defaults.
func (c HostConfig) WithDefaults() HostConfig {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&c.StartTimeout, 10*time.Second)
	def(&c.MinBackoff, 200*time.Millisecond)
	def(&c.MaxBackoff, 15*time.Second)
	def(&c.StopGrace, 2*time.Second)
	def(&c.PingInterval, time.Second)
	def(&c.SilenceLimit, 5*time.Second)
	def(&c.ConnectBudget, 6*time.Second)
	def(&c.AnswerSlack, 500*time.Millisecond)
	return c
}

// Validate reports everything that is wrong.
func (c HostConfig) Validate() error {
	var errs []error
	if !filepath.IsAbs(c.Path) {
		errs = append(errs, fmt.Errorf("executable: Path is %q, want an absolute path", c.Path))
	}
	if c.SHA256 != "" {
		if sum, err := hex.DecodeString(c.SHA256); err != nil || len(sum) != 32 {
			errs = append(errs, errors.New("SHA256 is not 64 hexadecimal digits"))
		}
	}
	for _, f := range []struct {
		name string
		d    time.Duration
	}{
		{"StartTimeout", c.StartTimeout},
		{"MinBackoff", c.MinBackoff},
		{"StopGrace", c.StopGrace},
		{"PingInterval", c.PingInterval},
		{"SilenceLimit", c.SilenceLimit},
		{"ConnectBudget", c.ConnectBudget},
		{"AnswerSlack", c.AnswerSlack},
	} {
		if f.d < time.Millisecond {
			errs = append(errs, fmt.Errorf("%s is %v, want at least 1ms", f.name, f.d))
		}
	}
	if c.MaxBackoff < c.MinBackoff {
		errs = append(errs, fmt.Errorf("MaxBackoff is %v, want at least MinBackoff %v", c.MaxBackoff, c.MinBackoff))
	}
	return errors.Join(errs...)
}
