package signature

import (
	"bytes"
	"fmt"
	"slices"
	"unicode/utf8"
)

// Bounds of a message. The largest that the SPI defines is far below them.
const (
	// MaxSize is the size in bytes above which a message is refused unread.
	MaxSize = 4 << 20
	// maxDepth bounds how deep elements nest.
	maxDepth = 64
	// maxAttributes bounds the attributes of one element. Those of the SPI have one.
	maxAttributes = 8
)

// span is a part of the message, in bytes from its beginning.
type span struct{ from, to int }

func (s span) of(data []byte) []byte { return data[s.from:s.to] }
func (s span) empty() bool           { return s.from == s.to }

// kind is what a token is.
type kind int

const (
	atEnd kind = iota // end of the message
	startTag
	endTag
	text
)

// token is a piece of the message.
type token struct {
	kind kind
	span
	name  span   // of a tag
	attrs []attr // of a start tag; good until the next token is read
}

// attr is an attribute, its value as it was written.
type attr struct{ name, value []byte }

// scanner splits a message into tokens. It knows less of XML than the standard and refuses the rest: names are ASCII,
// the encoding is UTF-8, and there is nothing but elements, attributes, text and references to single characters. What
// it accepts every XML parser reads alike. An element closed in its start tag gives a start and an end.
type scanner struct {
	data []byte
	at   int
	// exact turns false when something is read that exclusive canonicalisation would write differently. Whoever wants
	// to know of a token sets it to true before.
	exact bool

	names  [maxDepth]span // of the open elements
	depth  int
	rooted bool // the root was seen
	closed bool // the last start tag closed its element
	attrs  [maxAttributes]attr
}

func (s *scanner) malformed(format string, args ...any) *Error {
	return refuse(Malformed, "%s at byte %d", fmt.Sprintf(format, args...), s.at)
}

// declaration reads the XML declaration, if there is one.
func (s *scanner) declaration() *Error {
	if len(s.data) > MaxSize {
		return s.malformed("more than %d bytes", MaxSize)
	}
	if !bytes.HasPrefix(s.data, []byte("<?xml ")) {
		return nil
	}
	s.at = len("<?xml")
	attrs, err := s.attributes()
	if err != nil {
		return err
	}
	// In this order, says the standard; the first must be there.
	wanted := []struct {
		name   string
		values []string
	}{{"version", []string{"1.0"}}, {"encoding", []string{"UTF-8", "utf-8"}}, {"standalone", []string{"no", "yes"}}}
	for i, w := range wanted {
		if len(attrs) == 0 || string(attrs[0].name) != w.name {
			if i == 0 {
				return s.malformed("XML declaration without a version")
			}
			continue
		}
		if !slices.Contains(w.values, string(attrs[0].value)) {
			return s.malformed("XML declaration with another %s than %v", w.name, w.values)
		}
		attrs = attrs[1:]
	}
	if len(attrs) > 0 || !bytes.HasPrefix(s.data[s.at:], []byte("?>")) {
		return s.malformed("XML declaration with something else in it")
	}
	s.at += len("?>")
	return nil
}

// next reads one token.
func (s *scanner) next() (token, *Error) {
	switch {
	case s.closed:
		s.closed = false
		s.depth--
		return token{kind: endTag, span: span{s.at, s.at}, name: s.names[s.depth]}, nil
	case s.at == len(s.data):
		if s.depth > 0 || !s.rooted {
			return token{}, s.malformed("message ends in the middle")
		}
		return token{kind: atEnd, span: span{s.at, s.at}}, nil
	case s.data[s.at] != '<':
		return s.text()
	case s.at+1 < len(s.data) && s.data[s.at+1] == '/':
		return s.endTag()
	}
	return s.startTag()
}

func (s *scanner) startTag() (token, *Error) {
	t := token{kind: startTag, span: span{from: s.at}}
	s.at++
	var err *Error
	if t.name, err = s.name(); err != nil {
		return token{}, err
	}
	if t.attrs, err = s.attributes(); err != nil {
		return token{}, err
	}
	if s.at < len(s.data) && s.data[s.at] == '/' {
		s.closed, s.exact = true, false
		s.at++
	}
	if s.at == len(s.data) || s.data[s.at] != '>' {
		return token{}, s.malformed("start tag has no end")
	}
	s.at++
	switch {
	case s.depth == 0 && s.rooted:
		return token{}, s.malformed("second root element")
	case s.depth == maxDepth:
		return token{}, s.malformed("elements nest deeper than %d", maxDepth)
	}
	s.rooted = true
	s.names[s.depth] = t.name
	s.depth++
	t.to = s.at
	return t, nil
}

func (s *scanner) endTag() (token, *Error) {
	t := token{kind: endTag, span: span{from: s.at}}
	s.at += len("</")
	var err *Error
	if t.name, err = s.name(); err != nil {
		return token{}, err
	}
	if s.spaces() > 0 {
		s.exact = false
	}
	if s.at == len(s.data) || s.data[s.at] != '>' {
		return token{}, s.malformed("end tag has no end")
	}
	s.at++
	if s.depth == 0 || !bytes.Equal(s.names[s.depth-1].of(s.data), t.name.of(s.data)) {
		return token{}, s.malformed("end tag of another element")
	}
	s.depth--
	t.to = s.at
	return t, nil
}

