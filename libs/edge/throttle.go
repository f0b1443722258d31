package edge

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cabine-pix/cabine/libs/clock"
)

// ThrottleConfig says how much one client may ask.
type ThrottleConfig struct {
	// Disabled lets everything through.
	Disabled bool
	// Limit is the number of requests in Window. A client that was silent may make them all at once; they come back evenly.
	Limit int
	// Window is the time in which Limit comes back.
	Window time.Duration
	// TrustProxyHops is how many proxies before us are ours: that many entries at the end of X-Forwarded-For and the
	// connection's own address are believed, nothing before them. 0: the connection's address is the client's.
	TrustProxyHops int
	// Clients is how many clients are remembered at once; above it, strangers share one allowance. Default 65,536.
	Clients int
}

// WithDefaults returns a copy in which zero fields have their defaults.
func (c ThrottleConfig) WithDefaults() ThrottleConfig {
	if c.Clients == 0 {
		c.Clients = 1 << 16
	}
	return c
}

// Validate names every field that is wrong.
func (c ThrottleConfig) Validate() error {
	var errs []error
	if !c.Disabled && (c.Limit < 1 || c.Window < time.Millisecond) {
		errs = append(errs, fmt.Errorf("limit is %d in %v, want at least 1 in at least 1ms", c.Limit, c.Window))
	}
	if c.TrustProxyHops < 0 || c.TrustProxyHops > 10 {
		errs = append(errs, fmt.Errorf("trusted proxies are %d, want 0 to 10", c.TrustProxyHops))
	}
	if c.Clients < 1 {
		errs = append(errs, fmt.Errorf("remembered clients are %d, want at least 1", c.Clients))
	}
	return errors.Join(errs...)
}

// Throttle counts requests per client, in this process.
type Throttle struct {
	cfg     ThrottleConfig
	clk     clock.Clock
	refused prometheus.Counter

	mu    sync.Mutex
	began clock.Reading
	// full is, per client, when its allowance will be whole again, since began. Guarded by mu.
	full  map[string]time.Duration
	swept time.Duration
}

// NewThrottle returns a throttle and registers cabine_http_throttled_total.
func NewThrottle(cfg ThrottleConfig, clk clock.Clock, reg prometheus.Registerer) (*Throttle, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("throttle: %w", err)
	}
	refused := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "cabine_http_throttled_total", Help: "Requests answered 429 because a client asked too often.",
	})
	if err := reg.Register(refused); err != nil {
		return nil, fmt.Errorf("throttle metrics: %w", err)
	}
	return &Throttle{cfg: cfg, clk: clk, refused: refused, began: clk.Now(), full: make(map[string]time.Duration)}, nil
}

// Throttle answers 429 to a client that asks too often, with the time after which one more request is allowed.
func (t *Throttle) Throttle(next http.Handler) http.Handler {
	if t.cfg.Disabled {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if wait := t.take(t.clientOf(r)); wait > 0 {
			t.refused.Inc()
			p := NewProblem(http.StatusTooManyRequests, "limite-excedido", "Limite de requisições excedido",
				"Até "+strconv.Itoa(t.cfg.Limit)+" requisições a cada "+t.cfg.Window.String()+" por cliente.")
			p.RetryAfter = wait
			p.Write(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// strangers share one allowance when too many clients are remembered.
const strangers = "strangers"

// take counts a request and returns zero, or how long its client has to wait (the generic cell rate algorithm).
func (t *Throttle) take(client string) time.Duration {
	now := t.clk.Now().Elapsed(t.began)
	each := max(1, t.cfg.Window/time.Duration(t.cfg.Limit))
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.full[client]; !known && len(t.full) >= t.cfg.Clients {
		if t.sweep(now); len(t.full) >= t.cfg.Clients {
			client = strangers
		}
	}
	next := max(t.full[client], now) + each
	if early := next - now - t.cfg.Window; early > 0 {
		return early
	}
	t.full[client] = next
	return 0
}

// sweep forgets who has a whole allowance, at most once in a tenth of the window: it looks at every client.
func (t *Throttle) sweep(now time.Duration) {
	if now-t.swept < t.cfg.Window/10 && t.swept > 0 {
		return
	}
	t.swept = now
	for client, full := range t.full {
		if full <= now {
			delete(t.full, client)
		}
	}
}

// clientOf names whoever is counted: the client behind the token, or an address. The two cannot be confused: a name
// is prefixed.
func (t *Throttle) clientOf(r *http.Request) string {
	if name := Client(r.Context()); name != "" {
		return "token " + name
	}
	return ClientAddress(r, t.cfg.TrustProxyHops)
}

// ClientAddress is the address that asked, as far as hops proxies before us can be believed. An IPv6 client is its
// /64, since it may choose the rest. An entry that is no address ends the walk: what is before it was not written by
// one of ours.
func ClientAddress(r *http.Request, hops int) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	at, err := netip.ParseAddr(host)
	if err != nil {
		return "unknown"
	}
	entries := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(entries) - 1; i >= 0 && hops > 0; i, hops = i-1, hops-1 {
		before, err := netip.ParseAddr(strings.TrimSpace(entries[i]))
		if err != nil {
			break
		}
		at = before
	}
	at = at.Unmap().WithZone("")
	if at.Is6() {
		if prefix, err := at.Prefix(64); err == nil {
			return prefix.String()
		}
	}
	return at.String()
}
