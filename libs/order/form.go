package order

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/cabine-pix/cabine/libs/pix"
)

// The texts of the catalogue, in characters.
const (
	max140 = 140
	max77  = 77
)

// maxAmountText is 16 digits, a point and two decimals: the 18 digits of the catalogue.
const maxAmountText = 16 + 1 + 2

// amount reads valor, and says exactly what is wrong with one that is not.
func (v *Violations) amount(field, s string) pix.Amount {
	reais, centavos, point := strings.Cut(s, ".")
	switch {
	case s == "":
		v.Add(field, "obrigatório")
	case strings.HasPrefix(s, "-"):
		v.Add(field, "não pode ser negativo")
	case strings.Contains(s, ","):
		v.Add(field, "use ponto, e não vírgula, antes dos centavos")
	case !point || len(centavos) != 2 || reais == "" || !only(reais+centavos, digit):
		v.Add(field, "use algarismos, um ponto e exatamente duas casas decimais, como em 12.34")
	case len(s) > maxAmountText:
		v.Add(field, "pode ter até 18 algarismos, contados os centavos")
	default:
		a, err := pix.ParseAmount(s)
		if err != nil || a == 0 {
			v.Add(field, "deve ser maior que zero")
			return 0
		}
		return a
	}
	return 0
}

// text judges a name, key or free text of at most most characters; the package comment says by which rules.
func (v *Violations) text(field, s string, most int) {
	switch {
	case utf8.RuneCountInString(s) > most:
		v.Add(field, "pode ter até "+strconv.Itoa(most)+" caracteres")
	case strings.TrimFunc(s, unicode.IsSpace) == "":
		v.Add(field, "não pode ser vazio nem só espaços")
	case strings.ContainsFunc(s, unprintable):
		v.Add(field, "contém caractere de controle ou que o XML não transporta")
	}
}

// unprintable reports whether a character does not arrive as it was given, or deceives.
func unprintable(r rune) bool {
	switch {
	case unicode.IsControl(r): // C0, DEL, C1
	case r == '\u2028' || r == '\u2029': // line and paragraph separator
	case r == utf8.RuneError || r == '\uFFFE' || r == '\uFFFF':
	case unicode.Is(unicode.Bidi_Control, r): // directions, which make a text look like another
	default:
		return false
	}
	return true
}

// of judges a text of 1 to most characters of a kind.
func (v *Violations) of(field, s string, most int, is func(byte) bool, kind string) {
	switch {
	case s == "":
		v.Add(field, "obrigatório")
	case len(s) > most || !only(s, is):
		v.Add(field, "deve ter de 1 a "+strconv.Itoa(most)+" "+kind)
	}
}

const (
	digits            = "algarismos"
	digitsAndCapitals = "algarismos ou letras maiúsculas, sem acento ou pontuação"
	alphanumerics     = "letras ou algarismos, sem acento ou pontuação"
)

// Choice judges a text that is one of few.
func Choice[T ~string](v *Violations, field, s string, all ...T) T {
	names := make([]string, len(all))
	for i, a := range all {
		if string(a) == s {
			return a
		}
		names[i] = string(a)
	}
	v.Add(field, "deve ser um de: "+strings.Join(names, ", "))
	return ""
}

// person judges the pair of cpf and cnpj, of which one is given, and returns it.
func (v *Violations) person(field, cpf, cnpj string) string {
	switch {
	case cpf != "" && cnpj != "":
		v.Add(field+".cnpj", "informe cpf ou cnpj, e não os dois")
	case cpf != "":
		if !validCPF(cpf) {
			v.Add(field+".cpf", "deve ter 11 algarismos, sem pontuação, com dígitos verificadores corretos")
		}
		return cpf
	case cnpj != "":
		v.cnpj(field+".cnpj", cnpj)
		return cnpj
	default:
		v.Add(field+".cpf", "informe cpf ou cnpj")
	}
	return ""
}

func (v *Violations) cnpj(field, s string) {
	if !validCNPJ(s) {
		v.Add(field, "deve ter 12 algarismos ou letras maiúsculas e 2 algarismos, sem pontuação, com dígitos verificadores corretos")
	}
}

// ispb judges the identifier of a participant.
func (v *Violations) ispb(field, s string) pix.ISPB {
	ispb, err := pix.ParseISPB(s)
	if err != nil {
		v.Add(field, "deve ter 8 algarismos ou letras maiúsculas")
	}
	return ispb
}

// EndToEndID judges the form of an identifier; whose it is and how old is the Gate's.
func (v *Violations) EndToEndID(field, s string) pix.EndToEndID {
	id, err := pix.ParseEndToEndID(s)
	if err != nil {
		v.Add(field, "deve ser E, ISPB, minuto UTC (aaaaMMddHHmm) e 11 letras ou algarismos")
	}
	return id
}

// maxID is the longest id of an event, as that of a key over HTTP.
const maxID = 64

// validID judges the id of an event.
func validID(s string) bool {
	return s != "" && len(s) <= maxID && only(s, func(c byte) bool { return alphanumeric(c) || c == '-' })
}

// about reports whether a refusal names a field.
func about(err error, field string) bool {
	r, ok := errors.AsType[*Refusal](err)
	return ok && slices.ContainsFunc(r.Violations, func(v Violation) bool { return v.Field == field })
}
