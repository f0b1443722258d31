package icom

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"time"
)

// Message is one message of a read, as it was on the wire.
type Message struct {
	// ResourceID is the bank's PI-ResourceId; empty when it sent none or one that no
	// header may carry, which is a fault of the message and not of the batch.
	ResourceID string
	// Body is the payload, decompressed, otherwise untouched. Of one that is too large it is the beginning.
	Body []byte
	// Fault says why the message cannot be taken as it is, without quoting it: too large,
	// empty, of another type, charset or encoding. Empty: it is in order as far as its
	// framing goes.
	Fault string
}

// Limits bound what a read may cost, whatever the other side sends.
type Limits struct {
	// Messages in one answer.
	Messages int
	// MessageBytes of one message and BodyBytes of the whole body, both after decompression.
	MessageBytes, BodyBytes int64
}

// maxResourceIDBytes bounds one PI-ResourceId, whose known form has 32 characters.
const maxResourceIDBytes = 128

// maxBoundaryBytes is the longest boundary that RFC 2046 allows.
const maxBoundaryBytes = 70

// maxRetryAfterSeconds bounds how long the bank can make us wait with one answer.
const maxRetryAfterSeconds = 3600

// ErrTooLarge is wrapped by the errors of ReadMessages about Limits.
var ErrTooLarge = errors.New("over the limit")

// ReadMessages takes the messages out of a 200's body: one, or the parts of a
// multipart/mixed. It reads at most the limits' bytes. A fault of one message is that
// message's (Message.Fault): the others must not wait for it. An error means that the
// messages cannot be told apart: broken framing or compression, a body or a number of
// messages over the limit. Neither quotes the body.
func ReadMessages(header http.Header, body io.Reader, limits Limits) ([]Message, error) {
	body, err := decoded(header, body)
	if err != nil {
		return nil, err
	}
	body = &bounded{r: body, left: limits.BodyBytes}
	mediaType, params, err := mime.ParseMediaType(header.Get("Content-Type"))
	switch {
	case mediaType == TypeMultipart && err == nil:
		return readParts(body, params["boundary"], limits)
	case mediaType == "" || strings.HasPrefix(mediaType, "multipart/"):
		return nil, fmt.Errorf("icom: content type is neither %s nor %s", TypeXML, TypeMultipart)
	}
	m, err := readMessage(body, textproto.MIMEHeader(header), limits)
	if err != nil {
		return nil, err
	}
	return []Message{m}, nil
}

// decoded undoes the response's Content-Encoding. What the request allowed does not
// matter: the bank may answer plain or compressed either way.
func decoded(header http.Header, body io.Reader) (io.Reader, error) {
	encodings := header.Values("Content-Encoding")
	if len(encodings) == 0 {
		return body, nil
	}
	switch encoding := strings.ToLower(strings.TrimSpace(encodings[0])); {
	case len(encodings) > 1:
		return nil, errors.New("icom: more than one Content-Encoding")
	case encoding == "identity" || encoding == "":
		return body, nil
	case encoding == "gzip" || encoding == "x-gzip":
		z, err := gzip.NewReader(body)
		if err != nil {
			return nil, fmt.Errorf("icom: body is not gzip: %w", err)
		}
		return z, nil
	default:
		return nil, errors.New("icom: Content-Encoding is neither gzip nor identity")
	}
}

func readParts(body io.Reader, boundary string, limits Limits) ([]Message, error) {
	if boundary == "" || len(boundary) > maxBoundaryBytes {
		return nil, fmt.Errorf("icom: multipart boundary has %d bytes, want 1 to %d", len(boundary), maxBoundaryBytes)
	}
	var out []Message
	for parts := multipart.NewReader(body, boundary); ; {
		// Raw: a transfer encoding would change what was signed.
		part, err := parts.NextRawPart()
		if err == io.EOF { //nolint:errorlint // bare at the closing boundary, wrapped where that is missing
			break
		}
		if err != nil {
			return nil, fmt.Errorf("icom: part %d: %w", len(out), err)
		}
		if len(out) == limits.Messages {
			return nil, fmt.Errorf("icom: more than %d parts: %w", limits.Messages, ErrTooLarge)
		}
		m, err := readPart(part, limits)
		if err != nil {
			return nil, fmt.Errorf("icom: part %d: %w", len(out), err)
		}
		out = append(out, m)
	}
	if len(out) == 0 {
		return nil, errors.New("icom: multipart without parts")
	}
	return out, nil
}

