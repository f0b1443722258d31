package guard_test

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/transport/guard"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair returns a guarded client connection and the server's end of it.
func pair(t *testing.T, clk clock.Clock) (*guard.Conn, *net.TCPConn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, ln.Close()) }()
	raw, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	server, err := ln.Accept()
	require.NoError(t, err)
	conn, err := guard.Wrap(raw.(*net.TCPConn), clk, guard.Config{})
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = conn.Close()
		_ = server.Close()
	})
	require.NoError(t, server.SetReadDeadline(time.Now().Add(10*time.Second)))
	require.NoError(t, server.(*net.TCPConn).SetReadBuffer(4096), "a fixed size, so that fill fills")
	require.NoError(t, raw.(*net.TCPConn).SetWriteBuffer(4096))
	return conn, server.(*net.TCPConn)
}

func receive(t *testing.T, server net.Conn, n int) string {
	t.Helper()
	b := make([]byte, n)
	_, err := io.ReadFull(server, b)
	require.NoError(t, err)
	return string(b)
}

// nothingMore closes the client and requires that the server saw not one more byte.
func nothingMore(t *testing.T, conn *guard.Conn, server net.Conn) {
	t.Helper()
	require.NoError(t, conn.Close())
	rest, err := io.ReadAll(server)
	require.NoError(t, err)
	require.Empty(t, rest)
}

func TestHandshakeThenOneRequestPerArm(t *testing.T) {
	t.Parallel()
	clk := clock.NewFake()
	conn, server := pair(t, clk)

	_, err := conn.Write([]byte("hello"))
	require.NoError(t, err)
	require.Equal(t, "hello", receive(t, server, 5))
	require.Zero(t, conn.FirstByte(), "a handshake is not a request")

	for range 2 {
		clk.Advance(time.Second)
		require.NoError(t, conn.Arm(clk.Now().Deadline(time.Second)))
		require.Zero(t, conn.FirstByte())
		_, err = conn.Write([]byte("one"))
		require.NoError(t, err)
		require.Equal(t, clk.Now().Boot, conn.FirstByte())
		require.ErrorIs(t, conn.Arm(clk.Now().Deadline(time.Second)), guard.ErrArmed)

		clk.Advance(time.Minute)
		_, err = conn.Write([]byte("two"))
		require.NoError(t, err, "the deadline is for the first byte only")
		require.Equal(t, "onetwo", receive(t, server, 6))

		_, err = server.Write([]byte("answer"))
		require.NoError(t, err)
		_, err = conn.Read(make([]byte, 16))
		require.NoError(t, err)
		_, err = conn.Write([]byte("a second request"))
		require.ErrorIs(t, err, guard.ErrNotArmed)
		conn.Disarm()
	}
	nothingMore(t, conn, server)
}

func TestRefusesTheFirstByteAtTheDeadline(t *testing.T) {
	t.Parallel()
	pass := map[string]func(*clock.Fake, time.Duration){
		"by time":                           (*clock.Fake).Advance,
		"by a suspend that no timer sees":   (*clock.Fake).Suspend,
		"by the wall clock, boot time back": (*clock.Fake).StepWall,
	}
	for name, move := range pass {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clk := clock.NewFake()
			conn, server := pair(t, clk)
			require.NoError(t, conn.Arm(clk.Now().Deadline(time.Second)))
			move(clk, time.Second)
			_, err := conn.Write([]byte("late"))
			require.ErrorIs(t, err, guard.ErrPastDeadline)
			require.Zero(t, conn.FirstByte())
			_, err = conn.Write([]byte("later"))
			require.ErrorIs(t, err, guard.ErrNotArmed, "a refusal is final")
			nothingMore(t, conn, server)
		})
	}
}

func TestArmRefusesADeadlineThatHasPassed(t *testing.T) {
	t.Parallel()
	clk := clock.NewFake()
	conn, server := pair(t, clk)
	require.ErrorIs(t, conn.Arm(clock.Deadline{}), guard.ErrPastDeadline, "a forgotten deadline forbids")
	_, err := conn.Write([]byte("x"))
	require.ErrorIs(t, err, guard.ErrNotArmed, "the handshake is over with the first Arm, even a refused one")
	nothingMore(t, conn, server)
}

func TestDisarmShutsInTheMiddle(t *testing.T) {
	t.Parallel()
	clk := clock.NewFake()
	conn, server := pair(t, clk)
	require.NoError(t, conn.Arm(clk.Now().Deadline(time.Second)))
	conn.Disarm()
	_, err := conn.Write([]byte("x"))
	require.ErrorIs(t, err, guard.ErrNotArmed)
	nothingMore(t, conn, server)
}

// steppingClock moves by step at every reading, so that a check made once, early, and
// a check made before each system call differ.
type steppingClock struct {
	*clock.Fake
	step time.Duration
}

func (s steppingClock) Now() clock.Reading {
	defer s.Advance(s.step)
	return s.Fake.Now()
}

