package icomtest_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/icom"
	"github.com/cabine-pix/cabine/libs/icom/icomtest"
	"github.com/cabine-pix/cabine/libs/pix"
)

const short = 20 * time.Millisecond

func TestReadConfirmAndClose(t *testing.T) {
	t.Parallel()
	b := start(t, icomtest.Config{Hold: short})
	ids, err := b.EnqueueExamples(pix.CPM, bankA, 25)
	require.NoError(t, err)
	c := dial(t, b, pix.CPM, bankA)

	var got []string
	cursor := ""
	for _, want := range []int{10, 10, 5} {
		resp := c.pull(cursor)
		batch, _ := messages(t, resp)
		require.Len(t, batch, want)
		require.NotEqual(t, cursor, next(resp))
		got, cursor = append(got, batch...), next(resp)
	}
	require.Equal(t, ids, got)
	require.EqualValues(t, 20, b.Report().Participant(pix.CPM, bankA).Acked, "the last delivery is not confirmed yet")

	resp := c.pull(cursor)
	require.Equal(t, http.StatusNoContent, resp.StatusCode)
	last := next(resp)
	require.Equal(t, http.StatusOK, c.do(http.MethodDelete, last, "").StatusCode)
	require.Equal(t, http.StatusGone, c.do(http.MethodDelete, last, "").StatusCode)

	p := b.Report().Participant(pix.CPM, bankA)
	require.EqualValues(t, 25, p.Acked)
	require.EqualValues(t, 25, p.Delivered)
	require.Zero(t, p.Redelivered)
	require.Zero(t, p.Queued)
	require.Zero(t, p.StreamsNow)
	require.Equal(t, 1, p.PeakStreams)
	require.Equal(t, icomtest.IDs{Enqueued: ids, Acked: ids}, b.IDs(pix.CPM, bankA))
}

func TestSupersededAndUnknownCursors(t *testing.T) {
	t.Parallel()
	b := start(t, icomtest.Config{Hold: short})
	c := dial(t, b, pix.CPM, bankA)
	first := next(c.pull(""))
	second := next(c.pull(first))
	resp := c.pull(first)
	require.Equal(t, http.StatusGone, resp.StatusCode)
	require.Equal(t, "gone", problemOf(t, resp))
	resp = c.pull("/api/v1/out/12345678/stream/4d4b9ab0-0000-4000-8000-000000000000")
	require.Equal(t, http.StatusNotFound, resp.StatusCode)
	require.Equal(t, icom.ProblemNotFound, problemOf(t, resp))
	require.Equal(t, http.StatusNoContent, c.pull(second).StatusCode, "the stream goes on")
}

func TestSingleMessageHasItsIdentifierOnTop(t *testing.T) {
	t.Parallel()
	b := start(t, icomtest.Config{Hold: short})
	ids := b.Enqueue(pix.CSM, bankA, []byte("<a/>"), []byte("<b/>"))
	c := dial(t, b, pix.CSM, bankA)
	resp := c.do(http.MethodGet, icom.PathStreamStart(bankA), "", "Accept: application/xml")
	require.Equal(t, icom.TypeMessage, resp.Header.Get("Content-Type"))
	require.Equal(t, ids[0], resp.Header.Get(icom.HeaderResourceID))
	require.Equal(t, 1, b.Report().Participant(pix.CSM, bankA).Queued)
	_, err := icom.ParseResourceID(ids[0])
	require.NoError(t, err)
}

func TestHoldEndsWithTheFirstMessage(t *testing.T) {
	t.Parallel()
	b := start(t, icomtest.Config{Hold: time.Hour})
	one, two := dial(t, b, pix.CPM, bankA), dial(t, b, pix.CPM, bankA)
	for i, c := range []*client{one, two} {
		c.write(http.MethodGet, icom.PathStreamStart(bankA), "", "Accept: multipart/mixed")
		eventually(t, b, pix.CPM, func(p icomtest.Participant) bool { return p.StreamsNow == i+1 }, "both wait")
	}
	// One message each: a waiting read takes what there is and does not wait to be filled.
	want := append(b.Enqueue(pix.CPM, bankA, []byte("<a/>")), b.Enqueue(pix.CPM, bankA, []byte("<b/>"))...)
	first, _ := messages(t, one.read())
	second, _ := messages(t, two.read())
	require.ElementsMatch(t, want, append(first, second...))
	require.Len(t, first, 1)
}

func TestStreamsShareTheQueueByChannelAndISPB(t *testing.T) {
	t.Parallel()
	b := start(t, icomtest.Config{Hold: short})
	b.Enqueue(pix.CPM, bankA, []byte("<a/>"))
	require.Equal(t, http.StatusNoContent, dial(t, b, pix.CSM, bankA).pull("").StatusCode)
	require.Equal(t, http.StatusNoContent, dial(t, b, pix.CPM, bankB).pull("").StatusCode)
	require.Equal(t, http.StatusOK, dial(t, b, pix.CPM, bankA).pull("").StatusCode)
}

func TestAbandonedDeliveryComesAgainUnderItsIdentifier(t *testing.T) {
	t.Parallel()
	fake := clock.NewFake()
	b := start(t, icomtest.Config{
		Clock: fake, Hold: time.Second, RedeliverAfter: 30 * time.Second, StreamExpiry: 2 * time.Minute,
	})
	want := b.Enqueue(pix.CPM, bankA, []byte("<a/>"), []byte("<b/>"))
	lost := dial(t, b, pix.CPM, bankA)
	abandoned := next(lost.pull(""))
	later := b.Enqueue(pix.CPM, bankA, []byte("<c/>"))

	fake.Advance(29 * time.Second)
	require.Never(t, func() bool { return b.Report().Participant(pix.CPM, bankA).Queued > 1 }, short, tick)
	fake.Advance(2 * time.Second)
	eventually(t, b, pix.CPM, func(p icomtest.Participant) bool { return p.Queued == 3 }, "the delivery returns")

	c := dial(t, b, pix.CPM, bankA)
	resp := c.pull("")
	got, bodies := messages(t, resp)
	require.Equal(t, append(want, later...), got, "in front, in order")
	require.Equal(t, []string{"<a/>", "<b/>", "<c/>"}, bodies)

	// The abandoned stream confirms nothing that it lost, and is gone in the end.
	fake.Advance(time.Minute + 40*time.Second)
	eventually(t, b, pix.CPM, func(p icomtest.Participant) bool { return p.StreamsNow == 1 }, "the stream expires")
	require.Equal(t, http.StatusGone, lost.pull(abandoned).StatusCode)
	p := b.Report().Participant(pix.CPM, bankA)
	require.EqualValues(t, 2, p.Redelivered)
	require.EqualValues(t, 5, p.Delivered)
	require.Zero(t, p.Acked)
}

func TestGzipAndAbsolutePullNext(t *testing.T) {
	t.Parallel()
	b := start(t, icomtest.Config{Hold: short, AbsolutePullNext: true})
	_, err := b.EnqueueExamples(pix.CPM, bankA, 3)
	require.NoError(t, err)
	c := dial(t, b, pix.CPM, bankA)
	resp := c.do(http.MethodGet, icom.PathStreamStart(bankA), "", "Accept: multipart/mixed", "Accept-Encoding: gzip")
	require.Equal(t, "gzip", resp.Header.Get("Content-Encoding"))
	unzipped(t, resp)
	ids, _ := messages(t, resp)
	require.Len(t, ids, 3)
	rest, ok := strings.CutPrefix(next(resp), "https://localhost")
	require.True(t, ok, next(resp))
	require.Regexp(t, `^:\d+/api/v1/out/12345678/stream/`, rest)
}
