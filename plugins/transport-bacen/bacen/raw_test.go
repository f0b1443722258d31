package bacen_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/icom"
	"github.com/cabine-pix/cabine/libs/icom/icomtest"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/transport"
	"github.com/cabine-pix/cabine/plugins/transport-bacen/bacen"
)

// authority makes the certificates once for a test: the bank's key is slow to make.
func authority(t *testing.T) *icomtest.PKI {
	t.Helper()
	pki, err := icomtest.NewPKI()
	require.NoError(t, err)
	return pki
}

// raw is a server that answers every request with the same bytes, whatever HTTP says
// about them, and then closes the connection or keeps it.
func raw(t *testing.T, pki *icomtest.PKI, answer string, keep bool) *bacen.Transport {
	t.Helper()
	return serve(t, pki, func(conn net.Conn) {
		in := bufio.NewReader(conn)
		for {
			req, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			if _, err := io.Copy(io.Discard, req.Body); err != nil {
				return
			}
			if _, err := conn.Write([]byte(answer)); err != nil || !keep {
				return
			}
		}
	})
}

// serve is a server that does as it is told with one connection after the other, and the transport to it.
func serve(t *testing.T, pki *icomtest.PKI, with func(net.Conn)) *bacen.Transport {
	t.Helper()
	ln, err := tls.Listen("tcp", "127.0.0.1:0", pki.ServerConfig())
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			with(conn)
			_ = conn.Close()
		}
	}()
	files, err := pki.WriteClient(t.TempDir(), ispb)
	require.NoError(t, err)
	tr := open(t, bacen.Config{
		Channels:     map[pix.Channel]bacen.Channel{pix.CPM: {URL: "https://" + ln.Addr().String()}},
		Participants: map[pix.ISPB]bacen.Identity{ispb: {Cert: files.Cert, Key: files.Key}},
		CA:           files.CA,
	})
	t.Cleanup(func() {
		tr.Close()
		require.NoError(t, ln.Close())
		<-done
	})
	return tr
}

func TestAnswersThatProveNothing(t *testing.T) {
	t.Parallel()
	pki := authority(t)
	const next = "PI-Pull-Next: /next\r\nContent-Type: application/xml\r\n"
	for name, answer := range map[string]string{
		"none":                  "",
		"no HTTP":               "SSH-2.0-OpenSSH\r\n\r\n",
		"half a head":           "HTTP/1.1 200 OK\r\nPI-Pull",
		"a length not reached":  "HTTP/1.1 200 OK\r\n" + next + "Content-Length: 100\r\n\r\n<a/>",
		"no length":             "HTTP/1.1 200 OK\r\n" + next + "\r\n<a/>",
		"chunks without end":    "HTTP/1.1 200 OK\r\n" + next + "Transfer-Encoding: chunked\r\n\r\n4\r\n<a/>\r\n",
		"a refusal cut short":   "HTTP/1.1 400 Bad Request\r\nContent-Length: 10\r\n\r\nx",
		"interim without end":   strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 10),
		"a head without end":    "HTTP/1.1 200 OK\r\n" + strings.Repeat("X: "+strings.Repeat("y", 1<<16)+"\r\n", 300),
		"a body over the limit": "HTTP/1.1 200 OK\r\n" + next + "Content-Length: 20000000\r\n\r\n" + strings.Repeat("x", 20000000),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := raw(t, pki, answer, false)
			_, err := tr.Pull(t.Context(), transport.PullRequest{Permit: permit(1, 5*time.Second), Timeout: 10 * time.Second})
			require.ErrorIs(t, err, transport.OutcomeUnknown)
			e := asError(t, err)
			require.NotZero(t, e.Exchange.FirstByte)
			require.False(t, e.Exchange.Complete)
			require.NotEmpty(t, e.Reason)
		})
	}
}

// A bank may refuse a request by its head, and break off while its body is still being written. A refusal is a refusal; what
// says anything else proves nothing.
func TestAnswersBeforeTheWholeRequest(t *testing.T) {
	t.Parallel()
	pki := authority(t)
	for status, want := range map[string]transport.Kind{
		"413 Content Too Large":   transport.Rejected,
		"429 Too Many Requests":   transport.Throttled,
		"503 Service Unavailable": transport.OutcomeUnknown,
		"201 Created":             transport.OutcomeUnknown,
	} {
		t.Run(status, func(t *testing.T) {
			t.Parallel()
			tr := impatient(t, pki, "HTTP/1.1 "+status+"\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
			message := bytes.Repeat([]byte("x"), transport.MaxBodyBytes/2) // more than the kernel takes of what nobody reads
			_, err := tr.Send(t.Context(), transport.SendRequest{
				Permit: permit(1, 5*time.Second), Messages: [][]byte{message}, Timeout: 10 * time.Second,
			})
			require.ErrorIs(t, err, want)
			require.Equal(t, want != transport.OutcomeUnknown, asError(t, err).Exchange.Complete)
		})
	}
}

// impatient is a server that reads the head of each request, answers, and leaves.
func impatient(t *testing.T, pki *icomtest.PKI, answer string) *bacen.Transport {
	t.Helper()
	return serve(t, pki, func(conn net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
			_, _ = conn.Write([]byte(answer)) // who is gone misses it
		}
	})
}

