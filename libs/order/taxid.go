package order

import "strings"

// validCPF reports whether s is a CPF: eleven digits, the last two of which check the others.
func validCPF(s string) bool {
	return len(s) == 11 && only(s, digit) && !uniform(s) && checkDigits(s, 11)
}

// validCNPJ reports whether s is a CNPJ: twelve digits or capital letters and two digits, which check the others.
// A character counts as its ASCII code less that of '0' (Instrução Normativa RFB 2.229 of 2024), which for digits is
// the rule that always was.
func validCNPJ(s string) bool {
	return len(s) == 14 && only(s[:12], digitOrCapital) && only(s[12:], digit) && !uniform(s) && checkDigits(s, 9)
}

// checkDigits verifies the last two characters: each is 11 less the remainder by 11 of the weighted sum of what stands
// before it, or 0 for 10 and 11. Weights grow from 2, right to left, up to most and then from 2 again.
func checkDigits(s string, most int) bool {
	for n := len(s) - 2; n < len(s); n++ {
		sum, weight := 0, 2
		for i := n - 1; i >= 0; i-- {
			sum += int(s[i]-'0') * weight
			if weight++; weight > most {
				weight = 2
			}
		}
		want := 11 - sum%11
		if want > 9 {
			want = 0
		}
		if int(s[n]-'0') != want {
			return false
		}
	}
	return true
}

// uniform reports whether s is one character repeated: such numbers check, and nobody has them.
func uniform(s string) bool { return strings.Count(s, s[:1]) == len(s) }

func only(s string, is func(byte) bool) bool {
	for i := range len(s) {
		if !is(s[i]) {
			return false
		}
	}
	return true
}

func digit(c byte) bool          { return c >= '0' && c <= '9' }
func digitOrCapital(c byte) bool { return digit(c) || c >= 'A' && c <= 'Z' }
func alphanumeric(c byte) bool   { return digit(c) || c|0x20 >= 'a' && c|0x20 <= 'z' }
