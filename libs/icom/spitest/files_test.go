package spitest_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/icom"
	"github.com/cabine-pix/cabine/libs/icom/icomtest"
	"github.com/cabine-pix/cabine/libs/icom/spitest"
	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/statement"
)

// visitor fetches files with a participant's certificate.
type visitor struct {
	t      testing.TB
	spi    *spitest.SPI
	ispb   pix.ISPB
	client *http.Client
}

func visit(t testing.TB, b *icomtest.Bank, spi *spitest.SPI, ispb pix.ISPB) *visitor {
	t.Helper()
	cfg, err := b.PKI().ClientConfig(ispb)
	require.NoError(t, err)
	transport := &http.Transport{TLSClientConfig: cfg}
	t.Cleanup(transport.CloseIdleConnections)
	return &visitor{t: t, spi: spi, ispb: ispb, client: &http.Client{Transport: transport}}
}

func (v *visitor) get(method, path, accept string) (*http.Response, []byte, error) {
	v.t.Helper()
	req, err := http.NewRequestWithContext(v.t.Context(), method, v.spi.FilesURL()+path, nil)
	require.NoError(v.t, err)
	req.Header.Set("Accept", accept)
	resp, err := v.client.Do(req)
	require.NoError(v.t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(v.t, resp.Body.Close())
	return resp, body, err
}

func path(ispb pix.ISPB, name string) string {
	return "/api/v1/download/" + string(ispb) + "/extrato/" + name
}

// fetch downloads a file of the visitor's own and reads it.
func (v *visitor) fetch(hash string) ([]statement.Entry, statement.Summary) {
	v.t.Helper()
	resp, body, err := v.get(http.MethodGet, path(v.ispb, statement.Name(hash)), "*/*")
	require.NoError(v.t, err)
	require.Equal(v.t, http.StatusOK, resp.StatusCode, string(body))
	require.Equal(v.t, "application/zip", resp.Header.Get("Content-Type"))
	r, err := statement.Open(bytes.NewReader(body), int64(len(body)), statement.Limits{})
	require.NoError(v.t, err)
	defer func() { require.NoError(v.t, r.Close()) }()
	require.Equal(v.t, v.ispb, r.Header().ISPB)
	var entries []statement.Entry
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return entries, r.Summary()
		}
		require.NoError(v.t, err)
		entries = append(entries, e)
	}
}

// file asks for the entries of a period and waits for their file.
func (m *member) file(from, to time.Time) iso20022.FileReport {
	m.t.Helper()
	_, h := m.send(iso20022.Entries(m.ispb, from, to))
	d := got[*iso20022.Camt052](m)
	require.Len(m.t, d.Reports, 1)
	require.Equal(m.t, h.MsgID, d.Reports[0].ID)
	require.Equal(m.t, m.ispb, d.Reports[0].Owner)
	return d.Reports[0]
}

// recent is a period that ends now, after all that was settled before.
func recent() (from, to time.Time) {
	to = now().Add(time.Millisecond)
	<-time.After(time.Until(to))
	return to.Add(-time.Hour), to
}

// spend pays the virtual participant, so that all is settled at once.
func (m *member) spend(n int) {
	m.t.Helper()
	for range n / 10 {
		var ten []iso20022.CreditTransfer
		for range 10 {
			ten = append(ten, transfer(m.t, m.ispb, spitest.VirtualISPB, 1_00))
		}
		m.send(priority(ten...))
		for told := 0; told < 10; {
			told += len(got[*iso20022.Pacs002](m).Statuses)
		}
	}
}

func ids(entries []statement.Entry) (out []string) {
	for _, e := range entries {
		out = append(out, e.ID)
	}
	return out
}

