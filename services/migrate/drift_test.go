package main

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/bus"
)

// drift creates the topology of an older release: its inbound stream forgets after an hour, and the consumer of payments
// waits for a minute.
func drift(t *testing.T, url string) {
	t.Helper()
	b, err := bus.Connect(t.Context(), bus.Config{URL: url}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	older := bus.Declared(1)
	older.Streams[0].MaxAge = time.Hour
	older.Consumers[0].AckWait = time.Minute
	require.Eventually(t, func() bool {
		_, err := b.Provision(t.Context(), older, false)
		return err == nil
	}, 20*time.Second, 20*time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	require.NoError(t, b.Close(ctx))
}
