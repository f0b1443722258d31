package iso20022

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// reader cuts an envelope into elements, understanding the part of XML that the SPI uses and refusing the rest. Its
// methods return the reason of a refusal, "" when there is none. What it returns are parts of one string, so reading
// copies the envelope once.
type reader struct {
	doc       string
	pos       int
	namespace string // of the envelope, the default one
	tag       tag    // the start tag at pos, when it was looked at
	closed    bool   // the element just opened was <like/> this: it has nothing in it
}

// tag is a start tag.
type tag struct {
	name       string // "" when none was looked at
	attributes string // as written, with the white space before them
	empty      bool   // <like/> this
	end        int    // where it ends in the document
}

func newReader(envelope []byte) (*reader, error) {
	switch {
	case len(envelope) > MaxSize:
		return &reader{}, &SyntaxError{Reason: "the message is longer than " + strconv.Itoa(MaxSize) + " bytes"}
	case !utf8.Valid(envelope):
		return &reader{}, &SyntaxError{Reason: "the message is no UTF-8"}
	}
	return &reader{doc: string(envelope)}, nil
}

// peek names the element that begins here, after white space; "" when none does.
func (r *reader) peek() (name, refused string) {
	if r.closed {
		return "", ""
	}
	if r.tag.name != "" {
		return r.tag.name, ""
	}
	r.pos = skipSpace(r.doc, r.pos)
	switch rest := r.doc[r.pos:]; {
	case rest == "" || strings.HasPrefix(rest, "</"):
		return "", ""
	case rest[0] != '<':
		return "", "found text between elements"
	}
	t, refused := readTag(r.doc, r.pos)
	if refused == "" && strings.Contains(t.name, ":") {
		refused = "found " + quote(t.name) + ": prefixes are for the signature"
	}
	r.tag = t
	return t.name, refused
}

// open goes into the element that peek saw, whose attributes must be these, declarations of namespaces aside.
func (r *reader) open(attributes string) (refused string) {
	t := r.tag
	r.pos, r.closed, r.tag = t.end, t.empty, tag{}
	if t.attributes == attributes {
		return ""
	}
	seen := make([]string, 0, 4)
	for rest := t.attributes; rest != ""; {
		name, value, more, refused := readAttribute(rest)
		switch {
		case refused != "":
			return refused
		case slices.Contains(seen, name):
			return "the attribute " + quote(name) + " is there twice"
		case name == "xmlns" && r.namespace == "":
			r.namespace = value
		case name == "xmlns" && value != r.namespace:
			return "it is in another namespace"
		case name == "xmlns", strings.HasPrefix(name, "xmlns:"):
		case attributes != ` `+name+`="`+value+`"`:
			return "the attribute " + quote(name) + " is unknown or not as it must be"
		default:
			attributes = ""
		}
		seen, rest = append(seen, name), more
	}
	if attributes != "" {
		return "the attribute" + attributes + " is missing"
	}
	return ""
}

// text reads the text of the element just opened.
func (r *reader) text() (value, refused string) {
	if r.closed {
		return "", ""
	}
	length := strings.IndexByte(r.doc[r.pos:], '<')
	if length < 0 {
		return "", "the message ends too early"
	}
	raw := r.doc[r.pos : r.pos+length]
	r.pos += length
	if !strings.HasPrefix(r.doc[r.pos:], "</") {
		if _, refused := readTag(r.doc, r.pos); refused != "" {
			return "", refused
		}
		return "", "found an element in a value"
	}
	return unescape(raw)
}

// close goes out of an element, if its end is here, after white space.
func (r *reader) close(name string) bool {
	if r.closed {
		r.closed = false
		return true
	}
	pos := skipSpace(r.doc, r.pos)
	rest, ok := strings.CutPrefix(r.doc[pos:], "</")
	if !ok || !strings.HasPrefix(rest, name) {
		return false
	}
	end := skipSpace(rest, len(name))
	if end == len(rest) || rest[end] != '>' {
		return false
	}
	r.pos = pos + len("</") + end + 1
	return true
}

