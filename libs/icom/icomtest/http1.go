package icomtest

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"

	"github.com/cabine-pix/cabine/libs/icom"
)

const (
	maxHeaders    = 64
	maxLine       = 8 << 10
	readerBytes   = 16 << 10
	recordBytes   = 16 << 10 // the most plaintext in one TLS record
	maxChunkTails = 16
)

// field is one header as it was on the wire.
type field struct{ name, value string }

// request is what the bank read.
type request struct {
	method, target string
	header         []field
	body           []byte
}

// get returns the first value of a header, by any case of letters.
func (r *request) get(name string) string {
	for _, f := range r.header {
		if strings.EqualFold(f.name, name) {
			return f.value
		}
	}
	return ""
}

// refusal is an answer that the bank gives before it looks at what was asked.
type refusal struct {
	status  int
	problem string
	title   string
	// reset cuts the connection with RST instead of answering.
	reset bool
	// broke says which header rule the client broke, empty for none.
	broke string
}

// Error implements error, so that a refusal travels from the reader to the answerer.
func (r *refusal) Error() string { return r.title }

func malformedRequest(why string) *refusal {
	return &refusal{status: http.StatusBadRequest, problem: "badRequest", title: why}
}

// errBrokenOff says that the bank stopped reading in the middle of a body, as a fault wants it.
var errBrokenOff = errors.New("icomtest: broken off in the body")

// readRequest reads one request. breaksOff is asked when its header is known. An error that is not a *refusal comes from
// the connection. After a refusal the rest of the connection cannot be understood.
func readRequest(br *bufio.Reader, maxBody int, breaksOff func(*request) bool) (*request, error) {
	line, err := readLine(br)
	if err != nil {
		return nil, err
	}
	method, rest, ok := strings.Cut(line, " ")
	target, proto, ok2 := strings.Cut(rest, " ")
	if !ok || !ok2 || method == "" || !strings.HasPrefix(target, "/") {
		return nil, malformedRequest("Linha de requisição inválida")
	}
	if proto != "HTTP/1.1" {
		return nil, &refusal{
			status: http.StatusHTTPVersionNotSupported, problem: "version", title: "Versão HTTP não suportada",
		}
	}
	req := &request{method: method, target: target, header: make([]field, 0, 8)}
	for {
		line, err := readLine(br)
		if err != nil {
			return nil, err
		}
		if line == "" {
			break
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok || name == "" || strings.ContainsAny(name, " \t") || len(req.header) == maxHeaders {
			return nil, malformedRequest("Cabeçalho inválido")
		}
		req.header = append(req.header, field{name, strings.Trim(value, " \t")})
	}
	if breaksOff(req) {
		return req, breakOff(br, req)
	}
	req.body, err = readBody(br, req, maxBody)
	return req, err
}

// breakOff reads half of a body whose length is known, the beginning of one that comes in chunks, and nothing where there
// is none.
func breakOff(br *bufio.Reader, req *request) error {
	if req.method != http.MethodPost {
		return errBrokenOff
	}
	n, err := strconv.ParseInt(req.get("Content-Length"), 10, 63)
	if err != nil {
		n = 2
	}
	if _, err := io.CopyN(io.Discard, br, n/2); err != nil {
		return err
	}
	return errBrokenOff
}

func readLine(br *bufio.Reader) (string, error) {
	raw, err := br.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) || len(raw) > maxLine {
		return "", &refusal{
			status: http.StatusRequestHeaderFieldsTooLarge, problem: "header", title: "Cabeçalho muito longo",
		}
	}
	if err != nil {
		return "", err
	}
	return string(bytes.TrimRight(raw, "\r\n")), nil
}

// readBody reads what the length or the chunks announce. The bank wants exactly one of them.
func readBody(br *bufio.Reader, req *request, maxBody int) ([]byte, error) {
	length, encoding := req.get("Content-Length"), req.get("Transfer-Encoding")
	tooLarge := &refusal{
		status: http.StatusRequestEntityTooLarge, problem: "tooLarge", title: "Mensagem maior que o permitido",
	}
	switch {
	case length != "" && encoding != "":
		return nil, invalidHeader("Content-Length with Transfer-Encoding")
	case encoding != "":
		if !strings.EqualFold(encoding, "chunked") {
			return nil, invalidHeader("Transfer-Encoding " + encoding)
		}
		body, err := io.ReadAll(io.LimitReader(httputil.NewChunkedReader(br), int64(maxBody)+1))
		if err != nil {
			return nil, err
		}
		if len(body) > maxBody {
			return nil, tooLarge
		}
		return body, readTrailer(br)
	case length != "":
		n, err := strconv.ParseUint(length, 10, 63)
		if err != nil {
			return nil, malformedRequest("Content-Length inválido")
		}
		if n > uint64(maxBody) {
			return nil, tooLarge
		}
		body := make([]byte, n)
		_, err = io.ReadFull(br, body)
		return body, err
	case req.method == http.MethodPost:
		return nil, &refusal{status: http.StatusLengthRequired, problem: "length", title: "Tamanho não informado"}
	}
	return nil, nil
}

func readTrailer(br *bufio.Reader) error {
	for range maxChunkTails {
		line, err := readLine(br)
		if err != nil || line == "" {
			return err
		}
	}
	return malformedRequest("Trailer inválido")
}

func invalidHeader(broke string) *refusal {
	return &refusal{
		status: http.StatusBadRequest, problem: icom.ProblemInvalidHeader,
		title: "Um dos cabeçalhos enviados não era esperado", broke: broke,
	}
}

// answer is what the bank says.
type answer struct {
	status int
	header []field
	body   []byte
	// cursorless keeps PI-Pull-Next out.
	cursorless bool
	// close ends the connection after the answer, and says so.
	close bool
}

func (a *answer) set(name, value string) {
	for i := range a.header {
		if a.header[i].name == name {
			a.header[i].value = value
			return
		}
	}
	a.header = append(a.header, field{name, value})
}

// append writes the answer's bytes behind dst.
func (a *answer) append(dst []byte) []byte {
	dst = append(dst, "HTTP/1.1 "...)
	dst = strconv.AppendInt(dst, int64(a.status), 10)
	dst = append(dst, ' ')
	dst = append(dst, http.StatusText(a.status)...)
	dst = append(dst, "\r\n"...)
	for _, f := range a.header {
		dst = append(dst, f.name...)
		dst = append(dst, ": "...)
		dst = append(dst, f.value...)
		dst = append(dst, "\r\n"...)
	}
	if a.close {
		dst = append(dst, "Connection: close\r\n"...)
	}
	if a.status != http.StatusNoContent {
		dst = append(dst, "Content-Length: "...)
		dst = strconv.AppendInt(dst, int64(len(a.body)), 10)
		dst = append(dst, "\r\n"...)
	}
	dst = append(dst, "\r\n"...)
	return append(dst, a.body...)
}

func problem(status int, name, title string) *answer {
	return &answer{
		status: status,
		header: []field{{"Content-Type", icom.TypeProblem}},
		body:   icom.MarshalProblem(icom.Problem{Type: icom.ProblemType(name), Title: title}),
	}
}
