package core

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// configVariable names the YAML file; it is no key.
const configVariable = envPrefix + "CONFIG"

// fromEnviron returns the values that the environment sets, by key. An empty variable counts
// as unset, as container platforms write it. Variables that begin with CABINE_ and match
// nothing are warned about, not refused: services may share one environment.
func fromEnviron(s schema, environ []string) (map[string]any, []string, error) {
	env := make(map[string]string, len(environ))
	for _, pair := range environ {
		if name, v, ok := strings.Cut(pair, "="); ok && v != "" {
			env[name] = v
		}
	}
	values := make(map[string]any)
	used := map[string]bool{configVariable: true}
	var errs []error
	for _, l := range s.leaves {
		v, ok, err := lookup(l, env, used)
		if err != nil {
			errs = append(errs, err)
		} else if ok {
			values[l.key] = v
		}
	}
	return values, warnings(s, env, used), errors.Join(errs...)
}

// lookup finds a leaf's value under all its names, which must not contradict one another.
func lookup(l leaf, env map[string]string, used map[string]bool) (value any, found bool, err error) {
	first := ""
	for _, name := range append(slices.Clone(l.env), l.own()) {
		candidates := []string{name}
		if l.secret != "" {
			candidates = append(candidates, name+"_FILE")
		}
		for _, candidate := range candidates {
			used[candidate] = true
			raw, ok := env[candidate]
			if !ok {
				continue
			}
			if candidate != name {
				if raw, err = readSecret(raw); err != nil {
					return nil, false, fmt.Errorf("%s: %w", candidate, err)
				}
			}
			v, err := parse(l, raw)
			if err != nil {
				return nil, false, fmt.Errorf("%s: %w", candidate, err)
			}
			if found && !reflect.DeepEqual(v, value) {
				return nil, false, fmt.Errorf("%s and %s contradict each other", first, candidate)
			}
			value, found, first = v, true, candidate
		}
	}
	return value, found, nil
}

func warnings(s schema, env map[string]string, used map[string]bool) []string {
	var out []string
	traces := false
	for name := range env {
		if strings.HasPrefix(name, envPrefix) && !used[name] {
			key := strings.ToLower(strings.TrimPrefix(name, envPrefix))
			near, least := "", len(key)+1
			for _, l := range s.leaves {
				if d := distance(key, strings.ReplaceAll(l.key, ".", "_")); d < least {
					near, least = l.own(), d
				}
			}
			out = append(out, fmt.Sprintf("%s is set and means nothing here; the nearest known name is %s", name, near))
		}
		traces = traces || strings.HasPrefix(name, "OTEL_")
	}
	slices.Sort(out)
	if traces {
		out = append(out, "OTEL_ variables are set; this build exports no traces")
	}
	return out
}

// parse reads a variable as its field's type. A secret never appears in the error.
func parse(l leaf, raw string) (any, error) {
	shown := strconv.Quote(raw)
	if l.secret != "" {
		shown = "the value"
	}
	if l.value.Type() == reflect.TypeFor[time.Duration]() {
		if d, err := time.ParseDuration(raw); err == nil {
			return d, nil
		}
		if n, err := strconv.ParseInt(raw, 10, 32); err == nil && l.unit != 0 {
			return time.Duration(n) * l.unit, nil
		}
		return nil, fmt.Errorf("%s is no duration, want a unit as in \"20s\" or \"500ms\"", shown)
	}
	if isText(l.value) {
		return raw, nil
	}
	switch l.value.Kind() {
	case reflect.String:
		return raw, nil
	case reflect.Bool:
		b, err := strconv.ParseBool(strings.ToLower(raw))
		if err != nil {
			return nil, fmt.Errorf("%s is neither true nor false", shown)
		}
		return b, nil
	case reflect.Int, reflect.Int32, reflect.Int64:
		n, err := strconv.ParseInt(raw, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s is no whole number", shown)
		}
		return n, nil
	case reflect.Float64:
		f, err := strconv.ParseFloat(raw, 64)
		if err != nil {
			return nil, fmt.Errorf("%s is no number", shown)
		}
		return f, nil
	case reflect.Slice:
		return list(raw), nil
	case reflect.Map:
		m := make(map[string]any)
		for _, pair := range list(raw) {
			name, v, ok := strings.Cut(pair, "=")
			if !ok {
				return nil, fmt.Errorf("%s is no list of name=value", shown)
			}
			m[name] = v
		}
		return m, nil
	default:
		return nil, fmt.Errorf("a %s cannot be set from the environment", l.value.Type())
	}
}

// list splits at commas; what is empty does not count.
func list(raw string) []string {
	var out []string
	for part := range strings.SplitSeq(raw, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}
