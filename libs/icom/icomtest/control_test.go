package icomtest_test

import (
	"context"
	"encoding/json"
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
)

// controlled serves the control port of a bank and returns a caller of it.
func controlled(t *testing.T, b *icomtest.Bank) func(method, target, body string) (int, string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.ServeControl(ctx, ln) }()
	transport := &http.Transport{}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		cancel()
		require.NoError(t, <-done)
	})
	return func(method, target, body string) (int, string) {
		t.Helper()
		url := "http://" + ln.Addr().String() + target
		req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded") // as curl -d says
		resp, err := transport.RoundTrip(req)
		require.NoError(t, err)
		defer resp.Body.Close() //nolint:errcheck // read to its end
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(text)
	}
}

func TestControlPort(t *testing.T) {
	t.Parallel()
	b := start(t, icomtest.Config{Hold: short, AllowViolations: true})
	call := controlled(t, b)
	const who = "channel=cpm&ispb=12345678"

	status, _ := call("POST", "/enqueue?"+who+"&n=3&kind=pacs.008", "")
	require.Equal(t, 200, status)
	status, text := call("POST", "/faults?channel=cpm", `[{"kinds":["catalog"],"status":503,"delay":"1ms","times":1}]`)
	require.Equal(t, 200, status, text)
	require.Contains(t, text, `"1ms"`)

	c := dial(t, b, pix.CPM, bankA)
	require.Equal(t, 503, c.do(http.MethodGet, icom.PathCatalogIn, "").StatusCode)
	require.Equal(t, 200, c.do(http.MethodGet, icom.PathCatalogIn, "").StatusCode)
	require.Equal(t, 400, c.do(http.MethodGet, icom.PathCatalogIn, "", "X-Trace: 1").StatusCode)
	cursor := next(c.pull(""))
	require.Equal(t, 200, c.do(http.MethodDelete, cursor, "").StatusCode)

	var report icomtest.Report
	decode(t, call, "/report", &report)
	p := report.Participant(pix.CPM, bankA)
	require.EqualValues(t, 3, p.Enqueued)
	require.EqualValues(t, 3, p.Acked)
	require.Equal(t, 1, p.Violations)
	var violations []icomtest.Violation
	decode(t, call, "/violations", &violations)
	require.Equal(t, icomtest.BadHeader, violations[0].Kind)
	var ids icomtest.IDs
	decode(t, call, "/ids?"+who, &ids)
	require.Len(t, ids.Acked, 3)
	require.Equal(t, ids.Enqueued, ids.Acked)
	var requests []icomtest.Request
	decode(t, call, "/requests?"+who, &requests)
	require.Len(t, requests, 5)
	require.Equal(t, icomtest.KindDelete, requests[4].Kind)

	status, _ = call("POST", "/enqueue?channel=csm&ispb=12345678&n=0&rate=5000", "")
	require.Equal(t, 200, status)
	require.Eventually(t, func() bool {
		return b.Report().Participant(pix.CSM, bankA).Enqueued > 100
	}, wait, tick, "a feed without end")
	status, text = call("POST", "/cut?channel=cpm", "")
	require.Equal(t, 200, status)
	require.JSONEq(t, `{"connections":1}`, text)
}

func decode(t *testing.T, call func(string, string, string) (int, string), target string, into any) {
	t.Helper()
	status, text := call("GET", target, "")
	require.Equal(t, 200, status, text)
	require.NoError(t, json.Unmarshal([]byte(text), into))
}

func TestControlRefusals(t *testing.T) {
	t.Parallel()
	b := start(t, icomtest.Config{})
	call := controlled(t, b)
	for _, target := range []string{
		"/enqueue?channel=cxm&ispb=12345678", "/enqueue?channel=cpm&ispb=1", "/enqueue?channel=cpm&ispb=12345678&n=x",
		"/enqueue?channel=cpm&ispb=12345678&n=0", "/enqueue?channel=cpm&ispb=12345678&n=-1",
		"/enqueue?channel=cpm&ispb=12345678&rate=-1", "/enqueue?channel=cpm&ispb=12345678&kind=x",
		"/enqueue?channel=cpm&ispb=12345678&kind=x&rate=1", "/faults?channel=cpm", "/faults?channel=x", "/cut?channel=x",
	} {
		status, text := call("POST", target, `[{"delai":"1ms"}]`)
		require.Equal(t, 400, status, target)
		require.NotEmpty(t, text)
	}
	for _, target := range []string{"/ids", "/requests?channel=cpm"} {
		status, _ := call("GET", target, "")
		require.Equal(t, 400, status, target)
	}
}

func TestServeEndsWithRequestsInProgress(t *testing.T) {
	t.Parallel()
	p, err := pki()
	require.NoError(t, err)
	b, err := icomtest.New(icomtest.Config{PKI: p, Hold: time.Hour})
	require.NoError(t, err)
	stop, err := b.Listen(t.Context())
	require.NoError(t, err)
	readers(t, b, 3)
	require.NoError(t, stop())
	require.Zero(t, b.Report().Participant(pix.CPM, bankA).RequestsNow)
	require.Zero(t, b.Report().Participant(pix.CPM, bankA).ConnectionsNow)
}
