package order

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const sound = `"valor":"1.00","formaIniciacao":"MANU",
	"pagador":{"nome":"Fulano","cpf":"52998224725","conta":"1","tipoConta":"PI"},
	"recebedor":{"ispbParticipante":"99999A04","cnpj":"12ABC34501DE35","conta":"1","tipoConta":"PI"}`

// An event's id is read also where the order is refused, unless the id itself is at fault; a payment request has none.
func TestTheIDOfAnEvent(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for body, want := range map[string]struct {
		id   string
		kind string // of the refusal; empty: none
	}{
		`{"id":"a-1",` + sound + `}`:                             {"a-1", ""},
		`{"id":"` + strings.Repeat("a", 64) + `",` + sound + `}`: {strings.Repeat("a", 64), ""},
		`{"id":"a-1"}`:                                           {"a-1", "campos-invalidos"},
		`{"id":"a-1","x":1,` + sound + `}`:                       {"a-1", "campos-invalidos"},
		`{"id":"a-1","PaymentRequest":{},` + sound + `}`:         {"a-1", "campos-invalidos"},
		`{` + sound + `}`:                                        {"", "campos-invalidos"},
		`{"id":"",` + sound + `}`:                                {"", "campos-invalidos"},
		`{"id":"a_1",` + sound + `}`:                             {"", "campos-invalidos"},
		`{"id":"a:1","x":1,` + sound + `}`:                       {"", "campos-invalidos"},
		`{"id":"é",` + sound + `}`:                               {"", "campos-invalidos"},
		`{"id":"` + strings.Repeat("a", 65) + `",` + sound + `}`: {"", "campos-invalidos"},
		`{"id":"a","id":"b",` + sound + `}`:                      {"", "campos-invalidos"},
		`{"id":{"id":"a"},` + sound + `}`:                        {"", "campos-invalidos"},
		`{"id":"a"`:                                              {"", "json-invalido"},
	} {
		id, _, err := readEvent([]byte(body), "12345678", at)
		require.Equal(t, want.id, id, body)
		if want.kind == "" {
			require.NoError(t, err, body)
			continue
		}
		var no *Refusal
		require.ErrorAs(t, err, &no, body)
		require.Equal(t, want.kind, no.Kind, body)
	}
	_, err := readPayment([]byte(`{"id":"a",`+sound+`}`), "12345678", at)
	require.True(t, about(err, "id"))
}

// An event is read as the payment request that it carries.
func TestAnEventIsThePaymentRequest(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	_, event, err := readEvent([]byte(`{"id":"a",`+sound+`}`), "12345678", at)
	require.NoError(t, err)
	payment, err := readPayment([]byte(`{`+sound+`}`), "12345678", at)
	require.NoError(t, err)
	require.Equal(t, payment, event)
}
