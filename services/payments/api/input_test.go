package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/services/payments/api"
)

// set returns a change of one field, given by its path.
func set(path string, value any) func(map[string]any) {
	return func(o map[string]any) {
		parent, name, nested := strings.Cut(path, ".")
		if nested {
			o, _ = o[parent].(map[string]any)
		} else {
			name = parent
		}
		if value == nil {
			delete(o, name)
		} else {
			o[name] = value
		}
	}
}

// Every field at fault is named.
func TestFieldsAtFault(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i, c := range []struct {
		path  string
		value any
		want  string // the field named; empty: path
	}{
		{"valor", nil, ""},
		{"valor", "", ""},
		{"valor", 12.34, ""},
		{"valor", "0.00", ""},
		{"valor", "-1.00", ""},
		{"valor", "+1.00", ""},
		{"valor", "1.000", ""},
		{"valor", "1.0", ""},
		{"valor", "1", ""},
		{"valor", ".50", ""},
		{"valor", "1,00", ""},
		{"valor", "1.000,00", ""},
		{"valor", "1e2.00", ""},
		{"valor", " 1.00", ""},
		{"valor", "٣.00", ""},
		{"valor", "12345678901234567.00", ""},
		{"valor", strings.Repeat("9", 5000) + ".00", ""},
		{"endToEndId", "E", ""},
		{"endToEndId", "E123456782026010203041234567890", ""},
		{"endToEndId", "D12345678202601020304abcdefghijk", ""},
		{"endToEndId", "E12345678202613020304abcdefghijk", ""},
		{"endToEndId", "E12345678202601020304abcdefghij-", ""},
		{"txid", "a-b", ""},
		{"txid", "ok", ""}, // not with DICT
		{"txid", strings.Repeat("a", 36), ""},
		{"chave", nil, ""},
		{"chave", strings.Repeat("a", 78), ""},
		{"chave", "a\x00b", ""},
		{"formaIniciacao", nil, ""},
		{"formaIniciacao", "dict", ""},
		{"formaIniciacao", "MANU", "chave"},
		{"formaIniciacao", "AUTO", "chave"},
		{"finalidade", "GSCB", ""},
		{"nivelServico", "PAGFRD", ""},
		{"cnpjIniciador", "12345678000100", ""},
		{"infoPagador", strings.Repeat("a", 141), ""},
		{"infoPagador", strings.Repeat("é", 141), ""},
		{"infoPagador", "a\tb", ""},
		{"infoPagador", "a\nb", ""},
		{"infoPagador", "a\rb", ""},
		{"infoPagador", "a\u0085b", ""},
		{"infoPagador", "a\u007fb", ""},
		{"infoPagador", "a\u2028b", ""},
		{"infoPagador", "a\ufffeb", ""},
		{"infoPagador", "a\ufffdb", ""},
		{"infoPagador", "100\u202e00", ""},
		{"infoPagador", "   ", ""},
		{"infoPagador", "\u00a0\u2003", ""},
		{"pagador", nil, ""},
		{"pagador", "Fulano", ""},
		{"pagador", []string{"Fulano"}, ""},
		{"pagador.nome", nil, ""},
		{"pagador.nome", strings.Repeat("n", 141), ""},
		{"pagador.cpf", nil, ""},
		{"pagador.cpf", "52998224724", ""},
		{"pagador.cpf", "529.982.247-25", ""},
		{"pagador.cpf", "11111111111", ""},
		{"pagador.cpf", "5299822472", ""},
		{"pagador.cnpj", receiverCNPJ, ""}, // beside the CPF
		{"pagador.agencia", "12345", ""},
		{"pagador.agencia", "1-2", ""},
		{"pagador.conta", nil, ""},
		{"pagador.conta", "12-3", ""},
		{"pagador.conta", "12a", ""},
		{"pagador.conta", strings.Repeat("1", 21), ""},
		{"pagador.tipoConta", nil, ""},
		{"pagador.tipoConta", "CACC", ""},
		{"pagador.saldo", "1.00", ""},
		{"recebedor", nil, ""},
		{"recebedor.ispbParticipante", nil, ""},
		{"recebedor.ispbParticipante", "1234567", ""},
		{"recebedor.ispbParticipante", "9999990a", ""},
		{"recebedor.cnpj", "12ABC34501DE36", ""},
		{"recebedor.cnpj", "12abc34501de35", ""},
		{"recebedor.cnpj", "12ABC34501DE3A", ""},
		{"recebedor.cnpj", "00000000000000", ""},
		{"recebedor.cnpj", "12.ABC.345/01DE-35", ""},
		{"recebedor.conta", nil, ""},
		{"Valor", "1.00", ""}, // another case is another name
		{"extra", map[string]any{"a": []any{1, nil, true, map[string]any{}}}, ""},
		{strings.Repeat("x", 100), "1", strings.Repeat("x", 60) + "…"},
	} {
		if c.want == "" {
			c.want = c.path
		}
		require.Equal(t, []string{c.want}, w.violated(w.order(order(set(c.path, c.value)), "k"), http.StatusBadRequest), "%d %s %v", i, c.path, c.value)
	}
	require.Empty(t, w.announced)
}

