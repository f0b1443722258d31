package statement_test

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/statement"
)

// changed is the text of two entries with one thing in it replaced.
func changed(t testing.TB, was, becomes string) string {
	t.Helper()
	_, text, _ := written(t, entry(1), giveBack(2))
	require.Contains(t, text, was)
	return strings.Replace(text, was, becomes, 1)
}

// A row that cannot be read is told with its line and what is wrong, and the others are read; the trailer is compared as far
// as it can be.
func TestRowsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ was, becomes, says string }{
		{"1;E", "2;E", `begins with "2"`},
		{";payment;", ";pagamento;", `kind "pagamento"`},
		{";payment;", ";payment;x;", "9 fields, want 8"},
		{";payment;", ";", "7 fields, want 8"},
		{";payment;", ";return;", "RtrId"},
		{e2e(1) + ";;", e2e(1) + ";" + e2e(1) + ";", "names an original"},
		{rtr(2) + ";" + e2e(2), rtr(2) + ";", "EndToEndId of the original"},
		{rtr(2) + ";" + e2e(2), rtr(2) + ";" + rtr(2), "EndToEndId of the original"},
		{rtr(2), e2e(2), "RtrId"},
		{e2e(1), "E123", "EndToEndId"},
		{";D;", ";d;", `side "d"`},
		{";1.01;", ";1,01;", "amount"},
		{";1.01;", ";1.010;", "amount"},
		{";1.01;", ";-1.01;", "amount"},
		{";1.01;", ";99999999999999999.00;", "at most 18"},
		{";1.01;", ";;", "amount"},
		{"2026-12-01T03:00:00.001Z", "2026-12-01T03:00:00Z", "instant"},
		{"2026-12-01T03:00:00.001Z", "2026-12-01T00:00:00.001-03:00", "instant"},
		{"2026-12-01T03:00:00.001Z", "2026-12-32T03:00:00.001Z", "instant"},
		{"2026-12-01T03:00:00.001Z", "2026-12-01T02:59:59.999Z", "outside the period"},
		{"2026-12-01T03:00:00.001Z", "2026-12-02T03:00:00.000Z", "outside the period"},
		{";87654321", ";8765432", "ISPB has 7"},
		{";87654321", ";8765432ç", "ISPB"},
		{";87654321", ";8765432\r", "ISPB"},
		{";payment;", ";devolução;", `kind "devolução"`},
	} {
		all, rows, sum, err := read(pack(t, changed(t, c.was, c.becomes)), statement.Limits{})
		require.NoError(t, err, c.becomes)
		require.Len(t, all, 1, c.becomes)
		require.Len(t, rows, 1, c.becomes)
		require.Contains(t, rows[0].Error(), c.says, c.becomes)
		require.Contains(t, []int64{2, 3}, rows[0].Line)
		require.Equal(t, []int64{2, 1}, []int64{sum.Records, sum.Refused})
	}
	// Whose money was read counts, so that the sums still guard the others.
	_, text, _ := written(t, entry(1), giveBack(2))
	text = strings.Replace(text, ";payment;", ";x;", 1)
	_, rows, _, err := read(pack(t, strings.Replace(text, ";1.02;", ";1.03;", 1)), statement.Limits{})
	require.Len(t, rows, 1)
	require.ErrorContains(t, err, "come to 1.01 and 1.03")
	// A blank line is a record as any other, and none of the trailer's.
	_, _, _, err = read(pack(t, strings.Replace(text, "1;E", "\n1;E", 1)), statement.Limits{})
	require.ErrorContains(t, err, "counts 2 records, there are 3")
}

