package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/telemetry"
)

const (
	cpf  = "12345678909"
	cnpj = "11222333000181"
	evp  = "3fa85f64-5717-4562-b3fc-2c963f66afa6"
	e2e  = "E1234567820260102030412345678909"
)

type (
	named   string
	account struct {
		Nome   string
		Conta  string
		Numero int64
		Raw    []byte
		Inner  map[string]any
	}
	valuer  struct{ s string }
	failing struct{ cpf string }
)

func (v valuer) LogValue() slog.Value { return slog.StringValue(v.s) }
func (f *failing) Error() string      { return "no entry for " + f.cpf }

func line(t *testing.T, do func(*slog.Logger)) string {
	t.Helper()
	var b bytes.Buffer
	do(telemetry.New(telemetry.LogConfig{Service: "icom-poller", Version: "1.2.3", Replica: "a"}, &b))
	require.True(t, json.Valid(b.Bytes()), b.String())
	return b.String()
}

func TestLogMasksEveryShapeOfValue(t *testing.T) {
	t.Parallel()
	var nilErr *failing
	for name, c := range map[string]struct {
		key   string
		value any
	}{
		"string":                   {"v", cpf},
		"named string":             {"v", named(cpf)},
		"int":                      {"v", 12345678909},
		"int64":                    {"v", int64(11222333000181)},
		"uint64":                   {"v", uint64(12345678909)},
		"float":                    {"v", 12345678909.0},
		"error":                    {"v", &failing{cpf}},
		"wrapped error":            {"v", fmt.Errorf("dict: %w", &failing{cpf})},
		"joined errors":            {"v", errors.Join(errors.New("a"), &failing{cpf})},
		"nil error":                {"v", nilErr},
		"bytes":                    {"v", []byte(cpf)},
		"slice":                    {"v", []string{"x", cpf}},
		"ints":                     {"v", []int64{12345678909}},
		"map":                      {"v", map[string]any{"a": map[string]string{"b": cpf}}},
		"map key":                  {"v", map[string]any{cpf: 1}},
		"struct":                   {"v", account{Nome: cpf}},
		"struct number":            {"v", account{Numero: 12345678909}},
		"struct bytes":             {"v", &account{Raw: []byte("cpf " + cpf)}},
		"account by name":          {"v", account{Conta: "00123456"}},
		"nested name":              {"v", account{Inner: map[string]any{"password": "00123456"}}},
		"json":                     {"v", json.RawMessage(`{"a":"` + cpf + `"}`)},
		"valuer":                   {"v", valuer{cpf}},
		"group":                    {"v", slog.GroupValue(slog.Group("w", slog.String("x", cpf)))},
		"group after clean":        {"v", slog.GroupValue(slog.Int("n", 1), slog.Any("x", valuer{cpf}), slog.String("y", "z"))},
		"key name":                 {"pix_key", "00123456"},
		"evp under key":            {"key", evp},
		"evp under chave":          {"chave", evp},
		"evp under value in group": {"alias", slog.GroupValue(slog.String("id", evp))},
		"token":                    {"accessToken", "00123456"},
		"password":                 {"redis_password", "00123456"},
		"authorization":            {"Authorization", "00123456"},
		"cookie":                   {"Set-Cookie", "00123456"},
		"account":                  {"account_number", 123456},
		"account group":            {"debtor_account", slog.GroupValue(slog.Int("number", 123456), slog.String("branch", "0001"))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, out := range []string{
				line(t, func(l *slog.Logger) { l.Info("m", c.key, c.value) }),
				line(t, func(l *slog.Logger) { l.With(c.key, c.value).Info("m") }),
				line(t, func(l *slog.Logger) { l.WithGroup("g").With("a", 1).Info("m", "b", 2, c.key, c.value) }),
			} {
				require.NotContains(t, out, cpf)
				require.NotContains(t, out, "11222333000181")
				require.NotContains(t, out, "1.2345678909e")
				require.NotContains(t, out, "123456\"")
				require.NotContains(t, out, ":123456")
				require.NotContains(t, out, evp)
				require.NotContains(t, out, "MTIzNDU2Nzg5MDk")
				if name != "nil error" {
					require.Contains(t, out, "[redacted]")
				}
			}
		})
	}
}

func TestLogMasksMessageAndOpenGroup(t *testing.T) {
	t.Parallel()
	out := line(t, func(l *slog.Logger) { l.WithGroup("account").Error("recusado "+cpf, "number", 7) })
	require.NotContains(t, out, cpf)
	require.Contains(t, out, `"account":{"number":"[redacted]"}`)
}