// name reads a name, with a prefix or without.
func (s *scanner) name() (span, *Error) {
	n := span{s.at, s.at}
	colons, first := 0, true
	for ; n.to < len(s.data); n.to++ {
		c := s.data[n.to]
		switch {
		case c|0x20 >= 'a' && c|0x20 <= 'z' || c == '_':
			first = false
			continue
		case !first && (c >= '0' && c <= '9' || c == '-' || c == '.'):
			continue
		case !first && c == ':' && colons == 0:
			colons, first = 1, true
			continue
		}
		break
	}
	if first {
		return span{}, s.malformed("not a name: comments, instructions, document types and CDATA are refused")
	}
	s.at = n.to
	return n, nil
}

// spaces skips white space and says how much there was.
func (s *scanner) spaces() int {
	from := s.at
	for s.at < len(s.data) && isSpace(s.data[s.at]) {
		s.at++
	}
	return s.at - from
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// attributes reads up to what ends a tag.
func (s *scanner) attributes() ([]attr, *Error) {
	n := 0
	for {
		before := s.at
		spaces := s.spaces()
		if s.at == len(s.data) {
			return nil, s.malformed("tag has no end")
		}
		if c := s.data[s.at]; c == '>' || c == '/' || c == '?' {
			s.exact = s.exact && spaces == 0
			return s.attrs[:n], nil
		}
		switch {
		case spaces == 0:
			return nil, s.malformed("not an attribute")
		case n == maxAttributes:
			return nil, s.malformed("more than %d attributes", maxAttributes)
		}
		a, err := s.attribute()
		if err != nil {
			return nil, err
		}
		s.exact = s.exact && spaces == 1 && s.data[before] == ' '
		for _, other := range s.attrs[:n] {
			switch bytes.Compare(other.name, a.name) {
			case 0:
				return nil, s.malformed("attribute twice")
			case 1:
				s.exact = false
			}
		}
		s.attrs[n] = a
		n++
	}
}

// attribute reads a name and its value. A value broken over lines is refused: parsers do not agree about it.
func (s *scanner) attribute() (attr, *Error) {
	name, err := s.name()
	if err != nil {
		return attr{}, err
	}
	spaces := s.spaces()
	if s.at == len(s.data) || s.data[s.at] != '=' {
		return attr{}, s.malformed("attribute has no value")
	}
	s.at++
	spaces += s.spaces()
	if s.at == len(s.data) || s.data[s.at] != '"' && s.data[s.at] != '\'' {
		return attr{}, s.malformed("value has no quotes")
	}
	quote := s.data[s.at]
	s.exact = s.exact && spaces == 0 && quote == '"'
	s.at++
	from := s.at
	for s.at < len(s.data) && s.data[s.at] != quote {
		switch s.data[s.at] {
		case '<', '\n', '\t', '\r':
			return attr{}, s.malformed("character is not allowed in a value")
		case '&':
			if err := s.reference(`&amp; &lt; &quot; &#x9; &#xA; &#xD; `); err != nil {
				return attr{}, err
			}
		default:
			if err := s.char(); err != nil {
				return attr{}, err
			}
		}
	}
	if s.at == len(s.data) {
		return attr{}, s.malformed("value has no end")
	}
	s.at++
	return attr{name.of(s.data), s.data[from : s.at-1]}, nil
}

func (s *scanner) text() (token, *Error) {
	t := token{kind: text, span: span{from: s.at}}
	for s.at < len(s.data) && s.data[s.at] != '<' {
		switch c := s.data[s.at]; {
		case s.depth == 0 && !isSpace(c):
			return token{}, s.malformed("text outside the root element")
		case c == '&':
			if err := s.reference(`&amp; &lt; &gt; &#xD; `); err != nil {
				return token{}, err
			}
		case c == '>':
			if bytes.HasSuffix(s.data[t.from:s.at], []byte("]]")) {
				return token{}, s.malformed("end of a CDATA section")
			}
			s.exact = false
			s.at++
		case c == '\r':
			s.exact = false
			s.at++
		default:
			if err := s.char(); err != nil {
				return token{}, err
			}
		}
	}
	t.to = s.at
	return t, nil
}

// char reads one character that stands for itself.
func (s *scanner) char() *Error {
	c := s.data[s.at]
	if c >= ' ' && c < utf8.RuneSelf || c == '\n' || c == '\t' {
		s.at++
		return nil
	}
	r, size := utf8.DecodeRune(s.data[s.at:])
	if r == utf8.RuneError && size <= 1 || !isChar(r) {
		return s.malformed("not a character of XML")
	}
	s.at += size
	return nil
}

// reference reads a reference to one character. canonical are those that canonicalisation writes, each with a space
// behind it.
func (s *scanner) reference(canonical string) *Error {
	const longest = len("&#x10FFFF;")
	rest := s.data[s.at:min(s.at+longest, len(s.data))]
	end := bytes.IndexByte(rest, ';') + 1
	if _, ok := dereference(rest[:end]); !ok {
		return s.malformed("not a reference to a character")
	}
	s.exact = s.exact && bytes.Contains([]byte(canonical), append(slices.Clip(rest[:end]), ' '))
	s.at += end
	return nil
}
