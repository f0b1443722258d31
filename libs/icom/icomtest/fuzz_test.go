package icomtest

import (
	"bufio"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzReadRequest feeds the bank's own HTTP parser, and what it accepts to the bodies' parser.
func FuzzReadRequest(f *testing.F) {
	f.Add("GET /api/v1/in/catalog HTTP/1.1\r\nHost: localhost\r\n\r\n")
	f.Add("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nContent-Type: application/xml; charset=utf-8\r\n\r\n<a/>")
	f.Add("POST / HTTP/1.1\nTransfer-Encoding: chunked\n\n4\r\n<a/>\r\n0\r\n\r\n")
	f.Add("POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n")
	f.Add("POST / HTTP/1.1\r\nContent-Type: multipart/mixed; boundary=\"a b\"\r\nContent-Length: 69\r\n\r\n" +
		"--a b\r\nContent-Type: application/xml; charset=utf-8\r\n\r\n<a/>\r\n--a b--\r\n")
	const maxBody = 1 << 10
	b := &Bank{cfg: Config{MaxBody: maxBody}.WithDefaults()}
	f.Fuzz(func(t *testing.T, raw string) {
		req, err := readRequest(bufio.NewReaderSize(strings.NewReader(raw), readerBytes), maxBody, func(*request) bool { return false })
		if err != nil {
			var r *refusal
			if errors.As(err, &r) {
				require.GreaterOrEqual(t, r.status, 400)
			}
			return
		}
		require.LessOrEqual(t, len(req.body), maxBody)
		require.LessOrEqual(t, len(req.header), maxHeaders)
		route(req)
		_ = b.checkHeaders(req) // refused or not, it must return
		messages, refused := b.unpack(req)
		if refused == nil {
			require.NotEmpty(t, messages)
		} else {
			require.GreaterOrEqual(t, refused.status, http.StatusBadRequest)
		}
	})
}

// FuzzCompile feeds the cutter of examples. Whatever it cuts, filled with nothing it
// loses only the values.
func FuzzCompile(f *testing.F) {
	for _, e := range lookAlikes() {
		f.Add(string(e.text))
	}
	f.Add("<To><Id>1</Id></To><CreDt>x")
	f.Add("<EndToEndId><EndToEndId>")
	f.Fuzz(func(t *testing.T, text string) {
		tmpl := compile("pacs.008_x", []byte(text))
		var rest strings.Builder
		for _, p := range tmpl.pieces {
			rest.Write(p.text)
		}
		require.LessOrEqual(t, rest.Len(), len(text))
		if !strings.Contains(text, "<") {
			require.Equal(t, text, rest.String())
		}
	})
}
