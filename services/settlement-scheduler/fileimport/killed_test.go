package fileimport_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/bucket"
	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/devstack/devtest"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/services/settlement-scheduler/fileimport"
)

// These variables make the test's own program a replica that can be killed.
const (
	childDSN     = "FILEIMPORT_DSN"
	childDir     = "FILEIMPORT_DIR"
	childScratch = "FILEIMPORT_SCRATCH"
	childTerm    = "FILEIMPORT_TERM"
)

// child imports under a term until it is killed, or until the term is over.
func child() error {
	ctx := context.Background()
	term, err := strconv.ParseInt(os.Getenv(childTerm), 10, 64)
	if err != nil {
		return err
	}
	db, err := store.Open(ctx, store.Config{URL: os.Getenv(childDSN), Application: "doomed"})
	if err != nil {
		return err
	}
	defer db.Close()
	b, err := bucket.New(bucket.Config{URL: "file://" + os.Getenv(childDir), Scratch: os.Getenv(childScratch)})
	if err != nil {
		return err
	}
	i, err := fileimport.New(fileimport.Config{Leadership: leadership, ISPB: us, Every: 10 * time.Millisecond}, fileimport.Deps{
		Bucket: b, Files: store.NewFiles(db), Clock: clock.System(), Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Metrics: prometheus.NewRegistry(),
	})
	if err != nil {
		return err
	}
	return i.Run(ctx, term)
}

// A leader is killed in the middle of an import, with most of the entries in the table and the transaction open: nothing of
// it is there, its copy of the file is gone, and the next leader imports the file whole without waiting for it.
func TestALeaderIsKilledInTheMiddleOfAnImport(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const n = 3000
	name, content := entries(t, header(), n)
	w.put(name, content)
	server := devtest.PostgresServer(t)
	locked := make(chan error, 1)
	go func() {
		locked <- server.Exec(t.Context(), w.database(), "BEGIN; SET application_name = 'holder'; "+
			"LOCK TABLE imported_files IN EXCLUSIVE MODE; SELECT pg_sleep(120); COMMIT")
	}()
	w.eventually("the table to be locked", func() bool {
		return w.holds("(SELECT count(*) FROM pg_locks WHERE relation = 'imported_files'::regclass AND mode = 'ExclusiveLock') = 1")
	})
	scratch := t.TempDir()
	doomed := exec.CommandContext(t.Context(), os.Args[0])
	doomed.Env = append(os.Environ(), childDSN+"="+w.dsn, childDir+"="+w.dir, childScratch+"="+scratch, childTerm+"="+fmt.Sprint(w.mint()))
	require.NoError(t, doomed.Start())
	w.eventually("the entries to be copied", func() bool {
		return w.holds("(SELECT count(*) FROM pg_stat_activity WHERE application_name = 'doomed' AND wait_event_type = 'Lock') = 1")
	})
	require.NoError(t, doomed.Process.Kill())
	require.Error(t, doomed.Wait())
	left, err := os.ReadDir(scratch)
	require.NoError(t, err)
	require.Empty(t, left)
	w.eventually("its transaction to be over", func() bool {
		return w.holds("(SELECT count(*) FROM pg_stat_activity WHERE application_name = 'doomed') = 0")
	})
	require.True(t, w.holds("(SELECT count(*) FROM statement_entries) = 0"))
	began := time.Now()
	term := w.mint()
	require.Less(t, time.Since(began), 5*time.Second, "a term does not wait for an import")
	require.NoError(t, server.Exec(t.Context(), w.database(),
		"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'holder'"))
	require.Error(t, <-locked)

	stop := w.replica(w.db).lead(term)
	f := w.outcome(name)
	require.ErrorIs(t, stop(), context.Canceled)
	require.Equal(t, []any{store.FileImported, int64(n), term}, []any{f.State, f.Records, f.Term})
	require.True(t, w.holds(fmt.Sprintf("(SELECT count(*) FROM statement_entries) = %d", n)))
}
