package devstack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// NATSOptions configure one embedded NATS server.
type NATSOptions struct {
	// SyncAlways flushes every message to disk before it is acknowledged. Default: off, as NATS itself has it; what
	// must not be lost is kept in PostgreSQL.
	SyncAlways bool
	// StoreBytes bounds what all streams together may hold; above it publications are refused. Default: no bound.
	StoreBytes int64
}

// NATS is one NATS server with JetStream, inside this process. Its address stays the same for as long as the stack
// lives. Safe for concurrent use; a start and a stop exclude each other.
type NATS struct {
	options NATSOptions
	store   string
	port    int

	mu     sync.Mutex
	server *server.Server // nil while stopped
}

// StartNATS starts one more NATS server with JetStream.
func (s *Stack) StartNATS(ctx context.Context, o NATSOptions) (*NATS, error) {
	dir, err := s.newServerDir("nats")
	if err != nil {
		return nil, err
	}
	defer step(s.progress, "starting NATS "+server.VERSION)()
	n := &NATS{options: o, store: filepath.Join(dir, "store")}
	for range portTries {
		if n.port, err = freePort(); err != nil {
			return nil, err
		}
		if err = n.Start(ctx); err == nil {
			return n, s.own(n)
		}
	}
	return nil, err
}

// URL is "nats://127.0.0.1:port".
func (n *NATS) URL() string { return "nats://" + n.Addr() }

// Addr is "127.0.0.1:port".
func (n *NATS) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(n.port)) }

// Version is what the server calls itself.
func (n *NATS) Version() string { return server.VERSION }

// Start starts the server again after Stop, on the same port and with its store. A running server is left as it is.
func (n *NATS) Start(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.start(ctx)
}

func (n *NATS) start(ctx context.Context) error {
	if n.server != nil {
		return nil
	}
	wait := 10 * time.Second
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline))
	}
	srv, err := server.NewServer(&server.Options{
		ServerName: "devstack", Host: "127.0.0.1", Port: n.port, NoLog: true, NoSigs: true,
		JetStream: true, StoreDir: n.store, SyncAlways: n.options.SyncAlways,
	})
	if err != nil {
		return fmt.Errorf("devstack: configure NATS: %w", err)
	}
	srv.Start()
	if !srv.ReadyForConnections(wait) {
		srv.Shutdown()
		srv.WaitForShutdown()
		return fmt.Errorf("devstack: NATS on %s is not ready after %s", n.Addr(), wait)
	}
	if err := n.limit(srv); err != nil {
		srv.Shutdown()
		srv.WaitForShutdown()
		return fmt.Errorf("devstack: limit NATS: %w", err)
	}
	n.server = srv
	return nil
}

func (n *NATS) limit(srv *server.Server) error {
	if n.options.StoreBytes == 0 {
		return nil
	}
	account := srv.GlobalAccount()
	return account.UpdateJetStreamLimits(map[string]server.JetStreamAccountLimits{
		"": {MaxMemory: -1, MaxStore: n.options.StoreBytes, MaxStreams: -1, MaxConsumers: -1, MaxAckPending: -1},
	})
}

// Stop ends the server; its clients are disconnected. The store stays for Start.
func (n *NATS) Stop() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stop()
	return nil
}

func (n *NATS) stop() {
	if n.server == nil {
		return
	}
	n.server.Shutdown()
	n.server.WaitForShutdown()
	n.server = nil
}

func (n *NATS) shutdown() error { return n.Stop() }

// Restart stops and starts the server, keeping its store.
func (n *NATS) Restart(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stop()
	return n.start(ctx)
}

// RestartEmpty stops the server, removes its store and starts it: streams, consumers and messages are gone, also those
// that were acknowledged.
func (n *NATS) RestartEmpty(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stop()
	if err := os.RemoveAll(n.store); err != nil {
		return errors.Join(fmt.Errorf("devstack: remove NATS store: %w", err), n.start(ctx))
	}
	return n.start(ctx)
}
