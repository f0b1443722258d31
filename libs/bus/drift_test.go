package bus

import (
	"reflect"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// TestWhatIsDeclaredIsCompared goes through every field of the server's configurations: one that provisioning sets is one
// whose difference it names, so that a declaration which grows cannot drift unseen.
func TestWhatIsDeclaredIsCompared(t *testing.T) {
	t.Parallel()
	declared := Declared(1)
	for _, s := range declared.Streams {
		is := s.apply(jetstream.StreamConfig{})
		require.Empty(t, s.drift(is))
		set := 0
		for i, changed := range mutants(is) {
			if !changed.isSet(s.apply(changed.config)) {
				require.Empty(t, s.drift(changed.config), changed.field)
				continue
			}
			require.Len(t, s.drift(changed.config), 1, "field %d, %s", i, changed.field)
			set++
		}
		require.Equal(t, 10, set, "all but the name, which is what it is found by")
	}
	for _, k := range append(declared.Consumers, Consumer{Stream: StreamInbound, Name: "two", Subjects: []string{"a", "b"}, AckWait: 1}) {
		is := k.apply(jetstream.ConsumerConfig{})
		require.Empty(t, k.drift(is))
		set := 0
		for i, changed := range mutants(is) {
			if !changed.isSet(k.apply(changed.config)) {
				require.Empty(t, k.drift(changed.config), changed.field)
				continue
			}
			require.Len(t, k.drift(changed.config), 1, "field %d, %s", i, changed.field)
			set++
		}
		require.Equal(t, 7, set, "the filters are two fields")
	}
}

// mutant is a configuration of which one field is another.
type mutant[C any] struct {
	field  string
	index  int
	config C
}

// isSet reports whether provisioning would take the mutation back.
func (m mutant[C]) isSet(applied C) bool {
	return !reflect.DeepEqual(reflect.ValueOf(applied).Field(m.index).Interface(), reflect.ValueOf(m.config).Field(m.index).Interface())
}

// mutants changes every field in turn but the names by which a stream or consumer is known.
func mutants[C any](is C) (all []mutant[C]) {
	kind := reflect.TypeFor[C]()
	for i := range kind.NumField() {
		m := mutant[C]{field: kind.Field(i).Name, index: i, config: is}
		if m.field == "Name" || m.field == "Durable" {
			continue
		}
		field := reflect.ValueOf(&m.config).Elem().Field(i)
		switch field.Kind() {
		case reflect.String:
			field.SetString(field.String() + "x")
		case reflect.Bool:
			field.SetBool(!field.Bool())
		case reflect.Int, reflect.Int8, reflect.Int32, reflect.Int64:
			field.SetInt(field.Int() + int64(time.Second))
		case reflect.Uint64, reflect.Uint8:
			field.SetUint(field.Uint() + 1)
		case reflect.Pointer:
			field.Set(reflect.New(field.Type().Elem()))
		case reflect.Slice:
			field.Set(reflect.MakeSlice(field.Type(), 3, 3))
		case reflect.Map:
			field.Set(reflect.MakeMap(field.Type()))
		case reflect.Struct:
			if field.NumField() == 0 || field.Field(0).Kind() != reflect.Int64 && field.Field(0).Kind() != reflect.Int {
				continue
			}
			field.Field(0).SetInt(field.Field(0).Int() + 1)
		default:
			panic(m.field + " is " + field.Kind().String())
		}
		all = append(all, m)
	}
	return all
}
