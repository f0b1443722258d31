package icomtest_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/icom"
	"github.com/cabine-pix/cabine/libs/icom/icomtest"
	"github.com/cabine-pix/cabine/libs/pix"
)

// recordingTB collects what would have failed a test.
type recordingTB struct {
	testing.TB
	cleanups []func()
	failures []string
}

func (r *recordingTB) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }
func (r *recordingTB) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recordingTB) cleanup() {
	for _, f := range r.cleanups {
		f()
	}
}

func unzipped(t *testing.T, resp *http.Response) {
	t.Helper()
	r, err := gzip.NewReader(resp.Body)
	require.NoError(t, err)
	plain, err := io.ReadAll(r)
	require.NoError(t, err)
	resp.Body = io.NopCloser(bytes.NewReader(plain))
}

// headerCase is one request to the send endpoint and what the bank says to it.
type headerCase struct {
	name, method, body string
	status             int
	problem            string
	violation          bool
	headers            []string
}

func headerCases() []headerCase {
	const (
		four    = "Content-Length: 4"
		chunked = "Transfer-Encoding: chunked"
		xml     = "Content-Type: application/xml"
	)
	return []headerCase{
		{"all allowed", "POST", "<a/>", 201, "", false, []string{
			four, post, "accept: */*", "ACCEPT-ENCODING: gzip",
			"Connection: keep-alive", "Cookie: a=b", "Max-Forwards: 1", "User-Agent: cabine", "Via: 1.1 x",
		}},
		{"tracing", "POST", "<a/>", 400, icom.ProblemInvalidHeader, true, []string{four, "traceparent: 00-0-0-0"}},
		{"our own", "POST", "<a/>", 400, icom.ProblemInvalidHeader, true, []string{four, "PI-ResourceId: x"}},
		{"expect", "POST", "<a/>", 400, icom.ProblemInvalidHeader, true, []string{four, "Expect: 100-continue"}},
		{"two lengths", "POST", "<a/>", 400, icom.ProblemInvalidHeader, true, []string{four, chunked}},
		{"gzip transfer", "POST", "", 400, icom.ProblemInvalidHeader, true, []string{"Transfer-Encoding: gzip, chunked"}},
		{"no length", "POST", "", 411, "length", false, nil},
		{"bad length", "POST", "", 400, "badRequest", false, []string{"Content-Length: -1"}},
		{"chunked", "POST", "5\r\n<a/>\n\r\n0\r\n\r\n", 201, "", false, []string{chunked, post}},
		{"charset", "POST", "<a/>", 400, icom.ProblemCharset, false, []string{four, xml + "; charset=iso-8859-1"}},
		{"no charset", "POST", "<a/>", 400, icom.ProblemCharset, false, []string{four, xml}},
		{"json", "POST", "{ }\n", 415, "contentType", false, []string{four, "Content-Type: application/json"}},
		{"deflate", "POST", "<a/>", 415, "contentEncoding", false, []string{four, "Content-Encoding: deflate"}},
		{"accept", "GET", "", 406, "notAcceptable", true, []string{"Accept: application/json"}},
		{"accept encoding", "GET", "", 406, "notAcceptable", true, []string{"Accept-Encoding: gzip, br"}},
		{"method", "PUT", "", 405, "methodNotAllowed", false, nil},
		{"header line", "GET", "", 400, "badRequest", false, []string{"no colon"}},
	}
}

func TestHeaderStrictness(t *testing.T) {
	t.Parallel()
	for _, tt := range headerCases() {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := start(t, icomtest.Config{AllowViolations: true})
			c := dial(t, b, pix.CPM, bankA)
			resp := c.do(tt.method, icom.PathSend(bankA), tt.body, tt.headers...)
			require.Equal(t, tt.status, resp.StatusCode)
			if tt.problem != "" {
				require.Equal(t, tt.problem, problemOf(t, resp))
			}
			require.Equal(t, tt.violation, kinds(b)[icomtest.BadHeader] == 1, "%v", b.Violations())
		})
	}
}

func TestHostWithAPort(t *testing.T) {
	t.Parallel()
	raw := "GET /api/v1/in/catalog HTTP/1.1\r\nHost: icom.pi.rsfn.net.br:16422\r\n\r\n"
	t.Run("reset", func(t *testing.T) {
		t.Parallel()
		b := start(t, icomtest.Config{AllowViolations: true})
		c := dial(t, b, pix.CPM, bankA)
		_, err := c.conn.Write([]byte(raw))
		require.NoError(t, err)
		_, err = c.br.ReadByte()
		require.ErrorContains(t, err, "connection reset")
		require.Equal(t, 1, kinds(b)[icomtest.BadHeader])
	})
	t.Run("answer", func(t *testing.T) {
		t.Parallel()
		b := start(t, icomtest.Config{AllowViolations: true, AnswerHostPort: true})
		c := dial(t, b, pix.CPM, bankA)
		_, err := c.conn.Write([]byte(raw))
		require.NoError(t, err)
		require.Equal(t, icom.ProblemInvalidHeader, problemOf(t, c.read()))
	})
}
