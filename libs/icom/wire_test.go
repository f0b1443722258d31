package icom_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/icom"
)

func TestPaths(t *testing.T) {
	t.Parallel()
	require.Equal(t, "/api/v1/in/99999A04/msgs", icom.PathSend("99999A04"))
	require.Equal(t, "/api/v1/out/99999A04/stream/start", icom.PathStreamStart("99999A04"))
}

func TestHeaderAllowed(t *testing.T) {
	t.Parallel()
	for _, name := range icom.AllowedHeaders() {
		require.True(t, icom.HeaderAllowed(name), name)
		require.True(t, icom.HeaderAllowed(strings.ToLower(name)), name)
		require.True(t, icom.HeaderAllowed(strings.ToUpper(name)), name)
	}
	for _, name := range []string{
		"", "traceparent", "X-Request-Id", "Authorization", "Expect", "Trailer", "Keep-Alive",
		icom.HeaderResourceID, icom.HeaderPullNext, " Host",
	} {
		require.False(t, icom.HeaderAllowed(name), name)
	}
}

func TestHostHeader(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]string{
		"icom.pi.rsfn.net.br:16422": "icom.pi.rsfn.net.br",
		"icom.pi.rsfn.net.br":       "icom.pi.rsfn.net.br",
		"127.0.0.1:1":               "127.0.0.1",
		"[::1]:443":                 "[::1]",
		"[::1]":                     "[::1]",
	} {
		require.Equal(t, want, icom.HostHeader(addr))
	}
}
