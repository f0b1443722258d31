package telemetry

import "strings"

// mask stands where something was removed.
const mask = "[redacted]"

// Redact returns s with everything masked that is recognised by its form. A string
// without a finding is returned as it is, without an allocation.
func Redact(s string) string {
	f, ok := scan(s, 0)
	if !ok {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	last := 0
	for ok {
		b.WriteString(s[last:f.start])
		b.WriteString(mask)
		last = f.end
		f, ok = scan(s, last)
	}
	b.WriteString(s[last:])
	return b.String()
}

// finding is a part of a string that must not be shown, end exclusive.
type finding struct{ start, end int }

// scan finds the first thing to mask at or after from. One pass; what a character may
// mean is decided only at the few characters that can end or begin something.
func scan(s string, from int) (finding, bool) {
	for i := from; i < len(s); {
		c := s[i]
		if alnum(c) {
			end := i + 1
			for end < len(s) && alnum(s[end]) {
				end++
			}
			if f, ok := document(s, i, end); ok {
				return f, true
			}
			if f, ok := bearer(s, i, end); ok {
				return f, true
			}
			i = end
			continue
		}
		if c <= '@' {
			if f, ok := punctuated(s, from, i); ok {
				return f, true
			}
		}
		i++
	}
	return finding{}, false
}

// punctuated looks at the characters that announce an e-mail address, a phone number, a credential or a key.
func punctuated(s string, from, i int) (finding, bool) {
	switch s[i] {
	case '@':
		return email(s, from, i)
	case '+':
		return phone(s, i, i+1)
	case '%':
		if strings.HasPrefix(s[i:], "%2B") || strings.HasPrefix(s[i:], "%2b") {
			return phone(s, i, i+3)
		}
		if strings.HasPrefix(s[i:], "%40") {
			return email(s, from, i)
		}
	case '=', ':':
		if strings.HasPrefix(s[i:], "://") {
			return userinfo(s, from, i)
		}
		return assigned(s, from, i)
	case '-':
		return privateKey(s, i)
	}
	return finding{}, false
}

// email matches an address around the '@' (or %40) at i. A domain needs a dot and a last
// label of letters, so that module@v1.2.3 and user@host stay.
func email(s string, from, i int) (finding, bool) {
	start := i
	for start > from && (alnum(s[start-1]) || strings.IndexByte("._%+-", s[start-1]) >= 0) {
		start--
	}
	at := i + 1
	if s[i] == '%' {
		at = i + 3
	}
	end, dot := at, -1
	for end < len(s) && (alnum(s[end]) || s[end] == '.' || s[end] == '-') {
		if s[end] == '.' {
			dot = end
		}
		end++
	}
	if dot == end-1 && dot > 0 { // the full stop of a sentence
		end = dot
		dot = strings.LastIndexByte(s[at:end], '.')
		if dot >= 0 {
			dot += at
		}
	}
	if start == i || dot <= at || end-dot < 3 {
		return finding{}, false
	}
	for _, c := range []byte(s[dot+1 : end]) {
		if !letter(c) {
			return finding{}, false
		}
	}
	return finding{start, end}, true
}

// phone matches an international number whose plus sign is at start and whose digits
// begin at pos: ten digits or more, or Brazil's with the usual punctuation.
func phone(s string, start, pos int) (finding, bool) {
	digits, end := 0, pos
	brazil := strings.HasPrefix(s[pos:], "55")
	for i := pos; i < len(s) && digits < 16; i++ {
		switch c := s[i]; {
		case digit(c):
			digits++
			end = i + 1
			continue
		case brazil && digits >= 2 && strings.IndexByte(" ()-.", c) >= 0:
			continue
		}
		break
	}
	if digits < 10 || digits > 15 || end < len(s) && alnum(s[end]) {
		return finding{}, false
	}
	return finding{start, end}, true
}

// userinfo masks the password in scheme://user:password@host, i being at "://". Where a
// server takes a bare token before the '@' (NATS, Redis), that is masked too.
func userinfo(s string, from, i int) (finding, bool) {
	begin := i + 3
	end := begin
	for end < len(s) && strings.IndexByte(" \t\n\"'`<>,", s[end]) < 0 {
		end++
	}
	authority := s[begin:end]
	if j := strings.IndexAny(authority, "/?#"); j >= 0 && strings.IndexByte(authority[:j], '@') < 0 && hostPort(authority[:j]) {
		return finding{}, false
	}
	// A password may hold '/' and '@' although it should not; what follows '?' is another matter.
	if j := strings.IndexAny(authority, "?#"); j >= 0 && strings.IndexByte(authority[:j], '@') >= 0 {
		authority = authority[:j]
	}
	at := strings.LastIndexByte(authority, '@')
	if at < 0 {
		return finding{}, false
	}
	if colon := strings.IndexByte(authority[:at], ':'); colon >= 0 {
		if f := (finding{begin + colon + 1, begin + at}); f.start >= from && f.start < f.end && s[f.start:f.end] != mask {
			return f, true
		}
		return finding{}, false
	}
	start := i
	for start > 0 && letter(s[start-1]) {
		start--
	}
	switch strings.ToLower(s[start:i]) {
	case "nats", "tls", "redis", "rediss", "ws", "wss":
		if s[begin:begin+at] != mask {
			return finding{begin, begin + at}, at > 0
		}
	}
	return finding{}, false
}

// hostPort reports whether an authority without '@' is a plain host, with or without a port, and so holds no password.
func hostPort(a string) bool {
	colon := strings.LastIndexByte(a, ':')
	if colon < 0 {
		return true
	}
	for _, c := range []byte(a[colon+1:]) {
		if !digit(c) {
			return false
		}
	}
	return true
}

// assigned masks the value in name=value, name: value and "name":"value" when the name,
// which ends before i, is that of a credential.
func assigned(s string, from, i int) (finding, bool) {
	stop, quoted := i, false
	for stop > 0 && (s[stop-1] == '"' || s[stop-1] == '\'' || s[stop-1] == '\\') {
		stop--
		quoted = true
	}
	start := stop
	for start > 0 && (alnum(s[start-1]) || s[start-1] == '_' || s[start-1] == '-') {
		start--
	}
	kind := classify(s[start:stop])
	if kind != credential && kind != header {
		return finding{}, false
	}
	// "unexpected token: x" is prose; "password: x" is not.
	if s[i] == ':' && !quoted && kind == credential && !spokenCredential(s[start:stop]) {
		return finding{}, false
	}
	pos := i + 1
	for pos < len(s) && (s[pos] == ' ' || s[pos] == '\\' || s[pos] == '[' && !strings.HasPrefix(s[pos:], mask)) {
		pos++
	}
	stops := " \t\n&;,)}]\"'"
	if kind == header {
		stops = "\n\"'"
	}
	if pos < len(s) && (s[pos] == '"' || s[pos] == '\'') {
		stops = s[pos : pos+1]
		pos++
	}
	end := pos
	for end < len(s) && strings.IndexByte(stops, s[end]) < 0 {
		if s[end] == '\\' && end+1 < len(s) {
			if strings.IndexByte(stops, s[end+1]) >= 0 && quoted {
				break
			}
			end++
		}
		end++
	}
	end = min(end, len(s))
	if pos < from || pos >= end || strings.HasPrefix(s[pos:], mask) {
		return finding{}, false
	}
	return finding{pos, end}, true
}

// bearer masks a token after the word Bearer or Basic, and a JWT wherever it stands. The word is s[start:end].
func bearer(s string, start, end int) (finding, bool) {
	if end-start >= 10 && end < len(s) && s[end] == '.' && strings.HasPrefix(s[start:], "eyJ") {
		return finding{start, tokenEnd(s, end)}, true
	}
	if n := end - start; n != 5 && n != 6 || end >= len(s) || s[end] != ' ' {
		return finding{}, false
	}
	if w := s[start:end]; !strings.EqualFold(w, "bearer") && !strings.EqualFold(w, "basic") {
		return finding{}, false
	}
	f := finding{end + 1, tokenEnd(s, end+1)}
	token := s[f.start:f.end]
	if len(token) < 8 || len(token) < 20 && !strings.ContainsAny(token, "0123456789=") {
		return finding{}, false
	}
	return f, true
}

func tokenEnd(s string, i int) int {
	for i < len(s) && (alnum(s[i]) || strings.IndexByte("._~+/=-", s[i]) >= 0) {
		i++
	}
	return i
}

// privateKey masks a PEM block with a private key that begins at i, to its end or the end of the string.
func privateKey(s string, i int) (finding, bool) {
	const begin, end = "-----BEGIN ", "-----END "
	if !strings.HasPrefix(s[i:], begin) {
		return finding{}, false
	}
	label := s[i+len(begin):]
	label = label[:min(len(label), 40)]
	if !strings.Contains(label, "PRIVATE KEY-----") {
		return finding{}, false
	}
	if j := strings.Index(s[i:], end); j >= 0 {
		if k := strings.Index(s[i+j+len(end):], "-----"); k >= 0 {
			return finding{i, i + j + len(end) + k + 5}, true
		}
	}
	return finding{i, len(s)}, true
}

func digit(c byte) bool  { return c >= '0' && c <= '9' }
func letter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }
func alnum(c byte) bool  { return digit(c) || letter(c) }