// A file that is not whole, or not what a file is, is refused as a whole, with the reason.
func TestFilesThatMeanNothing(t *testing.T) {
	t.Parallel()
	_, text, _ := written(t, entry(1), giveBack(2))
	trailer := text[strings.Index(text, "\n9;")+1:]
	for says, broken := range map[string]string{
		"the text is empty":                      "",
		"byte order mark":                        "\ufeff" + text,
		"header: has 1 fields, want 6":           "<?xml?>\n" + text,
		"header: begins with":                    strings.TrimPrefix(text, "0")[0:0] + "1" + text[1:],
		`layout "2"`:                             strings.Replace(text, ";1;", ";2;", 1),
		`kind "EXTRAT0"`:                         strings.Replace(text, "EXTRATO", "EXTRAT0", 1),
		"ISPB has 7":                             strings.Replace(text, ";12345678;", ";1234567;", 1),
		"the period ends":                        strings.Replace(text, "2026-12-02T", "2026-12-01T", 1),
		"header: instant":                        strings.Replace(text, "2026-12-02T", "2026-12-02 ", 1),
		"cut":                                    strings.TrimSuffix(text, trailer),
		"trailer: has 1 fields":                  strings.TrimSuffix(text, trailer) + "9",
		"trailer: sum of credits":                strings.TrimSuffix(text, "2\n"),
		"trailer: count":                         strings.Replace(text, "\n9;2;", "\n9;02;", 1),
		"trailer: sum of debits":                 strings.Replace(text, "\n9;2;1.01;", "\n9;2;;", 1),
		"counts 3 records, there are 2":          strings.Replace(text, "\n9;2;", "\n9;3;", 1),
		"the trailer has debits of 1.02":         strings.Replace(text, "\n9;2;1.01;", "\n9;2;1.02;", 1),
		"more after the trailer":                 text + "\n",
		"is not UTF-8: byte 0xE7, as in Latin-1": strings.Replace(text, "return", "devolu\xe7\xe3o", 1),
		"the line is longer than 512 bytes":      strings.Replace(text, "payment", strings.Repeat("x", 512), 1),
		"the line is longer than":                text[:40] + strings.Repeat("x", 1<<20),
		"does not fit 18 digits": strings.Replace(strings.ReplaceAll(strings.ReplaceAll(text, ";1.01;", ";9999999999999999.99;"),
			";1.02;", ";0.01;"), ";C;", ";D;", 1),
	} {
		_, _, _, err := read(pack(t, broken), statement.Limits{})
		var file *statement.FileError
		require.ErrorAs(t, err, &file, says)
		require.ErrorContains(t, err, says)
	}
	settlement := "0;LIQUIDACAO;1;12345678;2026-12-01;dia\n9;0;0.00;0.00\n"
	_, _, _, err := read(pack(t, settlement), statement.Limits{})
	require.ErrorContains(t, err, "asked for")
	for says, broken := range map[string]string{
		"cycle date": strings.Replace(settlement, "-01;", "-41;", 1),
		"cycle type": strings.Replace(settlement, "dia", "Dia", 1),
	} {
		_, _, _, err := read(pack(t, broken), statement.Limits{})
		require.ErrorContains(t, err, says)
	}
}

// Wherever a file is cut, it is not taken for a whole one.
func TestAFileThatIsCutAnywhere(t *testing.T) {
	t.Parallel()
	archive, text, _ := written(t, entry(1), giveBack(2))
	var file *statement.FileError
	for n := range len(text) - 1 { // the last byte is the end of the last line
		_, _, _, err := read(pack(t, text[:n]), statement.Limits{})
		require.ErrorAs(t, err, &file, "text cut at %d", n)
	}
	for n := range len(archive) {
		_, _, _, err := read(archive[:n], statement.Limits{})
		require.ErrorAs(t, err, &file, "archive cut at %d", n)
	}
}

// Wherever a bit of an archive turns over, it is refused or says the same.
func TestAFileThatIsDamagedAnywhere(t *testing.T) {
	t.Parallel()
	archive, _, want := written(t, entry(1), giveBack(2))
	for n := range archive {
		damaged := bytes.Clone(archive)
		damaged[n] ^= 1 << (n % 8)
		_, rows, sum, err := read(damaged, statement.Limits{})
		if err == nil {
			require.Equal(t, want, sum, "byte %d", n)
			require.Empty(t, rows)
			continue
		}
		var file *statement.FileError
		require.ErrorAs(t, err, &file, "byte %d", n)
	}
}

// archived is an archive as make builds it.
func archived(t testing.TB, build func(w *zip.Writer)) []byte {
	t.Helper()
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	build(w)
	require.NoError(t, w.Close())
	return out.Bytes()
}

