package icomtest_test

import (
	"bufio"
	"crypto/tls"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/icom"
	"github.com/cabine-pix/cabine/libs/icom/icomtest"
	"github.com/cabine-pix/cabine/libs/pix"
)

// BenchmarkRead reads batches of 10 messages of 4 KB over TLS, client and bank in one process.
func BenchmarkRead(b *testing.B) {
	p, err := pki()
	require.NoError(b, err)
	bank := icomtest.Start(b, icomtest.Config{PKI: p, Hold: time.Nanosecond, ForgetIDs: true})
	cfg, err := p.ClientConfig(bankA)
	require.NoError(b, err)
	conn, err := tls.Dial("tcp", bank.Addr(pix.CPM), cfg)
	require.NoError(b, err)
	defer conn.Close() //nolint:errcheck // the measurement is over
	br := bufio.NewReaderSize(conn, 64<<10)
	body := make([]byte, 4096)
	bodies := make([][]byte, icom.MaxMessages)
	for i := range bodies {
		bodies[i] = body
	}
	cursor := icom.PathStreamStart(bankA)
	b.SetBytes(int64(len(body) * len(bodies)))
	b.ReportAllocs()
	for b.Loop() {
		bank.Enqueue(pix.CPM, bankA, bodies...)
		_, err := io.WriteString(conn, "GET "+cursor+" HTTP/1.1\r\nHost: localhost\r\nAccept: multipart/mixed\r\n\r\n")
		require.NoError(b, err)
		resp, err := http.ReadResponse(br, nil)
		require.NoError(b, err)
		n, err := io.Copy(io.Discard, resp.Body)
		require.NoError(b, err)
		require.Greater(b, n, int64(40960))
		cursor = resp.Header.Get(icom.HeaderPullNext)
	}
}

// BenchmarkEnqueueExamples makes fresh messages.
func BenchmarkEnqueueExamples(b *testing.B) {
	p, err := pki()
	require.NoError(b, err)
	bank, err := icomtest.New(icomtest.Config{PKI: p, ForgetIDs: true, Examples: officialExamples})
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		_, err := bank.EnqueueExamples(pix.CPM, bankA, 1, "pacs.008_END_1", "pacs.008_chave")
		require.NoError(b, err)
	}
}
