package signature

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf8"
)

// isChar reports whether XML 1.0 allows a character.
func isChar(r rune) bool {
	return r == '\t' || r == '\n' || r == '\r' || r >= ' ' && r <= 0xD7FF || r >= 0xE000 && r <= 0xFFFD ||
		r >= 0x10000 && r <= utf8.MaxRune
}

// dereference returns the character that a reference stands for: one of the five that every parser knows, or a number.
func dereference(ref []byte) (rune, bool) {
	switch string(ref) {
	case "&amp;":
		return '&', true
	case "&lt;":
		return '<', true
	case "&gt;":
		return '>', true
	case "&quot;":
		return '"', true
	case "&apos;":
		return '\'', true
	}
	digits, ok := strings.CutPrefix(strings.TrimSuffix(string(ref), ";"), "&#")
	base := 10
	if hex, isHex := strings.CutPrefix(digits, "x"); isHex {
		digits, base = hex, 16
	}
	n, err := strconv.ParseUint(digits, base, 32)
	return rune(n), ok && err == nil && n <= utf8.MaxRune && isChar(rune(n))
}

// unescape returns text with its references replaced. The scanner has read it: they are all good.
func unescape(raw []byte) []byte {
	if bytes.IndexByte(raw, '&') < 0 {
		return raw
	}
	out := make([]byte, 0, len(raw))
	for {
		from := bytes.IndexByte(raw, '&')
		if from < 0 {
			return append(out, raw...)
		}
		to := from + bytes.IndexByte(raw[from:], ';') + 1
		r, _ := dereference(raw[from:to])
		out = utf8.AppendRune(append(out, raw[:from]...), r)
		raw = raw[to:]
	}
}

// escape writes text as canonicalisation does.
func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "\r", "&#xD;").Replace(s)
}

// isBlank reports whether text is white space, as it is written: a reference is none.
func isBlank(raw []byte) bool {
	for _, c := range raw {
		if !isSpace(c) {
			return false
		}
	}
	return true
}
