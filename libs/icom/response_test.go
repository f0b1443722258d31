package icom_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/icom"
)

const idA, idB = "UEkAAAF0mWpPVEn+lSaDSk3gjkYvb2V6", "UEkAAAF0mWpPVEn+lSaDSk3gjkYvb2V7"

func limits() icom.Limits {
	return icom.Limits{Messages: 10, MessageBytes: 1 << 16, BodyBytes: 1 << 18}
}

func headers(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

func zipped(t testing.TB, s string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := io.WriteString(w, s)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.String()
}

const twoParts = "preamble, to be ignored\r\n" +
	"--simple boundary\r\nContent-Type: application/xml; charset=utf-8\r\nPI-ResourceId: " + idA + "\r\n\r\n<a/>\r\n" +
	"--simple boundary\r\nContent-Type: application/xml;charset=UTF-8\r\n\r\n<b>ç</b>\r\n" +
	"--simple boundary--\r\nepilogue"

const quotedBoundary = `multipart/mixed; boundary="simple boundary"`

func TestReadsOneMessage(t *testing.T) {
	t.Parallel()
	h := headers("Content-Type", icom.TypeMessage, icom.HeaderResourceID, idA)
	got, err := icom.ReadMessages(h, strings.NewReader("<a/>"), limits())
	require.NoError(t, err)
	require.Equal(t, []icom.Message{{ResourceID: idA, Body: []byte("<a/>")}}, got)

	h.Set("Content-Encoding", "gzip")
	got, err = icom.ReadMessages(h, strings.NewReader(zipped(t, "<a/>")), limits())
	require.NoError(t, err)
	require.Equal(t, []icom.Message{{ResourceID: idA, Body: []byte("<a/>")}}, got)
}

func TestReadsAMultipartWithASpaceInItsBoundary(t *testing.T) {
	t.Parallel()
	want := []icom.Message{{ResourceID: idA, Body: []byte("<a/>")}, {Body: []byte("<b>ç</b>")}}
	got, err := icom.ReadMessages(headers("Content-Type", quotedBoundary), strings.NewReader(twoParts), limits())
	require.NoError(t, err)
	require.Equal(t, want, got)

	h := headers("Content-Type", quotedBoundary, "Content-Encoding", "gzip")
	got, err = icom.ReadMessages(h, iotest.OneByteReader(strings.NewReader(zipped(t, twoParts))), limits())
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestAnIdentifierThatIsNoneIsAFaultOfItsMessageOnly(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"", "a b", strings.Repeat("A", 500), "\xff"} {
		h := headers("Content-Type", icom.TypeMessage, icom.HeaderResourceID, id)
		got, err := icom.ReadMessages(h, strings.NewReader("<a/>"), limits())
		require.NoError(t, err)
		require.Equal(t, []icom.Message{{Body: []byte("<a/>")}}, got)
	}
}

func TestRefusesWhatBreaksTheProtocol(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		header http.Header
		body   string
		reason string
	}{
		"no content type":     {headers(), "<a/>", "content type"},
		"another multipart":   {headers("Content-Type", "multipart/related; boundary=b"), "--b\r\n\r\n<a/>\r\n--b--\r\n", "neither"},
		"not gzip":            {headers("Content-Type", icom.TypeMessage, "Content-Encoding", "gzip"), "<a/>", "not gzip"},
		"deflate":             {headers("Content-Type", icom.TypeMessage, "Content-Encoding", "deflate"), "<a/>", "Content-Encoding"},
		"gzip twice":          {headers("Content-Type", icom.TypeMessage, "Content-Encoding", "gzip", "Content-Encoding", "gzip"), "", "more than one"},
		"truncated gzip":      {headers("Content-Type", icom.TypeMessage, "Content-Encoding", "gzip"), zipped(t, "<a/>")[:12], "EOF"},
		"no boundary":         {headers("Content-Type", "multipart/mixed"), twoParts, "boundary"},
		"long boundary":       {headers("Content-Type", "multipart/mixed; boundary="+strings.Repeat("b", 71)), twoParts, "boundary"},
		"another boundary":    {headers("Content-Type", "multipart/mixed; boundary=other"), twoParts, "part 0"},
		"no part":             {headers("Content-Type", "multipart/mixed; boundary=b"), "--b--\r\n", "without parts"},
		"truncated multipart": {headers("Content-Type", quotedBoundary), twoParts[:len(twoParts)-30], "part 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := icom.ReadMessages(c.header, strings.NewReader(c.body), limits())
			require.ErrorContains(t, err, c.reason)
			require.NotContains(t, err.Error(), "<a/>")
		})
	}
}

