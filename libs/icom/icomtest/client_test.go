package icomtest_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/cabine-pix/cabine/libs/icom"
	"github.com/cabine-pix/cabine/libs/icom/icomtest"
	"github.com/cabine-pix/cabine/libs/pix"
)

const (
	bankA = pix.ISPB("12345678")
	bankB = pix.ISPB("99999A04")
	wait  = 5 * time.Second
	tick  = 2 * time.Millisecond
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pki is shared by the tests of the package: its RSA key is slow to make.
var pki = sync.OnceValues(icomtest.NewPKI)

func start(t *testing.T, cfg icomtest.Config) *icomtest.Bank {
	t.Helper()
	p, err := pki()
	require.NoError(t, err)
	cfg.PKI = p
	return icomtest.Start(t, cfg)
}

// client is one connection of a participant that writes requests byte by byte.
type client struct {
	t    *testing.T
	conn *tls.Conn
	br   *bufio.Reader
	ispb pix.ISPB
}

func dial(t *testing.T, b *icomtest.Bank, channel pix.Channel, ispb pix.ISPB) *client {
	t.Helper()
	cfg, err := b.PKI().ClientConfig(ispb)
	require.NoError(t, err)
	conn, err := tls.Dial("tcp", b.Addr(channel), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
	return &client{t: t, conn: conn, br: bufio.NewReader(conn), ispb: ispb}
}

// write sends a request without waiting for its answer. Headers are lines.
func (c *client) write(method, target, body string, headers ...string) {
	c.t.Helper()
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: localhost\r\n", method, target)
	for _, h := range headers {
		b.WriteString(h + "\r\n")
	}
	b.WriteString("\r\n" + body)
	_, err := c.conn.Write(b.Bytes())
	require.NoError(c.t, err)
}

func (c *client) read() *http.Response {
	c.t.Helper()
	resp, err := http.ReadResponse(c.br, nil)
	require.NoError(c.t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(c.t, err)
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp
}

func (c *client) do(method, target, body string, headers ...string) *http.Response {
	c.t.Helper()
	c.write(method, target, body, headers...)
	return c.read()
}

// pull reads with multipart from a stream, a new one for an empty cursor.
func (c *client) pull(cursor string) *http.Response {
	c.t.Helper()
	if cursor == "" {
		cursor = icom.PathStreamStart(c.ispb)
	}
	return c.do(http.MethodGet, cursor, "", "Accept: multipart/mixed")
}

func (c *client) post(body string, headers ...string) *http.Response {
	c.t.Helper()
	headers = append([]string{fmt.Sprintf("Content-Length: %d", len(body))}, headers...)
	return c.do(http.MethodPost, icom.PathSend(c.ispb), body, headers...)
}

func next(resp *http.Response) string { return resp.Header.Get(icom.HeaderPullNext) }

// messages takes identifiers and bodies out of a multipart answer.
func messages(t *testing.T, resp *http.Response) (ids []string, bodies []string) {
	t.Helper()
	require.Equal(t, http.StatusOK, resp.StatusCode)
	media, params, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	require.NoError(t, err)
	require.Equal(t, icom.TypeMultipart, media)
	require.Empty(t, resp.Header.Get(icom.HeaderResourceID), "the identifiers stand in the parts")
	r := multipart.NewReader(resp.Body, params["boundary"])
	for {
		p, err := r.NextPart()
		if errors.Is(err, io.EOF) {
			return ids, bodies
		}
		require.NoError(t, err)
		require.Equal(t, icom.TypeMessage, p.Header.Get("Content-Type"))
		body, err := io.ReadAll(p)
		require.NoError(t, err)
		ids = append(ids, p.Header.Get(icom.HeaderResourceID))
		bodies = append(bodies, string(body))
	}
}

func problemOf(t *testing.T, resp *http.Response) string {
	t.Helper()
	require.Equal(t, icom.TypeProblem, resp.Header.Get("Content-Type"))
	p, err := icom.ParseProblem(resp.Body)
	require.NoError(t, err)
	require.Equal(t, icom.ProblemType(p.Name()), p.Type)
	require.NotEmpty(t, p.Title)
	return p.Name()
}

// eventually polls the count of bankA.
func eventually(
	t *testing.T, b *icomtest.Bank, channel pix.Channel, cond func(icomtest.Participant) bool, what string,
) {
	t.Helper()
	require.Eventually(t, func() bool { return cond(b.Report().Participant(channel, bankA)) }, wait, tick, what)
}

func kinds(b *icomtest.Bank) map[icomtest.ViolationKind]int {
	out := make(map[icomtest.ViolationKind]int)
	for _, v := range b.Violations() {
		out[v.Kind]++
	}
	return out
}
