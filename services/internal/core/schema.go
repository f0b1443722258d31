package core

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Struct tags of a config struct:
//
//	koanf:"name"      the key's last part; ",squash" takes an embedded struct's fields as one's own
//	env:"A,B"         further names in the environment; % is the enclosing section's name in capitals
//	unit:"s" | "ms"   what a bare number means under such a name, for a duration
//	secret:"true"     masked in print-config and readable from a file; "dsn" masks only the password inside
//	help:"..."        for --help, in Portuguese: the operator reads it

// leaf is one key of a configuration and the field behind it.
type leaf struct {
	key    string
	env    []string // the owner's names, without CABINE_
	unit   time.Duration
	secret string
	help   string
	value  reflect.Value
}

const envPrefix = "CABINE_"

// own is the name in the environment that every key has.
func (l leaf) own() string { return envPrefix + envName(l.key) }

func envName(key string) string { return strings.ToUpper(strings.ReplaceAll(key, ".", "_")) }

// schema is what may stand in a configuration.
type schema struct {
	leaves   []leaf
	sections []string
}

// leafOf returns the leaf of key; a key under a map belongs to the map's leaf.
func (s schema) leafOf(key string) (leaf, bool) {
	for _, l := range s.leaves {
		if l.key == key || l.value.Kind() == reflect.Map && strings.HasPrefix(key, l.key+".") {
			return l, true
		}
	}
	return leaf{}, false
}

// secretFile returns the secret whose file key names.
func (s schema) secretFile(key string) (leaf, bool) {
	l, ok := s.leafOf(strings.TrimSuffix(key, "_file"))
	return l, ok && l.secret != "" && strings.HasSuffix(key, "_file")
}

// nearest returns the known key that differs least from key, which may have been meant.
func (s schema) nearest(key string) string {
	best, least := "", len(key)+1
	for _, l := range s.leaves {
		if d := distance(key, l.key); d < least {
			best, least = l.key, d
		}
	}
	return best
}

// schemaOf reads the fields of the struct that config points to. It panics on what only a
// programmer can have done: a field without a name, two keys with one name in the environment.
func schemaOf(config any) schema {
	var s schema
	s.collect(reflect.ValueOf(config).Elem(), "")
	taken := make(map[string]string)
	for _, l := range s.leaves {
		for _, name := range append([]string{l.own()}, l.env...) {
			if other, ok := taken[name]; ok {
				panic(fmt.Sprintf("config: %s and %s share the variable %s", other, l.key, name))
			}
			taken[name] = l.key
		}
	}
	return s
}

func (s *schema) collect(v reflect.Value, prefix string) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if !f.IsExported() {
			continue
		}
		name, option, _ := strings.Cut(f.Tag.Get("koanf"), ",")
		switch {
		case option == "squash":
			s.collect(v.Field(i), prefix)
			continue
		case name == "-":
			continue
		case name == "":
			panic(fmt.Sprintf("config: field %s.%s has no koanf name", v.Type(), f.Name))
		}
		key := prefix + name
		if v.Field(i).Kind() == reflect.Struct && !isText(v.Field(i)) {
			s.sections = append(s.sections, key)
			s.collect(v.Field(i), key+".")
			continue
		}
		s.leaves = append(s.leaves, newLeaf(key, f.Tag, v.Field(i)))
	}
}

func newLeaf(key string, tag reflect.StructTag, v reflect.Value) leaf {
	l := leaf{key: key, secret: tag.Get("secret"), help: tag.Get("help"), value: v}
	parts := strings.Split(key, ".")
	section := strings.ToUpper(parts[max(0, len(parts)-2)])
	for name := range strings.SplitSeq(tag.Get("env"), ",") {
		if name != "" {
			l.env = append(l.env, strings.ReplaceAll(name, "%", section))
		}
	}
	switch tag.Get("unit") {
	case "s":
		l.unit = time.Second
	case "ms":
		l.unit = time.Millisecond
	}
	return l
}

func isText(v reflect.Value) bool {
	_, ok := v.Addr().Interface().(encoding.TextUnmarshaler)
	return ok
}

// distance is the least number of inserted, removed and replaced bytes that makes b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		previous := slices.Clone(row)
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(previous[j]+cost, previous[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