func TestLogKeepsWhatIdentifiesAPayment(t *testing.T) {
	t.Parallel()
	out := line(t, func(l *slog.Logger) {
		l.Info("stored",
			"end_to_end_id", e2e, "key", "sem:icom:{cpm:12345678}:1", "resource_id", evp,
			"took", 20*time.Second, "at", time.Unix(0, 0).UTC(), "port", 54321, "sent_at", int64(12345678909),
			"ispb", named("00038166"), "batch", 10, "ok", true, "error", io.EOF,
			slog.Group("slot", "n", 3), "ids", []string{e2e}, "list", map[string]int{"a": 1}, "none", nil)
	})
	require.NotContains(t, out, "redacted")
	for _, want := range []string{
		e2e, `"key":"sem:icom:{cpm:12345678}:1"`, evp, `"took":20000000000`, `"sent_at":12345678909`, `"service":"icom-poller"`,
		`"version":"1.2.3"`, `"replica":"a"`, `"error":"EOF"`, `"slot":{"n":3}`, `"list":{"a":1}`, `"none":null`,
	} {
		require.Contains(t, out, want)
	}
}

func TestLogLevel(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	l := telemetry.New(telemetry.LogConfig{Level: slog.LevelWarn}, &b)
	l.Info("no")
	require.Empty(t, b.String())
	require.True(t, l.Enabled(context.Background(), slog.LevelWarn))
}

// sink takes records and does nothing, so that only the redactor is measured.
type sink struct{}

func (sink) Enabled(context.Context, slog.Level) bool  { return true }
func (sink) Handle(context.Context, slog.Record) error { return nil }
func (s sink) WithAttrs([]slog.Attr) slog.Handler      { return s }
func (s sink) WithGroup(string) slog.Handler           { return s }

func TestLogOfAMessageAllocatesNothingMore(t *testing.T) { //nolint:paralleltest // counts the allocations of the whole process
	h := sink{}
	bare, redacted := slog.New(h), slog.New(telemetry.NewRedactor(h))
	extra := testing.AllocsPerRun(200, func() { message(redacted) }) - testing.AllocsPerRun(200, func() { message(bare) })
	require.Zero(t, extra)
}

func message(l *slog.Logger) {
	l.LogAttrs(context.Background(), slog.LevelInfo, "message stored",
		slog.String("end_to_end_id", e2e), slog.String("msg_id", "M1234567812345678909abcdefghijkl"),
		slog.String("ispb", "12345678"), slog.Int("slot", 3), slog.Duration("took", time.Millisecond), slog.Any("error", io.EOF))
}

func BenchmarkMessage(b *testing.B) {
	h := slog.NewJSONHandler(io.Discard, nil) //nolint:sloglint // the cost of writing JSON is the yardstick
	for name, l := range map[string]*slog.Logger{"bare": slog.New(h), "redacted": slog.New(telemetry.NewRedactor(h))} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				message(l)
			}
		})
	}
}

// FuzzDocumentsDoNotSurvive makes a CPF and a CNPJ out of the input and logs them in
// every way a careless caller might, beside arbitrary text.
func FuzzDocumentsDoNotSurvive(f *testing.F) {
	f.Add(uint64(123456789), uint64(112223330001), "pagador ", " recusado")
	f.Add(uint64(0), uint64(1), "", "")
	f.Add(uint64(999999999), uint64(999999999999), "+55", "@x.com")
	f.Add(uint64(7), uint64(3), "a://b:", "@c")
	f.Fuzz(func(t *testing.T, a, b uint64, before, after string) {
		c, n := withCheckDigits(fmt.Sprintf("%09d", a%1e9)), withCheckDigits(fmt.Sprintf("%012d", b%1e12))
		secrets := []string{
			c, c[:3] + "." + c[3:6] + "." + c[6:9] + "-" + c[9:],
			n, n[:2] + "." + n[2:5] + "." + n[5:8] + "/" + n[8:12] + "-" + n[12:],
		}
		for _, s := range secrets {
			out := line(t, func(l *slog.Logger) {
				//nolint:sloglint // a careless message is what is tested
				l.Info(before+" "+s+" "+after, "a", s, "b", errors.New(before+"("+s+")"), "c", []any{s}, "d", map[string]any{"x": s},
					"e", []byte(s), slog.Group("g", "h", s), "i", valuer{s}, "j", json.Number("1"), "k", struct{ S string }{s})
			})
			require.NotContains(t, out, s)
		}
	})
}

func withCheckDigits(s string) string {
	for range 2 {
		sum, w := 0, 2
		for i := len(s) - 1; i >= 0; i-- {
			sum += int(s[i]-'0') * w
			if w++; w > 9 && len(s) > 10 {
				w = 2
			}
		}
		d := 11 - sum%11
		if d > 9 {
			d = 0
		}
		s += string(rune('0' + d))
	}
	return s
}
