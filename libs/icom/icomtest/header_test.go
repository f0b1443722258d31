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

func TestHeaderStrictness(t *testing.T) {
	t.Parallel()
	chunked := "5\r\n<a/>\n\r\n0\r\n\r\n"
	tests := []struct {
		name, method, body string
		headers            []string
		status             int
		problem            string
		violation          bool
	}{
		{"all allowed", "POST", "<a/>", []string{
			"Content-Length: 4", "Content-Type: application/xml; charset=utf-8", "accept: */*", "ACCEPT-ENCODING: gzip",
			"Connection: keep-alive", "Cookie: a=b", "Max-Forwards: 1", "User-Agent: cabine", "Via: 1.1 x",
		}, 201, "", false},
		{"tracing", "POST", "<a/>", []string{"Content-Length: 4", "traceparent: 00-0-0-0"}, 400, icom.ProblemInvalidHeader, true},
		{"our own", "POST", "<a/>", []string{"Content-Length: 4", "PI-ResourceId: x"}, 400, icom.ProblemInvalidHeader, true},
		{"expect", "POST", "", []string{"Content-Length: 0", "Expect: 100-continue"}, 400, icom.ProblemInvalidHeader, true},
		{"two lengths", "POST", "<a/>", []string{"Content-Length: 4", "Transfer-Encoding: chunked"}, 400, icom.ProblemInvalidHeader, true},
		{"gzip transfer", "POST", "", []string{"Transfer-Encoding: gzip, chunked"}, 400, icom.ProblemInvalidHeader, true},
		{"no length", "POST", "", nil, 411, "length", false},
		{"bad length", "POST", "", []string{"Content-Length: -1"}, 400, "badRequest", false},
		{"chunked", "POST", chunked, []string{"Transfer-Encoding: chunked", "Content-Type: application/xml; charset=UTF-8"}, 201, "", false},
		{"charset", "POST", "<a/>", []string{"Content-Length: 4", "Content-Type: application/xml; charset=iso-8859-1"}, 400, icom.ProblemCharset, false},
		{"no charset", "POST", "<a/>", []string{"Content-Length: 4", "Content-Type: application/xml"}, 400, icom.ProblemCharset, false},
		{"json", "POST", "{}", []string{"Content-Length: 2", "Content-Type: application/json"}, 415, "contentType", false},
		{"deflate", "POST", "{}", []string{"Content-Length: 2", "Content-Encoding: deflate"}, 415, "contentEncoding", false},
		{"accept", "GET", "", []string{"Accept: application/json"}, 406, "notAcceptable", true},
		{"accept encoding", "GET", "", []string{"Accept-Encoding: gzip, br"}, 406, "notAcceptable", true},
		{"method", "PUT", "", nil, 405, "methodNotAllowed", false},
		{"header line", "GET", "", []string{"no colon"}, 400, "badRequest", false},
	}
	for _, tt := range tests {
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
