package core

import (
	"encoding"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/knadh/koanf/maps"
	"github.com/knadh/koanf/parsers/yaml"

	"github.com/cabine-pix/cabine/libs/telemetry"
)

// secretMask stands where print-config hides a secret that is set.
const secretMask = "********"

// Print writes cfg as the YAML that would load it, secrets masked.
func Print[T any](w io.Writer, cfg T) error {
	flat := make(map[string]any)
	for _, l := range schemaOf(&cfg).leaves {
		flat[l.key] = l.shown()
	}
	out, err := yaml.Parser().Marshal(maps.Unflatten(flat, "."))
	if err != nil {
		return fmt.Errorf("print config: %w", err)
	}
	_, err = w.Write(out)
	return err
}

// shown returns the leaf's value as it may be seen.
func (l leaf) shown() any {
	if l.secret != "" && !l.value.IsZero() {
		if l.secret == "dsn" && l.value.Kind() == reflect.String {
			return telemetry.Redact(l.value.String())
		}
		return secretMask
	}
	switch v := l.value.Interface().(type) {
	case time.Duration:
		return v.String()
	case encoding.TextMarshaler:
		text, err := v.MarshalText()
		if err != nil {
			return err.Error()
		}
		return string(text)
	default:
		return plain(l.value)
	}
}

// plain takes named types off, which YAML would not write.
func plain(v reflect.Value) any {
	switch v.Kind() {
	case reflect.String:
		return v.String()
	case reflect.Slice:
		out := make([]any, v.Len())
		for i := range out {
			out[i] = plain(v.Index(i))
		}
		return out
	case reflect.Map:
		out := make(map[string]any, v.Len())
		for _, k := range v.MapKeys() {
			text := telemetry.Redact(k.String() + "=" + fmt.Sprint(v.MapIndex(k).Interface()))
			out[k.String()] = strings.TrimPrefix(text, k.String()+"=")
		}
		return out
	default:
		return v.Interface()
	}
}

// help writes what an operator needs to run the service, in the operator's language.
func help[T any](w io.Writer, name string, defaults T) {
	fmt.Fprintf(w, `Uso: %s [--config ARQUIVO] [--print-config] [--version] [--help]

  --config ARQUIVO   arquivo YAML de configuração (ou a variável %s)
  --print-config     mostra a configuração em vigor, com os segredos mascarados, e termina
  --version          mostra a versão e termina
  --help             mostra esta ajuda e termina

A configuração vem dos valores padrão, depois do arquivo YAML, depois do ambiente.
Cada segredo também pode vir de um arquivo: variável com final _FILE ou chave com final _file.
SIGTERM encerra em ordem; um segundo SIGTERM aborta o que estiver em andamento.
Códigos de saída: 0 fim normal, 1 falha, 2 uso ou configuração incorretos.

Chaves (variável de ambiente; valor padrão):
`, name, configVariable)
	leaves := schemaOf(&defaults).leaves
	slices.SortStableFunc(leaves, func(a, b leaf) int { return strings.Compare(a.key, b.key) })
	for _, l := range leaves {
		names := strings.Join(append(slices.Clone(l.env), l.own()), ", ")
		fmt.Fprintf(w, "  %s (%s; %v)\n", l.key, names, l.shown())
		if l.help != "" {
			fmt.Fprintf(w, "      %s\n", l.help)
		}
	}
}
