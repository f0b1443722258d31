package leader

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cabine-pix/cabine/libs/clock"
)

// grace is what work gets to return even where no time is left, as after a pause longer
// than the lease: ending the process, the only alternative, takes longer.
const grace = time.Second

// look is how often a leader compares the clock with its deadline: a timer alone may be
// late on a machine that slept.
const look = 500 * time.Millisecond

// reign is one leadership: a term, its end, and who works under it.
type reign struct {
	term int64
	// over is closed, after cause was set, when the leadership ends.
	over  chan struct{}
	cause error
	work  sync.WaitGroup // Add only under Elector.mu while the reign is public
}

// lead runs the children until the leadership must end, and returns when they have
// returned: nil if ctx ended, the reason otherwise, ErrStuck if one did not return in time.
func (e *Elector) lead(ctx context.Context, l Lease, term int64) error {
	if cause := e.over(ctx, l); cause != nil {
		return cause // the term was minted too late to be of use
	}
	began := e.deps.Clock.Now()
	log := e.log.With("term", term, "grant", l.Grant())
	run, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &reign{term: term, over: make(chan struct{})}
	ended := make(chan error, len(e.children))
	for _, c := range e.children {
		r.work.Go(func() { ended <- e.child(run, c, term) })
	}
	e.publish(r)
	e.met.lead(term)
	log.InfoContext(ctx, "leading")

	cause := e.reigning(ctx, l, ended)
	e.publish(nil)
	e.met.follow(cause)
	cancel(cause)
	r.cause = cause
	close(r.over)
	err := e.gather(l, r, cause)
	took := e.deps.Clock.Now().Elapsed(began)
	switch {
	case err != nil:
		log.ErrorContext(ctx, "a child outlives its leadership, the lease is not given back, this process must end",
			"cause", cause, "led", took)
		return err
	case errors.Is(cause, context.Canceled) && ctx.Err() != nil:
		log.InfoContext(ctx, "leadership given up", "led", took)
		return nil
	}
	log.ErrorContext(ctx, "leadership lost", "cause", cause, "led", took)
	return cause
}

// child runs one child and says why the leadership ends with it.
func (e *Elector) child(ctx context.Context, c Child, term int64) error {
	err := c.Run(ctx, term)
	if ctx.Err() != nil {
		if err != nil && !errors.Is(err, context.Canceled) {
			e.log.WarnContext(ctx, "child ended with an error when told to stop", "child", c.Name, "term", term, "error", err)
		}
		return nil
	}
	if err == nil {
		return fmt.Errorf("%w: %s returned", ErrChildEnded, c.Name)
	}
	return fmt.Errorf("%w: %s: %w", ErrChildEnded, c.Name, err)
}

// reigning waits until the leadership must end and says why.
func (e *Elector) reigning(ctx context.Context, l Lease, ended <-chan error) error {
	timer := e.deps.Clock.NewTimer(look)
	defer timer.Stop()
	for {
		if cause := e.over(ctx, l); cause != nil {
			return cause
		}
		// Just past the deadline: at it there is no time left, but a rounded timer may fire before.
		timer.Reset(max(time.Millisecond, min(look, l.StartDeadline().Remaining(e.deps.Clock.Now()))))
		select {
		case <-ctx.Done():
		case <-l.Lost():
		case err := <-ended:
			return err
		case <-timer.C():
		}
	}
}

// over says why the leadership must end now; nil if it need not.
func (e *Elector) over(ctx context.Context, l Lease) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case l.Err() != nil:
		return fmt.Errorf("leader: lease lost: %w", l.Err())
	case l.StartDeadline().Passed(e.deps.Clock.Now()):
		return ErrDeadline
	}
	return nil
}

// gather waits until everything under the reign has returned. While the lease is still
// renewed that may take StopBudget; once it is lost, or its deadline was the cause, it may take
// until the instant at which the key may end, by the renewals confirmed when the work was told to stop.
func (e *Elector) gather(l Lease, r *reign, cause error) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.work.Wait()
	}()
	var until func() clock.Deadline
	if l.Err() != nil || errors.Is(cause, ErrDeadline) {
		abort := later(l.AbortDeadline(), e.deps.Clock.Now().Deadline(grace))
		until = func() clock.Deadline { return abort }
	} else {
		budget := e.deps.Clock.Now().Deadline(e.cfg.StopBudget)
		until = func() clock.Deadline { return earlier(budget, l.AbortDeadline()) }
	}
	timer := e.deps.Clock.NewTimer(look)
	defer timer.Stop()
	for {
		left := until().Remaining(e.deps.Clock.Now())
		if left <= 0 {
			select {
			case <-done:
				return nil
			default:
				return fmt.Errorf("%w: term %d", ErrStuck, r.term)
			}
		}
		timer.Reset(min(look, left))
		select {
		case <-done:
			return nil
		case <-timer.C():
		}
	}
}

// earlier returns the deadline that comes first. Both were made from readings of one clock.
func earlier(a, b clock.Deadline) clock.Deadline {
	if b.Boot < a.Boot {
		return b
	}
	return a
}

func later(a, b clock.Deadline) clock.Deadline {
	if b.Boot > a.Boot {
		return b
	}
	return a
}

func (e *Elector) publish(r *reign) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.reign = r
	close(e.changed)
	e.changed = make(chan struct{})
}

// While waits until this replica leads and runs fn with a context that ends with the
// leadership or with ctx, and with the term. Run waits for fn as for a child; what fn
// returns is the caller's affair. It returns ctx's error if ctx ended before.
func (e *Elector) While(ctx context.Context, fn func(ctx context.Context, term int64) error) error {
	for ctx.Err() == nil {
		e.mu.Lock()
		r, changed := e.reign, e.changed
		if r != nil {
			r.work.Add(1)
		}
		e.mu.Unlock()
		if r != nil {
			return r.guest(ctx, fn)
		}
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
	return ctx.Err()
}

// guest runs fn under the reign. The caller has added it to the work.
func (r *reign) guest(ctx context.Context, fn func(context.Context, int64) error) error {
	defer r.work.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var watch sync.WaitGroup
	defer watch.Wait()
	returned := make(chan struct{})
	defer close(returned)
	watch.Go(func() {
		select {
		case <-r.over:
			cancel(r.cause)
		case <-returned:
		}
	})
	return fn(ctx, r.term)
}

// Term returns the term of the current leadership; false for a follower. For people:
// whoever acts on it uses While, or is a child.
func (e *Elector) Term() (int64, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.reign == nil {
		return 0, false
	}
	return e.reign.term, true
}
