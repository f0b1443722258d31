package fileimport_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/bucket"
	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/devstack/devtest"
	"github.com/cabine-pix/cabine/libs/statement"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/services/settlement-scheduler/fileimport"
)

// BenchmarkImportOfAGigabyte measures the import of a file with a gibibyte of text, from its discovery in the bucket until it
// is committed, and what memory the process took for it at most, the writing of the file included:
//
//	go test -run '^$' -bench Gigabyte -benchtime 1x -timeout 30m ./services/settlement-scheduler/fileimport
func BenchmarkImportOfAGigabyte(b *testing.B) { benchmarkImport(b, 1<<30) }

// BenchmarkImportOfAMillion measures the import of a million entries.
func BenchmarkImportOfAMillion(b *testing.B) { benchmarkImport(b, 1_000_000*lineLength) }

// lineLength is that of an entry, with its end.
const lineLength = 85

func benchmarkImport(b *testing.B, text int) {
	b.Helper()
	dsn := devtest.Postgres(b)
	require.NoError(b, store.Migrate(b.Context(), dsn))
	db, err := store.Open(b.Context(), store.Config{URL: dsn, Application: "test"})
	require.NoError(b, err)
	b.Cleanup(db.Close)
	for i := range b.N {
		b.StopTimer()
		dir := b.TempDir()
		h := header()
		h.To = h.To.Add(time.Duration(i) * time.Millisecond)
		records := text/lineLength + 1
		size := writeLarge(b, filepath.Join(dir, "a.zip"), h, records)
		from, err := bucket.New(bucket.Config{URL: "file://" + dir, Scratch: b.TempDir()})
		require.NoError(b, err)
		leadership := fmt.Sprint("bench", i)
		importer, err := fileimport.New(fileimport.Config{Leadership: leadership, ISPB: us, Every: time.Second}, fileimport.Deps{
			Bucket: from, Files: store.NewFiles(db), Clock: clock.System(), Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
			Metrics: prometheus.NewRegistry(),
		})
		require.NoError(b, err)
		term, err := store.NewTerms(db).Mint(b.Context(), leadership, "bench")
		require.NoError(b, err)
		runtime.GC()
		b.StartTimer()
		ctx, cancel := context.WithCancel(b.Context())
		ended := make(chan error, 1)
		go func() { ended <- importer.Run(ctx, term) }()
		require.Eventually(b, func() bool {
			latest, err := store.NewFiles(db).Latest(b.Context(), 1)
			return err == nil && len(latest) == 1 && latest[0].Records == int64(records) && latest[0].To.Equal(h.To)
		}, time.Hour, 50*time.Millisecond)
		b.StopTimer()
		cancel()
		require.ErrorIs(b, <-ended, context.Canceled)
		require.NoError(b, from.Close())
		b.ReportMetric(float64(records), "entries")
		b.ReportMetric(float64(size)/(1<<20), "text_MiB")
	}
	b.ReportMetric(peak(b), "rss_MiB")
}

// writeLarge writes a file of many entries and returns how long its text is.
func writeLarge(b *testing.B, name string, h statement.Header, records int) int64 {
	b.Helper()
	out, err := os.Create(name)
	require.NoError(b, err)
	w, err := statement.NewWriter(out, h)
	require.NoError(b, err)
	for i := range records {
		require.NoError(b, w.Entry(entry(i)))
	}
	sum, err := w.Close()
	require.NoError(b, err)
	require.NoError(b, out.Close())
	return sum.Size
}

// peak is the most memory that this process had, in MiB.
func peak(b *testing.B) float64 {
	b.Helper()
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(b, err)
	_, rest, found := strings.Cut(string(status), "VmHWM:")
	require.True(b, found)
	var kib float64
	_, err = fmt.Sscan(rest, &kib)
	require.NoError(b, err)
	return kib / 1024
}
