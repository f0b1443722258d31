package fileimport_test

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/bucket"
	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/devstack/devtest"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/statement"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/services/settlement-scheduler/fileimport"
)

func TestMain(m *testing.M) {
	if os.Getenv(childDSN) != "" {
		fmt.Fprintln(os.Stderr, child())
		return
	}
	os.Exit(devtest.Main(m, devtest.WithPostgres()))
}

const (
	long       = 60 * time.Second
	leadership = "settlement:12345678"
	us         = pix.ISPB("12345678")
)

// world is a directory of files, books, and replicas that import from one into the other.
type world struct {
	t     *testing.T
	dsn   string
	dir   string
	db    *store.DB
	files *store.Files
	terms *store.Terms
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dsn: devtest.Postgres(t), dir: t.TempDir()}
	require.NoError(t, store.Migrate(t.Context(), w.dsn))
	w.db = w.open("test")
	w.files, w.terms = store.NewFiles(w.db), store.NewTerms(w.db)
	return w
}

func (w *world) open(application string) *store.DB {
	w.t.Helper()
	db, err := store.Open(w.t.Context(), store.Config{URL: w.dsn, Application: application})
	require.NoError(w.t, err)
	w.t.Cleanup(db.Close)
	return db
}

// replica is an importer with what it says, and between it and its bucket what the test wants there.
type replica struct {
	fileimport.Bucket
	w        *world
	importer *fileimport.Importer
	reg      *prometheus.Registry

	mu     sync.Mutex
	log    bytes.Buffer
	lists  int
	away   bool
	before func(o bucket.Object) error // each Fetch
}

var errAway = errors.New("the bucket is away")

// List implements fileimport.Bucket.
func (r *replica) List(ctx context.Context) iter.Seq2[bucket.Object, error] {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lists++
	if r.away {
		return func(yield func(bucket.Object, error) bool) { yield(bucket.Object{}, errAway) }
	}
	return r.Bucket.List(ctx)
}

// Fetch implements fileimport.Bucket.
func (r *replica) Fetch(ctx context.Context, o bucket.Object, most int64) (*bucket.Local, error) {
	r.mu.Lock()
	before := r.before
	r.mu.Unlock()
	if before != nil {
		if err := before(o); err != nil {
			return nil, err
		}
	}
	return r.Bucket.Fetch(ctx, o, most)
}

func (r *replica) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

// looks counts how often it looked into the bucket.
func (r *replica) looks() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lists
}

// counted is the number of files with an outcome.
func (r *replica) counted(outcome string) float64 {
	return r.metric("cabine_files_total", outcome)
}

// metric is the value of a counter or gauge.
func (r *replica) metric(name, label string) float64 {
	r.w.t.Helper()
	families, err := r.reg.Gather()
	require.NoError(r.w.t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && (label == "" || m.GetLabel()[0].GetValue() == label) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	r.w.t.Fatalf("no metric %s %s", name, label)
	return 0
}

// Write implements io.Writer, for its log.
func (r *replica) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.Write(p)
}

func (r *replica) said(text string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Count(r.log.String(), text)
}

// replica returns an importer of the directory.
func (w *world) replica(db *store.DB) *replica {
	w.t.Helper()
	b, err := bucket.New(bucket.Config{URL: "file://" + w.dir, Scratch: w.t.TempDir()})
	require.NoError(w.t, err)
	w.t.Cleanup(func() { require.NoError(w.t, b.Close()) })
	r := &replica{w: w, reg: prometheus.NewRegistry(), Bucket: b}
	r.importer, err = fileimport.New(fileimport.Config{Leadership: leadership, ISPB: us, Every: 10 * time.Millisecond, MaxSize: 64 << 20}, fileimport.Deps{
		Bucket: r, Files: store.NewFiles(db), Clock: clock.System(), Log: slog.New(slog.NewTextHandler(r, nil)), Metrics: r.reg,
	})
	require.NoError(w.t, err)
	return r
}

func (w *world) mint() int64 {
	w.t.Helper()
	term, err := w.terms.Mint(w.t.Context(), leadership, "test")
	require.NoError(w.t, err)
	return term
}

