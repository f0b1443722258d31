package inbound

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"unicode/utf8"
)

// maxDepth bounds the nesting of elements; SPI messages need usualDepth at most.
const (
	maxDepth   = 64
	usualDepth = 16
)

// messageType reads the type of an SPI message from its header, "pacs.008" for a
// MsgDefIdr of pacs.008.spi.1.16, empty for an identifier that is not of that form. It
// walks the whole body once without building anything and reports the first reason for
// which the body is no well-formed SPI envelope: not UTF-8, elements that do not match,
// an entity or a document type of its own, nesting above 64, no MsgDefIdr.
func messageType(body []byte) (string, error) {
	s := scanner{in: bytes.TrimPrefix(body, []byte("\xef\xbb\xbf")), open: make([][]byte, 0, usualDepth)}
	if err := s.run(); err != nil {
		return "", fmt.Errorf("malformed XML at byte %d: %w", s.at, err)
	}
	if s.msgDefIdr == nil {
		return "", errors.New("no Envelope/AppHdr/MsgDefIdr")
	}
	return spiType(bytes.TrimSpace(s.msgDefIdr)), nil
}

// spiType returns the message part of an identifier like "pacs.008.spi.1.16", nothing of any other.
func spiType(id []byte) string {
	only := func(in []byte, first, last byte) bool {
		return bytes.IndexFunc(in, func(r rune) bool { return r < rune(first) || r > rune(last) }) < 0
	}
	kind, version, ok := bytes.Cut(id, []byte(".spi."))
	major, minor, both := bytes.Cut(version, []byte("."))
	if !ok || !both || len(kind) != len("pacs.008") || kind[4] != '.' || len(major) == 0 || len(minor) == 0 {
		return ""
	}
	if !only(kind[:4], 'a', 'z') || !only(kind[5:], '0', '9') || !only(major, '0', '9') || !only(minor, '0', '9') {
		return ""
	}
	return string(kind)
}

// scanner checks well-formedness as far as it matters for a message that is only stored
// and passed on. It is stricter than XML in refusing document types, and laxer in not
// looking at namespaces and repeated attributes; consumers parse again.
type scanner struct {
	in        []byte
	at        int
	open      [][]byte // names of the open elements
	rooted    bool     // the root element was seen
	msgDefIdr []byte
}

func (s *scanner) run() error {
	if !utf8.Valid(s.in) {
		return errors.New("not UTF-8")
	}
	if err := s.declaration(); err != nil {
		return err
	}
	for s.at < len(s.in) {
		next := bytes.IndexByte(s.in[s.at:], '<')
		if next < 0 {
			next = len(s.in) - s.at
		}
		if err := s.text(s.in[s.at : s.at+next]); err != nil {
			return err
		}
		if s.at += next; s.at == len(s.in) {
			break
		}
		if err := s.markup(); err != nil {
			return err
		}
	}
	if len(s.open) > 0 {
		return fmt.Errorf("element %.40q is not closed", s.open[len(s.open)-1])
	}
	if !s.rooted {
		return errors.New("no element")
	}
	return nil
}

var (
	encodingAttr = regexp.MustCompile(`\sencoding\s*=\s*["']([^"']*)["']`)
	entity       = regexp.MustCompile(`^&(amp|lt|gt|quot|apos|#[0-9]{1,7}|#x[0-9A-Fa-f]{1,6});`)
)

// usualDeclaration is how messages begin. There is nothing left to ask about their encoding.
const usualDeclaration = `<?xml version="1.0" encoding="UTF-8"`

// declaration reads <?xml ... ?> if there is one and refuses an encoding that is not UTF-8.
func (s *scanner) declaration() error {
	if !bytes.HasPrefix(s.in, []byte("<?xml")) {
		return nil
	}
	end := bytes.Index(s.in, []byte("?>"))
	if end < 0 {
		return errors.New("XML declaration is not closed")
	}
	s.at = end + len("?>")
	if bytes.HasPrefix(s.in, []byte(usualDeclaration)) {
		return nil
	}
	if m := encodingAttr.FindSubmatch(s.in[:end]); m != nil && !bytes.EqualFold(m[1], []byte("utf-8")) {
		return fmt.Errorf("charset is %.20q, want UTF-8", m[1])
	}
	return nil
}

func (s *scanner) text(t []byte) error {
	if len(s.open) == 0 {
		if len(bytes.TrimSpace(t)) > 0 {
			return errors.New("text outside of the root element")
		}
		return nil
	}
	return characters(t)
}

// characters refuses control characters and entities that XML does not define by itself.
func characters(t []byte) error {
	for i, c := range t {
		if class[c]&special == 0 {
			continue
		}
		if c != '&' {
			return fmt.Errorf("control character %#x", c)
		}
		if !entity.Match(t[i:min(len(t), i+12)]) {
			return errors.New("undefined entity")
		}
	}
	return nil
}

// What a byte may be: a scan that looks each one up takes a quarter of the time of one that compares.
const (
	nameStart = 1 << iota // of an element or attribute
	nameRest
	space
	special // in a text: a control character or the beginning of an entity
)

