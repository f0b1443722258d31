package icomtest_test

import (
	"bytes"
	"compress/gzip"
	"encoding/xml"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/icom"
	"github.com/cabine-pix/cabine/libs/icom/icomtest"
	"github.com/cabine-pix/cabine/libs/pix"
)

const post = "Content-Type: application/xml; charset=utf-8"

func TestStatusFaultsDoNothingElse(t *testing.T) {
	t.Parallel()
	b := start(t, icomtest.Config{Hold: short})
	c := dial(t, b, pix.CPM, bankA)
	cursor := next(c.pull(""))
	for _, tt := range []struct {
		fault       icomtest.Fault
		contentType string
	}{
		{icomtest.Fault{Status: 500}, "text/plain"},
		{icomtest.Fault{Status: 503}, icom.TypeProblem},
		{icomtest.Fault{Status: 429, RetryAfter: 7}, icom.TypeProblem},
	} {
		require.NoError(t, b.SetFaults(pix.CPM, tt.fault))
		resp := c.pull(cursor)
		require.Equal(t, tt.fault.Status, resp.StatusCode)
		require.Equal(t, tt.contentType, resp.Header.Get("Content-Type"))
		if tt.fault.RetryAfter > 0 {
			require.Equal(t, "7", resp.Header.Get(icom.HeaderRetryAfter))
		}
	}
	require.NoError(t, b.SetFaults(pix.CPM))
	require.Equal(t, http.StatusNoContent, c.pull(cursor).StatusCode, "the cursor is still good")
}

func TestDropsAndWhatTheBankKnowsAfterwards(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		drop     icomtest.Drop
		received uint64
		answered bool
	}{
		{icomtest.DropReading, 0, false},
		{icomtest.DropUnprocessed, 0, false},
		{icomtest.DropBefore, 1, false},
		{icomtest.DropMiddle, 1, false},
		{icomtest.DropAfter, 1, true},
	} {
		t.Run(string(tt.drop), func(t *testing.T) {
			t.Parallel()
			b := start(t, icomtest.Config{})
			require.NoError(t, b.SetFaults(pix.CPM, icomtest.Fault{Drop: tt.drop, Times: 1}))
			c := dial(t, b, pix.CPM, bankA)
			c.write(http.MethodPost, icom.PathSend(bankA), "<a/>", "Content-Length: 4", post)
			answer, err := io.ReadAll(c.br)
			if tt.drop == icomtest.DropReading {
				require.Error(t, err, "reset")
			} else {
				require.NoError(t, err)
			}
			resp, err := http.ReadResponse(newReader(answer), nil)
			if tt.answered {
				require.NoError(t, err)
				require.Equal(t, http.StatusCreated, resp.StatusCode)
			} else {
				require.Error(t, err)
			}
			require.Equal(t, tt.drop != icomtest.DropMiddle && tt.drop != icomtest.DropAfter, len(answer) == 0)
			require.Equal(t, tt.received, b.Report().Participant(pix.CPM, bankA).Received)
			require.Zero(t, b.Report().Participant(pix.CPM, bankA).RequestsNow)
			require.Equal(t, http.StatusCreated, dial(t, b, pix.CPM, bankA).post("<a/>", post).StatusCode, "the rule is spent")
		})
	}
}

func TestLostReadIsRedelivered(t *testing.T) {
	t.Parallel()
	b := start(t, icomtest.Config{RedeliverAfter: short})
	want := b.Enqueue(pix.CPM, bankA, []byte("<a/>"))
	require.NoError(t, b.SetFaults(pix.CPM, icomtest.Fault{Drop: icomtest.DropBefore, Times: 1}))
	c := dial(t, b, pix.CPM, bankA)
	c.write(http.MethodGet, icom.PathStreamStart(bankA), "", "Accept: multipart/mixed")
	_, err := c.br.ReadByte()
	require.ErrorIs(t, err, io.EOF)
	got, _ := messages(t, dial(t, b, pix.CPM, bankA).pull(""))
	require.Equal(t, want, got)
	require.EqualValues(t, 1, b.Report().Participant(pix.CPM, bankA).Redelivered)
}

func TestDelaysCountAsInProgress(t *testing.T) {
	t.Parallel()
	b := start(t, icomtest.Config{Hold: 10 * time.Millisecond})
	for name, fault := range map[string]icomtest.Fault{
		"delay":      {Delay: 60 * time.Millisecond},
		"extra hold": {ExtraHold: 60 * time.Millisecond},
		"slow body":  {SlowBody: 60 * time.Millisecond},
	} {
		require.NoError(t, b.SetFaults(pix.CPM, fault))
		require.Equal(t, http.StatusNoContent, dial(t, b, pix.CPM, bankA).pull("").StatusCode, name)
		all := b.Requests(pix.CPM, bankA)
		last := all[len(all)-1]
		require.GreaterOrEqual(t, last.EndBoot.Sub(last.FirstByteBoot), 55*time.Millisecond, name)
	}
}

