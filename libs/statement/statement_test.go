package statement_test

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/statement"
)

var (
	from = time.Date(2026, 12, 1, 3, 0, 0, 0, time.UTC)
	to   = from.AddDate(0, 0, 1)
)

func entriesHeader() statement.Header {
	return statement.Header{Kind: statement.Entries, ISPB: "12345678", From: from, To: to}
}

func settlementHeader() statement.Header {
	return statement.Header{Kind: statement.Settlement, ISPB: "12345678", CycleDate: from.Truncate(24 * time.Hour), CycleType: "dia"}
}

func e2e(n int) string { return fmt.Sprintf("E12345678202612010300%011d", n) }
func rtr(n int) string { return fmt.Sprintf("D12345678202612010300%011d", n) }

func entry(n int) statement.Entry {
	return statement.Entry{
		ID: e2e(n), Kind: pix.Payment, Direction: pix.Out, Amount: pix.Amount(100 + n), SettledAt: from.Add(time.Duration(n) * time.Millisecond),
		Counterparty: "87654321",
	}
}

func giveBack(n int) statement.Entry {
	e := entry(n)
	e.ID, e.Original, e.Kind, e.Direction = rtr(n), e2e(n), pix.Return, pix.In
	return e
}

// pack makes an archive of one member.
func pack(t testing.TB, text string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	f, err := w.Create("x")
	require.NoError(t, err)
	_, err = io.WriteString(f, text)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.Bytes()
}

// written is the archive of some entries, and its text.
func written(t testing.TB, entries ...statement.Entry) (archive []byte, text string, sum statement.Summary) {
	t.Helper()
	var out bytes.Buffer
	w, err := statement.NewWriter(&out, entriesHeader())
	require.NoError(t, err)
	for _, e := range entries {
		require.NoError(t, w.Entry(e))
	}
	sum, err = w.Close()
	require.NoError(t, err)
	r, err := zip.NewReader(bytes.NewReader(out.Bytes()), int64(out.Len()))
	require.NoError(t, err)
	f, err := r.File[0].Open()
	require.NoError(t, err)
	raw, err := io.ReadAll(f)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	return out.Bytes(), string(raw), sum
}

// read reads an archive to its end.
func read(archive []byte, limits statement.Limits) (all []statement.Entry, rows []*statement.RowError, sum statement.Summary, err error) {
	r, err := statement.Open(bytes.NewReader(archive), int64(len(archive)), limits)
	if err != nil {
		return nil, nil, sum, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	for {
		e, err := r.Next()
		var row *statement.RowError
		switch {
		case err == nil:
			all = append(all, e)
		case errors.As(err, &row):
			rows = append(rows, row)
		case errors.Is(err, io.EOF):
			return all, rows, r.Summary(), nil
		default:
			return all, rows, r.Summary(), err
		}
	}
}

// What is written is read again, whatever it is; the hash is that of the text, and in it alone.
func TestWhatIsWrittenIsRead(t *testing.T) {
	t.Parallel()
	want := []statement.Entry{entry(1), giveBack(1), entry(2), entry(2)}
	archive, text, wrote := written(t, want...)
	got, rows, sum, err := read(archive, statement.Limits{})
	require.NoError(t, err)
	require.Empty(t, rows)
	for i := range want {
		want[i].Line = int64(i + 2)
	}
	require.Equal(t, want, got)
	require.Equal(t, wrote, sum)
	require.Equal(t, []any{int64(4), pix.Amount(305), pix.Amount(101)}, []any{sum.Records, sum.Debits, sum.Credits})
	digest := sha256.Sum256([]byte(text))
	require.Equal(t, hex.EncodeToString(digest[:]), sum.Hash)
	require.EqualValues(t, len(text), sum.Size)

	_, _, again, err := read(pack(t, text), statement.Limits{})
	require.NoError(t, err)
	require.Equal(t, sum.Hash, again.Hash, "another archive of the same text is the same file")
	hash, ok := statement.Hash("a/b/" + statement.Name(strings.ToUpper(sum.Hash)))
	require.True(t, ok)
	require.Equal(t, sum.Hash, hash)
	for _, name := range []string{"x.zip", sum.Hash, sum.Hash[1:] + "g.zip", sum.Hash + "0.zip"} {
		_, ok := statement.Hash(name)
		require.False(t, ok, name)
	}
}

// The confirmations of a cycle, and an empty file of each kind, are files too; a reader is asked for what it has.
func TestSettlementsAndEmptyFiles(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	w, err := statement.NewWriter(&out, settlementHeader())
	require.NoError(t, err)
	want := statement.Confirmation{Party: "87654321", Direction: pix.In, Amount: 5, PaidAt: to.Add(time.Second)}
	require.NoError(t, w.Confirmation(want))
	require.Error(t, w.Entry(entry(1)))
	sum, err := w.Close()
	require.NoError(t, err)
	_, err = w.Close()
	require.Error(t, err)
	r, err := statement.Open(bytes.NewReader(out.Bytes()), int64(out.Len()), statement.Limits{})
	require.NoError(t, err)
	require.Equal(t, settlementHeader(), r.Header())
	_, err = r.Next()
	require.ErrorContains(t, err, "asked for")
	got, err := r.NextConfirmation()
	require.NoError(t, err)
	want.Line = 2
	require.Equal(t, want, got)
	require.ErrorIs(t, r.Skip(), io.EOF)
	require.ErrorIs(t, r.Skip(), io.EOF)
	require.Equal(t, sum, r.Summary())
	require.NoError(t, r.Close())

	archive, text, _ := written(t)
	require.Equal(t, "0;EXTRATO;1;12345678;2026-12-01T03:00:00.000Z;2026-12-02T03:00:00.000Z\n9;0;0.00;0.00\n", text)
	all, rows, sum, err := read(archive, statement.Limits{})
	require.NoError(t, err)
	require.Empty(t, all)
	require.Empty(t, rows)
	require.Zero(t, sum.Records)
}

// Ends of lines are the writer's system's business.
func TestLinesEndAsTheyLike(t *testing.T) {
	t.Parallel()
	_, text, want := written(t, entry(1), entry(2))
	for _, changed := range []string{strings.ReplaceAll(text, "\n", "\r\n"), strings.TrimSuffix(text, "\n"), strings.Replace(text, "\n", "\r\n", 1)} {
		all, rows, sum, err := read(pack(t, changed), statement.Limits{})
		require.NoError(t, err)
		require.Empty(t, rows)
		require.Len(t, all, 2)
		require.NotEqual(t, want.Hash, sum.Hash, "the hash is of the bytes")
	}
}
