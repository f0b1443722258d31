package iso20022

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cabine-pix/cabine/libs/pix"
)

// form checks a value as the schema's types do and says what it wants; "" when the value has the form. It never repeats
// the value, which may be somebody's name, document or account.
type form func(value string) (want string)

func ispb(s string) string {
	if len(s) == 8 && upperAlphanumeric(s) {
		return ""
	}
	return "want an ISPB: 8 digits or capital letters"
}

func msgID(s string) string {
	if len(s) == 32 && s[0] == 'M' && upperAlphanumeric(s[1:9]) && alphanumeric(s[9:]) {
		return ""
	}
	return "want M, an ISPB and 23 letters or digits"
}

func msgIDOrZeros(s string) string {
	if s == strings.Repeat("0", 32) || msgID(s) == "" {
		return ""
	}
	return "want a MsgId or 32 zeros"
}

func endToEndID(s string) string {
	if dated(s, 'E') {
		return ""
	}
	return "want an EndToEndId: E, an ISPB, yyyyMMddHHmm and 11 letters or digits"
}

func returnID(s string) string {
	if dated(s, 'D') {
		return ""
	}
	return "want a RtrId: D, an ISPB, yyyyMMddHHmm and 11 letters or digits"
}

func paymentOrReturnID(s string) string {
	if dated(s, 'E') || dated(s, 'D') {
		return ""
	}
	return "want an EndToEndId or a RtrId"
}

func entryEndToEndID(s string) string {
	if dated(s, 'E') || dated(s, 'L') {
		return ""
	}
	return "want an EndToEndId, or the same with L"
}

// entryID is how an entry of the account is named in a question.
func entryID(s string) string {
	if paymentOrReturnID(s) == "" || controlNumber(s) == "" {
		return ""
	}
	return "want an EndToEndId, a RtrId or a control number of the STR"
}

func controlNumber(s string) string {
	if len(s) == 20 && all(s[:3], 'A', 'Z') && digits(s[3:7]) && monthDay(s[7:11]) && alphanumeric(s[11:]) {
		return ""
	}
	return "want a control number: 3 capital letters, yyyyMMdd and 9 letters or digits"
}

// dated is the schema's pattern, which is laxer than a date: it has a day 39. The official examples need that.
func dated(s string, kind byte) bool {
	return len(s) == 32 && s[0] == kind && upperAlphanumeric(s[1:9]) && digits(s[9:13]) && monthDay(s[13:17]) &&
		digits(s[17:21]) && s[17] <= '2' && s[19] <= '5' && alphanumeric(s[21:])
}

func monthDay(s string) bool { return digits(s) && s[0] <= '1' && s[2] <= '3' }

func txID(s string) string {
	if len(s) <= 35 && alphanumeric(s) {
		return ""
	}
	return "want 1 to 35 letters or digits"
}

func fiscalDocument(s string) string {
	if len(s) <= 50 && alphanumeric(s) {
		return ""
	}
	return "want 1 to 50 letters or digits"
}

func cnpj(s string) string {
	if len(s) == 14 && upperAlphanumeric(s[:12]) && digits(s[12:]) {
		return ""
	}
	return "want a CNPJ: 12 digits or capital letters and 2 digits"
}

func cpfOrCNPJ(s string) string {
	if len(s) == 11 && digits(s) || cnpj(s) == "" {
		return ""
	}
	return "want a CPF, 11 digits, or a CNPJ, 12 digits or capital letters and 2 digits"
}

func accountID(s string) string {
	if len(s) <= 20 && upperAlphanumeric(s) {
		return ""
	}
	return "want 1 to 20 digits or capital letters"
}

func branch(s string) string {
	if len(s) <= 4 && digits(s) {
		return ""
	}
	return "want 1 to 4 digits"
}

func date(s string) string {
	if _, err := time.Parse(dateFormat, s); err == nil && shaped(s, dateFormat) && s >= "0001" {
		return ""
	}
	return "want a date as 2026-01-31"
}

func timeOfDay(s string) string {
	if _, err := time.Parse(timeFormat, s); err == nil && shaped(s, timeFormat) {
		return ""
	}
	return "want a time as 15:04:05.000Z"
}

// shaped reports that a text has digits where a layout of times has them, and is the same elsewhere. Package time is more
// generous: it takes a comma for the point, and one digit for two.
func shaped(s, layout string) bool {
	for i := range min(len(s), len(layout)) {
		if digits(layout[i:i+1]) != digits(s[i:i+1]) || !digits(s[i:i+1]) && s[i] != layout[i] {
			return false
		}
	}
	return len(s) == len(layout)
}

func text4(s string) string    { return sized(s, 4, "want 1 to 4 characters") }
func text33(s string) string   { return sized(s, 33, "want 1 to 33 characters") }
func text35(s string) string   { return sized(s, 35, "want 1 to 35 characters") }
func text77(s string) string   { return sized(s, 77, "want 1 to 77 characters") }
func text105(s string) string  { return sized(s, 105, "want 1 to 105 characters") }
func text140(s string) string  { return sized(s, 140, "want 1 to 140 characters") }
func text350(s string) string  { return sized(s, 350, "want 1 to 350 characters") }
func text500(s string) string  { return sized(s, 500, "want 1 to 500 characters") }
func text1000(s string) string { return sized(s, 1000, "want 1 to 1000 characters") }

func sized(s string, most int, want string) string {
	if s != "" && (len(s) <= most || len(s) <= most*utf8.UTFMax && utf8.RuneCountInString(s) <= most) {
		return ""
	}
	return want
}

// cut shortens a text to a number of characters.
func cut(s string, most int) string {
	for i := range s {
		if most == 0 {
			return s[:i]
		}
		most--
	}
	return s
}

// amount reads a decimal of the schema: up to 18 digits, two of them centavos, zero or more. Unlike pix.ParseAmount it
// takes all that xs:decimal may look like: "12", "12.3", "+12.30", "12.300".
func amount(s string) (a pix.Amount, ok bool) {
	s = strings.TrimPrefix(s, "+")
	whole, fraction, _ := strings.Cut(s, ".")
	fraction = strings.TrimRight(fraction, "0")
	if whole == "" && fraction == "" || len(fraction) > 2 || len(s) > maxNumber {
		return 0, false
	}
	a, err := pix.ParseAmount("0" + whole + "." + (fraction + "00")[:2])
	return a, err == nil
}

// maxNumber bounds the text of a number, leading and trailing zeros included.
const maxNumber = 64

func digits(s string) bool { return all(s, '0', '9') }

// all reports that s is not empty and has characters from low to high alone.
func all(s string, low, high byte) bool {
	for i := range len(s) {
		if s[i] < low || s[i] > high {
			return false
		}
	}
	return s != ""
}

func upperAlphanumeric(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return s != ""
}

func alphanumeric(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return s != ""
}