// lead runs a replica under a term until the returned function is called, which returns why it ended.
func (r *replica) lead(term int64) (stop func() error) {
	ctx, cancel := context.WithCancel(r.w.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.importer.Run(ctx, term) }()
	r.w.t.Cleanup(cancel)
	return sync.OnceValue(func() error { cancel(); return <-ended })
}

func (w *world) eventually(what string, done func() bool) {
	w.t.Helper()
	require.Eventually(w.t, done, long, 10*time.Millisecond, what)
}

// put writes a file into the directory as others do it: beside it, then renamed.
func (w *world) put(name string, content []byte) {
	w.t.Helper()
	hidden := filepath.Join(w.dir, "hidden")
	require.NoError(w.t, os.WriteFile(hidden, content, 0o600))
	require.NoError(w.t, os.Rename(hidden, filepath.Join(w.dir, name)))
}

func (w *world) latest() []store.File {
	w.t.Helper()
	files, err := w.files.Latest(w.t.Context(), 100)
	require.NoError(w.t, err)
	return files
}

// outcome waits until an object is seen and returns what it became.
func (w *world) outcome(name string) (found store.File) {
	w.t.Helper()
	w.eventually(name+" to be looked into", func() bool {
		for _, f := range w.latest() {
			if f.Name == name {
				found = f
				return true
			}
		}
		return false
	})
	return found
}

// database names the test's own.
func (w *world) database() string {
	name, _, _ := strings.Cut(w.dsn[strings.LastIndex(w.dsn, "/")+1:], "?")
	return name
}

// holds reports whether a condition is true of the tables: the server's tool hands back no rows, and divides by zero.
func (w *world) holds(condition string) bool {
	w.t.Helper()
	return devtest.PostgresServer(w.t).Exec(w.t.Context(), w.database(), "SELECT 1 / ("+condition+")::int") == nil
}

var from = time.Date(2026, 12, 1, 3, 0, 0, 0, time.UTC)

func header() statement.Header {
	return statement.Header{Kind: statement.Entries, ISPB: us, From: from, To: from.AddDate(0, 0, 1)}
}

func entry(n int) statement.Entry {
	return statement.Entry{
		ID: fmt.Sprintf("E12345678202612010300%011d", n), Kind: pix.Payment, Direction: pix.In, Amount: 100, SettledAt: from,
		Counterparty: "87654321",
	}
}

// entries is an archive of n entries, with the name that it should have.
func entries(t testing.TB, h statement.Header, n int) (name string, content []byte) {
	t.Helper()
	var out bytes.Buffer
	s, err := statement.NewWriter(&out, h)
	require.NoError(t, err)
	for i := range n {
		require.NoError(t, s.Entry(entry(i)))
	}
	sum, err := s.Close()
	require.NoError(t, err)
	return statement.Name(sum.Hash), out.Bytes()
}

// text is what is in an archive, and pack is an archive of a text.
func text(t testing.TB, archive []byte) string {
	t.Helper()
	r, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	require.NoError(t, err)
	f, err := r.File[0].Open()
	require.NoError(t, err)
	raw, err := io.ReadAll(f)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	return string(raw)
}

func pack(t testing.TB, content string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	f, err := w.Create("x")
	require.NoError(t, err)
	_, err = io.WriteString(f, content)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.Bytes()
}