// What the catalogue's types allow goes on exactly as it was given.
func TestTextsThatPass(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, text := range []string{
		"Conceição & Irmãos <Ltda.> \"1ª via\" 'x' ]]>", "<b>&amp;</b>", "Обед 昼食 غداء", "🍕 👩‍👩‍👧‍👦 ok", strings.Repeat("😀", 140), " a ",
		"'; DROP TABLE payments; --", "${jndi:ldap://x}", `\u0041`,
	} {
		said := w.read(w.order(order(set("infoPagador", text)), "k"+strings.ReplaceAll(w.id(us, w.now())[21:], "_", "")), http.StatusCreated)
		require.Equal(t, text, said["infoPagador"])
		id, _ := said["endToEndId"].(string)
		require.Equal(t, text, w.read(w.get("/v1/pix/"+id), http.StatusOK)["infoPagador"])
	}
}

func TestDocumentsThatPass(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i, cnpj := range []string{"12ABC34501DE35", "11222333000181", "00000000000191"} {
		answer := w.order(order(set("recebedor.cnpj", cnpj)), "k"+string(rune('a'+i)))
		require.Equal(t, http.StatusCreated, answer.Code, answer.Body.String())
	}
}

// Whose an EndToEndId is and how old is the gate's: 422, and the field is named.
func TestIdentifiersOutsideTheRules(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, c := range map[string]struct {
		ispb pix.ISPB
		off  time.Duration
		ok   bool
	}{
		"another participant": {them, 0, false},
		"tomorrow":            {us, 24 * time.Hour, false},
		"yesterday":           {us, -24 * time.Hour, false},
		"12h01 ahead":         {us, 12*time.Hour + time.Minute, false},
		"12h01 ago":           {us, -12*time.Hour - time.Minute, false},
		"11h59 ahead":         {us, 12*time.Hour - time.Minute, true},
		"11h59 ago":           {us, -12*time.Hour + time.Minute, true},
	} {
		answer := w.order(order(set("endToEndId", w.id(c.ispb, w.now().Add(c.off)))), "k"+strings.ReplaceAll(name, " ", "-"))
		if c.ok {
			require.Equal(t, http.StatusCreated, answer.Code, name)
			continue
		}
		require.Equal(t, []string{"endToEndId"}, w.violated(answer, http.StatusUnprocessableEntity), name)
	}
	for _, ispb := range []pix.ISPB{us, pix.SPI} {
		answer := w.order(order(set("recebedor.ispbParticipante", string(ispb))), "k-"+string(ispb))
		require.Equal(t, []string{"recebedor.ispbParticipante"}, w.violated(answer, http.StatusUnprocessableEntity))
	}
}

// JSON that encoding/json would forgive, or that means harm.
func TestJSONIsStrict(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	valid := order(nil)
	deep := strings.Repeat("[", 8000)
	for name, c := range map[string]struct {
		body string
		code int
	}{
		"empty":                   {"", http.StatusUnsupportedMediaType}, // without a body there is no type
		"not JSON":                {"valor=1", http.StatusBadRequest},
		"XML":                     {"<valor>1.00</valor>", http.StatusBadRequest},
		"cut off":                 {valid[:len(valid)-1], http.StatusBadRequest},
		"two objects":             {valid + valid, http.StatusBadRequest},
		"an array":                {"[" + valid + "]", http.StatusBadRequest},
		"a text":                  {`"x"`, http.StatusBadRequest},
		"null":                    {"null", http.StatusBadRequest},
		"a comment":               {"/**/" + valid, http.StatusBadRequest},
		"a byte order mark":       {"\ufeff" + valid, http.StatusBadRequest},
		"no UTF-8":                {strings.Replace(valid, "Fulano", "\xff", 1), http.StatusBadRequest},
		"half a surrogate":        {strings.Replace(valid, "Fulano", `\ud800`, 1), http.StatusBadRequest},
		"a member twice":          {strings.Replace(valid, `"valor"`, `"valor":"1.00","valor"`, 1), http.StatusBadRequest},
		"twice by an escape":      {strings.Replace(valid, `"valor"`, `"valor":"1.00","v\u0061lor"`, 1), http.StatusBadRequest},
		"a member twice, nested":  {strings.Replace(valid, `"nome"`, `"nome":"x","nome"`, 1), http.StatusBadRequest},
		"a null member":           {strings.Replace(valid, `"12.34"`, `null`, 1), http.StatusBadRequest},
		"deep arrays":             {deep + strings.Repeat("]", 8000), http.StatusBadRequest},
		"deep, unclosed":          {deep, http.StatusBadRequest},
		"deep in unknown member":  {`{"x":` + deep + deep + strings.Repeat("]", 16000) + `}`, http.StatusRequestEntityTooLarge},
		"deep under the limit":    {`{"x":` + deep[:7000] + strings.Repeat("]", 7000) + `}`, http.StatusBadRequest},
		"huge":                    {`{"x":"` + strings.Repeat("a", 1<<20) + `"}`, http.StatusRequestEntityTooLarge},
		"many unknown members":    {`{` + strings.TrimSuffix(strings.Repeat(`"a":1,`, 2000), ",") + `}`, http.StatusBadRequest},
		"many nested in a member": {`{"pagador":{` + strings.TrimSuffix(strings.Repeat(`"a":{},`, 1000), ",") + `}}`, http.StatusBadRequest},
	} {
		answer := w.order(c.body, "k")
		require.Equal(t, c.code, answer.Code, "%s: %s", name, answer.Body)
		require.Less(t, answer.Body.Len(), 4096, name)
	}
	require.Empty(t, w.announced)
}

