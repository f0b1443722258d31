package icomtest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cabine-pix/cabine/libs/icom"
	"github.com/cabine-pix/cabine/libs/pix"
)

// Bank simulates both channels of the ICOM for any number of participants. It is safe for concurrent use.
type Bank struct {
	cfg      Config
	pki      *PKI
	tls      *tls.Config
	examples *mint
	spoil    *spoiler
	faults   map[pix.Channel]*rules

	handshakesFailed atomic.Uint64
	connections      atomic.Uint64

	mu    sync.Mutex
	desks map[deskKey]*desk
	addrs map[pix.Channel]net.Addr
	live  map[*conn]struct{}
}

type deskKey struct {
	channel pix.Channel
	ispb    pix.ISPB
}

// desk is where one participant is served on one channel: its messages and the judge's book.
type desk struct {
	channel pix.Channel
	ispb    pix.ISPB
	ledger  *ledger
	queue   *queue
}

// New makes a bank that listens nowhere yet: see Serve and Start. It reads the
// examples and, without Config.PKI, makes certificates.
func New(cfg Config) (*Bank, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.PKI == nil {
		pki, err := NewPKI()
		if err != nil {
			return nil, err
		}
		cfg.PKI = pki
	}
	examples, err := newMint(cfg)
	if err != nil {
		return nil, err
	}
	b := &Bank{
		cfg: cfg, pki: cfg.PKI, tls: cfg.PKI.ServerConfig(), examples: examples, spoil: &spoiler{},
		faults: make(map[pix.Channel]*rules), desks: make(map[deskKey]*desk),
		addrs: make(map[pix.Channel]net.Addr), live: make(map[*conn]struct{}),
	}
	for i, channel := range pix.Channels() {
		b.faults[channel] = &rules{seed: cfg.Seed + uint64(i)}
	}
	return b, nil
}

// Serve answers on ln as one channel until ctx ends, then closes ln and every
// connection and returns nil once its goroutines are gone. Two calls serve both channels.
func (b *Bank) Serve(ctx context.Context, channel pix.Channel, ln net.Listener) error {
	b.listening(channel, ln)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { b.sweep(ctx, channel) })
	stop := context.AfterFunc(ctx, func() { _ = ln.Close() })
	defer stop()
	for {
		raw, err := ln.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("icomtest: accept on %s: %w", channel, errors.Join(err, ln.Close()))
		}
		wg.Go(func() { b.serveConn(ctx, channel, raw) })
	}
}

func (b *Bank) listening(channel pix.Channel, ln net.Listener) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.addrs[channel] = ln.Addr()
}

// sweep looks after abandoned streams of a channel.
func (b *Bank) sweep(ctx context.Context, channel pix.Channel) {
	period := min(max(min(b.cfg.RedeliverAfter, b.cfg.StreamExpiry)/8, 5*time.Millisecond), time.Second)
	timer := b.cfg.Clock.NewTimer(period)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C():
		}
		for _, d := range b.all() {
			if d.channel == channel {
				d.queue.sweep()
			}
		}
		timer.Reset(period)
	}
}

func (b *Bank) desk(channel pix.Channel, ispb pix.ISPB) *desk {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := deskKey{channel, ispb}
	d, ok := b.desks[key]
	if !ok {
		l := newLedger(channel, ispb, b.cfg)
		d = &desk{channel: channel, ispb: ispb, ledger: l, queue: newQueue(channel, ispb, b.cfg, l.streamed)}
		b.desks[key] = d
	}
	return d
}

// Addr returns where a channel is served, host and port; empty before Serve.
func (b *Bank) Addr(channel pix.Channel) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a := b.addrs[channel]; a != nil {
		return a.String()
	}
	return ""
}

// URL returns the base of a channel's URLs, "https://127.0.0.1:40123". Requests must
// send Host without the port.
func (b *Bank) URL(channel pix.Channel) string { return "https://" + b.Addr(channel) }

// PKI returns the certificates of the bank and its clients.
func (b *Bank) PKI() *PKI { return b.pki }

// Enqueue puts messages for a participant at the end of its queue, as they are, and
// returns their PI-ResourceIds.
func (b *Bank) Enqueue(channel pix.Channel, ispb pix.ISPB, bodies ...[]byte) []string {
	return b.desk(channel, ispb).queue.enqueue(bodies...)
}

// EnqueueExamples makes n fresh messages and enqueues them, from the examples of the
// kinds in turn, or from all. A kind is the beginning of a name up to an underscore:
// "pacs.008", "pacs.002_SPI".
func (b *Bank) EnqueueExamples(channel pix.Channel, ispb pix.ISPB, n int, kinds ...string) ([]string, error) {
	bodies, err := b.examples.make(ispb, n, kinds)
	if err != nil {
		return nil, err
	}
	return b.Enqueue(channel, ispb, bodies...), nil
}

// feedTick is how often Feed enqueues at most.
const feedTick = 2 * time.Millisecond

// Feed enqueues examples at a rate per second until n are in (0: without end) or ctx ends, which is no error.
func (b *Bank) Feed(
	ctx context.Context, channel pix.Channel, ispb pix.ISPB, n int, rate float64, kinds ...string,
) error {
	if rate <= 0 {
		_, err := b.EnqueueExamples(channel, ispb, n, kinds...)
		return err
	}
	start := b.cfg.Clock.Now()
	timer := b.cfg.Clock.NewTimer(0)
	defer timer.Stop()
	for fed := 0; n == 0 || fed < n; {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C():
		}
		due := int(b.cfg.Clock.Now().Elapsed(start).Seconds() * rate)
		if n > 0 {
			due = min(due, n)
		}
		if due > fed {
			if _, err := b.EnqueueExamples(channel, ispb, due-fed, kinds...); err != nil {
				return err
			}
			fed = due
		}
		timer.Reset(max(feedTick, time.Duration(float64(time.Second)/rate)))
	}
	return nil
}

// SetFaults replaces the rules of misbehaviour of a channel; without any, the bank behaves.
func (b *Bank) SetFaults(channel pix.Channel, faults ...Fault) error {
	r, ok := b.faults[channel]
	if !ok {
		return fmt.Errorf("icomtest: unknown channel %q", channel)
	}
	for _, f := range faults {
		if err := f.validate(); err != nil {
			return err
		}
	}
	r.set(faults)
	return nil
}

// CutConnections resets every connection of a channel and returns how many. Requests in
// progress stay in progress until the bank's own end.
func (b *Bank) CutConnections(channel pix.Channel) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for c := range b.live {
		if c.channel == channel {
			c.reset()
			n++
		}
	}
	return n
}

func (b *Bank) pullNext(channel pix.Channel, ispb pix.ISPB, cursor, host string) string {
	path := "/api/v1/out/" + string(ispb) + "/stream/" + cursor
	if !b.cfg.AbsolutePullNext {
		return path
	}
	_, port, err := net.SplitHostPort(b.Addr(channel))
	if err != nil {
		return path
	}
	return "https://" + net.JoinHostPort(icom.HostHeader(host), port) + path
}
