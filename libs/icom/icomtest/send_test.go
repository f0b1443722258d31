package icomtest_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"encoding/xml"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/icom"
	"github.com/cabine-pix/cabine/libs/icom/icomtest"
	"github.com/cabine-pix/cabine/libs/pix"
)

func newReader(b []byte) *bufio.Reader { return bufio.NewReader(bytes.NewReader(b)) }

func parts(bodies ...string) string {
	var b strings.Builder
	for _, body := range bodies {
		b.WriteString("--simple boundary\r\nContent-Type: application/xml; charset=utf-8\r\n\r\n" + body + "\r\n")
	}
	return b.String() + "--simple boundary--\r\n"
}

const multi = `Content-Type: multipart/mixed; boundary="simple boundary"`

func TestSend(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var got []icomtest.Received
	b := start(t, icomtest.Config{OnReceive: func(r icomtest.Received) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, r)
	}})
	c := dial(t, b, pix.CPM, bankA)
	require.Equal(t, http.StatusCreated, c.post("<a/>", post).StatusCode)
	resp := c.post(parts("<b/>", "<c/>"), multi)
	require.Equal(t, http.StatusCreated, resp.StatusCode)
	ids := strings.Split(resp.Header.Get(icom.HeaderResourceID), ",")

	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, err := z.Write([]byte(parts("<d/>")))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	require.Equal(t, http.StatusCreated, c.post(zipped.String(), multi, "Content-Encoding: gzip").StatusCode)

	require.Len(t, got, 4)
	require.Equal(t, icomtest.Received{Channel: pix.CPM, ISPB: bankA, ResourceID: ids[1], Body: []byte("<c/>")}, got[2])
	require.Equal(t, "<d/>", string(got[3].Body))
	require.EqualValues(t, 4, b.Report().Participant(pix.CPM, bankA).Received)
}

// signed is a message as a participant sends it, as far as the bank looks.
func signed(ns, from, to, bizID, def, signature string) string {
	id := func(s string) string { return "<FIId><FinInstnId><Othr><Id>" + s + "</Id></Othr></FinInstnId></FIId>" }
	return `<Envelope xmlns="https://www.bcb.gov.br/pi/` + ns + `"><AppHdr>` +
		"<Fr>" + id(from) + "</Fr><To>" + id(to) + "</To><BizMsgIdr>" + bizID + "</BizMsgIdr>" +
		"<MsgDefIdr>" + def + "</MsgDefIdr><Sgntr>" + signature + "</Sgntr></AppHdr></Envelope>"
}

func TestComplaintsComeOnTheReadStream(t *testing.T) {
	t.Parallel()
	b := start(t, icomtest.Config{Validates: true, Hold: short})
	c := dial(t, b, pix.CPM, bankA)
	const biz = "M1234567801234567890123456789012"
	const signature = `<ds:Signature xmlns:ds="http://www.w3.org/2000/09/xmldsig#"/>`
	good := signed("pacs.008/1.16", "12345678", "00038166", biz, "pacs.008.spi.1.16", signature)
	bad := map[string]string{
		"well-formed": "<Envelope>",
		"root":        "<a/>",
		"catalogue":   signed("pacs.008/1.15", "12345678", "00038166", biz, "pacs.008.spi.1.15", signature),
		"namespace":   signed("pacs.002/1.17", "12345678", "00038166", biz, "pacs.008.spi.1.16", signature),
		"Fr":          signed("pacs.008/1.16", "99999A04", "00038166", biz, "pacs.008.spi.1.16", signature),
		"To":          signed("pacs.008/1.16", "12345678", "99999A04", biz, "pacs.008.spi.1.16", signature),
		"BizMsgIdr":   signed("pacs.008/1.16", "12345678", "00038166", "M1", "pacs.008.spi.1.16", signature),
		"Sgntr":       signed("pacs.008/1.16", "12345678", "00038166", biz, "pacs.008.spi.1.16", ""),
	}
	require.Equal(t, http.StatusCreated, c.post(good, post).StatusCode)
	cursor := ""
	for why, message := range bad {
		resp := c.post(message, post)
		require.Equal(t, http.StatusCreated, resp.StatusCode, "the complaint comes later")
		ref := resp.Header.Get(icom.HeaderResourceID)
		read := c.pull(cursor)
		cursor = next(read)
		_, bodies := messages(t, read)
		require.Len(t, bodies, 1)
		require.Contains(t, bodies[0], "<Ref>"+ref+"</Ref>")
		require.Contains(t, bodies[0], why)
		require.NoError(t, xml.Unmarshal([]byte(bodies[0]), new(struct{})))
	}
}

func TestSendRefusals(t *testing.T) {
	t.Parallel()
	b := start(t, icomtest.Config{MaxBody: 4096, AllowViolations: true})
	eleven := make([]string, 11)
	for _, tt := range []struct {
		name, body string
		headers    []string
		status     int
	}{
		{"eleven", parts(eleven...), []string{multi}, 400},
		{"none", parts(), []string{multi}, 400},
		{"no boundary", parts("<a/>"), []string{"Content-Type: multipart/mixed"}, 415},
		{"part type", strings.ReplaceAll(parts("<a/>"), "application/xml", "text/xml"), []string{multi}, 415},
		{"cut", parts("<a/>")[:60], []string{multi}, 400},
		{"too large", strings.Repeat(" ", 5000), []string{post}, 413},
		{"bad gzip", "<a/>", []string{post, "Content-Encoding: gzip"}, 400},
	} {
		require.Equal(t, tt.status, dial(t, b, pix.CPM, bankA).post(tt.body, tt.headers...).StatusCode, tt.name)
	}
	require.Zero(t, b.Report().Participant(pix.CPM, bankA).Received)
}

