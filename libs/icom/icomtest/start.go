package icomtest

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/cabine-pix/cabine/libs/pix"
)

// TB is the part of testing.TB that Start needs.
type TB interface {
	Helper()
	Cleanup(func())
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
	Logf(format string, args ...any)
}

// Start makes a bank, serves both channels on loopback ports and stops with the test.
// Violations that happened fail the test unless Config.AllowViolations.
func Start(tb TB, cfg Config) *Bank {
	tb.Helper()
	b, err := New(cfg)
	if err != nil {
		tb.Fatalf("%v", err)
		return nil
	}
	// The bank outlives the test's context: other clean-ups still close their streams.
	stop, err := b.Listen(context.Background())
	if err != nil {
		tb.Fatalf("%v", err)
		return nil
	}
	tb.Logf("icomtest: seed %d", b.cfg.Seed)
	tb.Cleanup(func() {
		if err := stop(); err != nil {
			tb.Errorf("%v", err)
		}
		if cfg.AllowViolations {
			return
		}
		for _, v := range b.Violations() {
			tb.Errorf("icomtest: %s", v)
		}
	})
	return b
}

// Listen serves both channels on loopback ports until ctx ends or stop is called, which
// returns when everything has ended.
func (b *Bank) Listen(ctx context.Context) (stop func() error, err error) {
	listeners := make(map[pix.Channel]net.Listener)
	for _, channel := range pix.Channels() {
		ln, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			for _, open := range listeners {
				err = errors.Join(err, open.Close())
			}
			return nil, err
		}
		listeners[channel] = ln
		b.listening(channel, ln)
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	errs := make(chan error, len(listeners))
	for channel, ln := range listeners {
		wg.Go(func() { errs <- b.Serve(ctx, channel, ln) })
	}
	return func() error {
		cancel()
		wg.Wait()
		close(errs)
		var all error
		for err := range errs {
			all = errors.Join(all, err)
		}
		return all
	}, nil
}