func TestAnswersThatBreakTheProtocol(t *testing.T) {
	t.Parallel()
	pki := authority(t)
	const xml = "Content-Type: application/xml\r\nContent-Length: 4\r\n\r\n<a/>"
	for name, answer := range map[string]string{
		"no cursor":             "HTTP/1.1 200 OK\r\n" + xml,
		"two cursors":           "HTTP/1.1 200 OK\r\nPI-Pull-Next: /a\r\nPI-Pull-Next: /b\r\n" + xml,
		"a cursor elsewhere":    "HTTP/1.1 200 OK\r\nPI-Pull-Next: https://elsewhere.example/x\r\n" + xml,
		"no cursor on 204":      "HTTP/1.1 204 No Content\r\n\r\n",
		"a redirect":            "HTTP/1.1 302 Found\r\nLocation: https://elsewhere.example/\r\nContent-Length: 0\r\n\r\n",
		"switching protocols":   "HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n",
		"a status of the sends": "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n",
		"no content type":       "HTTP/1.1 200 OK\r\nPI-Pull-Next: /a\r\nContent-Length: 4\r\n\r\n<a/>",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := raw(t, pki, answer, true)
			_, err := tr.Pull(t.Context(), transport.PullRequest{Permit: permit(1, 5*time.Second), Timeout: 10 * time.Second})
			require.ErrorIs(t, err, transport.Malformed)
			require.True(t, asError(t, err).Exchange.Complete)
		})
	}
}

func TestStatusesByDirection(t *testing.T) {
	t.Parallel()
	pki := authority(t)
	problem := string(icom.MarshalProblem(icom.Problem{Type: icom.ProblemType("forbidden"), Title: "Acesso negado"}))
	for status, want := range map[string]struct{ pull, send, end transport.Kind }{
		"400 Bad Request":         {transport.Rejected, transport.Rejected, transport.Rejected},
		"403 Forbidden":           {transport.Rejected, transport.Rejected, transport.Rejected},
		"404 Not Found":           {transport.Gone, transport.Rejected, ""},
		"410 Gone":                {transport.Gone, transport.Rejected, ""},
		"429 Too Many Requests":   {transport.Throttled, transport.Throttled, transport.Throttled},
		"502 Bad Gateway":         {transport.Unavailable, transport.Unavailable, transport.Unavailable},
		"503 Service Unavailable": {transport.Unavailable, transport.Unavailable, transport.Unavailable},
	} {
		t.Run(status, func(t *testing.T) {
			t.Parallel()
			tr := raw(t, pki, "HTTP/1.1 "+status+"\r\nContent-Type: application/problem+xml\r\nTransfer-Encoding: chunked\r\n\r\n"+
				hex(len(problem))+"\r\n"+problem+"\r\n0\r\n\r\n", true)
			_, err := tr.Pull(t.Context(), transport.PullRequest{Permit: permit(1, 5*time.Second), Timeout: 5 * time.Second})
			e := asError(t, err)
			require.Equal(t, want.pull, e.Kind)
			require.Equal(t, "Acesso negado", e.Title)
			require.Equal(t, icom.ProblemType("forbidden"), e.ProblemType)
			require.True(t, e.Exchange.Complete)
			_, err = tr.Send(t.Context(), transport.SendRequest{
				Permit: permit(1, 5*time.Second), Messages: [][]byte{[]byte("<a/>")}, Timeout: 5 * time.Second,
			})
			require.ErrorIs(t, err, want.send)
			_, err = tr.CloseStream(t.Context(), transport.CloseRequest{
				Permit: permit(1, 5*time.Second), Cursor: "/c", Timeout: 5 * time.Second,
			})
			if want.end == "" {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, want.end)
			}
		})
	}
}

func hex(n int) string {
	const digits = "0123456789abcdef"
	s := ""
	for ; n > 0; n /= 16 {
		s = string(digits[n%16]) + s
	}
	return s
}
