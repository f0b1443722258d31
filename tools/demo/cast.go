package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cabine-pix/cabine/libs/devstack"
	"github.com/cabine-pix/cabine/tools/internal/stage"
)

// role is a service that replicas run.
type role string

const (
	polling  role = "icom-poller"
	paying   role = "payments"
	sending  role = "outbound-sender"
	settling role = "settlement-scheduler"
)

// replica is one running process.
type replica struct {
	role role
	of   *stage.Participant
	proc *stage.Process
	base string // of the API's URLs, of a replica of payments
}

// troupe is the running replicas of both participants.
type troupe struct {
	o       options
	stage   *stage.Stage
	history *history
	hearing *hearing
	// creations hears who creates consumers, on the bus of each participant.
	creations []*devstack.Requests

	mu      sync.Mutex
	running map[string]*replica
	next    map[string]int
}

// enter starts one more replica and returns its name: the role's and the participant's place, and a number, as "poller-a1".
func (t *troupe) enter(ctx context.Context, r role, of *stage.Participant) (string, error) {
	short := map[role]string{polling: "poller", paying: "payments", sending: "sender", settling: "scheduler"}[r]
	t.mu.Lock()
	kind := fmt.Sprintf("%s-%c", short, 'a'+t.place(of))
	t.next[kind]++
	name := fmt.Sprintf("%s%d", kind, t.next[kind])
	t.mu.Unlock()

	rep := &replica{role: r, of: of}
	line := func(line []byte) {
		t.hearing.read(of.ISPB, name, line)
		if of == t.stage.Participants[0] {
			t.history.read(name, line)
		}
	}
	var err error
	switch r {
	case polling:
		rep.proc, err = of.Poller(name, line, nil)
	case paying:
		rep.proc, rep.base, err = of.Payments(ctx, name, line, nil)
	case sending:
		rep.proc, err = of.Sender(name, line, nil)
	case settling:
		rep.proc, err = of.Scheduler(name, line, scheduling())
	}
	if err != nil {
		return "", err
	}
	go func() {
		<-rep.proc.Done() // all that it said was heard
		t.hearing.gone(name, time.Now())
	}()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running[name] = rep
	return name, nil
}

func (t *troupe) place(of *stage.Participant) int {
	for i, p := range t.stage.Participants {
		if p == of {
			return i
		}
	}
	return len(t.stage.Participants)
}

// leave takes a replica out of the books and returns its process.
func (t *troupe) leave(name string) *stage.Process {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.running[name]
	delete(t.running, name)
	return r.proc
}

// first returns the name of a running replica.
func (t *troupe) first(r role, of *stage.Participant) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	best := ""
	for name, rep := range t.running {
		if rep.role == r && rep.of == of && (best == "" || name < best) {
			best = name
		}
	}
	return best
}

// next to be harmed: of those that have a leader it is the leader, once there is one.
func (t *troupe) victim(ctx context.Context, view *table, r role, of *stage.Participant) (name string, err error) {
	if r != settling {
		return t.first(r, of), nil
	}
	return name, t.until(ctx, view, 60*time.Second, "um líder da liquidação", func(context.Context) (bool, error) {
		name = t.hearing.leader(of.ISPB)
		return name != "" && t.isRunning(name), nil
	})
}

// bases returns where the API of a participant is served.
func (t *troupe) bases(of *stage.Participant) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []string
	for _, rep := range t.running {
		if rep.role == paying && rep.of == of {
			all = append(all, rep.base)
		}
	}
	return all
}

// gone returns an error if a replica ended that nobody asked to.
func (t *troupe) gone() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, r := range t.running {
		select {
		case <-r.proc.Done():
			return fmt.Errorf("%w: %s: %w", errGone, name, errors.Join(r.proc.Err(), errors.New("veja os logs com -logs")))
		default:
		}
	}
	return nil
}

// exit stops all replicas in order.
func (t *troupe) exit() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var g errgroup.Group
	for _, r := range t.running {
		g.Go(func() error { return r.proc.Stop(20 * time.Second) })
	}
	clear(t.running)
	return g.Wait()
}
