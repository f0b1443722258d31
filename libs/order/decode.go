package order

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"unicode/utf8"
)

// decode reads body, one JSON object, into the struct behind into. Its fields are strings, and pointers to structs of
// such fields. What encoding/json forgives is refused here: members that are unknown, repeated or named in another
// case, null, empty text, and what is not UTF-8. It fails with a Refusal, which names every member at fault.
func decode(body []byte, into any, found *Violations) error {
	if !utf8.Valid(body) || !json.Valid(body) {
		return &Refusal{Class: Malformed, Kind: "json-invalido", Title: "JSON inválido", Detail: "O corpo deve ser um objeto JSON em UTF-8."}
	}
	r := reader{tokens: json.NewDecoder(bytes.NewReader(body)), found: found}
	if err := r.value(reflect.ValueOf(into).Elem(), ""); err != nil {
		return fmt.Errorf("read JSON that is valid: %w", err)
	}
	return found.Refusal()
}

type reader struct {
	tokens *json.Decoder
	found  *Violations
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
		r.found.Add(path, "não pode ser vazio")
	case v.Kind() == reflect.Struct && nested && open == '{':
		return r.object(v, path)
	case v.Kind() == reflect.String:
		r.found.Add(path, "deve ser um texto entre aspas")
	default:
		r.found.Add(named(path), "deve ser um objeto")
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
			r.found.Add(member, "campo desconhecido")
			err = r.skipValue()
		case seen[name]:
			r.found.Add(member, "campo repetido")
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
		f, declared := v.Field(i), v.Type().Field(i)
		if declared.Anonymous { // its members are those of the struct around it
			if inner, ok := fieldOf(f, name); ok {
				return inner, true
			}
			continue
		}
		if declared.Tag.Get("json") != name {
			continue
		}
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
