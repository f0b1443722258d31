package telemetry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// Check asks one dependency whether it answers; it must end soon after ctx does.
type Check func(ctx context.Context) error

// ErrCheckStuck says that the previous run of a check has not returned although its time is over, so it was not started again.
var ErrCheckStuck = errors.New("health: the last check has not returned")

// Health answers the two questions of a platform. Live: is the process worth keeping?
// It fails only on what a restart would heal. Ready: may it be given work, and may a
// rolling deploy go on? It never depends on a permit or the leadership: a new replica
// must become ready while the old one still holds both.
type Health struct {
	mu       sync.Mutex
	live     []*probe
	ready    []*probe
	draining bool
}

// NewHealth returns a Health without checks, which is live and ready.
func NewHealth() *Health { return &Health{} }

type probe struct {
	name    string
	timeout time.Duration
	check   Check
	busy    chan struct{} // holds one element while the check runs
}

// AddLive adds a check to Live and Ready. A zero timeout is two seconds.
func (h *Health) AddLive(name string, timeout time.Duration, c Check) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.live = append(h.live, newProbe(name, timeout, c))
}

// AddReady adds a check to Ready. A zero timeout is two seconds.
func (h *Health) AddReady(name string, timeout time.Duration, c Check) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ready = append(h.ready, newProbe(name, timeout, c))
}

// Drain makes Ready fail from now on: the process is stopping.
func (h *Health) Drain() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.draining = true
}

// Report is the answer to a health question.
type Report struct {
	// Status is "ok", "failing" or "draining".
	Status string `json:"status"`
	// Checks holds "ok" or the reason of failure, by name.
	Checks map[string]string `json:"checks,omitempty"`
}

// OK reports whether nothing failed.
func (r Report) OK() bool { return r.Status == "ok" }

// Live runs the live checks.
func (h *Health) Live(ctx context.Context) Report {
	h.mu.Lock()
	probes := h.live
	h.mu.Unlock()
	return ask(ctx, probes)
}

// Ready runs all checks.
func (h *Health) Ready(ctx context.Context) Report {
	h.mu.Lock()
	probes := append(append([]*probe(nil), h.live...), h.ready...)
	draining := h.draining
	h.mu.Unlock()
	if draining {
		return Report{Status: "draining"}
	}
	return ask(ctx, probes)
}

// LiveHandler serves Live: 200 or 503 with the report as JSON.
func (h *Health) LiveHandler() http.Handler { return answer(h.Live) }

// ReadyHandler serves Ready: 200 or 503 with the report as JSON.
func (h *Health) ReadyHandler() http.Handler { return answer(h.Ready) }

func answer(question func(context.Context) Report) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		report := question(r.Context())
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		if !report.OK() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(report) // the asker has gone: nobody to tell
	})
}

// ask runs all probes at once.
func ask(ctx context.Context, probes []*probe) Report {
	errs := make([]error, len(probes))
	var wg sync.WaitGroup
	for i, p := range probes {
		wg.Go(func() { errs[i] = p.run(ctx) })
	}
	wg.Wait()
	report := Report{Status: "ok", Checks: make(map[string]string, len(probes))}
	for i, p := range probes {
		report.Checks[p.name] = "ok"
		if errs[i] != nil {
			report.Status = "failing"
			report.Checks[p.name] = Redact(errs[i].Error())
		}
	}
	return report
}

func newProbe(name string, timeout time.Duration, c Check) *probe {
	if timeout <= 0 {
		timeout = 2 * time.Second
	}
	return &probe{name: name, timeout: timeout, check: c, busy: make(chan struct{}, 1)}
}

// run asks once. A check that ignores its context is left behind, alone, and not started again before it has returned.
func (p *probe) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	select {
	case p.busy <- struct{}{}:
	case <-ctx.Done():
		return ErrCheckStuck
	}
	done := make(chan error, 1)
	go func() {
		defer func() { <-p.busy }()
		defer func() {
			if r := recover(); r != nil {
				done <- fmt.Errorf("health: check panicked: %v", r)
			}
		}()
		done <- p.check(ctx)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("no answer within %v: %w", p.timeout, ctx.Err())
	}
}
