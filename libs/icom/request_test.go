package icom_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/icom"
	"github.com/cabine-pix/cabine/libs/pix"
)

func requests(t *testing.T) icom.Requests {
	t.Helper()
	base, err := icom.ParseBase("https://icom.pi.rsfn.net.br:16422")
	require.NoError(t, err)
	return icom.Requests{Base: base, ISPB: pix.ISPB("12345678"), Multipart: true}
}

// onTheWire writes a request as a transport does and returns its head's lines and its body.
func onTheWire(t *testing.T, req *http.Request) (head []string, body []byte) {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, req.Write(&b))
	top, rest, found := strings.Cut(b.String(), "\r\n\r\n")
	require.True(t, found)
	return strings.Split(top, "\r\n"), []byte(rest)
}

func TestAPullOnTheWire(t *testing.T) {
	t.Parallel()
	r := requests(t)
	req, err := r.Pull("")
	require.NoError(t, err)
	head, body := onTheWire(t, req)
	require.Empty(t, body)
	require.Equal(t, []string{
		"GET /api/v1/out/12345678/stream/start HTTP/1.1",
		"Host: icom.pi.rsfn.net.br",
		"User-Agent: cabine",
		"Accept: multipart/mixed",
		"Accept-Encoding: gzip",
	}, head)

	r.Multipart = false
	req, err = r.Pull("/api/v1/out/12345678/stream/abc?x=1")
	require.NoError(t, err)
	head, _ = onTheWire(t, req)
	require.Equal(t, "GET /api/v1/out/12345678/stream/abc?x=1 HTTP/1.1", head[0])
	require.Contains(t, head, "Accept: application/xml")
}

func TestACloseOnTheWire(t *testing.T) {
	t.Parallel()
	_, err := requests(t).Close("")
	require.Error(t, err)
	req, err := requests(t).Close("/api/v1/out/12345678/stream/abc")
	require.NoError(t, err)
	head, body := onTheWire(t, req)
	require.Empty(t, body)
	require.Equal(t, []string{
		"DELETE /api/v1/out/12345678/stream/abc HTTP/1.1",
		"Host: icom.pi.rsfn.net.br",
		"User-Agent: cabine",
	}, head)
}

func TestASendOnTheWire(t *testing.T) {
	t.Parallel()
	for _, zip := range []bool{false, true} {
		for _, n := range []int{1, 2, icom.MaxMessages} {
			r := requests(t)
			r.Gzip = zip
			var messages [][]byte
			for range n {
				messages = append(messages, []byte("<Envelope>ç</Envelope>"))
			}
			req, err := r.Send(messages)
			require.NoError(t, err)
			require.Nil(t, req.GetBody, "net/http could repeat it otherwise")

			var b bytes.Buffer
			require.NoError(t, req.Write(&b))
			got, err := http.ReadRequest(bufio.NewReader(&b))
			require.NoError(t, err)
			require.Equal(t, "/api/v1/in/12345678/msgs", got.RequestURI)
			require.Equal(t, "icom.pi.rsfn.net.br", got.Host)
			require.Positive(t, got.ContentLength)
			require.Empty(t, got.TransferEncoding)
			for name := range got.Header {
				require.True(t, icom.HeaderAllowed(name), name)
			}
			require.Equal(t, messages, received(t, got, zip), "%d messages, gzip %v", n, zip)
		}
	}
}

// received reads a send as the bank does.
func received(t *testing.T, req *http.Request, zip bool) [][]byte {
	t.Helper()
	body := io.Reader(req.Body)
	if zip {
		require.Equal(t, "gzip", req.Header.Get("Content-Encoding"))
		z, err := gzip.NewReader(body)
		require.NoError(t, err)
		body = z
	}
	mediaType, params, err := mime.ParseMediaType(req.Header.Get("Content-Type"))
	require.NoError(t, err)
	if mediaType == icom.TypeXML {
		require.Equal(t, "utf-8", params["charset"])
		one, err := io.ReadAll(body)
		require.NoError(t, err)
		return [][]byte{one}
	}
	require.Equal(t, icom.TypeMultipart, mediaType)
	var out [][]byte
	for parts := multipart.NewReader(body, params["boundary"]); ; {
		part, err := parts.NextRawPart()
		if err == io.EOF { //nolint:errorlint // as in ReadMessages
			return out
		}
		require.NoError(t, err)
		require.Equal(t, icom.TypeMessage, part.Header.Get("Content-Type"))
		require.Len(t, part.Header, 1)
		one, err := io.ReadAll(part)
		require.NoError(t, err)
		out = append(out, one)
	}
}

