package decision

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/corebank"
	"github.com/cabine-pix/cabine/libs/resilience"
)

// Who decides, as payment_events has it.
const (
	ByCore  = "core"
	ByRules = "payments"
)

// SilentReason is the code for a core that did not decide: an error of the receiver's own systems.
const SilentReason = "AB09"

// Verdict is a decision about one payment.
type Verdict struct {
	Accepted bool
	// Reason is a code of pacs.002 when not accepted.
	Reason string
	// Detail explains it to people on this side.
	Detail string
	// Who decided: ByCore or ByRules.
	Who string
}

// Deps are what a Core needs from outside.
type Deps struct {
	Clock   clock.Clock
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Core asks the participant's core. It is safe for concurrent use.
type Core struct {
	cfg    Config
	clk    clock.Clock
	log    *slog.Logger
	client *http.Client
	policy *resilience.Policy
	slots  chan struct{}
	m      *metrics
}

// New returns a Core that has not connected yet.
func New(cfg Config, deps Deps) (*Core, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("decision config: %w", err)
	}
	policy, err := resilience.New(cfg.policy(), resilience.Deps{Log: deps.Log, Metrics: deps.Metrics})
	if err != nil {
		return nil, fmt.Errorf("decision: %w", err)
	}
	m, err := newMetrics(deps.Metrics)
	if err != nil {
		return nil, fmt.Errorf("decision metrics: %w", err)
	}
	return &Core{
		cfg: cfg, clk: deps.Clock, log: deps.Log, policy: policy, slots: make(chan struct{}, cfg.Concurrency), m: m,
		client: &http.Client{
			Transport: &http.Transport{
				TLSClientConfig: cfg.TLS.Clone(), ForceAttemptHTTP2: true,
				TLSHandshakeTimeout: cfg.AttemptTimeout, IdleConnTimeout: time.Minute,
				MaxIdleConnsPerHost: cfg.Concurrency, MaxConnsPerHost: cfg.Concurrency,
				MaxResponseHeaderBytes: corebank.MaxBody, DisableCompression: true,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// Close closes idle connections. Call it when nothing asks any more.
func (c *Core) Close() { c.client.CloseIdleConnections() }

// Decide returns the core's verdict, or the one for silence, within left at most. It fails
// only when ctx was cancelled: then nothing is decided.
func (c *Core) Decide(ctx context.Context, q corebank.Question, left time.Duration) (Verdict, error) {
	began := c.clk.Now()
	left = min(left, c.cfg.Timeout)
	q.Deadline = began.Wall.Add(left).UTC()
	answer, err := c.ask(ctx, q, left)
	if errors.Is(ctx.Err(), context.Canceled) {
		return Verdict{}, fmt.Errorf("ask the core: %w", ctx.Err())
	}
	c.m.seconds.Observe(c.clk.Now().Elapsed(began).Seconds())
	if err != nil {
		return c.silent(q.EndToEndID, err), nil
	}
	v := Verdict{Accepted: answer.Decision == corebank.Accepted, Reason: answer.Reason, Detail: printable(answer.Detail), Who: ByCore}
	if v.Accepted {
		c.m.decisions.WithLabelValues(outcomeAccepted).Inc()
	} else {
		c.m.decisions.WithLabelValues(outcomeRejected).Inc()
	}
	return v, nil
}

// silent decides without the core.
func (c *Core) silent(id string, cause error) Verdict {
	c.m.silent.WithLabelValues(why(cause)).Inc()
	c.log.Error("core is silent", slog.String("end_to_end_id", id), slog.String("decision", string(c.cfg.WhenSilent)),
		slog.String("why", why(cause)), slog.Any("error", cause))
	v := Verdict{Accepted: c.cfg.WhenSilent == Accept, Detail: "core is silent: " + why(cause), Who: ByRules}
	if v.Accepted {
		c.m.decisions.WithLabelValues(outcomeSilentAccepted).Inc()
	} else {
		v.Reason = SilentReason
		c.m.decisions.WithLabelValues(outcomeSilentRejected).Inc()
	}
	return v
}

func (c *Core) ask(ctx context.Context, q corebank.Question, left time.Duration) (corebank.Answer, error) {
	body, err := json.Marshal(q)
	if err != nil {
		return corebank.Answer{}, fmt.Errorf("write question: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return corebank.Answer{}, fmt.Errorf("%w: %d questions are under way", resilience.ErrTimeout, c.cfg.Concurrency)
	}
	var answer corebank.Answer
	err = c.policy.Do(ctx, func(ctx context.Context) error {
		answer, err = c.post(ctx, q.EndToEndID, body)
		return err
	})
	return answer, err
}

// errWrong: the core answered, and not as the contract has it.
var errWrong = errors.New("wrong answer")

func wrong(format string, args ...any) error {
	return resilience.Permanent(fmt.Errorf("%w: "+format, append([]any{errWrong}, args...)...))
}

// post is one attempt.
func (c *Core) post(ctx context.Context, id string, body []byte) (corebank.Answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.cfg.URL, bytes.NewReader(body))
	if err != nil {
		return corebank.Answer{}, resilience.Permanent(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	question := c.cfg.Keys.SignQuestion(req.Header, body, c.clk.Now().Wall)
	res, err := c.client.Do(req)
	if err != nil {
		return corebank.Answer{}, err
	}
	defer res.Body.Close() //nolint:errcheck // what is not read is of no interest
	said, err := io.ReadAll(io.LimitReader(res.Body, corebank.MaxBody+1))
	switch {
	case res.StatusCode >= 500 || res.StatusCode == http.StatusTooManyRequests:
		return corebank.Answer{}, fmt.Errorf("status %d", res.StatusCode)
	case res.StatusCode != http.StatusOK:
		return corebank.Answer{}, wrong("status %d", res.StatusCode)
	case err != nil:
		return corebank.Answer{}, fmt.Errorf("read answer: %w", err)
	case len(said) > corebank.MaxBody:
		return corebank.Answer{}, wrong("more than %d bytes", corebank.MaxBody)
	}
	if err := c.cfg.Keys.CheckAnswer(res.Header, said, question); err != nil {
		return corebank.Answer{}, wrong("%w", err)
	}
	var answer corebank.Answer
	if json.Unmarshal(said, &answer) != nil {
		return corebank.Answer{}, wrong("no JSON of an answer")
	}
	if err := answer.Check(id); err != nil {
		return corebank.Answer{}, wrong("%w", err)
	}
	return answer, nil
}

// printable keeps what fits a line of a report.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return -1
	}, s)
}