// Every file that can be wrong is refused whole, with a reason that says what is wrong, once; those beside it are imported.
func TestBadFilesAreRefusedWithTheirReason(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	name, good := entries(t, header(), 3)
	plain := text(t, good)
	strangers := header()
	strangers.ISPB = "99999999"
	_, strange := entries(t, strangers, 1)
	bad := map[string]struct {
		content []byte
		reason  string
	}{
		"cut-archive.zip":                {good[:len(good)-30], "no ZIP archive, or is cut"},
		"cut-text.zip":                   {pack(t, plain[:len(plain)-20]), "without a trailer: it is cut"},
		"cut-line.zip":                   {pack(t, plain[:strings.LastIndex(plain, "\n9;")-5]), "it is cut"},
		"row-lost.zip":                   {pack(t, plain[:strings.Index(plain, "1;E")]+plain[strings.LastIndex(plain, "1;E"):]), "counts 3 records, there are 1"},
		"row-changed.zip":                {pack(t, strings.Replace(plain, ";1.00;", ";1.01;", 1)), "come to"},
		"doubled.zip":                    {pack(t, plain+plain), "more after the trailer"},
		"latin-1.zip":                    {pack(t, strings.Replace(plain, "payment", "devolu\xe7\xe3o", 1)), "not UTF-8: byte 0xE7, as in Latin-1"},
		"other.zip":                      {strange, "of participant 99999999"},
		"text.zip":                       {[]byte(plain), "no ZIP archive"},
		"empty.zip":                      {nil, "no ZIP archive"},
		"layout.zip":                     {pack(t, strings.ReplaceAll(plain, ";payment;", ";pagamento;")), "none of its 3 records can be read"},
		strings.Repeat("0", 64) + ".zip": {good, "its name says another hash"},
		"large.zip":                      {make([]byte, 64<<20+1), "allowed are"},
	}
	for name, b := range bad {
		w.put(name, b.content)
	}
	w.put(name, good)
	w.put("notes.txt", []byte("not a file of the bank"))
	r := w.replica(w.db)
	stop := r.lead(w.mint())
	require.Equal(t, store.FileImported, w.outcome(name).State)
	for name, b := range bad {
		f := w.outcome(name)
		require.Equal(t, store.FileRefused, f.State, name)
		require.Contains(t, f.Reason, b.reason, name)
	}
	require.ErrorIs(t, stop(), context.Canceled)
	require.Len(t, w.latest(), len(bad)+1)
	require.True(t, w.holds("(SELECT count(*) FROM statement_entries) = 3"))

	next := w.replica(w.db)
	stop = next.lead(w.mint())
	w.eventually("some looks", func() bool { return next.looks() > 3 })
	require.ErrorIs(t, stop(), context.Canceled)
	require.Len(t, w.latest(), len(bad)+1, "what was refused is not tried again, by nobody")
	w.put("text.zip", pack(t, plain+" "))
	w.put("cut-text.zip", pack(t, strings.ReplaceAll(plain, "\n", "\r\n")))
	stop = next.lead(w.mint())
	w.eventually("what changed to be looked into", func() bool { return len(w.latest()) == len(bad)+3 })
	require.ErrorIs(t, stop(), context.Canceled)
	require.EqualValues(t, 1, next.counted("refused"))
	require.EqualValues(t, 1, next.counted("imported"), "what was cut is whole now, and its lines end in CRLF")
	require.True(t, w.holds("(SELECT count(*) FROM statement_entries) = 6"))
}

// The same content comes under four names, and again later: it is imported once, and nothing is looked into twice.
func TestAContentIsImportedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	name, content := entries(t, header(), 5)
	w.put(name, content)
	w.put("b.zip", content)
	w.put("c.ZIP", pack(t, text(t, content)))
	r := w.replica(w.db)
	stop := r.lead(w.mint())
	w.eventually("three names", func() bool { return r.counted("known") == 2 })
	w.put("d.zip", content)
	w.eventually("the fourth name", func() bool { return r.counted("known") == 3 })
	looks := r.looks()
	w.eventually("more looks", func() bool { return r.looks() > looks+2 })
	require.ErrorIs(t, stop(), context.Canceled)
	require.EqualValues(t, 1, r.counted("imported"))
	require.EqualValues(t, 3, r.counted("known"))
	require.Len(t, w.latest(), 1)
	require.True(t, w.holds("(SELECT count(*) FROM statement_entries) = 5 AND (SELECT count(*) FROM imported_objects) = 4"))
}