// TestFileOfEntries: both sides of a payment and its return find them in their files, in order, under the hash of the text.
func TestFileOfEntries(t *testing.T) {
	t.Parallel()
	bank, spi := start(t, spitest.Config{})
	a, b := join(t, bank, pix.CPM, payer), join(t, bank, pix.CSM, receiver)
	paid := transfer(t, payer, receiver, 150_25)
	a.send(priority(paid))
	c := join(t, bank, pix.CPM, receiver)
	got[*iso20022.Pacs008](c)
	c.answer("", same(paid.EndToEndID))
	at := *a.told().SettledAt
	c.told()
	back := giveBack(t, paid, 50_25)
	c.send(&iso20022.Pacs004{Returns: []iso20022.PaymentReturn{back}})
	got[*iso20022.Pacs004](a)
	a.answer("", [2]string{string(back.ReturnID), string(paid.EndToEndID)})
	a.told()
	c.told()
	a.send(priority(transfer(t, payer, closed, 1)))
	require.EqualValues(t, "DS27", a.told().Reasons[0].Code)
	before := spi.Books(true)

	from, to := recent()
	mine := a.file(from, to)
	require.Equal(t, 2, mine.Entries)
	va, vb := visit(t, bank, spi, payer), visit(t, bank, spi, receiver)
	entries, sum := va.fetch(mine.Info)
	require.Equal(t, sum.Hash, mine.Info)
	require.Equal(t, statement.Entry{
		Line: 2, ID: string(paid.EndToEndID), Kind: pix.Payment, Direction: pix.Out, Amount: 150_25, SettledAt: at, Counterparty: receiver,
	}, entries[0])
	require.Equal(t, statement.Entry{
		Line: 3, ID: string(back.ReturnID), Original: string(paid.EndToEndID), Kind: pix.Return, Direction: pix.In, Amount: 50_25,
		SettledAt: entries[1].SettledAt, Counterparty: receiver,
	}, entries[1])
	theirs := b.file(from, to)
	require.NotEqual(t, mine.Info, theirs.Info)
	entries, _ = vb.fetch(theirs.Info)
	require.Equal(t, []pix.Direction{pix.In, pix.Out}, []pix.Direction{entries[0].Direction, entries[1].Direction})
	require.Equal(t, mine.Info, a.file(from, to).Info, "the same question, the same name")

	none := a.file(from.Add(-time.Hour), from)
	require.Zero(t, none.Entries)
	entries, _ = va.fetch(none.Info)
	require.Empty(t, entries)

	after := spi.Books(true)
	files := after.Files
	require.Equal(t, []int{4, 3, 3}, []int{files.Made, files.Downloads, len(files.Held)})
	after.Files, after.Counters = before.Files, before.Counters
	require.Equal(t, before, after, "files leave the books as they are")
	total := bank.Report().Participant(pix.CPM, payer).RequestsTotal
	va.fetch(none.Info)
	require.Equal(t, total, bank.Report().Participant(pix.CPM, payer).RequestsTotal, "a download is no request of a channel")
}

// TestFileHostRefuses: who may fetch what, and what is said otherwise.
func TestFileHostRefuses(t *testing.T) {
	t.Parallel()
	bank, spi := start(t, spitest.Config{})
	a := join(t, bank, pix.CPM, payer)
	from, to := recent()
	name := statement.Name(a.file(from, to).Info)
	mine, foreign := visit(t, bank, spi, payer), visit(t, bank, spi, receiver)
	for what, c := range map[string]struct {
		v                    *visitor
		method, path, accept string
		status               int
		problem              string
	}{
		"another's":     {foreign, http.MethodGet, path(payer, name), "*/*", http.StatusForbidden, icom.ProblemForbidden},
		"none":          {mine, http.MethodGet, path(payer, statement.Name(strings.Repeat("0", 64))), "*/*", http.StatusNotFound, icom.ProblemNotFound},
		"own of no one": {foreign, http.MethodGet, path(receiver, name), "*/*", http.StatusNotFound, icom.ProblemNotFound},
		"no extension":  {mine, http.MethodGet, path(payer, strings.TrimSuffix(name, ".zip")), "*/*", http.StatusNotFound, icom.ProblemNotFound},
		"no folder":     {mine, http.MethodGet, "/api/v1/download/" + string(payer) + "/" + name, "*/*", http.StatusNotFound, icom.ProblemNotFound},
		"a way up":      {mine, http.MethodGet, path(payer, "../extrato/"+name), "*/*", http.StatusNotFound, icom.ProblemNotFound},
		"root":          {mine, http.MethodGet, "/", "*/*", http.StatusNotFound, icom.ProblemNotFound},
		"post":          {mine, http.MethodPost, path(payer, name), "*/*", http.StatusMethodNotAllowed, "methodNotAllowed"},
		"accept":        {mine, http.MethodGet, path(payer, name), "application/xml", http.StatusNotAcceptable, "notAcceptable"},
	} {
		resp, body, err := c.v.get(c.method, c.path, c.accept)
		require.NoError(t, err, what)
		require.Equal(t, c.status, resp.StatusCode, what)
		require.Equal(t, icom.TypeProblem, resp.Header.Get("Content-Type"), what)
		p, err := icom.ParseProblem(bytes.NewReader(body))
		require.NoError(t, err, what)
		require.Equal(t, icom.ProblemType(c.problem), p.Type, what)
	}
	nobody := &http.Client{Transport: &http.Transport{TLSClientConfig: anonymous(bank)}}
	defer nobody.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, spi.FilesURL()+path(payer, name), nil)
	require.NoError(t, err)
	resp, err := nobody.Do(req)
	if err == nil {
		require.NoError(t, resp.Body.Close())
	}
	require.Error(t, err, "no certificate")
	files := spi.Books(false).Files
	require.Equal(t, []int{0, 1, 6}, []int{files.Downloads, files.Forbidden, files.NotFound})
}

