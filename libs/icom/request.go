package icom

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"mime"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"

	"github.com/cabine-pix/cabine/libs/pix"
)

// userAgent is all that the bank learns of the program (ICOM manual 2.1.7).
const userAgent = "cabine"

// Requests builds the requests of one participant on one channel. They carry the
// headers that the bank expects and not one more: a header added on the way, say by
// tracing, is answered with 400. A request is for http.Request.Write, which adds none
// either; net/http's client may not send it, because it follows redirects and repeats.
type Requests struct {
	// Base is the channel's address, "https://icom.pi.rsfn.net.br:16422", without a path.
	Base *url.URL
	// ISPB of the participant, the one of its certificate.
	ISPB pix.ISPB
	// Multipart asks for up to MaxMessages messages in one read, else one.
	Multipart bool
	// Gzip compresses what is sent. Answers may always be compressed.
	Gzip bool
}

// ParseBase reads a channel's address: https, a host, an optional port, nothing else.
func ParseBase(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("icom: base URL: %w", err)
	}
	if u.Scheme != "https" || u.Hostname() == "" || u.User != nil ||
		(u.Path != "" && u.Path != "/") || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("icom: base URL %q: want https, a host and an optional port", u.Redacted())
	}
	u.Path = ""
	return u, nil
}

// Pull asks for the next messages of the stream that the cursor names, which
// acknowledges what was delivered before; an empty cursor opens a stream.
func (r Requests) Pull(cursor string) (*http.Request, error) {
	target := PathStreamStart(r.ISPB)
	if cursor != "" {
		target = cursor
	}
	req, err := r.request(http.MethodGet, target)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", TypeXML)
	if r.Multipart {
		req.Header.Set("Accept", TypeMultipart)
	}
	req.Header.Set("Accept-Encoding", "gzip")
	return req, nil
}

// Close ends the stream that the cursor names and acknowledges its last delivery.
func (r Requests) Close(cursor string) (*http.Request, error) {
	if cursor == "" {
		return nil, errors.New("icom: no cursor: there is no stream to close")
	}
	return r.request(http.MethodDelete, cursor)
}

// Send posts 1 to MaxMessages messages, which are sent as they are.
func (r Requests) Send(messages [][]byte) (*http.Request, error) {
	if n := len(messages); n < 1 || n > MaxMessages {
		return nil, fmt.Errorf("icom: %d messages, want 1 to %d", n, MaxMessages)
	}
	req, err := r.request(http.MethodPost, PathSend(r.ISPB))
	if err != nil {
		return nil, err
	}
	body, contentType := messages[0], TypeMessage
	if len(messages) > 1 {
		if body, contentType, err = writeMultipart(messages); err != nil {
			return nil, err
		}
	}
	req.Header.Set("Content-Type", contentType)
	if r.Gzip {
		if body, err = compress(body); err != nil {
			return nil, err
		}
		req.Header.Set("Content-Encoding", "gzip")
	}
	// Its own reader type: with bytes.Reader net/http would learn to repeat the body.
	req.Body = readOnce{bytes.NewReader(body)}
	req.ContentLength = int64(len(body))
	return req, nil
}

type readOnce struct{ *bytes.Reader }

func (readOnce) Close() error { return nil }

func (r Requests) request(method, target string) (*http.Request, error) {
	u, err := r.resolve(r.Base, target)
	if err != nil {
		return nil, err
	}
	return &http.Request{
		Method:     method,
		URL:        u,
		Proto:      "HTTP/1.1",
		ProtoMajor: 1,
		ProtoMinor: 1,
		// A port here makes the bank reset the connection.
		Host:   HostHeader(r.Base.Host),
		Header: http.Header{"User-Agent": {userAgent}},
	}, nil
}

// Cursor takes PI-Pull-Next out of the answer to a request and returns it as a path of
// the channel's host. The bank may give a path or a whole URL; one that leads to
// another host is an error, because the client's certificate and the messages would
// go there.
func (r Requests) Cursor(answered *http.Request, header http.Header) (string, error) {
	values := header.Values(HeaderPullNext)
	if len(values) != 1 || values[0] == "" {
		return "", fmt.Errorf("icom: %d values of %s, want 1", len(values), HeaderPullNext)
	}
	if len(values[0]) > maxCursorBytes {
		return "", fmt.Errorf("icom: %s has %d bytes, want at most %d", HeaderPullNext, len(values[0]), maxCursorBytes)
	}
	u, err := r.resolve(answered.URL, values[0])
	if err != nil {
		return "", err
	}
	cursor := u.RequestURI()
	if len(cursor) > maxCursorBytes {
		return "", fmt.Errorf("icom: %s has %d bytes escaped, want at most %d", HeaderPullNext, len(cursor), maxCursorBytes)
	}
	return cursor, nil
}

// maxCursorBytes bounds PI-Pull-Next. The real ones have some hundred.
const maxCursorBytes = 2048

func (r Requests) resolve(from *url.URL, target string) (*url.URL, error) {
	if i := strings.IndexFunc(target, func(c rune) bool { return c <= ' ' || c > '~' }); i >= 0 {
		return nil, fmt.Errorf("icom: target of a request: byte %#x at %d, want visible ASCII", target[i], i)
	}
	ref, err := url.Parse(target)
	if err != nil {
		return nil, errors.New("icom: target of a request is not a URL")
	}
	if ref.Opaque != "" || ref.User != nil || ref.Fragment != "" {
		return nil, errors.New("icom: target of a request: only a path and a query are expected")
	}
	u := from.ResolveReference(ref)
	if u.Scheme != r.Base.Scheme || !strings.EqualFold(u.Hostname(), r.Base.Hostname()) ||
		(u.Port() != "" && u.Port() != r.Base.Port()) {
		return nil, errors.New("icom: target of a request lies on another host than the channel's")
	}
	u.Host = r.Base.Host
	// Two slashes at the start would be a host when the path is read again.
	if p := u.EscapedPath(); !strings.HasPrefix(p, "/") || strings.HasPrefix(p, "//") {
		return nil, errors.New("icom: target of a request has no path of its own")
	}
	return u, nil
}

func writeMultipart(messages [][]byte) (body []byte, contentType string, err error) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for _, m := range messages {
		part, err := w.CreatePart(textproto.MIMEHeader{"Content-Type": {TypeMessage}})
		if err != nil {
			return nil, "", fmt.Errorf("icom: write multipart: %w", err)
		}
		if _, err := part.Write(m); err != nil {
			return nil, "", fmt.Errorf("icom: write multipart: %w", err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, "", fmt.Errorf("icom: write multipart: %w", err)
	}
	contentType = mime.FormatMediaType(TypeMultipart, map[string]string{"boundary": w.Boundary()})
	return b.Bytes(), contentType, nil
}

// compress covers the whole body: compressing part by part makes the bank answer each
// one with an admi.002.
func compress(body []byte) ([]byte, error) {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(body); err != nil {
		return nil, fmt.Errorf("icom: gzip: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("icom: gzip: %w", err)
	}
	return b.Bytes(), nil
}