// Rows that cannot be read are listed, the others are there; an entry that stands twice is there twice.
func TestRowsThatCannotBeReadAreListed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, content := entries(t, header(), 5)
	lines := strings.Split(text(t, content), "\n")
	lines[2] = strings.Replace(lines[2], ";payment;", ";devolução;", 1)
	lines[3] = lines[4]
	w.put("a.zip", pack(t, strings.Join(lines, "\n")))
	r := w.replica(w.db)
	stop := r.lead(w.mint())
	f := w.outcome("a.zip")
	require.ErrorIs(t, stop(), context.Canceled)
	require.Equal(t, []any{store.FileImported, int64(5), int64(1)}, []any{f.State, f.Records, f.RowsRefused})
	rows, err := w.files.RefusedRows(t.Context(), f.ID)
	require.NoError(t, err)
	require.Len(t, rows, 1)
	require.EqualValues(t, 3, rows[0].Line)
	require.Contains(t, rows[0].Reason, "devolução")
	require.True(t, w.holds("(SELECT count(*) FROM statement_entries) = 4"))
	require.True(t, w.holds("(SELECT count(DISTINCT payment_id) FROM statement_entries) = 3"))
	require.EqualValues(t, 1, r.metric("cabine_file_rows_refused_total", ""))
}

// Two replicas believe that they lead, and read the same file at the same instant: one imports it, the other is deposed.
func TestTwoLeadersImportTheSameFile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	name, content := entries(t, header(), 500)
	w.put(name, content)
	var met sync.WaitGroup
	met.Add(2)
	var replicas [2]*replica
	for i := range replicas {
		replicas[i] = w.replica(w.open(fmt.Sprint(i)))
		replicas[i].before = func(bucket.Object) error {
			met.Done()
			met.Wait()
			return nil
		}
	}
	first, second := w.mint(), w.mint()
	stopFirst, stopSecond := replicas[0].lead(first), replicas[1].lead(second)
	f := w.outcome(name)
	require.Equal(t, second, f.Term)
	w.eventually("the deposed one to end", func() bool { return errors.Is(stopFirst(), store.ErrStaleTerm) })
	require.ErrorIs(t, stopSecond(), context.Canceled)
	require.Len(t, w.latest(), 1)
	require.Zero(t, replicas[0].counted("imported"))
	require.True(t, w.holds("(SELECT count(*) FROM statement_entries) = 500"))
}

// A settlement waits for its cycle, says so once, and confirms its lines when they are there.
func TestASettlementWaitsForItsCycle(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	day := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -1)
	var out bytes.Buffer
	s, err := statement.NewWriter(&out, statement.Header{Kind: statement.Settlement, ISPB: us, CycleDate: day, CycleType: "dia"})
	require.NoError(t, err)
	for _, party := range []pix.ISPB{"87654321", "11111111"} {
		require.NoError(t, s.Confirmation(statement.Confirmation{Party: party, Direction: pix.In, Amount: 100, PaidAt: day}))
	}
	_, err = s.Close()
	require.NoError(t, err)
	w.put("l.zip", out.Bytes())
	r := w.replica(w.db)
	term := w.mint()
	stop := r.lead(term)
	w.eventually("it to wait", func() bool { return r.metric("cabine_files_waiting", "") == 1 && r.looks() > 3 })
	require.Equal(t, 1, r.said("waits for its cycle"))
	require.Empty(t, w.latest())

	cycles, by := store.NewCycles(w.db), store.Reign{Name: leadership, Term: term}
	opened, err := cycles.Open(t.Context(), by, []store.Window{
		{Date: day, Type: "dia", OpensAt: day, ClosesAt: day.Add(time.Hour)}, {Date: day, Type: "b", ClosesAt: day.Add(2 * time.Hour)},
	})
	require.NoError(t, err)
	require.NoError(t, devtest.PostgresServer(t).Exec(t.Context(), w.database(), fmt.Sprintf(`
		INSERT INTO obligations (payment_id, cycle_id, kind, direction, amount, party, settled_at)
		VALUES ('%s', %d, 'payment', 'in', 100, '87654321', now())`, entry(1).ID, opened[0].ID)))
	sealed, err := cycles.Seal(t.Context(), by, opened[0].ID, store.Patience{})
	require.NoError(t, err)
	require.True(t, sealed)
	_, err = cycles.Close(t.Context(), by, opened[0].ID)
	require.NoError(t, err)
	f := w.outcome("l.zip")
	require.Equal(t, []any{store.FileImported, store.SettlementFile, opened[0].ID, int64(1)}, []any{f.State, f.Kind, f.CycleID, f.RowsRefused})
	w.eventually("nothing to wait", func() bool { return r.metric("cabine_files_waiting", "") == 0 })
	require.ErrorIs(t, stop(), context.Canceled)
	open, err := w.files.OpenLines(t.Context(), opened[0].ID)
	require.NoError(t, err)
	require.Empty(t, open)
}