// TestPeriodsThatAreNone are refused with a reason, and the next question is answered.
func TestPeriodsThatAreNone(t *testing.T) {
	t.Parallel()
	bank, spi := start(t, spitest.Config{LongestPeriod: 24 * time.Hour})
	a := join(t, bank, pix.CPM, payer)
	at := now()
	for why, p := range map[string][2]time.Time{
		"does not end after it begins": {at, at.Add(-time.Millisecond)},
		"not end after it begins":      {at, at},
		"future":                       {at, at.Add(time.Hour)},
		"longer than 24h0m0s":          {at.Add(-24*time.Hour - time.Millisecond), at},
	} {
		a.send(iso20022.Entries(payer, p[0], p[1]))
		require.Contains(t, got[*iso20022.Admi002](a).Description, why)
	}
	a.send(iso20022.Entries(receiver, at.Add(-time.Hour), at))
	require.Contains(t, got[*iso20022.Admi002](a).Description, "another participant's")
	require.Zero(t, a.file(at.Add(-24*time.Hour), at).Entries, "a whole day may be asked for")
	// Without a last day the period ends on its first one.
	day := iso20022.Entries(payer, at.Truncate(24*time.Hour).Add(-time.Hour), at.Truncate(24*time.Hour).Add(-time.Minute))
	day.Period.ToDate = ""
	a.send(day)
	require.Zero(t, got[*iso20022.Camt052](a).Reports[0].Entries)
	require.Equal(t, 4, spi.Books(false).Files.Refused)
}

// TestEntriesAreSpoiled: each fault does to some entries what it says, to the same ones each time, and the report names them.
func TestEntriesAreSpoiled(t *testing.T) {
	t.Parallel()
	bank, spi := start(t, spitest.Config{})
	a, v := join(t, bank, pix.CPM, payer), visit(t, bank, spi, payer)
	a.spend(60)
	from, to := recent()
	truth, _ := v.fetch(a.file(from, to).Info)
	require.Len(t, truth, 60)
	before := spi.Books(true)
	everything := []spitest.Effect{spitest.Drop, spitest.Repeat, spitest.Alter, spitest.Invent}
	for _, effects := range [][]spitest.Effect{everything[:1], everything[1:2], everything[2:3], everything[3:], everything} {
		var rules []spitest.Fault
		for _, do := range effects {
			rules = append(rules, spitest.Fault{At: spitest.AtEntry, Do: do, Rate: 0.3})
		}
		require.NoError(t, spi.SetFaults(rules...))
		said := a.file(from, to)
		entries, sum := v.fetch(said.Info)
		require.Equal(t, said.Info, sum.Hash)
		require.EqualValues(t, said.Entries, sum.Records)
		require.Equal(t, said.Info, a.file(from, to).Info, "one entry has one fate")
		files := spi.Books(false).Files
		f := files.Held[len(files.Held)-1]
		want, counts := expect(truth, f)
		require.Equal(t, want, found(truth, entries), "%v", effects)
		require.Equal(t, []int{f.Lost, f.Doubled, f.Altered, f.Invented}, counts)
		require.Equal(t, []int{60, said.Entries}, []int{f.Settled, f.Entries})
		for _, do := range effects {
			require.True(t, slices.ContainsFunc(f.Touched, func(x spitest.Touched) bool { return x.Do == do }), do)
		}
	}
	after := spi.Books(true)
	require.Empty(t, after.Broken)
	require.Equal(t, before.Orders, after.Orders, "the books are what they were")
	require.Equal(t, before.Participants, after.Participants)
}

