package edge_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/edge"
)

// memory is a ledger without transactions; the real one is tried where it is used, with Postgres.
type memory struct {
	kept map[string]kept
	said error
}

type kept struct {
	request [sha256.Size]byte
	answer  edge.Answer
}

type effects struct{}

func (m *memory) Once(ctx context.Context, key string, request [sha256.Size]byte, effect func(context.Context, *effects) (edge.Answer, error)) (edge.Answer, bool, error) {
	if k, ok := m.kept[key]; ok {
		if k.request != request {
			return edge.Answer{}, false, edge.ErrMismatch
		}
		return k.answer, false, m.said
	}
	if m.said != nil {
		return edge.Answer{}, false, m.said
	}
	a, err := effect(ctx, &effects{})
	if err != nil {
		return edge.Answer{}, false, err
	}
	m.kept[key] = kept{request, a}
	return a, true, nil
}

func post(h http.Handler, path, body string, keys ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header[edge.KeyHeader] = keys
	return serve(h, r)
}

func TestOnce(t *testing.T) {
	t.Parallel()
	ledger := &memory{kept: make(map[string]kept)}
	ran, after := 0, 0
	h := edge.Once(ledger, func(_ *http.Request, body []byte) (edge.Work[*effects], error) {
		if string(body) == "bad" {
			return edge.Work[*effects]{}, edge.NewProblem(http.StatusBadRequest, "x", "X", "")
		}
		return edge.Work[*effects]{
			Effect: func(context.Context, *effects) (edge.Answer, error) {
				ran++
				if string(body) == "fails" {
					return edge.Answer{}, errors.New("rolled back")
				}
				return edge.Answer{Status: http.StatusCreated, Body: []byte(`{"n":"1"}`)}, nil
			},
			After: func(context.Context) { after++ },
		}, nil
	}, func(w http.ResponseWriter, r *http.Request, err error) {
		var p edge.Problem
		if !errors.As(err, &p) {
			p = edge.Internal()
		}
		p.Write(w, r)
	})
	for _, keys := range [][]string{nil, {""}, {"a b"}, {"a_b"}, {strings.Repeat("a", 65)}, {"a", "a"}, {"ação"}} {
		w := post(h, "/", "body", keys...)
		require.Equal(t, http.StatusBadRequest, w.Code, keys)
		require.Equal(t, edge.KeyHeader, problemOf(t, w).Violations[0].Field)
	}
	require.Equal(t, http.StatusBadRequest, post(h, "/", "bad", "a").Code)
	require.Equal(t, http.StatusInternalServerError, post(h, "/", "fails", "f").Code)
	require.Zero(t, after)

	first := post(h, "/", "body", "a")
	require.Equal(t, http.StatusCreated, first.Code)
	require.Empty(t, first.Header().Get(edge.ReplayedHeader))
	again := post(h, "/", "body", "a")
	require.Equal(t, http.StatusCreated, again.Code)
	require.Equal(t, first.Body.Bytes(), again.Body.Bytes())
	require.Equal(t, "true", again.Header().Get(edge.ReplayedHeader))
	require.Equal(t, 2, ran)
	require.Equal(t, 1, after)

	require.Equal(t, http.StatusUnprocessableEntity, post(h, "/", "body ", "a").Code)
	require.Equal(t, http.StatusUnprocessableEntity, post(h, "/other", "body", "a").Code)
	ledger.said = edge.ErrInProgress
	w := post(h, "/", "body", "a")
	require.Equal(t, http.StatusConflict, w.Code)
	require.Equal(t, "1", w.Header().Get("Retry-After"))
}
