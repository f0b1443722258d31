package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/statement"
	"github.com/cabine-pix/cabine/libs/store"
)

// What does not fit of the files is named, and nothing of the bucket's URL is repeated.
func TestFilesAreConfiguration(t *testing.T) {
	t.Parallel()
	require.NoError(t, load(t, "CABINE_FILES_BUCKET=s3://files?region=sa-east-1").Validate())
	for environ, says := range map[string]string{
		"CABINE_FILES_BUCKET=s3://hunter2:hunter2@files": "files: bucket: URL has credentials",
		"CABINE_FILES_EVERY=1us":                         "files: Every is 1µs",
		"CABINE_FILES_MAX_SIZE=-1":                       "files: MaxSize is -1",
	} {
		err := load(t, environ).Validate()
		require.ErrorContains(t, err, says)
		require.NotContains(t, err.Error(), "hunter2")
	}
	b, err := newBucket(load(t))
	require.NoError(t, err)
	require.Nil(t, b)
}

// A file that comes into the bucket is in the tables, once, although there are two replicas; the next leader goes on.
func TestFilesAreImportedByTheLeader(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	files := store.NewFiles(w.db)
	dir := t.TempDir()
	day := w.first[0].OpensAt
	put := func(name string, hours int) {
		var out bytes.Buffer
		s, err := statement.NewWriter(&out, statement.Header{
			Kind: statement.Entries, ISPB: us, From: day, To: day.Add(time.Duration(hours) * time.Hour),
		})
		require.NoError(t, err)
		require.NoError(t, s.Entry(statement.Entry{
			ID: "E12345678202612010000abcdefghijk", Kind: pix.Payment, Direction: pix.In, Amount: 1, SettledAt: day, Counterparty: "87654321",
		}))
		_, err = s.Close()
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "new"), out.Bytes(), 0o600))
		require.NoError(t, os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, name)))
	}
	imported := func(n int) {
		w.eventually("a file to be imported", func() bool {
			latest, err := files.Latest(t.Context(), 10)
			return err == nil && len(latest) == n && latest[0].State == store.FileImported
		})
	}
	settings := map[string]string{"CABINE_FILES_BUCKET": "file://" + dir, "CABINE_FILES_EVERY": "50ms"}
	replicas, led := []*process{w.start("a", settings), w.start("b", settings)}, map[string]int{}
	put("a.zip", 1)
	first := w.leader(replicas, led)
	imported(1)
	first.kill()
	put("b.zip", 2)
	w.leader(without(replicas, first), led)
	imported(2)
}