// expect says which differences a file must have by its own record.
func expect(truth []statement.Entry, f spitest.File) (differences []string, counts []int) {
	counts = make([]int, 4)
	known := ids(truth)
	for _, touched := range f.Touched {
		differences = append(differences, string(touched.Do)+" "+touched.ID)
		i := slices.Index([]spitest.Effect{spitest.Drop, spitest.Repeat, spitest.Alter, spitest.Invent}, touched.Do)
		counts[i]++
		if slices.Contains(known, touched.ID) == (touched.Do == spitest.Invent) {
			differences = append(differences, "wrong identifier "+touched.ID)
		}
	}
	slices.Sort(differences)
	return differences, counts
}

// found compares a file with the truth, as reconciliation does.
func found(truth, entries []statement.Entry) (differences []string) {
	seen := make(map[string][]statement.Entry)
	for _, e := range entries {
		seen[e.ID] = append(seen[e.ID], e)
	}
	for _, e := range truth {
		switch there := seen[e.ID]; {
		case len(there) == 0:
			differences = append(differences, "drop "+e.ID)
		case len(there) == 2:
			differences = append(differences, "repeat "+e.ID)
		case there[0].Amount != e.Amount:
			differences = append(differences, "alter "+e.ID)
		}
		delete(seen, e.ID)
	}
	for id := range seen {
		differences = append(differences, "invent "+id)
	}
	slices.Sort(differences)
	return differences
}

// TestTheHashIsFalse: the file is to be had under the hash that was told, and is another one.
func TestTheHashIsFalse(t *testing.T) {
	t.Parallel()
	bank, spi := start(t, always(spitest.AtStatement, spitest.Falsify, 0))
	a := join(t, bank, pix.CPM, payer)
	from, to := recent()
	said := a.file(from, to)
	_, sum := visit(t, bank, spi, payer).fetch(said.Info)
	require.NotEqual(t, said.Info, sum.Hash)
	require.True(t, spi.Books(false).Files.Held[0].Falsified)
}

// TestStatementsAreDelayedAndDropped: the file is there, and its owner is told late or never.
func TestStatementsAreDelayedAndDropped(t *testing.T) {
	t.Parallel()
	bank, spi := start(t, always(spitest.AtStatement, spitest.Delay, soon))
	a := join(t, bank, pix.CPM, payer)
	from, to := recent()
	begin := time.Now()
	a.file(from, to)
	require.Greater(t, time.Since(begin), soon)
	require.NoError(t, spi.SetFaults(spitest.Fault{At: spitest.AtStatement, Do: spitest.Drop, Rate: 1}))
	a.send(iso20022.Entries(payer, from, to))
	require.Eventually(t, func() bool { return spi.Books(false).Files.Made == 2 }, wait, tick)
	a.nothing()
	require.Equal(t, 2, spi.Books(false).Counters.Faults)
}

// TestDownloadsAreSpoiled: cut so that the length agrees, broken off, and slow.
func TestDownloadsAreSpoiled(t *testing.T) {
	t.Parallel()
	bank, spi := start(t, always(spitest.AtDownload, spitest.Cut, 0))
	a, v := join(t, bank, pix.CPM, payer), visit(t, bank, spi, payer)
	a.spend(20)
	from, to := recent()
	hash := a.file(from, to).Info
	resp, body, err := v.get(http.MethodGet, path(payer, statement.Name(hash)), "*/*")
	require.NoError(t, err)
	require.EqualValues(t, len(body), resp.ContentLength)
	require.Len(t, body, spi.Books(false).Files.Held[0].Bytes/2)
	_, err = statement.Open(bytes.NewReader(body), int64(len(body)), statement.Limits{})
	_, refused := errors.AsType[*statement.FileError](err)
	require.True(t, refused, "%v", err)

	require.NoError(t, spi.SetFaults(spitest.Fault{At: spitest.AtDownload, Do: spitest.Drop, Rate: 1}))
	_, body, err = v.get(http.MethodGet, path(payer, statement.Name(hash)), "*/*")
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.NotEmpty(t, body)

	require.NoError(t, spi.SetFaults(spitest.Fault{At: spitest.AtDownload, Do: spitest.Delay, Rate: 1, Delay: soon}))
	begin := time.Now()
	entries, _ := v.fetch(hash)
	require.Greater(t, time.Since(begin), soon)
	require.Len(t, entries, 20)

	// A file that fails is not lost for ever: each download has a fate of its own.
	require.NoError(t, spi.SetFaults(spitest.Fault{At: spitest.AtDownload, Do: spitest.Cut, Rate: 0.5}))
	whole := 0
	for range 40 {
		_, body, err = v.get(http.MethodGet, path(payer, statement.Name(hash)), "*/*")
		require.NoError(t, err)
		if len(body) == spi.Books(false).Files.Held[0].Bytes {
			whole++
		}
	}
	require.Greater(t, whole, 5)
	require.Less(t, whole, 35)
	files := spi.Books(false).Files
	require.Equal(t, []int{1 + whole, 1 + 40 - whole, 1, 43}, []int{files.Downloads, files.Cut, files.Broken, files.Held[0].Fetched})
}

