package bus

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/url"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/semaphore"
)

// Bus is one connection to NATS. It is safe for concurrent use.
type Bus struct {
	cfg    Config
	log    *slog.Logger
	conn   *nats.Conn
	js     jetstream.JetStream
	flight *semaphore.Weighted // messages waiting for their acknowledgement
	closed chan struct{}       // closed by nats.go when the connection has ended for good
}

// Connect returns a bus that connects and reconnects by itself for as long as it lives. It
// does not wait for a server: one that is down now is an ErrUnavailable of the calls that
// need it. It fails for a configuration that can never work.
func Connect(_ context.Context, cfg Config, log *slog.Logger) (*Bus, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("bus config: %w", err)
	}
	b := &Bus{
		cfg: cfg, log: log,
		flight: semaphore.NewWeighted(int64(cfg.MaxInFlight)), closed: make(chan struct{}),
	}
	conn, err := nats.Connect(cfg.URL, b.options()...)
	if bad, ok := errors.AsType[*url.Error](err); ok {
		err = bad.Err // the whole error quotes the URL, and with it the password
	}
	if err != nil {
		return nil, fmt.Errorf("bus config: %w", err)
	}
	b.conn = conn
	b.js, err = jetstream.New(conn, jetstream.WithPublishAsyncTimeout(cfg.AckTimeout))
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("bus config: %w", err)
	}
	return b, nil
}

func (b *Bus) options() []nats.Option {
	o := []nats.Option{
		nats.Name(b.cfg.Name),
		nats.Timeout(b.cfg.ConnectTimeout),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(), // credentials are rotated; a refusal today is not for ever
		nats.ReconnectWait(b.cfg.ReconnectWait),
		nats.ReconnectJitter(b.cfg.ReconnectWait, b.cfg.ReconnectWait),
		nats.ReconnectBufSize(-1), // a publish fails while disconnected instead of waiting in memory
		nats.PingInterval(b.cfg.PingInterval),
		nats.MaxPingsOutstanding(2),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			b.log.Warn("bus disconnected", slog.Any("error", err))
		}),
		nats.ReconnectHandler(func(conn *nats.Conn) {
			b.log.Info("bus connected", slog.String("server", conn.ConnectedUrlRedacted()))
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			b.log.Warn("bus error", slog.Any("error", err))
		}),
		nats.ClosedHandler(func(*nats.Conn) { close(b.closed) }),
	}
	if b.cfg.CredsFile != "" {
		o = append(o, nats.UserCredentials(b.cfg.CredsFile))
	}
	if b.cfg.RequireTLS || b.cfg.CAFile != "" || b.cfg.CertFile != "" {
		o = append(o, nats.Secure(&tls.Config{MinVersion: tls.VersionTLS12}))
	}
	if b.cfg.CAFile != "" {
		o = append(o, nats.RootCAs(b.cfg.CAFile))
	}
	if b.cfg.CertFile != "" {
		o = append(o, nats.ClientCert(b.cfg.CertFile, b.cfg.KeyFile))
	}
	return o
}

// Connected reports whether there is a connection at this moment.
func (b *Bus) Connected() bool { return b.conn.IsConnected() }

// Ping makes a round trip to the server; ErrUnavailable while there is none. ctx needs a deadline, or AckTimeout is taken.
func (b *Bus) Ping(ctx context.Context) error {
	if !b.conn.IsConnected() {
		return fmt.Errorf("ping: %w", ErrUnavailable)
	}
	ctx, cancel := context.WithTimeout(ctx, b.cfg.AckTimeout)
	defer cancel()
	return translate("ping", b.conn.FlushWithContext(ctx))
}

// Close lets subscriptions and publications in progress end and waits until the
// connection is closed, or closes it hard when ctx ends. Stop what calls the bus first.
func (b *Bus) Close(ctx context.Context) error {
	err := b.conn.Drain() // returns at once
	if isAny(err, nats.ErrConnectionReconnecting, nats.ErrConnectionClosed) {
		err = nil // nothing to drain: nats.go closes it
		b.conn.Close()
	}
	select {
	case <-b.closed:
		return translate("close", err)
	case <-ctx.Done():
		b.conn.Close()
		<-b.closed
		return errors.Join(translate("close", err), fmt.Errorf("close: drain was cut off: %w", ctx.Err()))
	}
}
