package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/icom/spitest"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/signature"
)

// TestSPIBehindTheBank: accounts, keys and the control port of the SPI, in this process.
func TestSPIBehindTheBank(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	list, faults := filepath.Join(dir, "participants.json"), filepath.Join(dir, "faults.json")
	require.NoError(t, os.WriteFile(list, []byte(`[{"ispb":"87654321","balance":"2.50"}]`), 0o600))
	require.NoError(t, os.WriteFile(faults, []byte(`[{"at":"status","do":"repeat","rate":0.5,"delay":"20ms"}]`), 0o600))
	args := []string{
		"--pki-dir", filepath.Join(dir, "pki"), "--participant", "12345678=1000.00",
		"--participant", "99999A03=1000000.00,virtual", "--participants", list, "--spi-faults", faults,
	}
	at := launch(t, args...)
	require.Len(t, at.Signatures, 2)
	first := at.Signatures[participant]
	_, err := signature.LoadKey(first.Key)
	require.NoError(t, err)
	spi, err := signature.LoadCertificates(at.SPI)
	require.NoError(t, err)
	require.Equal(t, string(pix.SPI), spi[0].Subject.CommonName)
	require.FileExists(t, at.Clients["87654321"].Cert)

	var ids []string
	control(t, http.MethodPost, at.Control, "/pay?channel=cpm&from=99999A03&to=12345678&amount=12.34&n=3", nil, &ids)
	require.Len(t, ids, 3)
	var added map[string]any
	control(t, http.MethodPost, at.Control, "/participants", []byte(`{"ispb":"11111111","balance":100}`), &added)
	var rules []spitest.Fault
	control(t, http.MethodGet, at.Control, "/spi/faults", nil, &rules)
	require.Equal(t, spitest.Repeat, rules[0].Do)
	var books spitest.Report
	control(t, http.MethodGet, at.Control, "/books?orders=1", nil, &books)
	require.Empty(t, books.Broken)
	require.Len(t, books.Participants, 4)
	require.Equal(t, pix.Amount(1000_00), books.Account(participant).Opening)
	require.Equal(t, 3, books.Account(participant).PaymentsIn.Waiting)
	require.Equal(t, ids[0], books.Orders[0].ID)

	transport := &http.Transport{TLSClientConfig: clientConfig(t, at.Clients[participant])}
	defer transport.CloseIdleConnections()
	url := "https://" + at.Files + "/api/v1/download/" + string(participant) + "/extrato/" + strings.Repeat("0", 64) + ".zip"
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	resp, err := transport.RoundTrip(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusNotFound, resp.StatusCode)
	control(t, http.MethodGet, at.Control, "/books", nil, &books)
	require.Equal(t, 1, books.Files.NotFound)

	again := launch(t, args...)
	require.Equal(t, first, again.Signatures[participant], "the keys of a directory stay")
}

// launch runs the command until the test ends and reads where it is.
func launch(t *testing.T, args ...string) (at ready) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	ended := make(chan int, 1)
	var stderr bytes.Buffer
	go func() {
		ended <- run(ctx, args, w, &stderr)
		_ = w.Close()
	}()
	t.Cleanup(func() {
		cancel()
		require.Equal(t, exitClean, <-ended, stderr.String())
	})
	line, err := bufio.NewReader(r).ReadBytes('\n')
	require.NoError(t, err, stderr.String())
	require.NoError(t, json.Unmarshal(line, &at))
	return at
}

func control(t *testing.T, method, addr, path string, body []byte, answer any) {
	t.Helper()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+addr+path, bytes.NewReader(body))
	require.NoError(t, err)
	resp, err := transport.RoundTrip(req)
	require.NoError(t, err)
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusOK, resp.StatusCode, string(text))
	require.NoError(t, json.Unmarshal(text, answer), string(text))
}
