package core

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/go-viper/mapstructure/v2"
	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/v2"
)

const (
	maxConfigBytes = 1 << 20
	maxSecretBytes = 64 << 10
)

// Source is where a configuration is read from.
type Source struct {
	// File is the path of a YAML file; empty for none.
	File string
	// Environ holds NAME=value, as os.Environ returns it.
	Environ []string
}

// Load reads a configuration over its defaults. It decodes and does not judge: Validate
// does. The warnings say what was accepted and has no effect. Every error found is
// reported, joined.
func Load[T any](defaults T, src Source) (cfg T, warnings []string, err error) {
	cfg = defaults
	s := schemaOf(&cfg)
	k := koanf.New(".")
	var errs []error
	if src.File != "" {
		values, err := fromFile(s, src.File)
		errs = append(errs, err, k.Load(confmap.Provider(values, "."), nil))
	}
	values, warnings, err := fromEnviron(s, src.Environ)
	errs = append(errs, err, k.Load(confmap.Provider(values, "."), nil))
	if err := errors.Join(errs...); err != nil {
		return cfg, warnings, err
	}
	err = k.UnmarshalWithConf("", &cfg, koanf.UnmarshalConf{DecoderConfig: &mapstructure.DecoderConfig{
		Result:      &cfg,
		TagName:     "koanf",
		ErrorUnused: true,
		ZeroFields:  true,
		DecodeHook: mapstructure.ComposeDecodeHookFunc(
			durationHook,
			mapstructure.TextUnmarshallerHookFunc(),
		),
	}})
	if err != nil {
		return cfg, warnings, fmt.Errorf("config: %w", err)
	}
	return cfg, warnings, nil
}

// durationHook reads "20s". A bare number is refused: seconds and milliseconds are both plausible.
func durationHook(_, to reflect.Type, data any) (any, error) {
	if to != reflect.TypeFor[time.Duration]() {
		return data, nil
	}
	switch v := data.(type) {
	case time.Duration:
		return v, nil
	case string:
		return time.ParseDuration(v)
	default:
		return nil, fmt.Errorf("%v is no duration, want a unit as in \"20s\" or \"500ms\"", data)
	}
}

// fromFile returns the file's values by key, secrets' files replaced by what they hold.
func fromFile(s schema, path string) (map[string]any, error) {
	raw, err := readBounded(path, maxConfigBytes)
	if err != nil {
		return nil, fmt.Errorf("config file: %w", err)
	}
	tree, err := yaml.Parser().Unmarshal(raw)
	if err != nil {
		return nil, fmt.Errorf("config file %s: %w", path, err)
	}
	k := koanf.New(".")
	if err := k.Load(confmap.Provider(tree, ""), nil); err != nil {
		return nil, fmt.Errorf("config file %s: %w", path, err)
	}
	all := k.All()
	values := make(map[string]any, len(all))
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(all)) {
		v := all[key]
		if l, ok := s.leafOf(key); ok {
			if v == nil {
				errs = append(errs, fmt.Errorf("config file %s: key %q has no value", path, l.key))
			}
			values[key] = v
			continue
		}
		if l, ok := s.secretFile(key); ok {
			name, _ := v.(string)
			secret, err := readSecret(name)
			if err != nil {
				errs = append(errs, fmt.Errorf("config file %s: %s: %w", path, key, err))
			}
			if _, both := all[l.key]; both {
				errs = append(errs, fmt.Errorf("config file %s: both %s and %s are given", path, l.key, key))
			}
			values[l.key] = secret
			continue
		}
		if slices.Contains(s.sections, key) {
			if v == nil || isEmptyMap(v) {
				continue
			}
			errs = append(errs, fmt.Errorf("config file %s: %q is a section, not a value", path, key))
			continue
		}
		errs = append(errs, fmt.Errorf("config file %s: unknown key %q, did you mean %q?", path, key, s.nearest(key)))
	}
	return values, errors.Join(errs...)
}

func isEmptyMap(v any) bool {
	m, ok := v.(map[string]any)
	return ok && len(m) == 0
}

// readSecret reads a file that holds one secret; a newline at its end does not belong to it.
func readSecret(path string) (string, error) {
	raw, err := readBounded(path, maxSecretBytes)
	return strings.TrimRight(string(raw), "\r\n"), err
}

func readBounded(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // read only
	raw, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(raw)) > limit {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, limit)
	}
	return raw, nil
}
