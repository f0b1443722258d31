package icomtest_test

import (
	"bufio"
	"crypto/tls"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/icom"
	"github.com/cabine-pix/cabine/libs/icom/icomtest"
	"github.com/cabine-pix/cabine/libs/pix"
)

// TestSixStreamsUnderFaultsLoseNothing runs six readers that start over after every
// failure while a fifth of the answers is cut and another fifth refused.
func TestSixStreamsUnderFaultsLoseNothing(t *testing.T) {
	t.Parallel()
	const messages = 600
	b := start(t, icomtest.Config{
		Seed: 5, Hold: 5 * time.Millisecond, RedeliverAfter: 300 * time.Millisecond, StreamExpiry: 600 * time.Millisecond,
	})
	require.NoError(t, b.SetFaults(pix.CPM,
		icomtest.Fault{Drop: icomtest.DropBefore, Rate: 0.1},
		icomtest.Fault{Drop: icomtest.DropMiddle, Rate: 0.1},
		icomtest.Fault{Status: http.StatusServiceUnavailable, Rate: 0.2}))
	want, err := b.EnqueueExamples(pix.CPM, bankA, messages)
	require.NoError(t, err)
	cfg, err := b.PKI().ClientConfig(bankA)
	require.NoError(t, err)
	cfg.ClientSessionCache = tls.NewLRUClientSessionCache(1)

	var readers sync.WaitGroup
	deadline := time.Now().Add(time.Minute)
	for range 6 {
		readers.Go(func() {
			for time.Now().Before(deadline) && b.Report().Participant(pix.CPM, bankA).Acked < messages {
				readUntilItFails(b.Addr(pix.CPM), cfg)
			}
		})
	}
	readers.Wait()
	p := b.Report().Participant(pix.CPM, bankA)
	require.EqualValues(t, messages, p.Acked)
	require.NotZero(t, p.Redelivered)
	require.Equal(t, p.Delivered, p.Acked+p.Redelivered)
	require.ElementsMatch(t, want, b.IDs(pix.CPM, bankA).Acked)
	require.LessOrEqual(t, p.PeakRequests, 6)
}

// readUntilItFails opens a stream on a new connection and goes on while answers come
// whole. It closes the connection only after the bank has.
func readUntilItFails(addr string, cfg *tls.Config) {
	conn, err := tls.Dial("tcp", addr, cfg)
	if err != nil {
		return
	}
	defer conn.Close() //nolint:errcheck // the client fails on purpose
	br := bufio.NewReader(conn)
	cursor := icom.PathStreamStart(bankA)
	for range 50 {
		_, err := io.WriteString(conn, "GET "+cursor+" HTTP/1.1\r\nHost: localhost\r\nAccept: multipart/mixed\r\n\r\n")
		if err != nil {
			return
		}
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			return
		}
		if resp.StatusCode < http.StatusBadRequest {
			cursor = next(resp)
		} else if resp.StatusCode != http.StatusServiceUnavailable {
			return
		}
	}
}
