package icomtest

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/pix"
)

const (
	handshakeTimeout = 10 * time.Second
	writeTimeout     = 30 * time.Second
	slowPieces       = 16
)

// conn is one connection of one client. Its reader goroutine reads requests and books
// their first bytes; the goroutine of serveConn answers them.
type conn struct {
	bank    *Bank
	channel pix.Channel
	id      uint64
	tcp     net.Conn
	tls     *tls.Conn
	desk    *desk // of the certificate's ISPB
	remote  string
	body    []byte // the last multipart body, reused
	out     []byte // the last answer's bytes, reused

	// mu guards which of the two read deadlines holds.
	mu       sync.Mutex
	inFlight int
}

// job is a request on its way from the reader to the answerer.
type job struct {
	record *Request
	req    *request
	err    error
}

func (b *Bank) serveConn(ctx context.Context, channel pix.Channel, raw net.Conn) {
	c := &conn{
		bank: b, channel: channel, id: b.connections.Add(1), tcp: raw,
		tls: tls.Server(raw, b.tls), remote: raw.RemoteAddr().String(),
	}
	defer raw.Close() //nolint:errcheck // nothing is left to be written
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	defer stop()
	ispb, err := c.handshake(ctx)
	if err != nil {
		b.handshakesFailed.Add(1)
		return
	}
	c.desk = b.desk(channel, ispb)
	b.mu.Lock()
	b.live[c] = struct{}{}
	b.mu.Unlock()
	c.desk.ledger.connected()

	jobs, done := make(chan job), make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		defer close(jobs)
		c.read(jobs, done)
	})
	for j := range jobs {
		if !c.answer(ctx, j) {
			break
		}
	}
	close(done)
	b.mu.Lock()
	delete(b.live, c)
	b.mu.Unlock()
	// Close says goodbye in TLS; after a reset there is nobody to say it to.
	_ = c.tls.Close()
	reader.Wait()
}

// handshake returns the ISPB that the client's certificate names.
func (c *conn) handshake(ctx context.Context) (pix.ISPB, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	if err := c.tls.HandshakeContext(ctx); err != nil {
		return "", err
	}
	return pix.ParseISPB(c.tls.ConnectionState().PeerCertificates[0].Subject.CommonName)
}

// read books and reads requests until the client leaves or the answerer is done.
func (c *conn) read(jobs chan<- job, done <-chan struct{}) {
	br := bufio.NewReaderSize(c.tls, readerBytes)
	defer func() { c.desk.ledger.left(c.now(), c.id) }()
	c.arm(0, 0)
	for {
		if _, err := br.Peek(1); err != nil {
			return
		}
		c.arm(1, c.bank.cfg.RequestTimeout)
		record := c.desk.ledger.begin(c.now(), c.id, c.remote)
		req, err := readRequest(br, c.bank.cfg.MaxBody, c.breaksOff)
		c.arm(0, 0)
		select {
		case jobs <- job{record, req, err}:
		case <-done:
			c.desk.ledger.end(c.now(), record, 0)
			return
		}
		if err != nil {
			return
		}
	}
}

// breaksOff reports that the bank reads no more of a request than half of its body.
func (c *conn) breaksOff(req *request) bool {
	kind, _, _ := route(req)
	return c.bank.faults[c.channel].strike(kind, reading).Drop == DropReading
}

// arm sets the read deadline: d for the rest of a request that begins (+1), none while
// requests are in progress, and the idle timeout once the last one has ended (-1).
func (c *conn) arm(delta int, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inFlight += delta
	if delta < 0 && c.inFlight > 0 {
		return // the next request has begun and has its own deadline
	}
	if c.inFlight == 0 {
		d = c.bank.cfg.IdleTimeout
	}
	var at time.Time
	if d > 0 {
		at = time.Now().Add(d)
	}
	// A closed connection refuses the deadline, and the next read says so.
	_ = c.tls.SetReadDeadline(at)
}

func (c *conn) now() clock.Reading { return c.bank.cfg.Clock.Now() }

