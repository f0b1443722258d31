package statement_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/statement"
)

// BenchmarkRead measures reading a file of a hundred thousand entries; bytes are those of its text.
func BenchmarkRead(b *testing.B) {
	const n = 100_000
	var out bytes.Buffer
	w, err := statement.NewWriter(&out, entriesHeader())
	require.NoError(b, err)
	for i := range n {
		require.NoError(b, w.Entry(entry(i)))
	}
	sum, err := w.Close()
	require.NoError(b, err)
	b.SetBytes(sum.Size)
	b.ReportAllocs()
	for b.Loop() {
		r, err := statement.Open(bytes.NewReader(out.Bytes()), int64(out.Len()), statement.Limits{})
		require.NoError(b, err)
		for err == nil {
			err = r.Skip()
		}
		if !errors.Is(err, io.EOF) {
			b.Fatal(err)
		}
		require.NoError(b, r.Close())
	}
}
