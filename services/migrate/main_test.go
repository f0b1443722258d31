package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/devstack/devtest"
)

func TestMain(m *testing.M) { os.Exit(devtest.Main(m, devtest.WithPostgres())) }

// stack is where a run works.
type stack map[string]string

func setup(t *testing.T) stack {
	t.Helper()
	return stack{"DATABASE_URL": devtest.Postgres(t), "NATS_URL": devtest.OwnNATS(t).URL()}
}

// run runs the command and returns its exit code and what it said.
func (s stack) run(t *testing.T, answer string, args ...string) (code int, out, complaint string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = run(t.Context(), process{
		args: args, getenv: func(k string) string { return s[k] }, in: strings.NewReader(answer), out: &stdout, err: &stderr,
	})
	return code, stdout.String(), stderr.String()
}

func TestUpStatusDown(t *testing.T) {
	t.Parallel()
	s := setup(t)
	code, out, complaint := s.run(t, "", "status")
	require.Equal(t, exitFailure, code)
	require.Contains(t, out, "pendente    00001_inbox.sql")
	require.Contains(t, out, "ausente     stream PIX_INBOUND")
	require.Contains(t, complaint, "há pendências")

	code, out, _ = s.run(t, "", "up", "--dry-run")
	require.Equal(t, exitClean, code)
	require.Contains(t, out, "a aplicar   00001_inbox.sql")
	code, _, _ = s.run(t, "", "status")
	require.Equal(t, exitFailure, code, "dry-run changed nothing")

	code, out, complaint = s.run(t, "", "up")
	require.Equal(t, exitClean, code, complaint)
	require.Contains(t, out, "aplicada    00001_inbox.sql")
	newest := strings.Count(out, "aplicada")
	require.Contains(t, out, "criado      stream PIX_INBOUND")
	code, out, _ = s.run(t, "", "up")
	require.Equal(t, exitClean, code)
	require.Contains(t, out, "nada a aplicar")
	require.NotContains(t, out, "criado")
	code, _, complaint = s.run(t, "", "status")
	require.Equal(t, exitClean, code, complaint)

	code, _, complaint = s.run(t, "no\n", "down")
	require.Equal(t, exitFailure, code)
	require.Contains(t, complaint, "nada foi desfeito")
	code, out, _ = s.run(t, "", "down", "--steps", "2", "--dry-run")
	require.Equal(t, exitClean, code)
	require.Equal(t, 2, strings.Count(out, "a desfazer"))
	code, _, _ = s.run(t, "", "status")
	require.Equal(t, exitClean, code, "nothing was undone")
	code, out, complaint = s.run(t, "apagar\n", "down")
	require.Equal(t, exitClean, code, complaint)
	require.Contains(t, out, fmt.Sprintf("desfeita    %05d_", newest))
	require.Equal(t, 1, strings.Count(out, "desfeita"))
	code, out, complaint = s.run(t, "", "--yes", "down", "--steps=99")
	require.Equal(t, exitClean, code, complaint)
	require.Contains(t, out, "desfeita    00001_inbox.sql")
	code, out, _ = s.run(t, "", "down", "--yes")
	require.Equal(t, exitClean, code)
	require.Contains(t, out, "nada a desfazer")
	code, _, complaint = s.run(t, "", "up", "--provision=false")
	require.Equal(t, exitClean, code, complaint)
}

func TestDriftIsChangedOnlyWhenTold(t *testing.T) {
	t.Parallel()
	s := setup(t)
	drift(t, s["NATS_URL"])
	code, out, _ := s.run(t, "", "up")
	require.Equal(t, exitClean, code)
	require.Contains(t, out, "divergente  stream PIX_INBOUND\n            max_age: 1h0m0s, declared 24h0m0s\n")
	require.Contains(t, out, "divergente  consumer PIX_INBOUND/payments\n            ack_wait: 1m0s, declared 30s\n")
	code, _, _ = s.run(t, "", "status")
	require.Equal(t, exitFailure, code)
	code, out, _ = s.run(t, "", "up", "--update-streams")
	require.Equal(t, exitClean, code)
	require.Contains(t, out, "alterado    stream PIX_INBOUND")
	require.Contains(t, out, "alterado    consumer PIX_INBOUND/payments")
	code, _, _ = s.run(t, "", "status")
	require.Equal(t, exitClean, code)
}

