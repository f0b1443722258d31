package lease

import (
	"errors"
	"fmt"
	"time"
)

// Timing holds the times of the permit. All replicas that share a Redis agree on TTL,
// BankHold and LongestTTL, otherwise the config record refuses the one that came later.
type Timing struct {
	// TTL is T, how long a slot's key lives after the last renewal. Default 20 s.
	TTL time.Duration
	// BankHold is B, the longest time the bank may still count a request after its
	// first byte was written: the bank's hold, its own processing and UserTimeout.
	// One second too few breaks the Cap. Default 8 s (5 s hold).
	BankHold time.Duration
	// Heartbeat is h, the period of the batched renewal. Default 1 s.
	Heartbeat time.Duration
	// RenewTimeout bounds one call to Redis. Default 1 s.
	RenewTimeout time.Duration
	// ReceiveTimeout is the longest wait for an answer of the bank; below BankHold,
	// so that we stop waiting before the bank stops counting. Default 6.5 s.
	ReceiveTimeout time.Duration
	// UserTimeout is u, TCP_USER_TIMEOUT of every socket to the bank: how long the
	// kernel may go on delivering bytes already written. Default 1.5 s.
	UserTimeout time.Duration
	// MaxLag is Redis' min-replicas-max-lag: how long a primary that was cut off
	// may go on taking writes. Default 3 s; zero only for a Redis without replicas,
	// said with NoReplicas.
	MaxLag time.Duration
	// NoReplicas says that Redis has no replica that could be promoted, so that
	// MaxLag is zero.
	NoReplicas bool
	// LongestTTL is T_longest, a constant of the schema: the longest TTL of any
	// version that may ever share this Redis. It sets the quarantine after Redis
	// lost state. Change it only while nothing runs. Default 20 s.
	LongestTTL time.Duration
}

// WithDefaults returns a copy in which zero fields have their defaults.
func (t Timing) WithDefaults() Timing {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&t.TTL, 20*time.Second)
	def(&t.BankHold, 8*time.Second)
	def(&t.Heartbeat, time.Second)
	def(&t.RenewTimeout, time.Second)
	def(&t.ReceiveTimeout, 6500*time.Millisecond)
	def(&t.UserTimeout, 1500*time.Millisecond)
	def(&t.LongestTTL, 20*time.Second)
	if !t.NoReplicas {
		def(&t.MaxLag, 3*time.Second)
	}
	return t
}

// Eps is the slack for two clocks whose rates differ (1 % each) and for scheduling: 2 % of TTL and 50 ms.
func (t Timing) Eps() time.Duration { return t.TTL/50 + 50*time.Millisecond }

// LagBound is L_eff, how long after being cut off an old primary may still have accepted
// a write: replicas acknowledge each second. Zero where no replica can be promoted.
func (t Timing) LagBound() time.Duration {
	if t.NoReplicas {
		return 0
	}
	return t.MaxLag + time.Second
}

// Quarantine is Q, how long nobody but the holders gets a slot after Redis lost state.
func (t Timing) Quarantine() time.Duration { return t.LongestTTL + t.Eps() + t.LagBound() }

// Horizon is how long after a confirmed renewal was sent a request may still be started: T - eps - B.
func (t Timing) Horizon() time.Duration { return t.TTL - t.Eps() - t.BankHold }

// Trust is how long after a confirmed renewal was sent the next one's answer still counts: T - eps - L_eff.
func (t Timing) Trust() time.Duration { return t.TTL - t.Eps() - t.LagBound() }

// Validate checks the inequalities that the Cap rests on and names the numbers of each one that fails.
func (t Timing) Validate() error {
	var errs []error
	for _, f := range []struct {
		name string
		d    time.Duration
	}{
		{"TTL", t.TTL},
		{"BankHold", t.BankHold},
		{"Heartbeat", t.Heartbeat},
		{"RenewTimeout", t.RenewTimeout},
		{"ReceiveTimeout", t.ReceiveTimeout},
		{"UserTimeout", t.UserTimeout},
		{"LongestTTL", t.LongestTTL},
	} {
		if f.d < time.Millisecond {
			errs = append(errs, fmt.Errorf("%s is %v, want at least 1ms", f.name, f.d))
		}
	}
	if t.MaxLag < 0 {
		errs = append(errs, fmt.Errorf("MaxLag is %v, want zero or more", t.MaxLag))
	}
	if t.NoReplicas && t.MaxLag != 0 {
		errs = append(errs, fmt.Errorf("MaxLag is %v although NoReplicas says there is no replica", t.MaxLag))
	}
	beats := 3*t.Heartbeat + t.RenewTimeout
	if need := t.BankHold + t.Eps() + beats; t.TTL < need {
		errs = append(errs, fmt.Errorf(
			"TTL is %v, want at least BankHold %v + eps %v + 3 x Heartbeat %v + RenewTimeout %v = %v",
			t.TTL, t.BankHold, t.Eps(), t.Heartbeat, t.RenewTimeout, need))
	}
	if need := t.LagBound() + t.Eps() + beats; t.TTL < need {
		errs = append(errs, fmt.Errorf(
			"TTL is %v, want at least L %v + eps %v + 3 x Heartbeat %v + RenewTimeout %v = %v",
			t.TTL, t.LagBound(), t.Eps(), t.Heartbeat, t.RenewTimeout, need))
	}
	if t.TTL > t.LongestTTL {
		errs = append(errs, fmt.Errorf("TTL is %v, want at most LongestTTL %v", t.TTL, t.LongestTTL))
	}
	if t.ReceiveTimeout >= t.BankHold {
		errs = append(errs, fmt.Errorf("ReceiveTimeout is %v, want less than BankHold %v", t.ReceiveTimeout, t.BankHold))
	}
	if t.UserTimeout >= t.BankHold {
		errs = append(errs, fmt.Errorf("UserTimeout is %v, want less than BankHold %v", t.UserTimeout, t.BankHold))
	}
	return errors.Join(errs...)
}