var class = func() (table [256]uint8) {
	for i := range table {
		switch c := byte(i); {
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c == ':' || c >= utf8.RuneSelf:
			table[i] = nameStart | nameRest
		case c >= '0' && c <= '9' || c == '-' || c == '.':
			table[i] = nameRest
		case c == ' ' || c == '\t' || c == '\r' || c == '\n':
			table[i] = space
		case c < ' ' || c == '&':
			table[i] = special
		}
	}
	return table
}()

func (s *scanner) markup() error {
	rest := s.in[s.at:]
	if len(rest) > 1 && rest[1] != '!' && rest[1] != '?' {
		if rest[1] == '/' {
			return s.endTag(rest)
		}
		return s.startTag(rest)
	}
	switch {
	case bytes.HasPrefix(rest, []byte("<!--")):
		return s.skip("<!--", "-->")
	case bytes.HasPrefix(rest, []byte("<![CDATA[")):
		if len(s.open) == 0 {
			return errors.New("text outside of the root element")
		}
		return s.skip("<![CDATA[", "]]>")
	case bytes.HasPrefix(rest, []byte("<!")):
		return errors.New("document type declarations are not allowed")
	case bytes.HasPrefix(rest, []byte("<?")):
		return s.skip("<?", "?>")
	default:
		return s.startTag(rest)
	}
}

func (s *scanner) skip(begin, end string) error {
	n := bytes.Index(s.in[s.at+len(begin):], []byte(end))
	if n < 0 {
		return fmt.Errorf("%s is not closed", begin)
	}
	s.at += len(begin) + n + len(end)
	return nil
}

func (s *scanner) endTag(rest []byte) error {
	end := bytes.IndexByte(rest, '>')
	if end < 0 {
		return errors.New("tag is not closed")
	}
	name := rest[2:end]
	for len(name) > 0 && class[name[len(name)-1]]&space != 0 {
		name = name[:len(name)-1]
	}
	if len(s.open) == 0 || !bytes.Equal(name, s.open[len(s.open)-1]) {
		return fmt.Errorf("end of %.40q does not match", name)
	}
	s.open = s.open[:len(s.open)-1]
	s.at += end + 1
	return nil
}

func (s *scanner) startTag(rest []byte) error {
	if len(s.open) == 0 && s.rooted {
		return errors.New("second root element")
	}
	n := nameLen(rest[1:])
	if n == 0 {
		return errors.New("tag without a name")
	}
	name := rest[1 : 1+n]
	used, empty, err := attributes(rest[1+n:])
	if err != nil {
		return fmt.Errorf("element %.40q: %w", name, err)
	}
	s.rooted = true
	s.at += 1 + n + used
	if empty {
		return nil
	}
	if len(s.open) == maxDepth {
		return fmt.Errorf("more than %d levels", maxDepth)
	}
	s.open = append(s.open, name)
	if s.msgDefIdr == nil && s.inside("Envelope", "AppHdr", "MsgDefIdr") {
		if end := bytes.IndexByte(s.in[s.at:], '<'); end >= 0 {
			s.msgDefIdr = s.in[s.at : s.at+end]
		}
	}
	return nil
}

// inside reports whether the open elements are exactly path, whatever their prefixes.
func (s *scanner) inside(path ...string) bool {
	if len(s.open) != len(path) {
		return false
	}
	for i, name := range s.open {
		if local := name[bytes.IndexByte(name, ':')+1:]; string(local) != path[i] {
			return false
		}
	}
	return true
}

// attributes reads up to and including the '>' of a start tag and returns the bytes used.
func attributes(in []byte) (used int, empty bool, err error) {
	i := 0
	for {
		spaces := spaceLen(in[i:])
		i += spaces
		switch {
		case i >= len(in):
			return 0, false, errors.New("tag is not closed")
		case in[i] == '>':
			return i + 1, false, nil
		case in[i] == '/' && i+1 < len(in) && in[i+1] == '>':
			return i + 2, true, nil
		case spaces == 0:
			return 0, false, errors.New("malformed tag")
		}
		n, err := attribute(in[i:])
		if err != nil {
			return 0, false, err
		}
		i += n
	}
}

// attribute reads name="value".
func attribute(in []byte) (used int, err error) {
	i := nameLen(in)
	if i == 0 {
		return 0, errors.New("malformed attribute")
	}
	i += spaceLen(in[i:])
	if i >= len(in) || in[i] != '=' {
		return 0, errors.New("attribute without a value")
	}
	i++
	i += spaceLen(in[i:])
	if i >= len(in) || in[i] != '"' && in[i] != '\'' {
		return 0, errors.New("attribute without quotes")
	}
	end := bytes.IndexByte(in[i+1:], in[i])
	if end < 0 {
		return 0, errors.New("attribute is not closed")
	}
	value := in[i+1 : i+1+end]
	if bytes.IndexByte(value, '<') >= 0 {
		return 0, errors.New("'<' in an attribute")
	}
	return i + 1 + end + 1, characters(value)
}

func spaceLen(in []byte) int {
	n := 0
	for n < len(in) && class[in[n]]&space != 0 {
		n++
	}
	return n
}

func nameLen(in []byte) int {
	if len(in) == 0 || class[in[0]]&nameStart == 0 {
		return 0
	}
	n := 1
	for n < len(in) && class[in[n]]&nameRest != 0 {
		n++
	}
	return n
}