func TestBucketsEmptyAndFill(t *testing.T) {
	t.Parallel()
	fake := clock.NewFake() // 03:04 UTC, midnight in Brasília: the secondary channel's night
	b := start(t, icomtest.Config{Clock: fake})
	c := dial(t, b, pix.CPM, bankA)
	message := "<MsgDefIdr>pacs.008.spi.1.16</MsgDefIdr>" + strings.Repeat("<CdtTrfTxInf></CdtTrfTxInf>", 100)
	for range 38 {
		require.Equal(t, http.StatusCreated, c.post(message, post).StatusCode)
	}
	// 3800 of 3750 are gone: below zero, and back above it in 67 ms.
	resp := c.post(message, post)
	require.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
	require.Equal(t, "1", resp.Header.Get(icom.HeaderRetryAfter))
	other := dial(t, b, pix.CPM, bankB).post(message, post)
	require.Equal(t, http.StatusCreated, other.StatusCode, "a bucket per participant")
	fake.Advance(time.Second)
	require.Equal(t, http.StatusCreated, c.post(message, post).StatusCode)
}

func TestIdentity(t *testing.T) {
	t.Parallel()
	b := start(t, icomtest.Config{AllowViolations: true, Hold: short})
	c := dial(t, b, pix.CPM, bankA)
	resp := c.pull(icom.PathStreamStart(bankB))
	require.Equal(t, http.StatusForbidden, resp.StatusCode)
	require.Equal(t, icom.ProblemForbidden, problemOf(t, resp))
	require.Equal(t, map[icomtest.ViolationKind]int{icomtest.WrongISPB: 1}, kinds(b))
	require.Equal(t, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, c.conn.ConnectionState().CipherSuite)
	require.EqualValues(t, tls.VersionTLS12, c.conn.ConnectionState().Version)
}

func TestHandshakesThatFail(t *testing.T) {
	t.Parallel()
	b := start(t, icomtest.Config{})
	stranger, err := icomtest.NewPKI()
	require.NoError(t, err)
	foreign, err := stranger.Client(bankA)
	require.NoError(t, err)
	expired, err := b.PKI().ClientValid(bankA, time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour))
	require.NoError(t, err)
	nobody, err := b.PKI().Client("not an ispb")
	require.NoError(t, err)
	good, err := b.PKI().Client(bankA)
	require.NoError(t, err)
	tls13 := b.PKI().ClientConfigFor(good)
	tls13.MinVersion, tls13.MaxVersion = tls.VersionTLS13, tls.VersionTLS13
	other := b.PKI().ClientConfigFor(good)
	other.CipherSuites = []uint16{tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384}
	for i, cfg := range []*tls.Config{
		b.PKI().ClientConfigFor(foreign), b.PKI().ClientConfigFor(expired), b.PKI().ClientConfigFor(nobody),
		b.PKI().ClientConfigFor(tls.Certificate{}), tls13, other,
	} {
		conn, err := tls.Dial("tcp", b.Addr(pix.CPM), cfg)
		if err == nil {
			_, err = conn.Read(make([]byte, 1))
			_ = conn.Close()
		}
		require.Error(t, err, "case %d", i)
		require.Eventually(t, func() bool { return b.Report().HandshakesFailed == uint64(i+1) }, wait, tick, "case %d", i)
	}
	require.Empty(t, b.Report().Participants)
}

func TestPKIOnDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p, err := icomtest.OpenPKI(dir)
	require.NoError(t, err)
	files, err := p.WriteClient(dir, bankA)
	require.NoError(t, err)
	again, err := icomtest.OpenPKI(dir)
	require.NoError(t, err)
	same, err := again.WriteClient(dir, bankA)
	require.NoError(t, err)
	require.Equal(t, files, same)

	b := icomtest.Start(t, icomtest.Config{PKI: again})
	cert, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	require.NoError(t, err)
	conn, err := tls.Dial("tcp", b.Addr(pix.CSM), p.ClientConfigFor(cert))
	require.NoError(t, err)
	c := &client{t: t, conn: conn, br: bufio.NewReader(conn), ispb: bankA}
	require.Equal(t, http.StatusOK, c.do(http.MethodGet, icom.PathCatalogIn, "").StatusCode)
	require.NoError(t, conn.Close())
}

func TestStandardClient(t *testing.T) {
	t.Parallel()
	b := start(t, icomtest.Config{Hold: short})
	cfg, err := b.PKI().ClientConfig(bankA)
	require.NoError(t, err)
	transport := &http.Transport{TLSClientConfig: cfg}
	t.Cleanup(transport.CloseIdleConnections)
	for i := range 3 {
		_, err := b.EnqueueExamples(pix.CPM, bankA, 1)
		require.NoError(t, err)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.URL(pix.CPM)+icom.PathStreamStart(bankA), nil)
		require.NoError(t, err)
		req.Host = "icom.pi.rsfn.net.br"
		req.Header.Set("Accept", icom.TypeMultipart)
		resp, err := transport.RoundTrip(req)
		require.NoError(t, err)
		ids, _ := messages(t, resp)
		require.Len(t, ids, 1, fmt.Sprint(i))
		require.NoError(t, resp.Body.Close())
	}
	require.Equal(t, 1, b.Report().Participant(pix.CPM, bankA).PeakConnections, "the connection is kept")
}
