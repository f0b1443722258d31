package telemetry

import (
	"bytes"
	"encoding"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"reflect"
	"unicode/utf8"
)

// object handles values that slog has no kind for. Errors and named strings, the common
// ones, cost no more than a string; anything else is looked at as the JSON it would become.
func object(key string, x any, k kind) (slog.Value, bool) {
	switch o := x.(type) {
	case nil:
		return slog.AnyValue(x), false
	case error:
		return errorText(o, k)
	case []byte:
		if utf8.Valid(o) { // readable instead of base64, which would also hide what is in it
			v, _ := text(string(o), k)
			return v, true
		}
		return slog.AnyValue(x), false
	case json.Marshaler, encoding.TextMarshaler:
		return tree(key, x, k)
	}
	switch rv := reflect.ValueOf(x); rv.Kind() {
	case reflect.Bool:
		return slog.AnyValue(x), false
	case reflect.String:
		return text(rv.String(), k)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v := slog.AnyValue(x)
		return v, masked(&v, !countable(key) && number(magnitude(rv.Int())))
	default:
		return tree(key, x, k)
	}
}

func errorText(err error, k kind) (v slog.Value, touched bool) {
	// A nil pointer inside an error interface: slog survives that, so must this.
	defer func() {
		if recover() != nil {
			v, touched = slog.StringValue(fmt.Sprintf("%T: its Error method panics", err)), true
		}
	}()
	clean, touched := text(err.Error(), k)
	if !touched {
		return slog.AnyValue(err), false
	}
	return clean, true
}

// tree walks x as the JSON that would be written.
func tree(key string, x any, k kind) (v slog.Value, touched bool) {
	defer func() {
		if recover() != nil {
			v, touched = slog.StringValue(fmt.Sprintf("%T: cannot be written", x)), true
		}
	}()
	raw, err := json.Marshal(x)
	if err != nil {
		return slog.StringValue("!ERROR:" + Redact(err.Error())), true
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var node any
	if err := dec.Decode(&node); err != nil {
		return slog.StringValue(Redact(string(raw))), true
	}
	clean, touched := walk(key, node, k)
	if !touched {
		return slog.AnyValue(json.RawMessage(raw)), false
	}
	return slog.AnyValue(clean), true
}

// walk returns what may be shown of a decoded JSON value under the name key.
func walk(key string, node any, k kind) (any, bool) {
	switch n := node.(type) {
	case map[string]any:
		touched := false
		for name, member := range n {
			clean, hit := walk(name, member, inherit(k, classify(name)))
			safe := Redact(name)
			if safe != name {
				delete(n, name)
				hit = true
			}
			if hit {
				n[safe] = clean
				touched = true
			}
		}
		return n, touched
	case []any:
		touched := false
		for i, member := range n {
			clean, hit := walk(key, member, k)
			if hit {
				n[i] = clean
				touched = true
			}
		}
		return n, touched
	case nil, bool:
		return n, false
	}
	if k == personal || k == credential || k == header {
		return mask, node != ""
	}
	switch n := node.(type) {
	case string:
		return stringNode(n, k)
	case json.Number:
		f, err := n.Float64()
		return maskIf(n, err == nil && !countable(key) && math.Abs(f) < 1e15 && whole(f))
	}
	return node, false
}

// stringNode also looks into base64, as which encoding/json writes bytes.
func stringNode(s string, k kind) (any, bool) {
	v, touched := text(s, k)
	if touched {
		return v.String(), true
	}
	if raw, err := base64.StdEncoding.DecodeString(s); err == nil && len(raw) > 0 && utf8.Valid(raw) {
		return maskIf(s, Redact(string(raw)) != string(raw))
	}
	return s, false
}

func maskIf(x any, hide bool) (any, bool) {
	if hide {
		return mask, true
	}
	return x, false
}
