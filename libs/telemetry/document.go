package telemetry

// document matches a CPF or CNPJ that begins with the run of letters and digits
// s[start:end]. A run of eleven digits is masked whatever its check digits (it may be a
// mistyped CPF or a phone number without its country); forms that other things have
// as well are masked only if the check digits are right.
func document(s string, start, end int) (finding, bool) {
	switch end - start {
	case 11:
		return finding{start, end}, digits(s[start:end])
	case 14:
		run := s[start:end]
		if !digit(run[12]) || !digit(run[13]) {
			return finding{}, false
		}
		return finding{start, end}, validCNPJ(run) || digits(run) && !compactTime(run)
	case 2, 3, 8, 9, 12:
		return formatted(s, start)
	}
	return finding{}, false
}

// shape is a way in which people write a document: lengths of the groups and the separators between them.
type shape struct {
	groups     []uint8
	separators string // one character each
	cpf, check bool   // check: only with right check digits
}

// shapes returns the written forms that begin with a group of n characters.
func shapes(n int) []shape {
	switch n {
	case 3:
		return []shape{
			{groups: []uint8{3, 3, 3, 2}, separators: "..-", cpf: true},
			{groups: []uint8{3, 3, 3, 2}, separators: "../", cpf: true, check: true},
			{groups: []uint8{3, 3, 3, 2}, separators: "   ", cpf: true, check: true},
			{groups: []uint8{3, 3, 3, 2}, separators: "  -", cpf: true, check: true},
			{groups: []uint8{3, 3, 5}, separators: "..", cpf: true, check: true},
		}
	case 9:
		return []shape{
			{groups: []uint8{9, 2}, separators: "-", cpf: true, check: true},
			{groups: []uint8{9, 2}, separators: "/", cpf: true, check: true},
			{groups: []uint8{9, 2}, separators: " ", cpf: true, check: true},
		}
	case 2:
		return []shape{
			{groups: []uint8{2, 3, 3, 4, 2}, separators: "../-"},
			{groups: []uint8{2, 3, 3, 4, 2}, separators: "...-", check: true},
			{groups: []uint8{2, 3, 3, 4, 2}, separators: "    ", check: true},
			{groups: []uint8{2, 3, 3, 6}, separators: "../", check: true},
		}
	case 8:
		return []shape{
			{groups: []uint8{8, 4, 2}, separators: "/-"},
			{groups: []uint8{8, 4, 2}, separators: "--", check: true},
			{groups: []uint8{8, 4, 2}, separators: "  ", check: true},
			{groups: []uint8{8, 6}, separators: "/", check: true},
		}
	case 12:
		return []shape{{groups: []uint8{12, 2}, separators: "-", check: true}}
	}
	return nil
}

// formatted matches the shapes that begin at start.
func formatted(s string, start int) (finding, bool) {
	first := start
	for first < len(s) && alnum(s[first]) {
		first++
	}
	n := first - start
	if first >= len(s) || first+2 >= len(s) {
		return finding{}, false
	}
	if c := s[first]; c != '.' && c != '-' && c != '/' && c != ' ' {
		return finding{}, false
	}
	for _, sh := range shapes(n) {
		if end, ok := sh.match(s, start); ok {
			return finding{start, end}, true
		}
	}
	return finding{}, false
}

func (sh shape) match(s string, start int) (end int, ok bool) {
	var buf [14]byte
	n, i := 0, start
	for g, want := range sh.groups {
		if g > 0 {
			if i >= len(s) || s[i] != sh.separators[g-1] {
				return 0, false
			}
			i++
		}
		for range want {
			if i >= len(s) || !alnum(s[i]) || sh.cpf && !digit(s[i]) {
				return 0, false
			}
			buf[n] = s[i]
			n++
			i++
		}
	}
	if i < len(s) && alnum(s[i]) || !digit(s[i-1]) || !digit(s[i-2]) {
		return 0, false
	}
	if !sh.check {
		return i, true
	}
	if sh.cpf {
		return i, validCPF(string(buf[:n]))
	}
	return i, validCNPJ(string(buf[:n]))
}

// number reports whether v, written with its leading zeros, is a CPF or CNPJ with right
// check digits. Below nine digits nothing is: ports, counts and ISPBs live there.
func number(v uint64) bool {
	const nineDigits, cpfEnd, cnpjEnd = 100_000_000, 100_000_000_000, 100_000_000_000_000
	if v < nineDigits || v >= cnpjEnd {
		return false
	}
	var buf [14]byte
	for i := len(buf) - 1; i >= 0; i-- {
		buf[i] = byte('0' + v%10)
		v /= 10
	}
	return v < cpfEnd && validCPF(string(buf[3:])) || validCNPJ(string(buf[:]))
}

// validCPF checks the two check digits of eleven digits.
func validCPF(s string) bool {
	a, b := 0, 0
	for i := range 9 {
		a += int(s[i]-'0') * (10 - i)
		b += int(s[i]-'0') * (11 - i)
	}
	d1 := checkDigit(a)
	return d1 == int(s[9]-'0') && checkDigit(b+2*d1) == int(s[10]-'0')
}

// validCNPJ checks the two check digits of fourteen characters, letters counting as
// their ASCII code less 48 (Instrução Normativa RFB 2.229/2024).
func validCNPJ(s string) bool {
	a, b := 0, 0
	for i := range 12 {
		c := s[i]
		if c >= 'a' {
			c -= 'a' - 'A'
		}
		v := int(c - '0')
		a += v * ((11-i)%8 + 2)
		b += v * ((12-i)%8 + 2)
	}
	d1 := checkDigit(a)
	return d1 == int(s[12]-'0') && checkDigit(b+2*d1) == int(s[13]-'0')
}

func checkDigit(sum int) int {
	if r := sum % 11; r >= 2 {
		return 11 - r
	}
	return 0
}

func digits(s string) bool {
	for i := range len(s) {
		if !digit(s[i]) {
			return false
		}
	}
	return true
}

// compactTime reports whether fourteen digits read as a time of this century, YYYYMMDDhhmmss.
func compactTime(s string) bool {
	two := func(i int) int { return int(s[i]-'0')*10 + int(s[i+1]-'0') }
	return two(0) == 20 && two(4) >= 1 && two(4) <= 12 && two(6) >= 1 && two(6) <= 31 &&
		two(8) < 24 && two(10) < 60 && two(12) <= 60
}