// readTag reads the start tag at pos, where a '<' is.
func readTag(doc string, pos int) (t tag, refused string) {
	rest := doc[pos+1:]
	switch {
	case strings.HasPrefix(rest, "!--"):
		return tag{}, "comments are refused"
	case strings.HasPrefix(rest, "![CDATA["):
		return tag{}, "CDATA is refused"
	case strings.HasPrefix(rest, "!"):
		return tag{}, "document types are refused"
	case strings.HasPrefix(rest, "?"):
		return tag{}, "processing instructions are refused"
	}
	n := 0
	for n < len(rest) && nameCharacter(rest[n]) {
		n++
	}
	if !isName(rest[:n]) {
		return tag{}, "found a < that begins no element"
	}
	t.name = rest[:n]
	if strings.HasPrefix(rest[n:], ">") { // as most do
		t.end = pos + 1 + n + 1
		return t, ""
	}
	length := tagLength(rest[n:])
	if length < 0 {
		return tag{}, "a tag has no end"
	}
	t.attributes, t.end = rest[n:n+length], pos+1+n+length+1
	t.attributes, t.empty = strings.CutSuffix(t.attributes, "/")
	t.attributes = strings.TrimRight(t.attributes, space)
	if t.attributes != "" && skipSpace(t.attributes, 0) == 0 {
		return tag{}, "found a name with a character that the SPI does not use"
	}
	return t, ""
}

// tagLength is where the '>' is that ends a tag, outside quotes; -1 when there is none.
func tagLength(s string) int {
	var quoted byte
	for i := range len(s) {
		switch c := s[i]; {
		case quoted != 0:
			if c == quoted {
				quoted = 0
			}
		case c == '"' || c == '\'':
			quoted = c
		case c == '>':
			return i
		case c == '<':
			return -1
		}
	}
	return -1
}

// readAttribute reads name="value" after white space, and returns what follows.
func readAttribute(s string) (name, value, rest, refused string) {
	const malformed = "an attribute is malformed"
	start := skipSpace(s, 0)
	if start == 0 {
		return "", "", "", malformed
	}
	name, rest, found := strings.Cut(s[start:], "=")
	name, rest = strings.TrimRight(name, space), strings.TrimLeft(rest, space)
	if !found || rest == "" || rest[0] != '"' && rest[0] != '\'' || !isName(name) {
		return "", "", "", malformed
	}
	value, rest, found = strings.Cut(rest[1:], rest[:1])
	if !found || strings.ContainsAny(value, "<&") || !characters(value) {
		return "", "", "", malformed
	}
	return name, value, rest, ""
}

const space = " \t\r\n"

func skipSpace(s string, pos int) int {
	for pos < len(s) && (s[pos] == ' ' || s[pos] == '\n' || s[pos] == '\r' || s[pos] == '\t') {
		pos++
	}
	return pos
}

// trim takes off the white space that the schema's numbers and times may have around them.
func trim(s string) string { return strings.Trim(s, space) }

// nameCharacter is what names of the SPI and of signatures are made of, a part of what XML allows.
func nameCharacter(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '-' || c == '_' || c == ':'
}

func isName(s string) bool {
	for i := range len(s) {
		if !nameCharacter(s[i]) {
			return false
		}
	}
	return s != "" && (s[0] >= 'a' && s[0] <= 'z' || s[0] >= 'A' && s[0] <= 'Z' || s[0] == '_')
}

// quote repeats a name that somebody else chose, shortened.
func quote(name string) string { return strconv.Quote(name[:min(len(name), 64)]) }

// unescape resolves references in a text and turns line ends into line feeds, as every reader of XML does.
func unescape(raw string) (value, refused string) {
	switch {
	case plain(raw):
		return raw, ""
	case strings.Contains(raw, "]]>"):
		return "", "found ]]> in a text"
	case !characters(raw):
		return "", "found a character that XML does not have"
	case strings.IndexByte(raw, '&') < 0 && strings.IndexByte(raw, '\r') < 0:
		return raw, ""
	}
	raw = strings.ReplaceAll(strings.ReplaceAll(raw, "\r\n", "\n"), "\r", "\n")
	var out strings.Builder
	for {
		before, after, found := strings.Cut(raw, "&")
		out.WriteString(before)
		if !found {
			return out.String(), ""
		}
		reference, rest, ended := strings.Cut(after[:min(len(after), maxReference)], ";")
		character, known := resolve(reference)
		if !ended || !known {
			return "", "found an entity other than XML's five, or a wrong reference"
		}
		out.WriteString(character)
		raw = rest + after[min(len(after), maxReference):]
	}
}

// maxReference bounds what stands between & and ;.
const maxReference = 12

func resolve(reference string) (character string, known bool) {
	switch reference {
	case "amp":
		return "&", true
	case "lt":
		return "<", true
	case "gt":
		return ">", true
	case "quot":
		return `"`, true
	case "apos":
		return "'", true
	}
	number, base := strings.TrimPrefix(reference, "#"), 10
	if len(number) == len(reference) {
		return "", false
	}
	if hex, ok := strings.CutPrefix(number, "x"); ok {
		number, base = hex, 16
	}
	n, err := strconv.ParseUint(number, base, 21)
	if character = string(rune(n)); err != nil || !utf8.ValidRune(rune(n)) || !characters(character) {
		return "", false
	}
	return character, true
}