// readPart reads one message of several, whose head may say more than a whole answer's.
func readPart(part *multipart.Part, limits Limits) (Message, error) {
	if part.Header.Get("Content-Type") == "" {
		part.Header.Set("Content-Type", TypeMessage)
	}
	m, err := readMessage(part, part.Header, limits)
	for _, name := range []string{"Content-Encoding", "Content-Transfer-Encoding"} {
		switch v := strings.ToLower(part.Header.Get(name)); v {
		case "", "identity", "7bit", "8bit", "binary":
		default:
			m.blame(fmt.Sprintf("part has a %s of its own", name))
		}
	}
	return m, err
}

// readMessage reads one message to its end and keeps of it what the limits allow.
func readMessage(r io.Reader, header textproto.MIMEHeader, limits Limits) (Message, error) {
	b, err := io.ReadAll(io.LimitReader(r, limits.MessageBytes))
	if err != nil {
		return Message{}, fmt.Errorf("icom: message: %w", err)
	}
	rest, err := io.Copy(io.Discard, r)
	if err != nil {
		return Message{}, fmt.Errorf("icom: message: %w", err)
	}
	m := Message{ResourceID: resourceID(header.Get(HeaderResourceID)), Body: b}
	if rest > 0 {
		m.blame(fmt.Sprintf("message has %d bytes, want at most %d", int64(len(b))+rest, limits.MessageBytes))
	}
	if len(b) == 0 {
		m.blame("message is empty")
	}
	mediaType, params, err := mime.ParseMediaType(header.Get("Content-Type"))
	if charset, ok := params["charset"]; ok && !strings.EqualFold(charset, "utf-8") {
		m.blame("charset is not utf-8")
	}
	if err != nil || mediaType != TypeXML {
		m.blame("content type is not " + TypeXML)
	}
	return m, nil
}

func (m *Message) blame(fault string) {
	if m.Fault != "" {
		m.Fault += "; "
	}
	m.Fault += fault
}

// resourceID returns the identifier, or nothing where it is not one that can be stored
// and compared.
func resourceID(s string) string {
	s = strings.TrimSpace(s)
	if len(s) > maxResourceIDBytes || strings.IndexFunc(s, func(c rune) bool { return c <= ' ' || c > '~' }) >= 0 {
		return ""
	}
	return s
}

// ReceiptIDs takes the identifiers out of a 201, in the order of the messages. The bank
// has stored the messages whatever the header looks like, so what cannot be an
// identifier is left out and the list may be shorter than the messages, never longer
// than MaxMessages.
func ReceiptIDs(header http.Header) []string {
	var out []string
	for _, line := range header.Values(HeaderResourceID) {
		for s := range strings.SplitSeq(line, ",") {
			if id := resourceID(s); id != "" && len(out) < MaxMessages {
				out = append(out, id)
			}
		}
	}
	return out
}

// RetryAfter returns how long the bank asks to wait, at most an hour; zero if it does
// not say in whole seconds.
func RetryAfter(header http.Header) time.Duration {
	seconds, err := strconv.Atoi(strings.TrimSpace(header.Get(HeaderRetryAfter)))
	if err != nil || seconds < 0 {
		return 0
	}
	return time.Duration(min(seconds, maxRetryAfterSeconds)) * time.Second
}

// ReadProblem takes the problem out of an error's body, compressed or not. The zero
// Problem means that there is none, as with a text/plain 5xx.
func ReadProblem(header http.Header, body io.Reader) Problem {
	mediaType, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil || mediaType != TypeProblem {
		return Problem{}
	}
	body, err = decoded(header, body)
	if err != nil {
		return Problem{}
	}
	p, err := ParseProblem(body)
	if err != nil {
		return Problem{}
	}
	return p
}

// bounded fails with ErrTooLarge where io.LimitReader would pretend an end.
type bounded struct {
	r    io.Reader
	left int64
}

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		// Exactly the limit is legal: only one byte more is not.
		var one [1]byte
		n, err := io.ReadFull(b.r, one[:])
		if n == 0 && (err == io.EOF || err == nil) {
			return 0, io.EOF
		}
		if n == 0 {
			return 0, err
		}
		return 0, ErrTooLarge
	}
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := b.r.Read(p)
	b.left -= int64(n)
	return n, err
}
