package iso20022

import (
	"unicode/utf8"
)

// writeText writes a text as canonical XML has it: only what must be is escaped, a carriage return as a reference, since
// every reader of XML would turn it into a line feed.
func (x *walker) writeText(s string) {
	switch {
	case plain(s):
		x.out = append(x.out, s...)
		return
	case !utf8.ValidString(s):
		x.fail("is no UTF-8")
		return
	case !characters(s):
		x.fail("has a character that XML does not have")
		return
	}
	for i := range len(s) {
		switch c := s[i]; c {
		case '&':
			x.out = append(x.out, "&amp;"...)
		case '<':
			x.out = append(x.out, "&lt;"...)
		case '>':
			x.out = append(x.out, "&gt;"...)
		case '\r':
			x.out = append(x.out, "&#xD;"...)
		default:
			x.out = append(x.out, c)
		}
	}
}

// plain reports that a text is the same in XML and stands for itself: most do, and need no closer look.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '&' || c == '<' || c == '>' || c == ']' {
			return false
		}
	}
	return true
}

// characters reports that a text in UTF-8 has only characters of XML 1.0.
func characters(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ' && c != '\t' && c != '\n' && c != '\r':
			return false
		case c == 0xEF && len(s) > i+2 && s[i+1] == 0xBF && s[i+2] >= 0xBE: // U+FFFE and U+FFFF
			return false
		}
	}
	return true
}