// An archive with more, or other, than one text is refused, and none makes the reader work for it.
func TestArchivesThatAreNone(t *testing.T) {
	t.Parallel()
	_, text, _ := written(t)
	member := func(w *zip.Writer, h *zip.FileHeader) {
		f, err := w.CreateHeader(h)
		require.NoError(t, err)
		if h.Name[len(h.Name)-1] != '/' {
			_, err = io.WriteString(f, text)
			require.NoError(t, err)
		}
	}
	link := &zip.FileHeader{Name: "x"}
	link.SetMode(fs.ModeSymlink | 0o777)
	secret := archived(t, func(w *zip.Writer) { member(w, &zip.FileHeader{Name: "x"}) })
	for _, mark := range []string{"PK\x03\x04", "PK\x01\x02"} {
		at := bytes.Index(secret, []byte(mark)) + 6
		if mark == "PK\x01\x02" {
			at += 2
		}
		secret[at] |= 1
	}
	bomb := archived(t, func(w *zip.Writer) {
		f, err := w.Create("x")
		require.NoError(t, err)
		_, err = io.WriteString(f, "0;EXTRATO;1;12345678;2026-12-01T03:00:00.000Z;2026-12-02T03:00:00.000Z\n")
		require.NoError(t, err)
		zeros := bytes.Repeat([]byte("1;\n"), 1<<16)
		for range 8 {
			_, err = f.Write(zeros)
			require.NoError(t, err)
		}
	})
	lies := bytes.Clone(bomb) // its directory says that it is small
	at := bytes.Index(lies, []byte("PK\x01\x02"))
	copy(lies[at+24:], []byte{100, 0, 0, 0})
	for says, archive := range map[string][]byte{
		"has 0 members, want 1": archived(t, func(*zip.Writer) {}),
		"has 2 members, want 1": archived(t, func(w *zip.Writer) {
			member(w, &zip.FileHeader{Name: "x"})
			member(w, &zip.FileHeader{Name: "y"})
		}),
		"the member of the archive is no file": archived(t, func(w *zip.Writer) { member(w, &zip.FileHeader{Name: "x/"}) }),
		"is no file":                           archived(t, func(w *zip.Writer) { member(w, link) }),
		"the archive is encrypted":             secret,
		"it is no ZIP archive, or is cut":      []byte(text),
		"allowed are 1000000":                  bomb,
		"the directory of the archive is too large": archived(t, func(w *zip.Writer) {
			for i := range 10_000 {
				member(w, &zip.FileHeader{Name: fmt.Sprint(i)})
			}
		}),
	} {
		_, _, _, err := read(archive, statement.Limits{MaxText: 1_000_000})
		var file *statement.FileError
		require.ErrorAs(t, err, &file, says)
		require.ErrorContains(t, err, says)
	}
	_, _, _, err := read(lies, statement.Limits{MaxText: 1_000_000})
	require.ErrorContains(t, err, "it is no ZIP archive", "no more comes out than the directory says")
	stored := archived(t, func(w *zip.Writer) { member(w, &zip.FileHeader{Name: "../../x", Method: zip.Store}) })
	_, _, _, err = read(stored, statement.Limits{})
	require.NoError(t, err, "its name means nothing")
}

var errDisk = errors.New("the disk is broken")

// failing is a file that cannot be read from somewhere on.
type failing struct {
	*bytes.Reader
	from int64
}

func (f *failing) ReadAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) > f.from && off < f.from+100 {
		return 0, errDisk
	}
	return f.Reader.ReadAt(p, off)
}

// What is wrong with the disk is not told of the file.
func TestADiskThatFails(t *testing.T) {
	t.Parallel()
	archive, _, _ := written(t)
	for _, from := range []int64{0, int64(len(archive)) - 10} {
		_, err := statement.Open(&failing{bytes.NewReader(archive), from}, int64(len(archive)), statement.Limits{})
		require.ErrorIs(t, err, errDisk)
		var file *statement.FileError
		require.NotErrorAs(t, err, &file)
	}
}

// A writer refuses what a reader would, and what was refused is not in the file.
func TestTheWriterRefusesWhatTheReaderWould(t *testing.T) {
	t.Parallel()
	for _, h := range []statement.Header{
		{},
		{Kind: statement.Entries, ISPB: "1", From: from, To: to},
		{Kind: statement.Entries, ISPB: "12345678", From: to, To: from},
		{Kind: statement.Entries, ISPB: "12345678", From: from, To: from.Add(time.Microsecond)},
		{Kind: statement.Settlement, ISPB: "12345678", CycleType: "a;b"},
		{Kind: "X", ISPB: "12345678"},
	} {
		_, err := statement.NewWriter(io.Discard, h)
		require.Error(t, err)
	}
	var out bytes.Buffer
	w, err := statement.NewWriter(&out, entriesHeader())
	require.NoError(t, err)
	for _, spoil := range []func(e *statement.Entry){
		func(e *statement.Entry) { e.Amount = 0 }, func(e *statement.Entry) { e.Amount = -1 }, func(e *statement.Entry) { e.ID = "x;y" },
		func(e *statement.Entry) { e.SettledAt = to }, func(e *statement.Entry) { e.Counterparty = "x" },
	} {
		e := entry(1)
		spoil(&e)
		require.Error(t, w.Entry(e))
	}
	most := entry(1)
	most.Amount = pix.MaxAmount
	require.NoError(t, w.Entry(most))
	require.ErrorContains(t, w.Entry(entry(1)), "18 digits")
	require.Error(t, w.Confirmation(statement.Confirmation{}))
	sum, err := w.Close()
	require.NoError(t, err)
	require.EqualValues(t, 1, sum.Records)
	_, _, got, err := read(out.Bytes(), statement.Limits{})
	require.NoError(t, err)
	require.Equal(t, sum, got)
	require.Error(t, statement.Limits{MaxText: -1, MaxLine: 1}.Validate())
	_, err = statement.Open(bytes.NewReader(nil), 0, statement.Limits{MaxLine: 1 << 20})
	require.ErrorContains(t, err, "MaxLine is 1048576")
}