// One message of a batch is at fault, in every way that leaves the messages told apart: it says so itself and keeps
// its identifier and what may be kept of its body, and the others are as if nothing was.
func TestAFaultOfOneMessageIsNotTheBatchs(t *testing.T) {
	t.Parallel()
	const xml = "Content-Type: application/xml; charset=utf-8"
	exact := strings.Repeat("x", int(limits().MessageBytes))
	for name, c := range map[string]struct{ head, body, kept, fault string }{
		"exactly at the limit":      {xml, exact, exact, ""},
		"one byte over the limit":   {xml, exact + "y", exact, "message has 65537 bytes, want at most 65536"},
		"far over the limit":        {xml, exact + exact, exact, "message has 131072 bytes, want at most 65536"},
		"empty":                     {xml, "", "", "message is empty"},
		"charset":                   {"Content-Type: application/xml; charset=latin1", "<a/>", "<a/>", "charset is not utf-8"},
		"type":                      {"Content-Type: text/xml", "<a/>", "<a/>", "content type is not application/xml"},
		"a type that is none":       {"Content-Type: ;;", "<a/>", "<a/>", "content type is not application/xml"},
		"a parameter that is none":  {"Content-Type: application/xml; charset", "<a/>", "<a/>", "content type is not application/xml"},
		"gzip inside":               {xml + "\r\nContent-Encoding: gzip", "<a/>", "<a/>", "part has a Content-Encoding of its own"},
		"quoted-printable":          {xml + "\r\nContent-Transfer-Encoding: quoted-printable", "<a/>", "<a/>", "part has a Content-Transfer-Encoding of its own"},
		"more than one thing wrong": {"Content-Type: text/html; charset=latin1", "", "", "message is empty; charset is not utf-8; content type is not application/xml"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			good := func(id string) string {
				return "--b\r\n" + xml + "\r\nPI-ResourceId: " + id + "\r\n\r\n<" + id + "/>\r\n"
			}
			answer := good("g1") + "--b\r\n" + c.head + "\r\nPI-ResourceId: bad\r\n\r\n" + c.body + "\r\n" + good("g2") + "--b--\r\n"
			want := []icom.Message{
				{ResourceID: "g1", Body: []byte("<g1/>")},
				{ResourceID: "bad", Body: []byte(c.kept), Fault: c.fault},
				{ResourceID: "g2", Body: []byte("<g2/>")},
			}
			h := headers("Content-Type", "multipart/mixed; boundary=b")
			got, err := icom.ReadMessages(h, strings.NewReader(answer), limits())
			require.NoError(t, err)
			require.Equal(t, want, got)
			h.Set("Content-Encoding", "gzip")
			got, err = icom.ReadMessages(h, iotest.HalfReader(strings.NewReader(zipped(t, answer))), limits())
			require.NoError(t, err)
			require.Equal(t, want, got)

			if first, more, _ := strings.Cut(c.head, "\r\n"); more == "" && first != "Content-Type: ;;" {
				h := headers("Content-Type", strings.TrimPrefix(first, "Content-Type: "), icom.HeaderResourceID, "bad")
				got, err := icom.ReadMessages(h, strings.NewReader(c.body), limits())
				require.NoError(t, err)
				require.Equal(t, want[1:2], got, "an answer of one message")
			}
		})
	}
}

func TestLimitsHoldAfterDecompression(t *testing.T) {
	t.Parallel()
	bomb := zipped(t, strings.Repeat("0", 24<<20))
	require.Less(t, len(bomb), 1<<16)
	h := headers("Content-Type", icom.TypeMessage, "Content-Encoding", "gzip")
	read := &counting{r: strings.NewReader(bomb)}
	_, err := icom.ReadMessages(h, read, limits())
	require.ErrorIs(t, err, icom.ErrTooLarge)
	require.Less(t, read.n, len(bomb)/2, "and stops reading")

	inPart := "--b\r\nContent-Type: application/xml\r\n\r\n" + strings.Repeat("0", 24<<20) + "\r\n--b--\r\n"
	_, err = icom.ReadMessages(headers("Content-Type", "multipart/mixed; boundary=b", "Content-Encoding", "gzip"), strings.NewReader(zipped(t, inPart)), limits())
	require.ErrorIs(t, err, icom.ErrTooLarge, "also within one part")

	exact := strings.Repeat("x", int(limits().MessageBytes))

	many := strings.Repeat("--b\r\n\r\n<a/>\r\n", 11) + "--b--\r\n"
	_, err = icom.ReadMessages(headers("Content-Type", "multipart/mixed; boundary=b"), strings.NewReader(many), limits())
	require.ErrorIs(t, err, icom.ErrTooLarge)

	large := strings.Repeat("--b\r\n\r\n"+exact+"\r\n", 9) + "--b--\r\n"
	_, err = icom.ReadMessages(headers("Content-Type", "multipart/mixed; boundary=b"), strings.NewReader(large), limits())
	require.ErrorIs(t, err, icom.ErrTooLarge)

	head := "--b\r\nX: " + strings.Repeat("y", 1<<20) + "\r\n\r\n<a/>\r\n--b--\r\n"
	_, err = icom.ReadMessages(headers("Content-Type", "multipart/mixed; boundary=b"), strings.NewReader(head), limits())
	require.Error(t, err)
}

