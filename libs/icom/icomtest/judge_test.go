package icomtest_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/icom"
	"github.com/cabine-pix/cabine/libs/icom/icomtest"
	"github.com/cabine-pix/cabine/libs/pix"
)

// readers opens n reads that wait for the whole hold.
func readers(t *testing.T, b *icomtest.Bank, n int) []*client {
	t.Helper()
	out := make([]*client, n)
	for i := range out {
		out[i] = dial(t, b, pix.CPM, bankA)
		out[i].write(http.MethodGet, icom.PathStreamStart(bankA), "", "Accept: multipart/mixed")
		seen := func(p icomtest.Participant) bool { return p.RequestsTotal == uint64(i+1) }
		eventually(t, b, pix.CPM, seen, "the read is seen")
	}
	return out
}

func TestSixRequestsAreNoViolation(t *testing.T) {
	t.Parallel()
	b := start(t, icomtest.Config{Hold: 50 * time.Millisecond})
	for _, c := range readers(t, b, 6) {
		require.Equal(t, http.StatusNoContent, c.read().StatusCode)
	}
	p := b.Report().Participant(pix.CPM, bankA)
	require.LessOrEqual(t, p.PeakRequests, 6)
	require.Equal(t, 6, p.PeakConnections)
	require.Zero(t, p.Violations)
}

func TestSeventhRequestIsAViolationWithItsTimeline(t *testing.T) {
	t.Parallel()
	b := start(t, icomtest.Config{Hold: time.Hour, AllowViolations: true})
	open := readers(t, b, 6)
	seventh := dial(t, b, pix.CPM, bankA)
	resp := seventh.pull("")
	require.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
	require.Equal(t, "tooManyRequests", problemOf(t, resp))

	b.Enqueue(pix.CPM, bankA, []byte("<a/>"))
	require.Equal(t, http.StatusOK, open[0].read().StatusCode)
	vs := b.Violations()
	require.Len(t, vs, 1)
	v := vs[0]
	require.Equal(t, icomtest.OverCap, v.Kind)
	require.Equal(t, 7, v.Count)
	require.Equal(t, 6, v.Limit)
	require.Len(t, v.Requests, 7)
	require.False(t, v.Requests[0].End.IsZero(), "the timeline of a violation goes on after it")
	require.True(t, v.Requests[1].End.IsZero())
	require.Equal(t, http.StatusTooManyRequests, v.Requests[6].Status)
	require.Equal(t, icomtest.KindStart, v.Requests[6].Kind)
	require.Equal(t, 7, b.Report().Participant(pix.CPM, bankA).PeakRequests)
	require.Contains(t, v.String(), "7, allowed 6")
}

// The heart of the judge: a client that gives up does not end the bank's request.
func TestClientThatGivesUpAndComesBackOverlapsItself(t *testing.T) {
	t.Parallel()
	b := start(t, icomtest.Config{Hold: time.Hour, Cap: 1, AllowViolations: true})
	first := readers(t, b, 1)[0]
	require.NoError(t, first.conn.Close())
	eventually(t, b, pix.CPM, func(p icomtest.Participant) bool { return p.ConnectionsNow == 0 }, "the bank sees it leave")
	require.Equal(t, 1, b.Report().Participant(pix.CPM, bankA).RequestsNow, "and goes on counting")

	again := dial(t, b, pix.CPM, bankA)
	again.write(http.MethodGet, icom.PathStreamStart(bankA), "", "Accept: multipart/mixed")
	eventually(t, b, pix.CPM, func(p icomtest.Participant) bool { return p.Violations == 1 }, "two at once")
	v := b.Violations()[0]
	require.Equal(t, icomtest.OverCap, v.Kind)
	require.False(t, v.Requests[0].ClientGone.IsZero())
	require.NotEqual(t, v.Requests[0].Conn, v.Requests[1].Conn)
}

func TestClientThatWaitsForTheAnswerOverlapsNothing(t *testing.T) {
	t.Parallel()
	b := start(t, icomtest.Config{Hold: time.Nanosecond, Cap: 1, Unmetered: true})
	_, err := b.EnqueueExamples(pix.CPM, bankA, 3000)
	require.NoError(t, err)
	// Large answers, hundreds in a row, a fresh connection now and then: no request may
	// be counted while the next one arrives.
	c, cursor := dial(t, b, pix.CPM, bankA), ""
	for i := range 320 {
		if i%50 == 49 {
			require.NoError(t, c.conn.Close())
			c = dial(t, b, pix.CPM, bankA)
		}
		cursor = next(c.pull(cursor))
	}
	require.Equal(t, 1, b.Report().Participant(pix.CPM, bankA).PeakRequests)
}

