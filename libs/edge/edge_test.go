package edge_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/edge"
)

const (
	coreToken  = "core-0123456789abcdef0123456789abcdef"
	nextToken  = "next-0123456789abcdef0123456789abcdef"
	otherToken = "othr-0123456789abcdef0123456789abcdef"
)

func observer(t *testing.T) (*edge.Observer, *bytes.Buffer, *prometheus.Registry) {
	t.Helper()
	var log bytes.Buffer
	reg := prometheus.NewRegistry()
	o, err := edge.NewObserver(clock.System(), slog.New(slog.NewJSONHandler(&log, nil)), reg)
	require.NoError(t, err)
	return o, &log, reg
}

func serve(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func problemOf(t *testing.T, w *httptest.ResponseRecorder) edge.Problem {
	t.Helper()
	require.Equal(t, edge.ProblemMedia, w.Header().Get("Content-Type"), w.Body.String())
	var p edge.Problem
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p))
	require.Equal(t, w.Code, p.Status)
	return p
}

func TestCorrelation(t *testing.T) {
	t.Parallel()
	var inside string
	h := edge.Correlate(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { inside = edge.CorrelationID(r.Context()) }))
	for given, kept := range map[string]bool{
		"abc-1.2_3": true, strings.Repeat("a", 64): true, strings.Repeat("a", 65): false, "a b": false, "": false, "é": false, "a\"b": false,
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set(edge.CorrelationHeader, given)
		w := serve(h, r)
		require.Equal(t, inside, w.Header().Get(edge.CorrelationHeader))
		require.Equal(t, kept, inside == given, given)
		require.NotEmpty(t, inside)
	}
}

// What a client writes, in path, query, header or body, is not in the log.
func TestLogHoldsNothingOfTheRequest(t *testing.T) {
	t.Parallel()
	o, log, reg := observer(t)
	h := edge.Chain(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	}), edge.Correlate, o.Observe, o.Recover, edge.Route("POST /v1/x"))
	w := serve(h, httptest.NewRequest(http.MethodPost, "/segredo1?chave=segredo2", strings.NewReader("segredo3")))
	require.Equal(t, "segredo3", w.Body.String())
	require.NotContains(t, log.String(), "segredo")
	require.Contains(t, log.String(), `"route":"POST /v1/x","status":200`)
	require.Contains(t, log.String(), `"answer_bytes":8`)
	n, err := testutil.GatherAndCount(reg, "cabine_http_request_seconds")
	require.NoError(t, err)
	require.Equal(t, 1, n)
}

func TestPanicIsAnAnswer(t *testing.T) {
	t.Parallel()
	o, log, _ := observer(t)
	h := edge.Chain(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("12345678909 secret") }),
		edge.Correlate, o.Observe, o.Recover)
	w := serve(h, httptest.NewRequest(http.MethodGet, "/", nil))
	require.Equal(t, http.StatusInternalServerError, w.Code)
	require.Equal(t, w.Header().Get(edge.CorrelationHeader), problemOf(t, w).CorrelationID)
	require.Contains(t, log.String(), "handler panicked")
	require.Contains(t, log.String(), `"status":500`)
	require.NotContains(t, log.String(), "secret")
}

// A panic in the middle of an answer cuts the connection: half an answer must not look like a whole one.
func TestPanicAfterTheAnswerBeganAborts(t *testing.T) {
	t.Parallel()
	o, _, _ := observer(t)
	server := httptest.NewServer(edge.Chain(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, 1<<20))
		panic("late")
	}), o.Observe, o.Recover))
	t.Cleanup(server.Close)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	require.NoError(t, err)
	answer, err := server.Client().Do(r)
	if err == nil {
		_, err = io.Copy(io.Discard, answer.Body)
		require.NoError(t, answer.Body.Close())
	}
	require.Error(t, err)
}