type counting struct {
	r io.Reader
	n int
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += n
	return n, err
}

func TestAReadErrorIsPassedOn(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	h := headers("Content-Type", icom.TypeMessage)
	_, err := icom.ReadMessages(h, iotest.ErrReader(broken), limits())
	require.ErrorIs(t, err, broken)
}

func TestReceiptIDs(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{idA, idB}, icom.ReceiptIDs(headers(icom.HeaderResourceID, idA+", "+idB)))
	require.Equal(t, []string{idA, idB}, icom.ReceiptIDs(headers(icom.HeaderResourceID, idA, icom.HeaderResourceID, idB)))
	require.Empty(t, icom.ReceiptIDs(headers()))
	require.Equal(t, []string{idA}, icom.ReceiptIDs(headers(icom.HeaderResourceID, ",a b,"+idA)))
	require.Len(t, icom.ReceiptIDs(headers(icom.HeaderResourceID, strings.Repeat("a,", 1000))), icom.MaxMessages)
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]time.Duration{
		"": 0, "3": 3 * time.Second, " 7 ": 7 * time.Second, "-1": 0, "x": 0,
		"999999999999999999": time.Hour, "99999999999999999999999": 0,
		"Fri, 31 Dec 1999 23:59:59 GMT": 0,
	} {
		require.Equal(t, want, icom.RetryAfter(headers(icom.HeaderRetryAfter, value)), value)
	}
}

func TestReadProblem(t *testing.T) {
	t.Parallel()
	want := icom.Problem{Type: icom.ProblemType("forbidden"), Title: "Não"}
	doc := string(icom.MarshalProblem(want))
	require.Equal(t, want, icom.ReadProblem(headers("Content-Type", icom.TypeProblem), strings.NewReader(doc)))
	require.Equal(t, want, icom.ReadProblem(
		headers("Content-Type", icom.TypeProblem, "Content-Encoding", "gzip"), strings.NewReader(zipped(t, doc))))
	require.Zero(t, icom.ReadProblem(headers("Content-Type", "text/plain"), strings.NewReader("Service Unavailable")))
	require.Zero(t, icom.ReadProblem(headers("Content-Type", icom.TypeProblem), strings.NewReader("<html>")))
	require.Zero(t, icom.ReadProblem(
		headers("Content-Type", icom.TypeProblem, "Content-Encoding", "gzip"), strings.NewReader(doc)))
}

func FuzzReadMessages(f *testing.F) {
	f.Add(quotedBoundary, "", idA, []byte(twoParts))
	f.Add(quotedBoundary, "gzip", "", []byte(zipped(f, twoParts)))
	f.Add(icom.TypeMessage, "", idA, []byte("<a/>"))
	f.Add(icom.TypeMessage, "gzip", idA, []byte(zipped(f, strings.Repeat("0", 1<<20))))
	f.Add("multipart/mixed; boundary=b", "", "", []byte("--b\r\n\r\n--b--"))
	f.Fuzz(func(t *testing.T, contentType, encoding, id string, body []byte) {
		h := headers("Content-Type", contentType, icom.HeaderResourceID, id)
		if encoding != "" {
			h.Set("Content-Encoding", encoding)
		}
		got, err := icom.ReadMessages(h, bytes.NewReader(body), limits())
		if err != nil {
			require.Empty(t, got)
			return
		}
		require.NotEmpty(t, got)
		require.LessOrEqual(t, len(got), limits().Messages)
		total := 0
		for _, m := range got {
			require.True(t, len(m.Body) > 0 || m.Fault != "")
			require.LessOrEqual(t, len(m.Fault), 512)
			require.LessOrEqual(t, len(m.Body), int(limits().MessageBytes))
			require.NotContains(t, m.ResourceID, "\n")
			total += len(m.Body)
		}
		require.LessOrEqual(t, total, int(limits().BodyBytes))
	})
}