func TestTwoAtOnce(t *testing.T) {
	t.Parallel()
	s := setup(t)
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			code, _, complaint := s.run(t, "", "up")
			if code != exitClean {
				t.Error(complaint)
			}
		})
	}
	both.Wait()
}

func TestItWaitsForServersThatComeLater(t *testing.T) {
	t.Parallel()
	server := devtest.OwnNATS(t)
	s := stack{"DATABASE_URL": devtest.Postgres(t), "NATS_URL": server.URL()}
	require.NoError(t, server.Stop())
	ended := make(chan int, 1)
	go func() {
		code, _, _ := s.run(t, "", "up")
		ended <- code
	}()
	require.Eventually(t, func() bool {
		code, _, _ := s.run(t, "", "status", "--provision=false")
		return code == exitClean
	}, 20*time.Second, 50*time.Millisecond)
	require.NoError(t, server.Start(t.Context()))
	require.Equal(t, exitClean, <-ended)
}

func TestServersThatNeverComeAreAFailureWithoutSecrets(t *testing.T) {
	t.Parallel()
	s := stack{
		"DATABASE_URL": "postgres://app:hunter2@127.0.0.1:1/pix", "NATS_URL": "nats://app:hunter2@127.0.0.1:1",
	}
	for _, command := range []string{"up", "status", "down"} {
		code, out, complaint := s.run(t, "", command, "--timeout=700ms")
		require.Equal(t, exitFailure, code)
		require.NotContains(t, out+complaint, "hunter2")
	}
	s["DATABASE_URL"] = "postgres://app:hunter2@%zz/pix"
	code, out, complaint := s.run(t, "", "up")
	require.Equal(t, exitFailure, code)
	require.NotContains(t, out+complaint, "hunter2")
	s["DATABASE_URL"] = devtest.Postgres(t)
	code, out, complaint = s.run(t, "", "up", "--timeout=3s")
	require.Equal(t, exitFailure, code)
	require.NotContains(t, out+complaint, "hunter2")
}

func TestUsage(t *testing.T) {
	t.Parallel()
	s := stack{"DATABASE_URL": "x", "NATS_URL": "x"}
	for _, args := range [][]string{
		{},
		{"sideways"},
		{"up", "down"},
		{"up", "--unknown"},
		{"down", "--steps=0"},
		{"up", "--replicas=2"},
		{"status", "--update-streams"},
		{"status", "--dry-run"},
		{"up", "--timeout=-1s"},
	} {
		code, _, complaint := s.run(t, "", args...)
		require.Equal(t, exitUsage, code, args)
		require.Contains(t, complaint, "--help", args)
	}
	code, _, complaint := stack{}.run(t, "", "up")
	require.Equal(t, exitUsage, code)
	require.Contains(t, complaint, "DATABASE_URL")
	require.Contains(t, complaint, "NATS_URL")
	code, _, _ = stack{"DATABASE_URL": "x", "NATS_URL": "x", "NATS_REPLICAS": "many"}.run(t, "", "up")
	require.Equal(t, exitUsage, code)

	code, out, _ := s.run(t, "", "--help")
	require.Equal(t, exitClean, code)
	require.Contains(t, out, "migrate up")
	code, out, _ = s.run(t, "", "up", "-h")
	require.Equal(t, exitClean, code)
	require.Equal(t, usage, out)
	code, out, _ = s.run(t, "", "--version")
	require.Equal(t, exitClean, code)
	require.Contains(t, out, "migrate ")
}