func TestFaultsAreOfTheirChannelAndKindAndOfTheSeed(t *testing.T) {
	t.Parallel()
	statuses := func(seed uint64) string {
		b := start(t, icomtest.Config{Seed: seed, Hold: time.Nanosecond})
		rule := icomtest.Fault{Status: 503, Rate: 0.5, Kinds: []icomtest.Kind{icomtest.KindCatalog}}
		require.NoError(t, b.SetFaults(pix.CPM, rule))
		require.Equal(t, http.StatusOK, dial(t, b, pix.CSM, bankA).do(http.MethodGet, icom.PathCatalogOut, "").StatusCode)
		c := dial(t, b, pix.CPM, bankA)
		require.Equal(t, http.StatusNoContent, c.pull("").StatusCode)
		var out strings.Builder
		for range 64 {
			fmt.Fprint(&out, c.do(http.MethodGet, icom.PathCatalogOut, "").StatusCode, " ")
		}
		return out.String()
	}
	one := statuses(42)
	require.Equal(t, one, statuses(42))
	require.NotEqual(t, one, statuses(43))
	require.InDelta(t, 32, strings.Count(one, "503"), 16)
}

// malformation is one way to spoil an answer of two messages, and how a client sees it.
type malformation struct {
	how   icomtest.Malformed
	check func(*testing.T, *http.Response)
}

func malformations() []malformation {
	return []malformation{
		{icomtest.NoBoundary, func(t *testing.T, r *http.Response) {
			_, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
			require.NoError(t, err)
			require.Empty(t, params)
		}},
		{icomtest.NoResourceID, func(t *testing.T, r *http.Response) {
			ids, _ := messages(t, r)
			require.Empty(t, ids[0])
			require.NotEmpty(t, ids[1])
		}},
		{icomtest.NoCursor, func(t *testing.T, r *http.Response) { require.Empty(t, next(r)) }},
		{icomtest.WrongCharset, func(t *testing.T, r *http.Response) {
			require.Equal(t, "application/xml; charset=iso-8859-1", firstPart(t, r).Header.Get("Content-Type"))
		}},
		{icomtest.BrokenXML, func(t *testing.T, r *http.Response) {
			_, bodies := messages(t, r)
			require.Error(t, xml.Unmarshal([]byte(bodies[0]), new(struct{})))
			require.NoError(t, xml.Unmarshal([]byte(bodies[1]), new(struct{})))
		}},
		{icomtest.TruncatedMultipart, func(t *testing.T, r *http.Response) {
			_, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
			require.NoError(t, err)
			all := multipart.NewReader(r.Body, params["boundary"])
			for err == nil {
				var p *multipart.Part
				if p, err = all.NextPart(); err == nil {
					_, err = io.Copy(io.Discard, p)
				}
			}
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		}},
		{icomtest.NotGzip, func(t *testing.T, r *http.Response) {
			require.Equal(t, "gzip", r.Header.Get("Content-Encoding"))
			_, err := gzip.NewReader(r.Body)
			require.ErrorIs(t, err, gzip.ErrHeader)
		}},
		{icomtest.GzipBomb, func(t *testing.T, r *http.Response) {
			raw, err := io.ReadAll(r.Body)
			require.NoError(t, err)
			require.Less(t, len(raw), 1<<20)
			z, err := gzip.NewReader(bytes.NewReader(raw))
			require.NoError(t, err)
			n, err := io.CopyN(io.Discard, z, 13<<20)
			require.NoError(t, err, "it grew to %d", n)
		}},
		{icomtest.Oversize, func(t *testing.T, r *http.Response) {
			n, err := io.Copy(io.Discard, r.Body)
			require.NoError(t, err)
			require.Greater(t, n, int64(12<<20))
		}},
	}
}

func TestMalformedAnswers(t *testing.T) {
	t.Parallel()
	for _, tt := range malformations() {
		t.Run(string(tt.how), func(t *testing.T) {
			t.Parallel()
			b := start(t, icomtest.Config{Hold: short})
			require.NoError(t, b.SetFaults(pix.CPM, icomtest.Fault{Malformed: tt.how, Times: 1}))
			c := dial(t, b, pix.CPM, bankA)
			cursor := next(c.pull("")) // without messages there is nothing to spoil
			_, err := b.EnqueueExamples(pix.CPM, bankA, 2)
			require.NoError(t, err)
			tt.check(t, c.pull(cursor))
			b.Enqueue(pix.CPM, bankA, []byte("<a/>"))
			_, bodies := messages(t, c.pull(""))
			require.Equal(t, []string{"<a/>"}, bodies)
		})
	}
}

func TestFaultsAreValidated(t *testing.T) {
	t.Parallel()
	b := start(t, icomtest.Config{})
	for _, f := range []icomtest.Fault{
		{Rate: 1.5}, {Delay: -1}, {Drop: "sometimes"}, {Malformed: "somehow"}, {Status: 200}, {Times: -1},
	} {
		require.Error(t, b.SetFaults(pix.CPM, f), "%+v", f)
	}
	require.Error(t, b.SetFaults("cxm", icomtest.Fault{}))
}

func TestCutConnections(t *testing.T) {
	t.Parallel()
	b := start(t, icomtest.Config{Hold: 50 * time.Millisecond})
	c := readers(t, b, 1)[0]
	require.Equal(t, 1, b.CutConnections(pix.CPM))
	_, err := c.br.ReadByte()
	require.Error(t, err)
	ended := func(p icomtest.Participant) bool { return p.ConnectionsNow == 0 && p.RequestsNow == 0 }
	eventually(t, b, pix.CPM, ended, "it ends")
}

func firstPart(t *testing.T, resp *http.Response) *multipart.Part {
	t.Helper()
	_, params, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	require.NoError(t, err)
	p, err := multipart.NewReader(resp.Body, params["boundary"]).NextPart()
	require.NoError(t, err)
	return p
}
