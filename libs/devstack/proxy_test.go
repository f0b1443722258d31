package devstack_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/devstack"
	"github.com/cabine-pix/cabine/libs/devstack/devtest"
)

// echo is a server that answers every line with itself and remembers what it has executed.
type echo struct {
	addr     string
	executed chan string
}

func newEcho(t *testing.T) *echo {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	e := &echo{addr: ln.Addr().String(), executed: make(chan string, 100)}
	t.Cleanup(func() { require.NoError(t, ln.Close()) })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				for r := bufio.NewReader(conn); ; {
					line, err := r.ReadString('\n')
					if err != nil {
						return
					}
					e.executed <- line
					if _, err := io.WriteString(conn, line); err != nil {
						return
					}
				}
			}()
		}
	}()
	return e
}

type client struct {
	net.Conn
	r *bufio.Reader
}

func dial(t *testing.T, addr string) client {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return client{conn, bufio.NewReader(conn)}
}

func (c client) send(t *testing.T, line string) {
	t.Helper()
	_, err := io.WriteString(c, line)
	require.NoError(t, err)
}

// read waits at most limit for a line.
func (c client) read(t *testing.T, limit time.Duration) (string, error) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(limit)))
	return c.r.ReadString('\n')
}

// timedOut says that nothing came, neither bytes nor an end.
func timedOut(err error) bool {
	var netErr net.Error
	return errors.As(err, &netErr) && netErr.Timeout()
}

const short = 100 * time.Millisecond

func TestProxyPassesAndDelays(t *testing.T) {
	t.Parallel()
	e := newEcho(t)
	p := devtest.Proxy(t, e.addr)
	c := dial(t, p.Addr())
	c.send(t, "one\n")
	line, err := c.read(t, wait)
	require.NoError(t, err)
	require.Equal(t, "one\n", line)

	p.Delay(short)
	start := time.Now()
	c.send(t, "two\n")
	_, err = c.read(t, wait)
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(start), 2*short, "once each way")
	require.Equal(t, 1, p.Open())
	require.Equal(t, 1, p.Accepted())
}

func TestProxyBlackholesOneWayOrBothAndDeliversLate(t *testing.T) {
	t.Parallel()
	for name, d := range map[string]devstack.Direction{
		"to server": devstack.ToServer, "to client": devstack.ToClient, "both": devstack.Both,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEcho(t)
			p := devtest.Proxy(t, e.addr)
			c := dial(t, p.Addr())
			p.Blackhole(d)
			c.send(t, "one\n")
			_, err := c.read(t, short)
			require.True(t, timedOut(err), "neither an answer nor an end: %v", err)
			require.Equal(t, d == devstack.ToClient, len(e.executed) == 1)
			p.Pass()
			line, err := c.read(t, wait)
			require.NoError(t, err)
			require.Equal(t, "one\n", line)
		})
	}
}

func TestProxyLosesTheAnswerOfTheRequestThatMatches(t *testing.T) {
	t.Parallel()
	e := newEcho(t)
	p := devtest.Proxy(t, e.addr)
	lost := p.LoseReply(func(request []byte) bool { return bytes.Contains(request, []byte("two")) })
	c := dial(t, p.Addr())
	c.send(t, "one\n")
	_, err := c.read(t, wait)
	require.NoError(t, err)
	c.send(t, "two\n")
	_, err = c.read(t, wait)
	require.Error(t, err)
	require.False(t, timedOut(err), "the connection ends: %v", err)
	<-lost.Arrived()
	require.Equal(t, "one\n", <-e.executed)
	require.Equal(t, "two\n", <-e.executed)

	again := dial(t, p.Addr())
	again.send(t, "two\n")
	_, err = again.read(t, wait)
	require.NoError(t, err, "the fault is used up")
}

func TestProxyDeliversARequestAfterItsClientHasGone(t *testing.T) {
	t.Parallel()
	e := newEcho(t)
	p := devtest.Proxy(t, e.addr)
	held := p.HoldRequest(nil)
	c := dial(t, p.Addr())
	c.send(t, "late\n")
	<-held.Arrived()
	require.NoError(t, c.Close())
	require.Empty(t, e.executed)
	held.Deliver()
	require.Equal(t, "late\n", <-e.executed)
	require.Eventually(t, func() bool { return p.Open() == 0 }, wait, tick)
}

func TestProxyHoldsAnAnswer(t *testing.T) {
	t.Parallel()
	e := newEcho(t)
	p := devtest.Proxy(t, e.addr)
	held := p.HoldReply(nil)
	c := dial(t, p.Addr())
	c.send(t, "one\n")
	<-held.Arrived()
	require.Len(t, e.executed, 1, "executed")
	_, err := c.read(t, short)
	require.True(t, timedOut(err), "%v", err)
	held.Deliver()
	line, err := c.read(t, wait)
	require.NoError(t, err)
	require.Equal(t, "one\n", line)
}

func TestProxyCutsRefusesAndGoesElsewhere(t *testing.T) {
	t.Parallel()
	first, second := newEcho(t), newEcho(t)
	p := devtest.Proxy(t, first.addr)
	c := dial(t, p.Addr())
	c.send(t, "one\n")
	_, err := c.read(t, wait)
	require.NoError(t, err)

	p.Refuse()
	refused, err := net.Dial("tcp", p.Addr())
	if err == nil { // the reset may come during the attempt or after it
		_, err = refused.Read(make([]byte, 1))
		require.NoError(t, refused.Close())
	}
	require.ErrorIs(t, err, syscall.ECONNRESET)
	c.send(t, "still open\n")
	_, err = c.read(t, wait)
	require.NoError(t, err)

	p.Cut()
	_, err = c.read(t, wait)
	require.ErrorIs(t, err, syscall.ECONNRESET)

	p.Pass()
	p.Target(second.addr)
	moved := dial(t, p.Addr())
	moved.send(t, "two\n")
	_, err = moved.read(t, wait)
	require.NoError(t, err)
	require.Equal(t, "two\n", <-second.executed)
}

func TestProxyPassesAnEndOnlyAfterTheBytesBeforeIt(t *testing.T) {
	t.Parallel()
	e := newEcho(t)
	p := devtest.Proxy(t, e.addr)
	c := dial(t, p.Addr())
	p.Blackhole(devstack.ToServer)
	c.send(t, "last words\n")
	require.NoError(t, c.Conn.(*net.TCPConn).CloseWrite())
	p.Pass()
	line, err := c.read(t, wait)
	require.NoError(t, err)
	require.Equal(t, "last words\n", line)
	_, err = c.read(t, wait)
	require.ErrorIs(t, err, io.EOF)
}

func TestProxyCloseEndsWhatIsHeld(t *testing.T) {
	t.Parallel()
	e := newEcho(t)
	p, err := devstack.NewProxy(e.addr)
	require.NoError(t, err)
	held := p.HoldRequest(nil)
	c := dial(t, p.Addr())
	c.send(t, "never\n")
	<-held.Arrived()
	require.NoError(t, p.Close())
	require.NoError(t, p.Close(), "closing twice is no error")
	_, err = c.read(t, wait)
	require.Error(t, err)
	require.Empty(t, e.executed)
}
