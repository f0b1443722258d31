package edge

import (
	"context"
	"crypto/rand"
	"net/http"
)

// CorrelationHeader carries the identifier of a request, in the request and in its answer.
const CorrelationHeader = "X-Correlation-Id"

const maxCorrelation = 64

type correlationKey struct{}

// CorrelationID is the identifier of the request that ctx belongs to; empty outside of one.
func CorrelationID(ctx context.Context) string {
	id, _ := ctx.Value(correlationKey{}).(string)
	return id
}

// Correlate takes the identifier that the client gave, if it is 1 to 64 letters, digits, '.', '_' or '-', and makes
// one otherwise: what a client gives stands in our log.
func Correlate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(CorrelationHeader)
		if !plainName(id, maxCorrelation) {
			id = rand.Text()
		}
		w.Header().Set(CorrelationHeader, id)
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), correlationKey{}, id)))
	})
}

// plainName reports whether s is 1 to most letters, digits, '.', '_' or '-'.
func plainName(s string, most int) bool {
	for i := range len(s) {
		c := s[i]
		if (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return s != "" && len(s) <= most
}
