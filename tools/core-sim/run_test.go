package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/cabine-pix/cabine/libs/corebank"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const id = "E99999004202607010900abcdefghijk"

func keyFile(t *testing.T) (string, corebank.Keys) {
	t.Helper()
	secret := strings.Repeat("s", corebank.MinSecret)
	path := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(path, []byte(secret+"\n"), 0o600))
	return path, corebank.Keys{{ID: "k1", Secret: []byte(secret)}}
}

// TestProcess builds the command, asks it as Cabine would and stops it with SIGTERM.
func TestProcess(t *testing.T) {
	t.Parallel()
	path, keys := keyFile(t)
	binary := filepath.Join(t.TempDir(), "core-sim")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".").CombinedOutput()
	require.NoError(t, err, string(out))
	cmd := exec.CommandContext(t.Context(), binary, "--key-file", path, "--reject", "1")
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	first, err := bufio.NewReader(stdout).ReadBytes('\n')
	require.NoError(t, err)
	var at ready
	require.NoError(t, json.Unmarshal(first, &at))

	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	question, err := json.Marshal(corebank.Question{EndToEndID: id})
	require.NoError(t, err)
	post := func(sign bool) (int, http.Header, []byte, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, at.URL, bytes.NewReader(question))
		require.NoError(t, err)
		signature := ""
		if sign {
			signature = keys.SignQuestion(req.Header, question, time.Now())
		}
		return do(t, client, req, signature)
	}
	status, header, body, signature := post(true)
	require.Equal(t, http.StatusOK, status)
	require.NoError(t, keys.CheckAnswer(header, body, signature))
	var answer corebank.Answer
	require.NoError(t, json.Unmarshal(body, &answer))
	require.NoError(t, answer.Check(id))
	require.Equal(t, "AC03", answer.Reason)
	status, _, _, _ = post(false)
	require.Equal(t, http.StatusUnauthorized, status)

	fail, err := http.NewRequestWithContext(t.Context(), http.MethodPut, strings.Replace(at.URL, "/decisao", "/falha", 1), strings.NewReader("unavailable"))
	require.NoError(t, err)
	status, _, _, _ = do(t, client, fail, "")
	require.Equal(t, http.StatusOK, status)
	status, _, _, _ = post(true)
	require.Equal(t, http.StatusServiceUnavailable, status)

	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait())
}

func do(t *testing.T, client *http.Client, req *http.Request, signature string) (int, http.Header, []byte, string) {
	t.Helper()
	res, err := client.Do(req)
	require.NoError(t, err)
	defer res.Body.Close() //nolint:errcheck // read to its end
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, res.Header, body, signature
}

func TestWrongUse(t *testing.T) {
	t.Parallel()
	path, _ := keyFile(t)
	for says, args := range map[string][]string{
		"falta --key-file":        {},
		"argumento inesperado":    {"--key-file", path, "x"},
		"falha desconhecida":      {"--key-file", path, "--fault", "x"},
		"RejectShare is 2":        {"--key-file", path, "--reject", "2"},
		"flag provided but not d": {"--nonsense"},
	} {
		var stderr bytes.Buffer
		require.Equal(t, exitWrongUse, run(context.WithoutCancel(t.Context()), args, io.Discard, &stderr), says)
		require.Contains(t, stderr.String(), says)
	}
	var stdout bytes.Buffer
	require.Equal(t, exitClean, run(t.Context(), []string{"--help"}, &stdout, io.Discard))
	require.Contains(t, stdout.String(), "núcleo bancário")
	require.Contains(t, stdout.String(), "huge-body")
}