func TestLimit(t *testing.T) {
	t.Parallel()
	h := edge.Limit(4, time.Minute)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var p edge.Problem
		switch _, err := edge.ReadBody(r); {
		case errors.As(err, &p):
			p.Write(w, r)
		case err != nil:
			panic(err)
		}
		if _, ok := r.Context().Deadline(); !ok {
			panic("no deadline")
		}
	}))
	require.Equal(t, http.StatusOK, serve(h, httptest.NewRequest(http.MethodPost, "/", strings.NewReader("1234"))).Code)
	known := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("12345"))
	require.Equal(t, http.StatusRequestEntityTooLarge, serve(h, known).Code)
	unknown := httptest.NewRequest(http.MethodPost, "/", io.NopCloser(strings.NewReader("12345")))
	unknown.ContentLength = -1
	require.Equal(t, http.StatusRequestEntityTooLarge, serve(h, unknown).Code)
	broken := httptest.NewRequest(http.MethodPost, "/", io.NopCloser(io.MultiReader(strings.NewReader("1"), failing{})))
	require.Equal(t, http.StatusBadRequest, serve(h, broken).Code)
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("cut") }

func TestTokensAreRefused(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]string{
		"none":              "",
		"blank":             " ,\n ",
		"no name":           coreToken,
		"empty name":        "=" + coreToken,
		"name with a space": "a b=" + coreToken,
		"short":             "core=" + coreToken[:31],
		"long":              "core=" + strings.Repeat("a", 513),
		"not a token":       "core=" + coreToken + " x",
		"two with the same": "core=" + coreToken + ",other=" + coreToken,
		"too many": strings.Join(func() (all []string) {
			for i := range 65 {
				all = append(all, "c="+coreToken+strconv.Itoa(i))
			}
			return all
		}(), ","),
	} {
		_, err := edge.ParseTokens(s)
		require.Error(t, err, name)
		require.NotContains(t, err.Error(), coreToken[5:], name)
	}
}

func TestAuthentication(t *testing.T) {
	t.Parallel()
	tokens, err := edge.ParseTokens("core=" + coreToken + ",core=" + nextToken + "\nbackoffice=" + otherToken + "\n")
	require.NoError(t, err)
	h := edge.Chain(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, edge.Client(r.Context()))
	}), tokens.Identify, edge.RequireClient)
	for name, c := range map[string]struct {
		authorization []string
		client        string
	}{
		"token":              {[]string{"Bearer " + coreToken}, "core"},
		"its successor":      {[]string{"bearer " + nextToken}, "core"},
		"another client":     {[]string{"Bearer " + otherToken}, "backoffice"},
		"none":               {nil, ""},
		"empty":              {[]string{"Bearer "}, ""},
		"another scheme":     {[]string{"Basic " + coreToken}, ""},
		"without scheme":     {[]string{coreToken}, ""},
		"wrong by one":       {[]string{"Bearer " + coreToken[:len(coreToken)-1] + "0"}, ""},
		"a prefix":           {[]string{"Bearer " + coreToken[:32]}, ""},
		"two":                {[]string{"Bearer " + coreToken, "Bearer " + coreToken}, ""},
		"longer than any is": {[]string{"Bearer " + strings.Repeat("a", 1<<16)}, ""},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header["Authorization"] = c.authorization
		w := serve(h, r)
		if c.client == "" {
			require.Equal(t, http.StatusUnauthorized, w.Code, name)
			require.Contains(t, w.Header().Get("WWW-Authenticate"), "Bearer")
			_ = problemOf(t, w)
			continue
		}
		require.Equal(t, http.StatusOK, w.Code, name)
		require.Equal(t, c.client, w.Body.String(), name)
	}
}

func TestChainOrder(t *testing.T) {
	t.Parallel()
	var order string
	step := func(name string) edge.Middleware {
		return func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				order += name
				next.ServeHTTP(w, r)
			})
		}
	}
	serve(edge.Chain(http.NotFoundHandler(), step("a"), step("b"), step("c")), httptest.NewRequest(http.MethodGet, "/", nil))
	require.Equal(t, "abc", order)
}
