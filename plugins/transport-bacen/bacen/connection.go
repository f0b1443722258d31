package bacen

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/transport"
	"github.com/cabine-pix/cabine/libs/transport/guard"
)

// connection is one TCP and TLS connection of one slot under one grant. One goroutine
// uses it at a time; abort may come from any.
type connection struct {
	guard *guard.Conn
	tls   *tls.Conn
	// in reads through budget, which is filled up for each answer.
	in     *bufio.Reader
	budget *io.LimitedReader
	grant  string
	// write is u: how long writing a request may take. The bank counts from its first byte, so one that
	// trickles out would outlast the bank hold.
	write time.Duration
	// opened and used are readings of the clock that also counts suspend.
	opened, used clock.Reading
}

// errUnusable marks a kept connection that turned out to be dead before a byte of the request was written.
var errUnusable = errors.New("the kept connection had ended")

// open resolves the name, connects and completes the handshake.
func (t *Transport) open(ctx context.Context, channel pix.Channel, ispb pix.ISPB, grant string) (*connection, error) {
	far, ok := t.far[channel]
	if !ok {
		return nil, fmt.Errorf("channel %q is not configured", channel)
	}
	cfg, err := t.credentials.tlsConfig(ispb, far.serverName)
	if err != nil {
		return nil, err
	}
	dialCtx, cancel := context.WithTimeout(ctx, time.Duration(t.cfg.DialTimeout))
	defer cancel()
	// No racing of address families: one connection per slot is also one attempt at a time.
	dialer := net.Dialer{FallbackDelay: -1}
	raw, err := dialer.DialContext(dialCtx, "tcp", far.addr)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	tcp, ok := raw.(*net.TCPConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("connect: dialled a %T", raw), raw.Close())
	}
	g, err := guard.Wrap(tcp, t.clk, t.cfg.guard())
	if err != nil {
		return nil, err
	}
	shakeCtx, cancelShake := context.WithTimeout(ctx, time.Duration(t.cfg.HandshakeTimeout))
	defer cancelShake()
	c := tls.Client(g, cfg)
	if err := c.HandshakeContext(shakeCtx); err != nil {
		return nil, errors.Join(fmt.Errorf("TLS handshake: %w", err), ignoreClosed(g.Abort()))
	}
	now := t.clk.Now()
	budget := &io.LimitedReader{R: c, N: maxAnswerBytes}
	return &connection{
		guard: g, tls: c, in: bufio.NewReader(budget), budget: budget, grant: grant,
		write: time.Duration(t.cfg.UserTimeout), opened: now, used: now,
	}, nil
}

// usable reports whether the connection may carry another request of the grant.
func (c *connection) usable(grant string, now clock.Reading, cfg Config) bool {
	return c.grant == grant &&
		now.Elapsed(c.opened) < time.Duration(cfg.MaxConnectionAge) &&
		now.Elapsed(c.used) < time.Duration(cfg.MaxIdle) &&
		c.in.Buffered() == 0 && c.guard.Alive()
}

// close ends a connection on which nothing is in progress.
func (c *connection) close() {
	c.guard.Disarm()
	_ = c.guard.Close() // nothing is left on it that closing could lose
}

// abort ends it so that nothing more leaves the kernel.
func (c *connection) abort() {
	_ = c.guard.Abort() // the same
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// request is one request, serialised before anything is opened or written: one that
// cannot be written is found while it is still harmless.
type request struct {
	wire   []byte
	parsed *http.Request
}

func newRequest(req *http.Request) (request, error) {
	var out bytes.Buffer
	if err := req.Write(&out); err != nil {
		return request{}, fmt.Errorf("request: %w", err)
	}
	return request{wire: out.Bytes(), parsed: req}, nil
}

// answer is one response, read to its end.
type answer struct {
	status int
	header http.Header
	body   []byte
	// keep reports that the connection may carry another request.
	keep bool
}

// exchange writes one request and reads its answer. The permit is kept by the guard:
// the first byte leaves before notAfter or not at all. An error with a zero FirstByte
// of the guard means that nothing was written.
func (c *connection) exchange(q request, notAfter clock.Deadline, timeout time.Duration) (a answer, err error) {
	now := time.Now() //nolint:forbidigo // a socket takes no other clock
	err = errors.Join(c.tls.SetReadDeadline(now.Add(timeout)), c.tls.SetWriteDeadline(now.Add(min(timeout, c.write))))
	if err != nil {
		return a, fmt.Errorf("%w: %w", errUnusable, err)
	}
	if err := c.guard.Arm(notAfter); err != nil {
		return a, err
	}
	defer c.guard.Disarm()
	if _, err := c.tls.Write(q.wire); err != nil {
		if c.guard.FirstByte().IsZero() && !errors.Is(err, guard.ErrPastDeadline) {
			return a, fmt.Errorf("%w: %w", errUnusable, err)
		}
		if a, refused := c.refusal(q.parsed, err); refused {
			return a, nil
		}
		return a, fmt.Errorf("write: %w", err)
	}
	a, err = c.read(q.parsed)
	if err != nil {
		return a, err
	}
	if err := c.tls.SetDeadline(time.Time{}); err != nil {
		a.keep = false
	}
	return a, nil
}

// refusal reads the answer of a bank that refused a request before it had read it all, and then broke off: writing fails
// before the answer is seen. Only a 4xx counts, which says that nothing was stored and proves that the bank is done with it.
func (c *connection) refusal(req *http.Request, written error) (answer, bool) {
	if !errors.Is(written, syscall.EPIPE) && !errors.Is(written, syscall.ECONNRESET) {
		return answer{}, false
	}
	a, err := c.read(req)
	if err != nil || a.status/100 != 4 {
		return answer{}, false
	}
	a.keep = false
	return a, true
}

// maxAnswerBytes bounds everything that the bank can make us read for one request:
// heads, framing and the body before decompression.
const maxAnswerBytes = transport.MaxBodyBytes + 1<<20

// maxInterim bounds the 1xx answers before the real one.
const maxInterim = 5

func (c *connection) read(req *http.Request) (answer, error) {
	c.budget.N = maxAnswerBytes
	for range maxInterim {
		resp, err := http.ReadResponse(c.in, req) //nolint:bodyclose // readBody reads it to its end, or the connection is reset
		if err != nil {
			return answer{}, fmt.Errorf("answer: %w", err)
		}
		if resp.StatusCode >= 100 && resp.StatusCode < 200 && resp.StatusCode != http.StatusSwitchingProtocols {
			continue
		}
		return c.readBody(resp)
	}
	return answer{}, errors.New("answer: too many interim answers")
}

func (c *connection) readBody(resp *http.Response) (answer, error) {
	chunked := len(resp.TransferEncoding) > 0
	if resp.ContentLength < 0 && !chunked {
		return answer{}, errors.New("answer: it has no length, so that its end proves nothing")
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, transport.MaxBodyBytes+1))
	if err != nil {
		return answer{}, fmt.Errorf("answer's body: %w", err)
	}
	if len(body) > transport.MaxBodyBytes {
		return answer{}, fmt.Errorf("answer's body: more than %d bytes", transport.MaxBodyBytes)
	}
	return answer{
		status: resp.StatusCode, header: resp.Header, body: body,
		keep: !resp.Close && c.in.Buffered() == 0,
	}, nil
}
