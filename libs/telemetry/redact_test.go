package telemetry_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/telemetry"
)

// Numbers below have right check digits and belong to nobody, unless said otherwise.

func TestRedactMasks(t *testing.T) {
	t.Parallel()
	const m = "[redacted]"
	for name, c := range map[string]struct{ in, want string }{
		"cpf bare":                 {"12345678909", m},
		"cpf in text":              {"pagador 12345678909 recusado", "pagador " + m + " recusado"},
		"cpf formatted":            {"cpf 123.456.789-09.", "cpf " + m + "."},
		"cpf formatted, mistyped":  {"123.456.789-00", m},
		"cpf mistyped":             {"12345678900", m},
		"cpf with one dash":        {"123456789-09", m},
		"cpf with spaces":          {"123 456 789 09", m},
		"cpf in xml":               {"<CPF>12345678909</CPF>", "<CPF>" + m + "</CPF>"},
		"cpf in json":              {`{"cpf":"12345678909"}`, `{"cpf":"` + m + `"}`},
		"cpf after underscore":     {"cpf_12345678909", "cpf_" + m},
		"cpf in path":              {"GET /entries/12345678909: 404", "GET /entries/" + m + ": 404"},
		"two":                      {"12345678909,52998224725", m + "," + m},
		"cnpj bare":                {"11222333000181", m},
		"cnpj formatted":           {"11.222.333/0001-81", m},
		"cnpj half formatted":      {"11222333/0001-81", m},
		"cnpj letters bare":        {"12ABC34501DE35", m},
		"cnpj letters lower":       {"12abc34501de35", m},
		"cnpj letters formatted":   {"12.ABC.345/01DE-35", m},
		"phone":                    {"+5511987654321", m},
		"phone in text":            {"chave +5511987654321 inexistente", "chave " + m + " inexistente"},
		"phone punctuated":         {"ligar para +55 (11) 98765-4321 hoje", "ligar para " + m + " hoje"},
		"phone in a url":           {"/entries/%2B5511987654321", "/entries/" + m},
		"phone abroad":             {"+12025550143", m},
		"email":                    {"fulano.de-tal+pix@banco.com.br", m},
		"email in text":            {"chave <a@b.co> invalida", "chave <" + m + "> invalida"},
		"email ends a sentence":    {"escreva a maria@exemplo.com.", "escreva a " + m + "."},
		"email in a url":           {"/entries/maria%40exemplo.com", "/entries/" + m},
		"postgres url":             {"dial postgres://app:s3cr3t@db:5432/pix?x=1", "dial postgres://app:" + m + "@db:5432/pix?x=1"},
		"postgres url odd":         {"postgres://app:p@ss/w@db:5432/pix", "postgres://app:" + m + "@db:5432/pix"},
		"postgres dotted host":     {"postgres://app:hunter@db.example.com/pix", "postgres://app:" + m + "@db.example.com/pix"},
		"redis url":                {"redis://:s3cr3t@cache:6379", "redis://:" + m + "@cache:6379"},
		"nats token":               {"nats://abcdef@bus:4222", "nats://" + m + "@bus:4222"},
		"dsn words":                {"host=db password=s3cr3t user=app", "host=db password=" + m + " user=app"},
		"dsn quoted":               {"host=db password='a b' user=app", "host=db password='" + m + "' user=app"},
		"env":                      {"REDIS_PASSWORD=s3cr3t", "REDIS_PASSWORD=" + m},
		"query":                    {"/cb?access_token=abc&x=1", "/cb?access_token=" + m + "&x=1"},
		"json credential":          {`{"token":"abc","n":1}`, `{"token":"` + m + `","n":1}`},
		"json in json":             {`"{\"client_secret\":\"abc\",\"n\":1}"`, `"{\"client_secret\":\"` + m + `\",\"n\":1}"`},
		"spoken":                   {"senha: abc def", "senha: " + m + " def"},
		"header":                   {"Authorization: Bearer abc.def-ghi", "Authorization: " + m},
		"cookie":                   {"Cookie: a=b; c=d\nHost: x", "Cookie: " + m + "\nHost: x"},
		"bearer":                   {"sent Bearer abcdefgh1234 to", "sent Bearer " + m + " to"},
		"jwt":                      {"got eyJhbGciOiJub25lIn0.eyJzdWIiOiJ4In0.c2ln ok", "got " + m + " ok"},
		"pem":                      {"-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\nrest", m + "\nrest"},
		"pem cut":                  {"x -----BEGIN PRIVATE KEY-----\nMIIE", "x " + m},
		"cnpj bare of a past year": {"20269931000189", m},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, telemetry.Redact(c.in))
			require.Equal(t, c.want, telemetry.Redact(c.want), "a second pass changes nothing")
		})
	}
}

func TestRedactKeeps(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]string{
		"EndToEndId":                    "E1234567820260102030412345678909",
		"EndToEndId with a cpf inside":  "E0003816612345678909000000000000",
		"EndToEndId all digits but one": "E9999999911222333000181000000000",
		"ReturnID":                      "D1234567820260102030412345678901",
		"MsgId":                         "M1234567812345678909abcdefghijkl",
		"MsgId bare digits":             "12345678901234567890123456789012",
		"PI-ResourceId":                 "MjAyNjAxMDIwMzA0MDUxMjM0fDAwMDAwMDAwLTAwMDAtMDAwMC0wMDAwLTAwMDAwMDAwMDAwMA",
		"ISPB":                          "00038166",
		"time":                          "2026-01-02T03:04:05.123456789-03:00",
		"time compact":                  "20260102030405",
		"unix milliseconds":             "1767323045123",
		"unix nanoseconds":              "1767323045123456789",
		"redis stream id":               "1767323045123-0",
		"duration":                      "1h2m3.123456789s",
		"duration in ns":                "12345678901ns",
		"address":                       "10.123.100.200:54321",
		"address of four long groups":   "100.100.100.10",
		"aws host":                      "ip-172-131-222-11.sa-east-1.compute.internal",
		"uuid":                          "3fa85f64-5717-4562-b3fc-2c963f66afa6",
		"lease key":                     "sem:icom:{cpm:12345678}:1",
		"module version":                "github.com/redis/go-redis/v9@v9.23.0",
		"user without domain":           "postgres@localhost",
		"url":                           "https://icom.pi.rsfn.net.br:16422/api/v1/in/12345678/msgs",
		"url without credentials":       "postgres://app@db:5432/pix",
		"prose about tokens":            "unexpected token: }",
		"prose about passwords":         "password authentication failed for user app",
		"basic":                         "basic understanding",
		"amount":                        "valor 1234567.89",
		"interval":                      "TTL is 20s, want at least BankHold 8s + eps 450ms",
		"subject":                       "pix.in.12345678.pacs008",
		"redacted":                      "password=[redacted] user=app",
		"ten digits":                    "1234567890",
		"twelve digits":                 "123456789012",
		"hash":                          "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
		"alphanumeric without checks":   "AB12CD34EF5600",
		"base64 with a plus and digits": "abc+1234567890x",
		"version of many parts":         "1.22.333/4444-5x",
		"empty":                         "",
		"schedule":                      "cycle 4167ms stagger 694ms",
		"certificate (public, no key)":  "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, s, telemetry.Redact(s))
		})
	}
}