// TestTheShelfIsBounded: the oldest files go, and one that would not fit alone is not made.
func TestTheShelfIsBounded(t *testing.T) {
	t.Parallel()
	bank, spi := start(t, spitest.Config{MaxFiles: 2, MaxFileBytes: 900})
	a, v := join(t, bank, pix.CPM, payer), visit(t, bank, spi, payer)
	_, to := recent()
	var hashes []string
	for i := range 3 {
		hashes = append(hashes, a.file(to.Add(-time.Duration(i+1)*time.Hour), to).Info)
	}
	resp, _, err := v.get(http.MethodGet, path(payer, statement.Name(hashes[0])), "*/*")
	require.NoError(t, err)
	require.Equal(t, http.StatusNotFound, resp.StatusCode)
	v.fetch(hashes[1])
	v.fetch(hashes[2])
	a.spend(60)
	from, to := recent()
	a.send(iso20022.Entries(payer, from, to))
	require.Contains(t, got[*iso20022.Admi002](a).Description, "too large")
	files := spi.Books(false).Files
	require.Equal(t, []int{3, 1, 1, 2}, []int{files.Made, files.Dropped, files.Refused, len(files.Held)})
	v.fetch(hashes[2])
}

// TestFilesWhileItSettles: whoever asks for what is over while others pay gets all of it, in order, and once.
func TestFilesWhileItSettles(t *testing.T) {
	t.Parallel()
	bank, spi := start(t, spitest.Config{MaxFiles: 1000})
	var all sync.WaitGroup
	type asked struct {
		from, to time.Time
		entries  []statement.Entry
	}
	results := make([][]asked, 2)
	for i, ispb := range []pix.ISPB{payer, receiver} {
		spender, asker, v := join(t, bank, pix.CPM, ispb), join(t, bank, pix.CSM, ispb), visit(t, bank, spi, ispb)
		all.Go(func() { spender.spend(200) })
		all.Go(func() {
			begin := now()
			for range 15 {
				from, to := begin.Add(-time.Minute), now()
				entries, _ := v.fetch(asker.file(from, to).Info)
				results[i] = append(results[i], asked{from, to, entries})
			}
		})
	}
	all.Wait()
	orders := spi.Books(true).Orders
	slices.SortStableFunc(orders, func(a, b spitest.Order) int { return a.Ended.Compare(b.Ended) })
	for i, ispb := range []pix.ISPB{payer, receiver} {
		for _, r := range results[i] {
			var want []string
			for _, o := range orders {
				if o.Debited == ispb && o.State == spitest.Settled && !o.Ended.Before(r.from) && o.Ended.Before(r.to) {
					want = append(want, o.ID)
				}
			}
			require.ElementsMatch(t, want, ids(r.entries), "%s to %s", r.from, r.to)
			require.True(t, slices.IsSortedFunc(r.entries, func(a, b statement.Entry) int { return a.SettledAt.Compare(b.SettledAt) }))
		}
	}
}

// anonymous is a client's side without a certificate.
func anonymous(b *icomtest.Bank) *tls.Config {
	cfg := b.PKI().ClientConfigFor(tls.Certificate{})
	cfg.Certificates = nil
	return cfg
}
