package plugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/transport"
)

// Host is a transport.Transport that lives in another process and is kept running.
// Run supervises; the calls may be made before, during and after it.
type Host struct {
	cfg     HostConfig
	clk     clock.Clock
	log     *slog.Logger
	metrics *metrics

	mu sync.Mutex
	// current can be called, or was until a moment ago; nil while none runs.
	current *process
	// changed is closed and replaced whenever current changes.
	changed chan struct{}
	// uses remembers for each slot which process its grant was last used with.
	uses map[transport.SlotID]use
}

type use struct {
	grant   string
	process *process
}

// New makes a host. It starts nothing; an error is about cfg or reg.
func New(cfg HostConfig, clk clock.Clock, log *slog.Logger, reg prometheus.Registerer) (*Host, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("transport host: %w", err)
	}
	m, err := newMetrics(reg)
	if err != nil {
		return nil, fmt.Errorf("transport host: metrics: %w", err)
	}
	return &Host{
		cfg: cfg, clk: clk, log: log, metrics: m,
		changed: make(chan struct{}), uses: make(map[transport.SlotID]use),
	}, nil
}

// Run keeps one transport process running until ctx ends, then stops it and returns
// nil. Close the streams and settle the slots before: a call under way when the
// process stops ends with PluginGone.
func (h *Host) Run(ctx context.Context) error {
	pause := h.cfg.MinBackoff
	for ctx.Err() == nil {
		began := h.clk.Now()
		h.once(ctx)
		if h.clk.Now().Elapsed(began) >= h.cfg.MaxBackoff {
			pause = h.cfg.MinBackoff
		}
		//nolint:gosec // jitter is not a secret
		jittered := pause/2 + rand.N(pause/2+1)
		if err := clock.Sleep(ctx, h.clk, jittered); err != nil {
			return nil //nolint:nilerr // being stopped is how Run ends
		}
		pause = min(2*pause, h.cfg.MaxBackoff)
	}
	return nil
}

// once runs one process from its start to its end.
func (h *Host) once(ctx context.Context) {
	p, err := launch(ctx, h.cfg, h.clk, h.log)
	if err != nil {
		if ctx.Err() == nil {
			h.metrics.ends.WithLabelValues(endStart).Inc()
			h.log.ErrorContext(ctx, "transport process did not start", "path", h.cfg.Path, "error", err)
		}
		return
	}
	h.log.InfoContext(ctx, "transport process started", "path", h.cfg.Path, "pid", p.run.process())
	h.set(p)
	began := h.clk.Now()
	cause := p.watch(ctx)
	if err := p.end(cause); err != nil {
		h.log.ErrorContext(ctx, "transport process cannot be ended", "error", err)
	}
	h.set(nil)
	h.metrics.ends.WithLabelValues(cause).Inc()
	level := slog.LevelError
	if cause == endStop {
		level = slog.LevelInfo
	}
	h.log.Log(ctx, level, "transport process ended",
		"cause", cause, "exit", fmt.Sprint(p.run.exit), "lived", h.clk.Now().Elapsed(began))
}

func (h *Host) set(p *process) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.current = p
	h.metrics.up.Set(0)
	if p != nil {
		h.metrics.up.Set(1)
	}
	close(h.changed)
	h.changed = make(chan struct{})
}

// Await returns when a process can be called, or with ctx's error.
func (h *Host) Await(ctx context.Context) error {
	for {
		h.mu.Lock()
		p, changed := h.current, h.changed
		h.mu.Unlock()
		if p != nil && p.alive() {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

// PID returns the process that can be called, for operators and tests; 0 while none runs.
func (h *Host) PID() int {
	p, err := h.running()
	if err != nil {
		return 0
	}
	return p.run.process()
}

// running returns the process that can be called.
func (h *Host) running() (*process, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.runningLocked()
}

func (h *Host) runningLocked() (*process, error) {
	if h.current == nil || !h.current.alive() {
		return nil, &transport.Error{Kind: transport.NotSent, Reason: "no transport process is running"}
	}
	return h.current, nil
}

// claim returns the process for a call of the permit's slot and remembers the use. A
// grant that was used with a process that is gone stays unusable.
func (h *Host) claim(permit transport.Permit) (*process, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if u, ok := h.uses[permit.Slot]; ok && u.grant == permit.Grant && !u.process.alive() {
		return nil, u.process.departed()
	}
	p, err := h.runningLocked()
	if err != nil {
		return nil, err
	}
	h.uses[permit.Slot] = use{grant: permit.Grant, process: p}
	return p, nil
}

// request makes one call that may become a request at the bank.
func (h *Host) request(
	ctx context.Context, method string, permit transport.Permit, timeout time.Duration,
	call func(context.Context, *process) error,
) (err error) {
	began := h.clk.Now()
	defer func() { h.metrics.observe(method, h.clk.Now().Elapsed(began), err) }()
	if err := ctx.Err(); err != nil {
		return &transport.Error{Kind: transport.NotSent, Reason: err.Error()}
	}
	budget := min(permit.NotAfter.Remaining(h.clk.Now()), h.cfg.ConnectBudget)
	if budget <= 0 {
		return &transport.Error{Kind: transport.NotSent, Reason: "the start deadline has passed"}
	}
	p, err := h.claim(permit)
	if err != nil {
		return err
	}
	callCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), budget+timeout+h.cfg.AnswerSlack)
	defer cancel()
	finished := h.abortWith(ctx, callCtx, cancel, p, permit.Slot)
	err = call(callCtx, p)
	tooSlow := callCtx.Err() != nil
	finished()
	var e *transport.Error
	if errors.As(err, &e) && e.Kind == transport.PluginGone {
		return p.lost(e, tooSlow)
	}
	return err
}

// abortWith lets the end of the caller's ctx end the call: the transport is told to
// drop the connection, and the call has AnswerSlack to say what had happened on it
// before it is given up. The returned function is called when the call has ended.
func (h *Host) abortWith(
	ctx, callCtx context.Context, cancel context.CancelFunc, p *process, slot transport.SlotID,
) (finished func()) {
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		defer cancel()
		slack, end := context.WithTimeout(callCtx, h.cfg.AnswerSlack)
		defer end()
		_ = p.Disconnect(slack, slot) // its failure shows in the call itself
		<-slack.Done()
	})
	return func() {
		if !stop() {
			cancel()
			<-done
		}
	}
}