func TestASendHasOneToTenMessages(t *testing.T) {
	t.Parallel()
	_, err := requests(t).Send(nil)
	require.Error(t, err)
	_, err = requests(t).Send(make([][]byte, icom.MaxMessages+1))
	require.Error(t, err)
}

func TestTheCursorStaysOnTheChannelsHost(t *testing.T) {
	t.Parallel()
	const start = "/api/v1/out/12345678/stream/start"
	for value, want := range map[string]string{
		"/api/v1/out/12345678/stream/1":         "/api/v1/out/12345678/stream/1",
		"/s/1?a=b&c=%2F":                        "/s/1?a=b&c=%2F",
		"next":                                  "/api/v1/out/12345678/stream/next",
		"https://icom.pi.rsfn.net.br:16422/s/1": "/s/1",
		"https://ICOM.pi.rsfn.net.br/s/1":       "/s/1",
		"":                                      "",
		"https://icom.pi.rsfn.net.br:17422/s/1": "",
		"https://icom-sec.pi.rsfn.net.br:16422/s/1":              "",
		"http://icom.pi.rsfn.net.br:16422/s/1":                   "",
		"//attacker.example/s/1":                                 "",
		"https://user@icom.pi.rsfn.net.br:16422/s/1":             "",
		"https://icom.pi.rsfn.net.br:16422@attacker.example/s/1": "",
		"mailto:x":                      "",
		"/s/1#f":                        "",
		"/s/ 1":                         "",
		"/s/1\r\nX: y":                  "",
		"///../s":                       "",
		"/s/%zz":                        "",
		"/" + strings.Repeat("a", 4096): "",
	} {
		r := requests(t)
		req, err := r.Pull("")
		require.NoError(t, err)
		require.Equal(t, start, req.URL.Path)
		got, err := r.Cursor(req, http.Header{http.CanonicalHeaderKey(icom.HeaderPullNext): {value}})
		if want == "" {
			require.Error(t, err, value)
			continue
		}
		require.NoError(t, err, value)
		require.Equal(t, want, got)
		again, err := r.Pull(got)
		require.NoError(t, err)
		require.Equal(t, got, again.URL.RequestURI())
		require.Equal(t, "icom.pi.rsfn.net.br:16422", again.URL.Host)
	}
	req, err := requests(t).Pull("")
	require.NoError(t, err)
	_, err = requests(t).Cursor(req, http.Header{})
	require.Error(t, err)
}

func TestTheBaseIsAnAddressAndNothingElse(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{"", "icom:16422", "http://icom", "https://", "https://u:p@icom", "https://icom/x", "https://icom?x=1", "https://icom:x"} {
		_, err := icom.ParseBase(raw)
		require.Error(t, err, raw)
	}
	u, err := icom.ParseBase("https://icom/")
	require.NoError(t, err)
	require.Equal(t, "https://icom", u.String())
}

func FuzzCursor(f *testing.F) {
	for _, seed := range []string{"/s/1", "https://icom.pi.rsfn.net.br:16422/s", "//x/y", "..", "?a", "/%2e%2e/x", "/\x00", "///../...y"} {
		f.Add(seed)
	}
	base, err := icom.ParseBase("https://icom.pi.rsfn.net.br:16422")
	require.NoError(f, err)
	r := icom.Requests{Base: base, ISPB: "12345678"}
	f.Fuzz(func(t *testing.T, value string) {
		req, err := r.Pull("")
		require.NoError(t, err)
		cursor, err := r.Cursor(req, http.Header{http.CanonicalHeaderKey(icom.HeaderPullNext): {value}})
		if err != nil {
			return
		}
		again, err := r.Pull(cursor)
		require.NoError(t, err, "a cursor that was taken can be used")
		require.Equal(t, base.Host, again.URL.Host)
		var b bytes.Buffer
		require.NoError(t, again.Write(&b))
		got, err := http.ReadRequest(bufio.NewReader(&b))
		require.NoError(t, err, "and is one request")
		require.Equal(t, cursor, got.RequestURI)
		require.Zero(t, b.Len())
	})
}
