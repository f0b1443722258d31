package edge

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// Problem is an answer that says what went wrong, for programs and for people (RFC 7807). Its texts are read by
// people, in Portuguese, and hold nothing of what the client sent but names of fields.
type Problem struct { //nolint:errname // RFC 7807's word
	// Type is a URI that identifies the kind of problem, and what a program branches on.
	Type string `json:"type"`
	// Title says the kind in words; the same for every problem of a type.
	Title string `json:"title"`
	// Status is the HTTP status.
	Status int `json:"status"`
	// Detail says what is particular to this one.
	Detail string `json:"detail,omitempty"`
	// CorrelationID finds the request in the log.
	CorrelationID string `json:"correlationId,omitempty"`
	// Violations name the fields at fault, in the order of the request.
	Violations []Violation `json:"violacoes,omitempty"`

	// RetryAfter is sent as a header, in whole seconds, rounded up; zero: not sent.
	RetryAfter time.Duration `json:"-"`
}

// Violation says what is wrong with one field.
type Violation struct {
	// Field is its path, as recebedor.conta.numero.
	Field string `json:"campo"`
	// Reason says what is wanted.
	Reason string `json:"razao"`
}

// ProblemMedia is the media type of a Problem.
const ProblemMedia = "application/problem+json"

// typePrefix makes a URI of a kind. A URN, because there is nothing to fetch.
const typePrefix = "urn:cabine:problema:"

// NewProblem returns a problem of a kind: lower-case words with hyphens.
func NewProblem(status int, kind, title, detail string) Problem {
	return Problem{Type: typePrefix + kind, Title: title, Status: status, Detail: detail}
}

// Error makes a Problem what a handler can return.
func (p Problem) Error() string { return strconv.Itoa(p.Status) + " " + p.Title }

// Write answers the request with p.
func (p Problem) Write(w http.ResponseWriter, r *http.Request) {
	p.CorrelationID = CorrelationID(r.Context())
	body, err := json.Marshal(p)
	if err != nil { // strings and a number
		http.Error(w, "", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64((p.RetryAfter+time.Second-1)/time.Second), 10))
	}
	h.Set("Content-Type", ProblemMedia)
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) // a client that left is not told
}

// Internal is a fault of ours; the log says which, under the correlation identifier.
func Internal() Problem {
	return NewProblem(http.StatusInternalServerError, "erro-interno", "Erro interno",
		"Falha inesperada. O resultado é desconhecido: consulte antes de repetir, ou repita com a mesma chave de idempotência.")
}

// Unavailable is what cannot be decided at the moment; the request may be repeated as it is.
func Unavailable() Problem {
	p := NewProblem(http.StatusServiceUnavailable, "indisponivel", "Serviço indisponível",
		"Não foi possível concluir agora. Repita a mesma requisição; se a enviou com chave de idempotência, use a mesma chave.")
	p.RetryAfter = time.Second
	return p
}

// TooLarge is a body above the limit.
func TooLarge(limit int64) Problem {
	return NewProblem(http.StatusRequestEntityTooLarge, "corpo-grande-demais", "Corpo grande demais",
		"O corpo da requisição pode ter até "+strconv.FormatInt(limit, 10)+" bytes.")
}

// NotFound is a path that leads nowhere.
func NotFound() Problem {
	return NewProblem(http.StatusNotFound, "nao-encontrado", "Não encontrado", "O recurso não existe.")
}