// ask makes one call that is no request at the bank.
func (h *Host) ask(ctx context.Context, method string, call func(context.Context, *process) error) (err error) {
	began := h.clk.Now()
	defer func() { h.metrics.observe(method, h.clk.Now().Elapsed(began), err) }()
	p, err := h.running()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, h.cfg.ConnectBudget+h.cfg.AnswerSlack)
	defer cancel()
	err = call(ctx, p)
	var e *transport.Error
	if errors.As(err, &e) && e.Kind == transport.PluginGone {
		return p.lost(e, ctx.Err() != nil)
	}
	return err
}

// Capabilities implements transport.Transport.
func (h *Host) Capabilities(ctx context.Context) (c transport.Capabilities, err error) {
	err = h.ask(ctx, "capabilities", func(ctx context.Context, p *process) error {
		c, err = p.Capabilities(ctx)
		return err
	})
	return c, err
}

// Ready implements transport.Transport.
func (h *Host) Ready(ctx context.Context, channel pix.Channel, ispb pix.ISPB) error {
	return h.ask(ctx, "ready", func(ctx context.Context, p *process) error { return p.Ready(ctx, channel, ispb) })
}

// Pull implements transport.Transport.
func (h *Host) Pull(ctx context.Context, req transport.PullRequest) (r transport.PullResult, err error) {
	if err := req.Validate(); err != nil {
		return r, &transport.Error{Kind: transport.NotSent, Reason: err.Error()}
	}
	err = h.request(ctx, "pull", req.Permit, req.Timeout, func(ctx context.Context, p *process) (err error) {
		r, err = p.Pull(ctx, req)
		return err
	})
	return r, err
}

// Send implements transport.Transport.
func (h *Host) Send(ctx context.Context, req transport.SendRequest) (r transport.SendResult, err error) {
	if err := req.Validate(); err != nil {
		return r, &transport.Error{Kind: transport.NotSent, Reason: err.Error()}
	}
	err = h.request(ctx, "send", req.Permit, req.Timeout, func(ctx context.Context, p *process) (err error) {
		r, err = p.Send(ctx, req)
		return err
	})
	return r, err
}

// CloseStream implements transport.Transport.
func (h *Host) CloseStream(ctx context.Context, req transport.CloseRequest) (r transport.CloseResult, err error) {
	if err := req.Validate(); err != nil {
		return r, &transport.Error{Kind: transport.NotSent, Reason: err.Error()}
	}
	err = h.request(ctx, "close_stream", req.Permit, req.Timeout, func(ctx context.Context, p *process) (err error) {
		r, err = p.CloseStream(ctx, req)
		return err
	})
	return r, err
}

// Disconnect implements transport.Transport. Where the slot's process has ended there
// is no connection left, which is said once with PluginGone: its LastWrite tells from
// when the slot has to cool down.
func (h *Host) Disconnect(ctx context.Context, slot transport.SlotID) error {
	h.mu.Lock()
	u, used := h.uses[slot]
	h.mu.Unlock()
	if !used {
		return nil
	}
	var err error
	if u.process.alive() {
		err = h.ask(ctx, "disconnect", func(ctx context.Context, _ *process) error {
			return u.process.Disconnect(ctx, slot)
		})
		if err != nil {
			return err // the process may still hold the connection
		}
	} else {
		err = u.process.departed()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.uses[slot] == u {
		delete(h.uses, slot)
	}
	return err
}
