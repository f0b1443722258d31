package telemetry_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/telemetry"
)

func TestHealth(t *testing.T) {
	t.Parallel()
	h := telemetry.NewHealth()
	ctx := t.Context()
	require.True(t, h.Live(ctx).OK())
	require.True(t, h.Ready(ctx).OK())

	h.AddReady("redis", time.Second, func(context.Context) error { return errors.New("dial redis://:secret@x: refused") })
	require.True(t, h.Live(ctx).OK(), "what is not ready may still be alive")
	r := h.Ready(ctx)
	require.Equal(t, "failing", r.Status)
	require.Equal(t, "dial redis://:[redacted]@x: refused", r.Checks["redis"])

	h.AddLive("loop", time.Second, func(context.Context) error { panic("boom") })
	require.Contains(t, h.Live(ctx).Checks["loop"], "panicked: boom")

	h.Drain()
	require.Equal(t, "draining", h.Ready(ctx).Status)
}

func TestHealthCheckThatHangsRunsOnce(t *testing.T) {
	t.Parallel()
	h := telemetry.NewHealth()
	release, runs := make(chan struct{}), make(chan struct{}, 10)
	h.AddReady("stuck", 10*time.Millisecond, func(context.Context) error {
		runs <- struct{}{}
		<-release
		return nil
	})
	require.Contains(t, h.Ready(t.Context()).Checks["stuck"], "no answer within 10ms")
	require.Equal(t, telemetry.ErrCheckStuck.Error(), h.Ready(t.Context()).Checks["stuck"])
	require.Len(t, runs, 1)
	close(release)
	require.Eventually(t, func() bool { return h.Ready(t.Context()).OK() }, time.Second, time.Millisecond)
}

func TestHandlers(t *testing.T) {
	t.Parallel()
	h := telemetry.NewHealth()
	h.AddReady("db", 0, func(context.Context) error { return errors.New("down") })
	for _, c := range []struct {
		handler http.Handler
		code    int
		body    string
	}{
		{h.LiveHandler(), 200, `{"status":"ok"}`},
		{h.ReadyHandler(), 503, `{"status":"failing","checks":{"db":"down"}}`},
	} {
		w := httptest.NewRecorder()
		c.handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		require.Equal(t, c.code, w.Code)
		require.JSONEq(t, c.body, w.Body.String())
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	reg := telemetry.NewRegistry("icom-poller", "1.2.3")
	log := telemetry.New(telemetry.LogConfig{}, io.Discard)
	w := httptest.NewRecorder()
	telemetry.MetricsHandler(reg, log).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	require.Equal(t, 200, w.Code)
	require.Contains(t, w.Body.String(), `service="icom-poller",version="1.2.3"} 1`)
	require.Contains(t, w.Body.String(), "go_goroutines")
	require.Contains(t, w.Body.String(), "process_open_fds")
}