// TestChecksAgainAfterWaitingForTheSocket fills the socket so that the first byte has
// to wait, lets the deadline pass meanwhile, and makes room again.
func TestChecksAgainAfterWaitingForTheSocket(t *testing.T) {
	t.Parallel()
	clk := clock.NewFake()
	conn, server := pair(t, clk)
	filled := fill(t, conn)
	require.NoError(t, conn.Arm(clk.Now().Deadline(time.Second)))
	require.NoError(t, conn.SetWriteDeadline(time.Time{}))

	refused := make(chan error, 1)
	go func() {
		_, err := conn.Write([]byte("waited too long"))
		refused <- err
	}()
	select {
	case err := <-refused:
		t.Fatalf("the write did not wait: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	clk.Advance(time.Second)
	_, err := io.CopyN(io.Discard, server, filled)
	require.NoError(t, err)
	require.ErrorIs(t, <-refused, guard.ErrPastDeadline)
	nothingMore(t, conn, server)
}

// fill writes in the open state until the kernel takes no more, and returns how much it took.
func fill(t *testing.T, conn *guard.Conn) int64 {
	t.Helper()
	var total int64
	for _, size := range []int{1 << 16, 1} { // single bytes use the last gap that a chunk leaves
		chunk := make([]byte, size)
		for {
			require.NoError(t, conn.SetWriteDeadline(time.Now().Add(300*time.Millisecond)))
			n, err := conn.Write(chunk)
			total += int64(n)
			if err != nil {
				break
			}
		}
	}
	return total
}

func TestFirstByteIsReadAfterTheSystemCall(t *testing.T) {
	t.Parallel()
	clk := steppingClock{Fake: clock.NewFake(), step: time.Second}
	conn, server := pair(t, clk)
	start := clk.Fake.Now()
	require.NoError(t, conn.Arm(start.Deadline(10*time.Second)))
	_, err := conn.Write([]byte("x"))
	require.NoError(t, err)
	require.Equal(t, start.Boot.Add(2*time.Second), conn.FirstByte(), "Arm reads once, Write before and after the system call")
	require.Equal(t, "x", receive(t, server, 1))
}

func TestAliveSeesTheEndAndUnaskedBytes(t *testing.T) {
	t.Parallel()
	clk := clock.NewFake()
	conn, server := pair(t, clk)
	require.True(t, conn.Alive())
	require.NoError(t, server.CloseWrite())
	require.Eventually(t, func() bool { return !conn.Alive() }, 10*time.Second, time.Millisecond)

	conn, server = pair(t, clk)
	_, err := server.Write([]byte("unasked"))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return !conn.Alive() }, 10*time.Second, time.Millisecond)
}

func TestAbortResets(t *testing.T) {
	t.Parallel()
	clk := clock.NewFake()
	conn, server := pair(t, clk)
	require.NoError(t, conn.Arm(clk.Now().Deadline(time.Second)))
	require.NoError(t, conn.Abort())
	_, err := server.Read(make([]byte, 1))
	require.ErrorContains(t, err, "connection reset")
	_, err = conn.Write([]byte("x"))
	require.ErrorIs(t, err, guard.ErrNotArmed)
}

func TestADeadPeerLeavesNoFirstByte(t *testing.T) {
	t.Parallel()
	clk := clock.NewFake()
	conn, server := pair(t, clk)
	require.NoError(t, server.SetLinger(0))
	require.NoError(t, server.Close())
	require.Eventually(t, func() bool { return !conn.Alive() }, 10*time.Second, time.Millisecond)
	require.NoError(t, conn.Arm(clk.Now().Deadline(time.Second)))
	_, err := conn.Write([]byte("x"))
	require.Error(t, err)
	require.Zero(t, conn.FirstByte())
}

func TestSocketOptionsBoundDelivery(t *testing.T) {
	t.Parallel()
	require.Error(t, guard.Config{UserTimeout: time.Microsecond, KeepAlive: time.Second}.Validate())
	require.Error(t, guard.Config{UserTimeout: time.Second, KeepAlive: time.Millisecond}.Validate())
	require.NoError(t, guard.Config{}.WithDefaults().Validate())
}

// unchecked is the mutant: the same connection with the check left out.
type unchecked struct{ net.Conn }

// TestTheCheckIsWhatStopsALateByte runs one late write against the guard and against a
// connection without it: only the guard keeps the byte from the server. It proves that
// the other tests' server would have noticed.
func TestTheCheckIsWhatStopsALateByte(t *testing.T) {
	t.Parallel()
	for _, check := range []bool{true, false} {
		clk := clock.NewFake()
		conn, server := pair(t, clk)
		require.NoError(t, conn.Arm(clk.Now().Deadline(time.Second)))
		clk.Advance(time.Second)
		var w io.Writer = conn
		if !check {
			w = unchecked{conn.Conn}
		}
		_, err := w.Write([]byte("late"))
		require.Equal(t, check, err != nil)
		require.NoError(t, conn.Close())
		got, err := io.ReadAll(server)
		require.NoError(t, err)
		require.Equal(t, check, len(got) == 0)
	}
}

func TestWriteEndsWithTheContextOfItsCaller(t *testing.T) {
	t.Parallel()
	clk := clock.NewFake()
	conn, _ := pair(t, clk)
	fill(t, conn)
	require.NoError(t, conn.Arm(clk.Now().Deadline(time.Second)))
	require.NoError(t, conn.SetWriteDeadline(time.Time{}))
	ctx, cancel := context.WithCancel(t.Context())
	defer context.AfterFunc(ctx, func() { _ = conn.Abort() })()
	done := make(chan error, 1)
	go func() {
		_, err := conn.Write([]byte("x"))
		done <- err
	}()
	cancel()
	require.Error(t, <-done)
	require.Zero(t, conn.FirstByte())
}