// The bucket is away, one object cannot be had, and one changes while it is looked at: the others are imported, and all of
// them are when that is over.
func TestTheBucketFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, content := entries(t, header(), 1)
	w.put("a.zip", content)
	r := w.replica(w.db)
	r.away = true
	stop := r.lead(w.mint())
	w.eventually("it to be told", func() bool { return r.looks() > 2 && r.said("files are not imported") == 1 })
	r.set(func() {
		r.away = false
		r.before = func(o bucket.Object) error {
			switch o.Name {
			case "a.zip":
				return errAway
			case "b.zip": // it grows under the reader
				w.put("b.zip", make([]byte, 2+r.looks()))
			}
			return nil
		}
	})
	w.put("b.zip", []byte("x"))
	later := header()
	later.To = later.To.Add(time.Hour)
	_, content = entries(t, later, 1)
	w.put("c.zip", content)
	require.Equal(t, store.FileImported, w.outcome("c.zip").State)
	looks := r.looks()
	w.eventually("more looks", func() bool { return r.looks() > looks+2 })
	require.Len(t, w.latest(), 1)
	r.set(func() { r.before = nil })
	require.Equal(t, store.FileImported, w.outcome("a.zip").State)
	require.Equal(t, store.FileRefused, w.outcome("b.zip").State)
	w.eventually("it to be told", func() bool { return r.said("files are imported again") >= 1 })
	require.ErrorIs(t, stop(), context.Canceled)
}

// What is overdue is counted from the end of the last period, and by nobody who does not lead.
func TestWhatIsOverdue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.replica(w.db)
	stop := r.lead(w.mint())
	w.eventually("a look", func() bool { return r.looks() > 1 })
	require.Zero(t, r.metric("cabine_files_overdue_seconds", ""))
	h := header()
	h.From, h.To = time.Now().Add(-60*time.Hour), time.Now().Add(-36*time.Hour)
	var out bytes.Buffer
	s, err := statement.NewWriter(&out, h)
	require.NoError(t, err)
	_, err = s.Close()
	require.NoError(t, err)
	w.put("a.zip", out.Bytes())
	w.eventually("it to be overdue", func() bool { return r.metric("cabine_files_overdue_seconds", "") > 9*3600 })
	require.Less(t, r.metric("cabine_files_overdue_seconds", ""), float64(11*3600))
	require.Less(t, r.metric("cabine_files_entries_age_seconds", ""), float64(3600))
	require.ErrorIs(t, stop(), context.Canceled)
	require.Zero(t, r.metric("cabine_files_overdue_seconds", ""))
}

// Without a bucket nothing is done, and that is said. A configuration that does not fit is named.
func TestConfigIsJudged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := &replica{w: w, reg: prometheus.NewRegistry()}
	deps := fileimport.Deps{Clock: clock.System(), Log: slog.New(slog.NewTextHandler(r, nil)), Metrics: r.reg, Files: w.files}
	var err error
	r.importer, err = fileimport.New(fileimport.Config{Leadership: leadership, ISPB: us}, deps)
	require.NoError(t, err)
	stop := r.lead(1)
	w.eventually("it to say so", func() bool { return r.said("no files are imported") == 1 })
	require.ErrorIs(t, stop(), context.Canceled)
	_, err = fileimport.New(fileimport.Config{ISPB: "1", Every: -1, MaxSize: -1}, deps)
	for _, part := range []string{"leadership is empty", "ISPB has 1", "Every is -1ns", "MaxSize is -1"} {
		require.ErrorContains(t, err, part)
	}
}