// answer does what one request asks and reports whether the connection goes on.
func (c *conn) answer(ctx context.Context, j job) (goOn bool) {
	status := 0
	defer func() {
		c.desk.ledger.end(c.now(), j.record, status)
		c.arm(-1, 0)
	}()
	a, fault := c.decide(ctx, j)
	if a == nil || ctx.Err() != nil {
		return false
	}
	if fault.Drop == DropBefore {
		return false
	}
	status = a.status
	if j.req != nil && j.req.get("Connection") == "close" {
		a.close = true
	}
	c.out = a.append(c.out[:0])
	out := c.out
	if fault.Drop == DropMiddle {
		out = out[:len(out)/2]
	}
	err := c.write(ctx, out, fault.SlowBody, func() { c.desk.ledger.end(c.now(), j.record, status) })
	return err == nil && !a.close && fault.Drop == ""
}

// decide returns the answer to a job, nil for none, and the faults that go with it.
func (c *conn) decide(ctx context.Context, j job) (*answer, Fault) {
	if j.err != nil {
		a := c.refuse(j.err)
		if a != nil {
			a.close = true
		}
		return a, Fault{}
	}
	kind, ispb, cursor := route(j.req)
	inProgress := c.desk.ledger.name(j.record, kind)
	if r := c.bank.checkHeaders(j.req); r != nil {
		return c.refuse(r), Fault{}
	}
	fault := c.bank.faults[c.channel].strike(kind, working)
	if fault.Drop == DropUnprocessed {
		return nil, fault
	}
	if fault.Status != 0 {
		return faultAnswer(fault), fault
	}
	a := c.serve(ctx, task{
		req: j.req, kind: kind, ispb: ispb, cursor: cursor, inProgress: inProgress, extraHold: fault.ExtraHold,
	})
	// An ended context ends the wait, and answer notices.
	_ = clock.Sleep(ctx, c.bank.cfg.Clock, fault.Delay)
	return a, fault
}

// refuse turns what went wrong before the work into an answer; nil for a connection that is gone or was reset.
func (c *conn) refuse(err error) *answer {
	if errors.Is(err, errBrokenOff) {
		c.reset()
		return nil
	}
	var r *refusal
	if !errors.As(err, &r) {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return problem(http.StatusRequestTimeout, "timeout", "Tempo esgotado à espera da requisição")
		}
		return nil
	}
	if r.broke != "" {
		c.desk.ledger.violate(c.now(), Violation{Kind: BadHeader, Detail: r.broke})
	}
	if r.reset {
		c.reset()
		return nil
	}
	return problem(r.status, r.problem, r.title)
}

// reset makes the kernel answer RST.
func (c *conn) reset() {
	if tcp, ok := c.tcp.(*net.TCPConn); ok {
		// A connection that is already closed needs no reset.
		_ = tcp.SetLinger(0)
	}
	_ = c.tcp.Close()
}

// write sends the answer and calls end just before its last piece, which is one TLS
// record: the bank has finished before the client can know the whole answer.
func (c *conn) write(ctx context.Context, out []byte, slow time.Duration, end func()) error {
	if err := c.tls.SetWriteDeadline(time.Now().Add(writeTimeout + slow)); err != nil {
		return err
	}
	if slow > 0 {
		piece := max(1, len(out)/slowPieces)
		var gone error
		for len(out) > piece {
			// The bank goes on being slow when nobody reads any more.
			if gone == nil {
				_, gone = c.tls.Write(out[:piece])
			}
			out = out[piece:]
			if err := clock.Sleep(ctx, c.bank.cfg.Clock, slow/slowPieces); err != nil {
				return err
			}
		}
		if gone != nil {
			return gone
		}
	} else if last := len(out) % recordBytes; len(out) > recordBytes {
		if last == 0 {
			last = recordBytes
		}
		if _, err := c.tls.Write(out[:len(out)-last]); err != nil {
			return err
		}
		out = out[len(out)-last:]
	}
	end()
	_, err := c.tls.Write(out)
	return err
}
