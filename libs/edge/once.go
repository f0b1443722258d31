package edge

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"net/http"
	"time"
)

// KeyHeader carries the idempotency key.
const KeyHeader = "X-Idempotency-Key"

const maxKey = 64

// Answer is what is kept with a key and sent again, byte for byte.
type Answer struct {
	Status int
	Body   []byte
}

// What a Ledger says instead of running the effect.
var (
	// ErrInProgress: the first request under the key has not ended.
	ErrInProgress = errors.New("a request with this key is in progress")
	// ErrMismatch: the key was used for another request.
	ErrMismatch = errors.New("the key belongs to another request")
)

// Ledger keeps answers by key. T is its transaction.
type Ledger[T any] interface {
	// Once runs effect and keeps its answer in one transaction, so that a crash leaves both or neither. If the key was
	// used before for the same request it returns the kept answer, and fresh is false. It fails with ErrInProgress,
	// ErrMismatch, or with what effect failed with: nothing is kept then.
	Once(ctx context.Context, key string, request [sha256.Size]byte, effect func(ctx context.Context, tx T) (Answer, error)) (a Answer, fresh bool, err error)
}

// Work is a request that was read and found valid.
type Work[T any] struct {
	// Effect does it, in the transaction that keeps its answer.
	Effect func(ctx context.Context, tx T) (Answer, error)
	// After is called when this request's effect was committed, and not for one that only repeats an answer. Its
	// context outlives the client's.
	After func(ctx context.Context)
}

// ReplayedHeader is "true" on an answer that was given before.
const ReplayedHeader = "X-Idempotency-Replayed"

// Once makes a handler whose effect happens once per X-Idempotency-Key and client. It is no middleware around a
// handler of its own, because the record of the key must be in the transaction of the effect. Keys are those of the
// client's name, so that two clients never meet in one; a client that changes its token keeps its name and its keys.
// prepare reads and judges the request before anything is kept; fail answers whatever went wrong.
func Once[T any](ledger Ledger[T], prepare func(r *http.Request, body []byte) (Work[T], error), fail func(http.ResponseWriter, *http.Request, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, err := keyOf(r)
		if err != nil {
			fail(w, r, err)
			return
		}
		body, err := ReadBody(r)
		if err != nil {
			fail(w, r, err)
			return
		}
		work, err := prepare(r, body)
		if err != nil {
			fail(w, r, err)
			return
		}
		answer, fresh, err := ledger.Once(r.Context(), Client(r.Context())+"/"+key, sumOf(r, body), work.Effect)
		if err != nil {
			fail(w, r, keyProblem(err))
			return
		}
		if fresh && work.After != nil {
			work.After(context.WithoutCancel(r.Context()))
		}
		if !fresh {
			w.Header().Set(ReplayedHeader, "true")
		}
		WriteJSON(w, answer.Status, answer.Body)
	})
}

// WriteJSON answers with a body that is JSON already. It holds personal data: nobody on the way keeps it.
func WriteJSON(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that left asks again
}

// ReadBody reads the whole body. Above the limit of Limit it fails with the Problem TooLarge.
func ReadBody(r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		return body, nil
	}
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, TooLarge(large.Limit)
	}
	return nil, NewProblem(http.StatusBadRequest, "corpo-incompleto", "Corpo incompleto", "O corpo da requisição não chegou inteiro.")
}

func keyOf(r *http.Request) (string, error) {
	values := r.Header.Values(KeyHeader)
	if len(values) == 1 && keyText(values[0]) {
		return values[0], nil
	}
	p := NewProblem(http.StatusBadRequest, "chave-de-idempotencia-invalida", "Chave de idempotência ausente ou inválida",
		"Envie o cabeçalho "+KeyHeader+" uma vez, com 1 a 64 letras, algarismos ou hífens, e a mesma chave ao repetir.")
	p.Violations = []Violation{{KeyHeader, "obrigatório, no formato [a-zA-Z0-9-]{1,64}"}}
	return "", p
}

func keyText(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return s != "" && len(s) <= maxKey
}

// sumOf identifies a request under its key: the method, the path and the body, byte for byte.
func sumOf(r *http.Request, body []byte) [sha256.Size]byte {
	h := sha256.New()
	h.Write([]byte(r.Method + " " + r.URL.EscapedPath() + "\n"))
	h.Write(body)
	return [sha256.Size]byte(h.Sum(nil))
}

func keyProblem(err error) error {
	switch {
	case errors.Is(err, ErrInProgress):
		p := NewProblem(http.StatusConflict, "em-andamento", "Requisição em andamento",
			"A primeira requisição com esta chave ainda não terminou. Repita a mesma requisição em instantes.")
		p.RetryAfter = time.Second
		return p
	case errors.Is(err, ErrMismatch):
		return NewProblem(http.StatusUnprocessableEntity, "chave-de-idempotencia-reutilizada", "Chave de idempotência reutilizada",
			"Esta chave já foi usada, nas últimas 24 horas, com outra requisição. Use uma chave nova para uma ordem nova.")
	default:
		return err
	}
}
