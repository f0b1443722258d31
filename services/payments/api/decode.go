package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"unicode/utf8"

	"github.com/cabine-pix/cabine/libs/edge"
)

// maxViolations bounds what a problem lists.
const maxViolations = 20

// violations collects what is wrong with the fields of one request.
type violations []edge.Violation

func (v *violations) add(field, reason string) {
	if len(*v) < maxViolations {
		*v = append(*v, edge.Violation{Field: field, Reason: reason})
	}
}

// problem returns nil, or the problem that lists them.
func (v *violations) problem() error {
	if len(*v) == 0 {
		return nil
	}
	p := edge.NewProblem(http.StatusBadRequest, "campos-invalidos", "Campos inválidos", "Um ou mais campos não têm a forma exigida.")
	p.Violations = *v
	return p
}

// decode reads body, one JSON object, into the struct behind into. Its fields are strings, and pointers to structs of
// such fields. What encoding/json forgives is refused here: members that are unknown, repeated or named in another
// case, null, empty text, and what is not UTF-8. It fails with a Problem, which names every member at fault.
func decode(body []byte, into any, found *violations) error {
	if !utf8.Valid(body) || !json.Valid(body) {
		return edge.NewProblem(http.StatusBadRequest, "json-invalido", "JSON inválido", "O corpo deve ser um objeto JSON em UTF-8.")
	}
	r := reader{tokens: json.NewDecoder(bytes.NewReader(body)), found: found}
	if err := r.value(reflect.ValueOf(into).Elem(), ""); err != nil {
		return fmt.Errorf("read JSON that is valid: %w", err)
	}
	return found.problem()
}

type reader struct {
	tokens *json.Decoder
	found  *violations
}

// value reads the next value into v, which is a string or a struct, or finds it at fault.
func (r *reader) value(v reflect.Value, path string) error {
	token, err := r.tokens.Token()
	if err != nil {
		return err
	}
	open, nested := token.(json.Delim)
	text, isText := token.(string)
	switch {
	case v.Kind() == reflect.String && text != "":
		v.SetString(text)
		return nil
	case v.Kind() == reflect.String && isText:
		r.found.add(path, "não pode ser vazio")
	case v.Kind() == reflect.Struct && nested && open == '{':
		return r.object(v, path)
	case v.Kind() == reflect.String:
		r.found.add(path, "deve ser um texto entre aspas")
	default:
		r.found.add(named(path), "deve ser um objeto")
	}
	if nested {
		return r.skip()
	}
	return nil
}

func named(path string) string {
	if path == "" {
		return "(corpo)"
	}
	return path
}

// object reads the members of an object whose brace was read.
func (r *reader) object(v reflect.Value, path string) error {
	seen := make(map[string]bool)
	for r.tokens.More() {
		token, err := r.tokens.Token()
		if err != nil {
			return err
		}
		name, _ := token.(string)
		member := name
		if path != "" {
			member = path + "." + name
		}
		field, known := fieldOf(v, name)
		switch {
		case !known:
			r.found.add(shortened(member), "campo desconhecido")
			err = r.skipValue()
		case seen[name]:
			r.found.add(member, "campo repetido")
			err = r.skipValue()
		default:
			err = r.value(field, member)
		}
		if err != nil {
			return err
		}
		seen[name] = true
	}
	_, err := r.tokens.Token()
	return err
}

// fieldOf returns the field of v with a name in JSON; a pointer is given something to point to.
func fieldOf(v reflect.Value, name string) (reflect.Value, bool) {
	for i := range v.NumField() {
		if v.Type().Field(i).Tag.Get("json") != name {
			continue
		}
		f := v.Field(i)
		if f.Kind() == reflect.Pointer {
			if f.IsNil() {
				f.Set(reflect.New(f.Type().Elem()))
			}
			f = f.Elem()
		}
		return f, true
	}
	return reflect.Value{}, false
}

// skipValue passes over one value.
func (r *reader) skipValue() error {
	token, err := r.tokens.Token()
	if _, nested := token.(json.Delim); err != nil || !nested {
		return err
	}
	return r.skip()
}

// skip passes over the rest of what was opened.
func (r *reader) skip() error {
	for depth := 1; depth > 0; {
		token, err := r.tokens.Token()
		if err != nil {
			return err
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
	}
	return nil
}

// shortened keeps a name that the client invented from filling the answer.
func shortened(name string) string {
	const most = 60
	if runes := []rune(name); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return name
}