// Memory does not grow with the file: 64 MiB of text pass through less than two, most of them rows that cannot be read. It
// looks at the process's memory, so nothing of the package runs beside it.
func TestMemoryDoesNotGrowWithTheFile(t *testing.T) { //nolint:paralleltest // see above
	_, text, _ := written(t, entry(1))
	good := text[strings.Index(text, "1;E"):strings.Index(text, "9;")]
	block := good + strings.Repeat(strings.TrimSuffix(good, "\n")+strings.Repeat(";x", 150)+"\n", 3)
	blocks := (64<<20)/len(block) + 1
	archive := archived(t, func(w *zip.Writer) {
		f, err := w.CreateHeader(&zip.FileHeader{Name: "x", Method: zip.Store}) // to pack it would take longer than all else
		require.NoError(t, err)
		_, err = io.WriteString(f, text[:strings.Index(text, "1;E")])
		require.NoError(t, err)
		const some = 100
		many := []byte(strings.Repeat(block, some))
		for left := blocks; left > 0; left -= some {
			_, err = f.Write(many[:min(left, some)*len(block)])
			require.NoError(t, err)
		}
		_, err = fmt.Fprintf(f, "9;%d;%s;0.00\n", 4*blocks, pix.Amount(101*blocks))
		require.NoError(t, err)
	})
	var m runtime.MemStats
	heap := func() uint64 { runtime.GC(); runtime.ReadMemStats(&m); return m.HeapAlloc }
	before, most := heap(), uint64(0)
	r, err := statement.Open(bytes.NewReader(archive), int64(len(archive)), statement.Limits{})
	require.NoError(t, err)
	var row *statement.RowError
	for i := 0; err == nil || errors.As(err, &row); i++ {
		if err = r.Skip(); i%10_000 == 0 {
			most = max(most, heap())
		}
	}
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, r.Close())
	require.Less(t, most, before+2<<20)
	runtime.KeepAlive(archive) // or a copy of it would not show
	require.Equal(t, []int64{int64(4 * blocks), int64(3 * blocks)}, []int64{r.Summary().Records, r.Summary().Refused})
	require.Greater(t, r.Read(), int64(64<<20))
}

// FuzzReader: whatever is in an archive, a reader ends, in bounds, and what it takes for whole comes to the same again when it
// is written.
func FuzzReader(f *testing.F) {
	_, text, _ := written(f, entry(1), giveBack(2))
	f.Add([]byte(text))
	f.Add([]byte(strings.ReplaceAll(text, "\n", "\r\n")))
	f.Add([]byte("0;LIQUIDACAO;1;12345678;2026-12-01;dia\n1;87654321;C;1.00;2026-12-01T03:00:00.001Z\n9;1;0.00;1.00\n"))
	f.Add([]byte(strings.Replace(text, "payment", "\xe7", 1)))
	f.Fuzz(func(t *testing.T, text []byte) {
		archive := pack(t, string(text))
		r, err := statement.Open(bytes.NewReader(archive), int64(len(archive)), statement.Limits{MaxText: 1 << 16})
		var file *statement.FileError
		if err != nil {
			require.ErrorAs(t, err, &file)
			return
		}
		var out bytes.Buffer
		w, err := statement.NewWriter(&out, r.Header())
		require.NoError(t, err)
		var row *statement.RowError
		for {
			if r.Header().Kind == statement.Settlement {
				var c statement.Confirmation
				if c, err = r.NextConfirmation(); err == nil {
					require.NoError(t, w.Confirmation(c))
				}
			} else {
				var e statement.Entry
				if e, err = r.Next(); err == nil {
					require.NoError(t, w.Entry(e))
				}
			}
			if err != nil && !errors.As(err, &row) {
				break
			}
		}
		require.NoError(t, r.Close())
		if !errors.Is(err, io.EOF) {
			require.ErrorAs(t, err, &file)
			return
		}
		sum, err := w.Close()
		require.NoError(t, err)
		if read := r.Summary(); read.Refused == 0 {
			read.Hash, read.Size, sum.Hash, sum.Size = "", 0, "", 0 // lines may end otherwise
			require.Equal(t, read, sum)
		}
	})
}

// FuzzArchive: whatever an archive is, a reader ends with what it is.
func FuzzArchive(f *testing.F) {
	archive, _, _ := written(f, entry(1))
	f.Add(archive)
	f.Add(archived(f, func(*zip.Writer) {}))
	f.Fuzz(func(t *testing.T, archive []byte) {
		_, _, _, err := read(archive, statement.Limits{MaxText: 1 << 16})
		var file *statement.FileError
		if err != nil {
			require.ErrorAs(t, err, &file)
		}
	})
}