func TestMediaTypes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for media, ok := range map[string]bool{
		"application/json": true, "application/json; charset=utf-8": true, "APPLICATION/JSON": true,
		"application/json; charset=latin1": false, "text/plain": false, "application/x-www-form-urlencoded": false, "": false, "x;": false,
	} {
		answer := w.do(ask{
			method: http.MethodPost, path: "/v1/pix", body: order(nil), token: coreToken, key: "k-" + w.id(us, w.now()),
			header: http.Header{"Content-Type": {media}},
		})
		require.Equal(t, ok, answer.Code == http.StatusCreated, "%s: %s", media, answer.Body)
		if !ok {
			require.Equal(t, http.StatusUnsupportedMediaType, answer.Code)
		}
	}
}

func TestPathsAndMethods(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for path, code := range map[string]int{
		"DELETE /v1/pix":                 http.StatusMethodNotAllowed,
		"PATCH /v1/pix/E1":               http.StatusMethodNotAllowed,
		"POST /v1/pix/E1/devolucao/1":    http.StatusMethodNotAllowed,
		"GET /":                          http.StatusNotFound,
		"GET /v2/pix":                    http.StatusNotFound,
		"GET /v1/pix/E1/devolucao":       http.StatusNotFound,
		"GET /v1/pix/E1":                 http.StatusBadRequest,
		"GET /v1/pix/E1/devolucao/a-b":   http.StatusBadRequest,
		"GET /v1/pix/x%2Fy/devolucao/ab": http.StatusBadRequest,
	} {
		method, target, _ := strings.Cut(path, " ")
		answer := w.do(ask{method: method, path: target, token: coreToken})
		require.Equal(t, code, answer.Code, path)
		require.Equal(t, "application/problem+json", answer.Header().Get("Content-Type"), path)
		if code == http.StatusMethodNotAllowed {
			require.NotEmpty(t, answer.Header().Get("Allow"), path)
		}
	}
}

func TestAuthenticationAndThrottle(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, token := range []string{"", "wrong", coreToken + "x"} {
		answer := w.do(ask{method: http.MethodPost, path: "/v1/pix", body: order(nil), key: "k", token: token})
		require.Equal(t, http.StatusUnauthorized, answer.Code)
	}
	h := w.serve(nil, func(c *api.Config) {
		c.Throttle.Disabled, c.Throttle.Limit, c.Throttle.Window = false, 2, time.Minute
	})
	for _, code := range []int{404, 404, 429} {
		answer := w.do(ask{method: http.MethodGet, path: "/v1/pix/" + w.id(us, w.now()), token: coreToken, handler: h})
		require.Equal(t, code, answer.Code)
	}
	require.Equal(t, http.StatusNotFound, w.do(ask{method: http.MethodGet, path: "/v1/pix/" + w.id(us, w.now()), token: otherToken, handler: h}).Code)
}

func TestReferenceOfTheReceiver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for txid, ok := range map[string]bool{"abc123": true, "a-b": false, strings.Repeat("a", 36): false} {
		answer := w.order(order(func(o map[string]any) { o["formaIniciacao"], o["txid"] = "QRDN", txid }), "k"+w.id(us, w.now()))
		if ok {
			require.Equal(t, txid, w.read(answer, http.StatusCreated)["txid"])
			continue
		}
		require.Equal(t, []string{"txid"}, w.violated(answer, http.StatusBadRequest))
	}
}
