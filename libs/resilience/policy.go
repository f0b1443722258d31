package resilience

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/retrypolicy"
	"github.com/failsafe-go/failsafe-go/timeout"
	"github.com/prometheus/client_golang/prometheus"
)

// What a call may end with, beside the last error of what was called.
var (
	// ErrOpen: the breaker is open, nothing was called.
	ErrOpen = errors.New("circuit breaker is open")
	// ErrTimeout: the attempts did not end in time.
	ErrTimeout = errors.New("no answer in time")
)

// Deps are what a policy needs from outside.
type Deps struct {
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Policy guards the calls of one thing. It is safe for concurrent use.
type Policy struct {
	cfg      Config
	executor failsafe.Executor[any]
	breaker  circuitbreaker.CircuitBreaker[any]
	calls    *prometheus.CounterVec
	retries  prometheus.Counter
}

// New returns a policy. Two of one name cannot share a registry.
func New(cfg Config, deps Deps) (*Policy, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("resilience config: %w", err)
	}
	p := &Policy{cfg: cfg}
	if err := p.measure(deps.Metrics); err != nil {
		return nil, fmt.Errorf("resilience metrics: %w", err)
	}
	log := deps.Log.With(slog.String("policy", cfg.Name))
	p.breaker = circuitbreaker.NewBuilder[any]().
		HandleIf(func(_ any, err error) bool { return err != nil && !abandoned(err) }).
		WithFailureRateThreshold(float64(cfg.FailureShare)/100, uint(cfg.WindowCalls), cfg.Window).
		WithDelay(cfg.OpenFor).
		WithSuccessThreshold(uint(cfg.Probes)).
		OnStateChanged(func(e circuitbreaker.StateChangedEvent) {
			log.Warn("circuit breaker moved", slog.String("was", e.OldState.String()), slog.String("became", e.NewState.String()))
		}).
		Build()
	retry := retrypolicy.NewBuilder[any]().
		WithMaxAttempts(cfg.Attempts).
		WithBackoff(cfg.Pause, max(cfg.PauseMost, cfg.Pause+1)). // failsafe-go wants them apart
		WithJitterFactor(0.5).
		ReturnLastFailure().
		AbortIf(func(_ any, err error) bool { return permanent(err) || abandoned(err) }).
		OnRetry(func(failsafe.ExecutionEvent[any]) { p.retries.Inc() }).
		Build()
	p.executor = failsafe.With[any](timeout.New[any](cfg.Timeout), p.breaker, retry, timeout.New[any](cfg.AttemptTimeout))
	return p, nil
}

func (p *Policy) measure(reg prometheus.Registerer) error {
	labels := prometheus.Labels{"policy": p.cfg.Name}
	p.calls = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "cabine_resilience_calls_total", Help: "Calls by how they ended, attempts not counted.", ConstLabels: labels,
	}, []string{"outcome"})
	p.retries = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "cabine_resilience_retries_total", Help: "Attempts after the first.", ConstLabels: labels,
	})
	open := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "cabine_resilience_breaker_open", Help: "1 while the circuit breaker refuses calls.", ConstLabels: labels,
	}, func() float64 {
		if p.Open() {
			return 1
		}
		return 0
	})
	for _, outcome := range []string{outcomeOK, outcomeFailed, outcomeTimeout, outcomeOpen, outcomeAbandoned} {
		p.calls.WithLabelValues(outcome)
	}
	for _, c := range []prometheus.Collector{p.calls, p.retries, open} {
		if err := reg.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// Open reports whether calls are refused at this moment.
func (p *Policy) Open() bool {
	return p.breaker != nil && p.breaker.IsOpen() && p.breaker.RemainingDelay() > 0
}

// Do calls fn under the policy and returns its last error, ErrOpen or ErrTimeout. fn may be
// called several times, each with a context of its own, and must return when that ends.
func (p *Policy) Do(ctx context.Context, fn func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := p.executor.WithContext(ctx).RunWithExecution(func(e failsafe.Execution[any]) error {
		err := fn(e.Context())
		if err != nil && errors.Is(ctx.Err(), context.Canceled) {
			return givenUpError{err}
		}
		return err
	})
	err = outward(ctx, err)
	p.calls.WithLabelValues(outcome(err)).Inc()
	return err
}

// outward turns failsafe-go's errors into this package's.
func outward(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case errors.Is(err, circuitbreaker.ErrOpen):
		return ErrOpen
	case errors.Is(err, timeout.ErrExceeded), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: %w", ErrTimeout, err)
	}
	if p, ok := errors.AsType[permanentError](err); ok {
		return p.error
	}
	return err
}

const (
	outcomeOK        = "ok"
	outcomeFailed    = "failed"
	outcomeTimeout   = "timeout"
	outcomeOpen      = "open"
	outcomeAbandoned = "abandoned"
)

func outcome(err error) string {
	switch {
	case err == nil:
		return outcomeOK
	case errors.Is(err, context.Canceled):
		return outcomeAbandoned
	case errors.Is(err, ErrOpen):
		return outcomeOpen
	case errors.Is(err, ErrTimeout):
		return outcomeTimeout
	default:
		return outcomeFailed
	}
}

// Permanent marks an error that another attempt would only repeat. Do returns it without the mark.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return permanentError{err}
}

type permanentError struct{ error }

func (p permanentError) Unwrap() error { return p.error }

func permanent(err error) bool {
	_, ok := errors.AsType[permanentError](err)
	return ok
}

// givenUpError is what fn returned after its caller went away.
type givenUpError struct{ error }

func (g givenUpError) Unwrap() error { return g.error }

func abandoned(err error) bool {
	_, ok := errors.AsType[givenUpError](err)
	return ok || errors.Is(err, context.Canceled)
}