func TestHalfARequestCountsFromItsFirstByte(t *testing.T) {
	t.Parallel()
	b := start(t, icomtest.Config{RequestTimeout: 50 * time.Millisecond})
	c := dial(t, b, pix.CPM, bankA)
	_, err := c.conn.Write([]byte("G"))
	require.NoError(t, err)
	eventually(t, b, pix.CPM, func(p icomtest.Participant) bool { return p.RequestsNow == 1 }, "one byte is enough")
	require.Equal(t, http.StatusRequestTimeout, c.read().StatusCode)
	ended := func(p icomtest.Participant) bool { return p.RequestsNow == 0 && p.ConnectionsNow == 0 }
	eventually(t, b, pix.CPM, ended, "408 ends it")
	r := b.Requests(pix.CPM, bankA)
	require.Len(t, r, 1)
	require.GreaterOrEqual(t, r[0].EndBoot.Sub(r[0].FirstByteBoot), 40*time.Millisecond)
}

func TestSecondRequestOnABusyConnection(t *testing.T) {
	t.Parallel()
	b := start(t, icomtest.Config{Hold: 50 * time.Millisecond, AllowViolations: true})
	c := readers(t, b, 1)[0]
	c.write(http.MethodGet, icom.PathCatalogIn, "")
	require.Equal(t, http.StatusNoContent, c.read().StatusCode)
	require.Equal(t, http.StatusOK, c.read().StatusCode, "it is answered in its turn")
	require.Equal(t, map[icomtest.ViolationKind]int{icomtest.Pipelined: 1}, kinds(b))
	require.Equal(t, 2, b.Report().Participant(pix.CPM, bankA).PeakRequests)
}

func TestStreamsAreCountedOnDemand(t *testing.T) {
	t.Parallel()
	b := start(t, icomtest.Config{Hold: time.Nanosecond, CountBy: icomtest.ByStreams, Limit: 2, AllowViolations: true})
	c := dial(t, b, pix.CPM, bankA)
	cursor := next(c.pull(""))
	c.pull("")
	require.Equal(t, http.StatusTooManyRequests, c.pull("").StatusCode)
	require.Equal(t, map[icomtest.ViolationKind]int{icomtest.OverStreams: 1}, kinds(b))
	require.Equal(t, http.StatusOK, c.do(http.MethodDelete, cursor, "").StatusCode)
	require.Equal(t, http.StatusNoContent, c.pull("").StatusCode)
	require.Equal(t, 2, b.Report().Participant(pix.CPM, bankA).PeakStreams)
}

func TestTimelineIsBounded(t *testing.T) {
	t.Parallel()
	b := start(t, icomtest.Config{Hold: time.Nanosecond, Timeline: 3, MaxViolations: 2, AllowViolations: true})
	c := dial(t, b, pix.CPM, bankA)
	for range 5 {
		require.Equal(t, http.StatusBadRequest, c.do(http.MethodGet, icom.PathCatalogIn, "", "X-Trace: 1").StatusCode)
	}
	var ids []uint64
	for _, r := range b.Requests(pix.CPM, bankA) {
		ids = append(ids, r.ID)
	}
	require.Equal(t, []uint64{3, 4, 5}, ids)
	require.Len(t, b.Violations(), 2)
	require.Equal(t, 5, b.Report().Violations(), "all are counted")
}

func TestStartFailsTheTestThatBrokeARule(t *testing.T) {
	t.Parallel()
	p, err := pki()
	require.NoError(t, err)
	tb := &recordingTB{TB: t}
	b := icomtest.Start(tb, icomtest.Config{PKI: p, Hold: time.Nanosecond})
	c := dial(t, b, pix.CPM, bankA)
	c.do(http.MethodGet, icom.PathCatalogIn, "", "X-Trace: 1")
	require.NoError(t, c.conn.Close())
	tb.cleanup()
	require.Len(t, tb.failures, 1)
	require.Contains(t, tb.failures[0], "X-Trace")
}
