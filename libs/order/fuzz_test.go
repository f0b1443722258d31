package order

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
)

// Whatever stands in the fields, they are an order that the SPI's message carries exactly as it was given, or a problem
// that says why they are none.
func FuzzOrder(f *testing.F) {
	f.Add("12.34", "DICT", "a@b.c", "", "x", "Fulano", "52998224725", "1", "A1", "PI", "99999A04", "E12345678202601020304abcdefghijk")
	f.Add("1.00", "QRDN", "k", "t1", "😀 <&> 'x'", "Conceição", "12ABC34501DE35", "", "1", "CORRENTE", "00000000", "")
	f.Add("0.01", "MANU", "", "", "", " a ", "11222333000181", "0001", "1", "SALARIO", "12345678", "E")
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	versions := iso20022.DefaultVersions()
	f.Fuzz(func(t *testing.T, amount, instrument, key, txid, text, name, person, branch, account, kind, ispb, id string) {
		o, err := readPayment(fields(t, map[string]any{
			"valor": amount, "formaIniciacao": instrument, "chave": key, "txid": txid, "infoPagador": text, "endToEndId": id,
			"pagador":   map[string]any{"nome": name, "cpf": person, "agencia": branch, "conta": account, "tipoConta": kind},
			"recebedor": map[string]any{"ispbParticipante": ispb, "cnpj": person, "agencia": branch, "conta": account, "tipoConta": kind},
		}), "12345678", at)
		if err != nil {
			requireRefusal(t, err)
			o, err = readPayment(fields(t, map[string]any{
				"valor": amount, "formaIniciacao": instrument, "chave": key, "txid": txid, "infoPagador": text, "endToEndId": id,
				"pagador":   map[string]any{"nome": name, "cpf": "52998224725", "agencia": branch, "conta": account, "tipoConta": "PI"},
				"recebedor": map[string]any{"ispbParticipante": "99999A04", "cnpj": "12ABC34501DE35", "conta": account, "tipoConta": "PI"},
			}), "12345678", at)
		}
		if err != nil {
			requireRefusal(t, err)
			return
		}
		require.NoError(t, o.named("12345678", at))
		h := iso20022.Header{From: "12345678", To: pix.SPI, MsgID: "M12345678aaaaaaaaaaaaaaaaaaaaaaa", Created: at, MsgType: "pacs.008"}
		built, err := versions.Build(h, &iso20022.Pacs008{
			Priority: iso20022.High, ServiceLevel: iso20022.PAGPRI, Transactions: []iso20022.CreditTransfer{o.transfer},
		})
		require.NoError(t, err)
		parsed, err := versions.Parse(built)
		require.NoError(t, err)
		got, ok := parsed.Document.(*iso20022.Pacs008)
		require.True(t, ok)
		require.Equal(t, o.transfer, got.Transactions[0])
		kept, err := json.Marshal(o.transfer)
		require.NoError(t, err)
		var again iso20022.CreditTransfer
		require.NoError(t, json.Unmarshal(kept, &again))
		require.Equal(t, o.transfer, again)
	})
}

// fields makes an object of all that is not empty.
func fields(t *testing.T, all map[string]any) []byte {
	t.Helper()
	var drop func(map[string]any)
	drop = func(m map[string]any) {
		for name, value := range m {
			if inner, ok := value.(map[string]any); ok {
				drop(inner)
			} else if value == "" {
				delete(m, name)
			}
		}
	}
	drop(all)
	body, err := json.Marshal(all)
	require.NoError(t, err)
	return body
}

func FuzzReturn(f *testing.F) {
	f.Add([]byte(`{"valor":"1.00","natureza":"MED_FRAUDE","descricao":"x"}`), "abc")
	f.Add([]byte(`{"valor":"-1"}`), "a-b")
	f.Fuzz(func(t *testing.T, body []byte, id string) {
		if r, err := ReadReturn(body); err != nil {
			requireRefusal(t, err)
		} else {
			require.Positive(t, r.Amount)
		}
		if _, err := ReturnName("E12345678202601020304abcdefghijk", id); err != nil {
			requireRefusal(t, err)
		}
	})
}

// A refusal repeats no value: at most the names of fields, shortened.
func requireRefusal(t *testing.T, err error) {
	t.Helper()
	var p *Refusal
	require.ErrorAs(t, err, &p)
	require.Equal(t, Malformed, p.Class)
	require.LessOrEqual(t, len(p.Violations), maxViolations)
	for _, v := range p.Violations {
		require.NotEmpty(t, v.Reason)
		require.LessOrEqual(t, len([]rune(v.Field)), 80)
	}
	_, err = json.Marshal(p)
	require.NoError(t, err)
}

// The decoder agrees with encoding/json on what both take.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"valor":"1.00","descricao":"a\u0041\n"}`))
	f.Add([]byte(`{"Valor":"1.00"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var found Violations
		var mine, theirs ReturnRequest
		if decode(body, &mine, &found) != nil {
			return
		}
		d := json.NewDecoder(bytes.NewReader(body))
		d.DisallowUnknownFields()
		require.NoError(t, d.Decode(&theirs))
		require.Equal(t, theirs, mine)
	})
}

func TestCheckDigits(t *testing.T) {
	t.Parallel()
	for s, ok := range map[string]bool{
		"52998224725": true, "52998224724": false, "52998224735": false, "00000000191": true, "00000000000": false, "99999999999": false,
		"5299822472": false, "529982247255": false, "5299822472A": false, "": false,
	} {
		require.Equal(t, ok, s != "" && validCPF(s), s)
	}
	for s, ok := range map[string]bool{
		"11222333000181": true, "11222333000182": false, "00000000000191": true, "12ABC34501DE35": true, "12ABC34501DE53": false,
		"12ABC34501DF35": false, "12abc34501de35": false, "AAAAAAAAAAAAAA": false, "11111111111111": false, "1122233300018": false, "": false,
	} {
		require.Equal(t, ok, s != "" && validCNPJ(s), s)
	}
}
