package edge_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/edge"
)

func throttled(t *testing.T, cfg edge.ThrottleConfig, clk clock.Clock) http.Handler {
	t.Helper()
	th, err := edge.NewThrottle(cfg, clk, prometheus.NewRegistry())
	require.NoError(t, err)
	tokens, err := edge.ParseTokens("core=" + coreToken + ",backoffice=" + otherToken)
	require.NoError(t, err)
	return edge.Chain(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), tokens.Identify, th.Throttle)
}

func ask(h http.Handler, address, token, forwarded string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = address
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if forwarded != "" {
		r.Header.Set("X-Forwarded-For", forwarded)
	}
	return serve(h, r)
}

func TestThrottleGivesBackEvenly(t *testing.T) {
	t.Parallel()
	clk := clock.NewFake()
	h := throttled(t, edge.ThrottleConfig{Limit: 4, Window: 8 * time.Second}, clk)
	for range 4 {
		require.Equal(t, http.StatusOK, ask(h, "192.0.2.1:1", "", "").Code)
	}
	w := ask(h, "192.0.2.1:2", "", "")
	require.Equal(t, http.StatusTooManyRequests, w.Code)
	require.Equal(t, "2", w.Header().Get("Retry-After"))
	_ = problemOf(t, w)
	require.Equal(t, http.StatusOK, ask(h, "192.0.2.2:1", "", "").Code, "another client")
	clk.Advance(2 * time.Second)
	require.Equal(t, http.StatusOK, ask(h, "192.0.2.1:1", "", "").Code)
	require.Equal(t, http.StatusTooManyRequests, ask(h, "192.0.2.1:1", "", "").Code)
	clk.Advance(time.Hour)
	for range 4 {
		require.Equal(t, http.StatusOK, ask(h, "192.0.2.1:1", "", "").Code)
	}
	require.Equal(t, http.StatusTooManyRequests, ask(h, "192.0.2.1:1", "", "").Code)
}

// Clients behind one address have each their own; whoever guesses tokens is counted by address.
func TestThrottleCountsClients(t *testing.T) {
	t.Parallel()
	h := throttled(t, edge.ThrottleConfig{Limit: 1, Window: time.Minute}, clock.NewFake())
	require.Equal(t, http.StatusOK, ask(h, "192.0.2.1:1", coreToken, "").Code)
	require.Equal(t, http.StatusOK, ask(h, "192.0.2.1:1", otherToken, "").Code)
	require.Equal(t, http.StatusTooManyRequests, ask(h, "198.51.100.1:1", coreToken, "").Code)
	require.Equal(t, http.StatusOK, ask(h, "192.0.2.1:1", "guess", "").Code)
	require.Equal(t, http.StatusTooManyRequests, ask(h, "192.0.2.1:1", "another guess", "").Code)
}

func TestThrottleMemoryIsBounded(t *testing.T) {
	t.Parallel()
	clk := clock.NewFake()
	h := throttled(t, edge.ThrottleConfig{Limit: 1, Window: time.Minute, Clients: 2}, clk)
	for i, want := range []int{200, 200, 200, 429, 429} { // the third takes what strangers share
		require.Equal(t, want, ask(h, "192.0.2."+strconv.Itoa(i)+":1", "", "").Code, i)
	}
	clk.Advance(2 * time.Minute)
	require.Equal(t, http.StatusOK, ask(h, "192.0.2.3:1", "", "").Code)
	require.Equal(t, http.StatusOK, ask(h, "192.0.2.4:1", "", "").Code)
}

func TestThrottleDisabled(t *testing.T) {
	t.Parallel()
	h := throttled(t, edge.ThrottleConfig{Disabled: true}, clock.NewFake())
	for range 100 {
		require.Equal(t, http.StatusOK, ask(h, "192.0.2.1:1", "", "").Code)
	}
}

func TestThrottleRefusesItsConfiguration(t *testing.T) {
	t.Parallel()
	for _, cfg := range []edge.ThrottleConfig{
		{}, {Limit: 1}, {Window: time.Second}, {Limit: 1, Window: time.Second, TrustProxyHops: 11}, {Limit: 1, Window: time.Second, Clients: -1},
	} {
		_, err := edge.NewThrottle(cfg, clock.NewFake(), prometheus.NewRegistry())
		require.Error(t, err, "%+v", cfg)
	}
}

func TestClientAddress(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		remote, forwarded string
		hops              int
		want              string
	}{
		{"192.0.2.1:1", "198.51.100.7", 0, "192.0.2.1"},
		{"192.0.2.1:1", "198.51.100.7", 1, "198.51.100.7"},
		{"192.0.2.1:1", "203.0.113.9, 198.51.100.7", 1, "198.51.100.7"},
		{"192.0.2.1:1", "203.0.113.9, 198.51.100.7", 2, "203.0.113.9"},
		{"192.0.2.1:1", "203.0.113.9, 198.51.100.7", 5, "203.0.113.9"},
		{"192.0.2.1:1", "203.0.113.9, nonsense, 198.51.100.7", 3, "198.51.100.7"},
		{"192.0.2.1:1", "", 1, "192.0.2.1"},
		{"[2001:db8:1:2:3:4:5:6]:1", "", 0, "2001:db8:1:2::/64"},
		{"[::ffff:192.0.2.1]:1", "", 0, "192.0.2.1"},
		{"[fe80::1%eth0]:1", "", 0, "fe80::/64"},
		{"@", "198.51.100.7", 1, "unknown"},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = c.remote
		if c.forwarded != "" {
			r.Header.Set("X-Forwarded-For", c.forwarded)
		}
		require.Equal(t, c.want, edge.ClientAddress(r, c.hops), "%+v", c)
	}
}
