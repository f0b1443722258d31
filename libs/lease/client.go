package lease

import (
	"context"
	"crypto/sha1" //nolint:gosec // how Redis names scripts, protects nothing
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// ClientConfig says how to reach the Redis that decides permits. It should serve
// nothing else.
type ClientConfig struct {
	// Addr is host:port.
	Addr string
	// Username and Password authenticate; empty for none. Never logged.
	Username, Password string
	// TLS turns on TLS with this configuration; nil for none.
	TLS *tls.Config
	// DB is the database number. Default 0.
	DB int
	// Timeout bounds dialling, reading, writing and waiting for a connection.
	// Default 1 s; keep it at or below Timing.RenewTimeout.
	Timeout time.Duration
	// PoolSize is the most connections. Default 4: the heartbeat needs one, waiters share the rest.
	PoolSize int
}

// Client is the lease's own connection to Redis: no retries (a replayed acquire is a
// second grant), deadlines honoured, short timeouts, no maintenance notifications
// (they raise timeouts).
type Client struct {
	rdb *redis.Client
}

// NewClient returns a client; it connects when first used.
func NewClient(cfg ClientConfig) (*Client, error) {
	if cfg.Addr == "" {
		return nil, errors.New("lease: redis address is empty")
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = time.Second
	}
	if cfg.PoolSize == 0 {
		cfg.PoolSize = 4
	}
	return &Client{rdb: redis.NewClient(&redis.Options{
		Addr:                     cfg.Addr,
		Username:                 cfg.Username,
		Password:                 cfg.Password,
		TLSConfig:                cfg.TLS,
		DB:                       cfg.DB,
		MaxRetries:               -1,
		ContextTimeoutEnabled:    true,
		DialTimeout:              cfg.Timeout,
		DialerRetries:            1,
		ReadTimeout:              cfg.Timeout,
		WriteTimeout:             cfg.Timeout,
		PoolTimeout:              cfg.Timeout,
		PoolSize:                 cfg.PoolSize,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		DisableIdentity:          true,
	})}, nil
}

// Close closes the connections.
func (c *Client) Close() error { return c.rdb.Close() }

// Ping makes one round trip.
func (c *Client) Ping(ctx context.Context) error { return c.rdb.Ping(ctx).Err() }

// UnfitError lists why a Redis must not decide permits.
type UnfitError struct{ Reasons []string }

// Error implements error.
func (e *UnfitError) Error() string {
	return "lease: this redis must not decide permits: " + strings.Join(e.Reasons, "; ")
}

// Check reads what the server says of itself: an *UnfitError if it must not decide
// permits with these times (too old, evicting keys, replicas that t does not reckon
// with), and advice about what weakens it. Another error means that the server could not be asked.
func (c *Client) Check(ctx context.Context, t Timing) (advice []string, err error) {
	info, err := c.rdb.Info(ctx).Result()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStoreUnavailable, err)
	}
	field := make(map[string]string)
	for line := range strings.Lines(info) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			field[k] = v
		}
	}
	var reasons []string
	major, _, _ := strings.Cut(field["redis_version"], ".")
	if v, err := strconv.Atoi(major); err != nil || v < 7 {
		reasons = append(reasons, fmt.Sprintf("version is %q, want 7.0 or later", field["redis_version"]))
	}
	if p := field["maxmemory_policy"]; p != "noeviction" {
		reasons = append(reasons, fmt.Sprintf("maxmemory-policy is %q, want noeviction: an evicted slot is a second grant", p))
	}
	if len(field["master_replid"]) != 40 {
		reasons = append(reasons, "INFO shows no master_replid: a lost state could not be seen")
	}
	if n := field["connected_slaves"]; n != "0" {
		if t.NoReplicas {
			reasons = append(reasons, fmt.Sprintf("it has %s replica(s) although NoReplicas leaves their lag out of the quarantine", n))
		}
		if field["min_slaves_good_slaves"] == "" {
			reasons = append(reasons, "it has replicas and no min-replicas-to-write: after a split both sides may grant")
		}
	}
	if len(reasons) > 0 {
		return nil, &UnfitError{Reasons: reasons}
	}
	if field["aof_enabled"] != "1" {
		advice = append(advice, "appendonly is off: a restart costs a quarantine in which free slots stay free")
	}
	return advice, nil
}

// script is one Lua script, sent by its hash and whole when the server does not know it.
type script struct{ hash, text string }

func newScript(text string) script {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // how Redis names scripts, protects nothing
	return script{hash: hex.EncodeToString(sum[:]), text: text}
}

// run executes s once. It is never repeated after it may have been executed.
func (c *Client) run(ctx context.Context, s script, keys []any, args ...any) (any, error) {
	v, err := c.eval(ctx, "evalsha", s.hash, keys, args)
	if err == nil {
		return v, nil
	}
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		v, err = c.eval(ctx, "eval", s.text, keys, args)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStoreUnavailable, err)
	}
	return v, nil
}

// eval builds the command in one piece: an acquire has some twenty arguments.
func (c *Client) eval(ctx context.Context, command, body string, keys, args []any) (any, error) {
	whole := make([]any, 0, 3+len(keys)+len(args))
	whole = append(whole, command, body, len(keys))
	whole = append(append(whole, keys...), args...)
	return c.rdb.Do(ctx, whole...).Result()
}

// refused reports whether Redis itself answered with an error, as opposed to not answering.
func refused(err error) bool {
	var re redis.Error
	return errors.As(err, &re)
}
