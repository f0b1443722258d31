package bacen

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/icom"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/transport"
	"github.com/cabine-pix/cabine/libs/transport/guard"
)

// Transport implements transport.Transport for BACEN's ICOM.
type Transport struct {
	cfg         Config
	clk         clock.Clock
	log         *slog.Logger
	credentials *credentials
	far         map[pix.Channel]far

	mu    sync.Mutex
	slots map[transport.SlotID]*slot
}

// far is the bank's end of one channel.
type far struct {
	base       *url.URL
	addr       string
	serverName string
	gzip       bool
}

// New makes a transport. It reads no file and opens no connection.
func New(cfg Config, clk clock.Clock, log *slog.Logger) (*Transport, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("bacen: configuration: %w", err)
	}
	t := &Transport{
		cfg: cfg, clk: clk, log: log,
		credentials: &credentials{cfg: cfg, clk: clk, log: log, pairs: make(map[pix.ISPB]tls.Certificate)},
		far:         make(map[pix.Channel]far),
		slots:       make(map[transport.SlotID]*slot),
	}
	for name, ch := range cfg.Channels {
		base, err := icom.ParseBase(ch.URL)
		if err != nil {
			return nil, err
		}
		f := far{base: base, serverName: ch.ServerName, gzip: ch.Gzip}
		port := base.Port()
		if port == "" {
			port = "443"
		}
		f.addr = net.JoinHostPort(base.Hostname(), port)
		if f.serverName == "" {
			f.serverName = base.Hostname()
		}
		t.far[name] = f
	}
	return t, nil
}

// Capabilities implements transport.Transport.
func (t *Transport) Capabilities(context.Context) (transport.Capabilities, error) {
	c := transport.Capabilities{
		Name: "bacen", Version: t.cfg.Version, Send: true, Pull: true, Streams: true, UserTimeout: time.Duration(t.cfg.UserTimeout),
	}
	for _, channel := range pix.Channels() {
		if _, ok := t.far[channel]; ok {
			c.Channels = append(c.Channels, channel)
		}
	}
	return c, nil
}

// Ready implements transport.Transport: certificate, name, connection and handshake, in that order.
func (t *Transport) Ready(ctx context.Context, channel pix.Channel, ispb pix.ISPB) error {
	if err := t.credentials.check(ispb); err != nil {
		return &transport.Error{Kind: transport.NotSent, Reason: err.Error()}
	}
	c, err := t.open(ctx, channel, ispb, "")
	if err != nil {
		return &transport.Error{Kind: transport.NotSent, Reason: err.Error()}
	}
	c.close()
	return nil
}

// Disconnect implements transport.Transport.
func (t *Transport) Disconnect(_ context.Context, id transport.SlotID) error {
	t.mu.Lock()
	s := t.slots[id]
	t.mu.Unlock()
	if s != nil {
		s.disconnect()
	}
	return nil
}

// Close closes every kept connection and ends every call under way.
func (t *Transport) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.slots {
		s.disconnect()
	}
}

func (t *Transport) slot(id transport.SlotID) *slot {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, ok := t.slots[id]
	if !ok {
		s = &slot{}
		t.slots[id] = s
	}
	return s
}

func (t *Transport) requests(id transport.SlotID) icom.Requests {
	f := t.far[id.Channel]
	return icom.Requests{Base: f.base, ISPB: id.ISPB, Multipart: !t.cfg.SingleMessage, Gzip: f.gzip}
}

// known refuses what the configuration does not serve, before anything is opened.
func (t *Transport) known(id transport.SlotID) error {
	if _, ok := t.far[id.Channel]; !ok {
		return fmt.Errorf("channel %q is not configured", id.Channel)
	}
	if _, ok := t.cfg.Participants[id.ISPB]; !ok {
		return fmt.Errorf("participant %q is not configured", id.ISPB)
	}
	return nil
}

// call makes one request on the permit's slot and returns its answer, read to its end.
// The error is always a *transport.Error.
func (t *Transport) call(
	ctx context.Context, permit transport.Permit, timeout time.Duration, req *http.Request,
) (answer, transport.Exchange, error) {
	var a answer
	var x transport.Exchange
	q, err := newRequest(req)
	if err != nil {
		return a, x, notSent(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := t.slot(permit.Slot)
	conn, ok := s.begin(cancel)
	if !ok {
		return a, x, notSent(errors.New("another call of the slot is under way"))
	}
	var keep *connection
	defer func() { s.end(keep, time.Duration(t.cfg.MaxIdle)) }()

	kept := conn != nil && conn.usable(permit.Grant, t.clk.Now(), t.cfg)
	if conn != nil && !kept {
		conn.close()
	}
	for {
		if permit.NotAfter.Passed(t.clk.Now()) {
			if kept {
				keep = conn
			}
			return a, x, notSent(guard.ErrPastDeadline)
		}
		if !kept {
			if conn, err = t.open(ctx, permit.Slot.Channel, permit.Slot.ISPB, permit.Grant); err != nil {
				return a, x, notSent(err)
			}
		}
		a, x, err = t.once(ctx, conn, permit, timeout, q)
		if err == nil && a.keep {
			conn.used = t.clk.Now()
			keep = conn
		}
		if kept && errors.Is(err, errUnusable) && x.FirstByte.IsZero() && ctx.Err() == nil {
			kept = false // once: the next connection is a fresh one
			continue
		}
		return a, x, t.failure(ctx, x, err)
	}
}

// once makes the request on one connection, which is closed unless the answer may be followed by another.
func (t *Transport) once(
	ctx context.Context, conn *connection, permit transport.Permit, timeout time.Duration, q request,
) (answer, transport.Exchange, error) {
	stop := context.AfterFunc(ctx, conn.abort)
	a, err := conn.exchange(q, permit.NotAfter, timeout)
	// An abort that came too late to disturb the exchange has still closed the connection.
	a.keep = stop() && a.keep
	x := transport.Exchange{FirstByte: conn.guard.FirstByte(), Complete: err == nil}
	switch {
	case err != nil:
		conn.abort()
	case !a.keep:
		conn.close()
	}
	if !x.FirstByte.IsZero() && x.FirstByte >= permit.NotAfter.Boot {
		// The pause between the guard's look at the clock and the system call: it cannot
		// be closed from here, only told.
		t.log.Error("first byte written after the start deadline",
			"slot", permit.Slot.String(), "late", x.FirstByte.Sub(permit.NotAfter.Boot))
	}
	return a, x, err
}

// failure names what an exchange without a complete answer means.
func (t *Transport) failure(ctx context.Context, x transport.Exchange, err error) error {
	switch {
	case err == nil:
		return nil
	case x.FirstByte.IsZero():
		return &transport.Error{Kind: transport.NotSent, Reason: err.Error()}
	case ctx.Err() != nil:
		return &transport.Error{Kind: transport.OutcomeUnknown, Exchange: x, Reason: "the call was ended: " + err.Error()}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &transport.Error{Kind: transport.OutcomeUnknown, Exchange: x, Reason: "no answer in time: " + err.Error()}
	default:
		return &transport.Error{Kind: transport.OutcomeUnknown, Exchange: x, Reason: err.Error()}
	}
}
