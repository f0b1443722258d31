package api

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/edge"
	"github.com/cabine-pix/cabine/libs/order"
	"github.com/cabine-pix/cabine/libs/pix"
)

func contractDocument(t *testing.T) *openapi3.T {
	t.Helper()
	document, err := openapi3.NewLoader().LoadFromData(contract)
	require.NoError(t, err)
	require.Equal(t, "3.1.0", document.OpenAPI)
	require.NoError(t, document.Validate(t.Context()))
	return document
}

// Every route is in the contract, and nothing else; it says which are open and which have a body.
func TestContractHasTheRoutes(t *testing.T) {
	t.Parallel()
	promised := make(map[string]*openapi3.Operation)
	for path, item := range contractDocument(t).Paths.Map() {
		for method, operation := range item.Operations() {
			promised[method+" "+path] = operation
		}
	}
	for _, r := range (&API{}).routes() {
		name := r.method + " " + r.path
		operation := promised[name]
		require.NotNil(t, operation, "%s is not in the contract", name)
		require.Equal(t, r.body, operation.RequestBody != nil, name)
		require.Equal(t, r.open, operation.Security != nil && len(*operation.Security) == 0, name)
		delete(promised, name)
	}
	require.Empty(t, promised, "promised and not served")
}

// Every field of every struct is in its schema under its name, is required there exactly if it is never left out, and
// has the schema's type; nothing else is in the schema.
func TestContractHasTheFields(t *testing.T) {
	t.Parallel()
	document := contractDocument(t)
	left := make(map[string]bool)
	for name, schema := range document.Components.Schemas {
		left[name] = schema.Value.Type.Is(openapi3.TypeObject)
	}
	for name, value := range map[string]any{
		"Ordem": order.PaymentRequest{}, "Pagador": order.Payer{}, "Recebedor": order.Receiver{}, "PedidoDevolucao": order.ReturnRequest{},
		"Pix": payment{}, "Parte": party{}, "Devolucao": refund{}, "HorarioDevolucao": refundTimes{}, "Evento": event{},
		"Lista": listing{}, "Parametros": parameters{}, "Paginacao": page{}, "Problema": edge.Problem{}, "Violacao": edge.Violation{},
	} {
		schema := document.Components.Schemas[name].Value
		require.NotNil(t, schema, name)
		require.NotNil(t, schema.AdditionalProperties.Has, name)
		require.False(t, *schema.AdditionalProperties.Has, name)
		var fields []string
		for i := range reflect.TypeOf(value).NumField() {
			f := reflect.TypeOf(value).Field(i)
			field, option, _ := strings.Cut(f.Tag.Get("json"), ",")
			if field == "-" {
				continue
			}
			fields = append(fields, field)
			property := schema.Properties[field]
			require.NotNil(t, property, "%s.%s is not in the contract", name, field)
			require.True(t, property.Value.Type.Is(typeOf(f.Type)), "%s.%s", name, field)
			if strings.HasSuffix(reflect.TypeOf(value).Name(), "Request") || name == "Pagador" || name == "Recebedor" {
				continue // what is required of a client is tried by the requests of the other tests
			}
			require.Equal(t, option != "omitempty", slices.Contains(schema.Required, field), "%s.%s is required or left out", name, field)
		}
		for property := range schema.Properties {
			require.Contains(t, fields, property, "%s.%s is promised and not there", name, property)
		}
		delete(left, name)
	}
	for name, object := range left {
		require.False(t, object, "schema %s is no struct", name)
	}
}

func typeOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return openapi3.TypeString
	case reflect.Int:
		return openapi3.TypeInteger
	case reflect.Slice:
		return openapi3.TypeArray
	default:
		return openapi3.TypeObject
	}
}

// The contract's enumerations are those of the code.
func TestContractHasTheWords(t *testing.T) {
	t.Parallel()
	document := contractDocument(t)
	for name, want := range map[string][]string{
		"Estado": texts(pix.States()), "Direcao": {string(pix.Out), string(pix.In)}, "Canal": texts(pix.Channels()),
		"TipoConta": order.AccountTypes(), "Natureza": order.Natures(), "FormaIniciacao": texts(order.Instruments()),
	} {
		require.ElementsMatch(t, want, document.Components.Schemas[name].Value.Enum, name)
	}
	require.ElementsMatch(t, texts(order.Purposes()), document.Components.Schemas["Ordem"].Value.Properties["finalidade"].Value.Enum)
	done := document.Components.Schemas["Pix"].Value.Properties["status"].Value.Enum
	for _, s := range pix.States() {
		require.Contains(t, done, status(s, "REALIZADO"))
	}
}

// texts returns words as JSON has them.
func texts[T ~string](words []T) []string {
	all := make([]string, len(words))
	for i, w := range words {
		all[i] = string(w)
	}
	return all
}
