package edge

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// MinTokenBytes is the least length of a token: 32 characters of base64 hold 192 bits, which nobody guesses.
const MinTokenBytes = 32

const (
	maxTokenBytes = 512
	maxClientName = 48
	maxTokens     = 64
)

// Tokens knows the clients by their bearer tokens (RFC 6750). A client may have several, so that one can be replaced
// while the other still works. Only hashes are kept.
type Tokens struct {
	names  []string
	hashes [][sha256.Size]byte
}

// ParseTokens reads "name=token" pairs between commas or line ends. It fails without any: a door without a key is
// closed. Errors name clients and numbers, never a token.
func ParseTokens(s string) (*Tokens, error) {
	t := &Tokens{}
	var errs []error
	for i, pair := range strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == '\n' || r == '\r' }) {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		name, token, ok := strings.Cut(pair, "=")
		switch {
		case !ok || !plainName(name, maxClientName):
			errs = append(errs, fmt.Errorf("token %d: want name=token, the name of 1 to %d letters, digits, '.', '_', '-'", i+1, maxClientName))
		case len(token) < MinTokenBytes || len(token) > maxTokenBytes || !tokenText(token):
			errs = append(errs, fmt.Errorf("token %d of client %q has %d characters, want %d to %d of those in RFC 6750",
				i+1, name, len(token), MinTokenBytes, maxTokenBytes))
		default:
			hash := sha256.Sum256([]byte(token))
			if other := t.find(hash); other != "" {
				errs = append(errs, fmt.Errorf("token %d of client %q is also that of client %q", i+1, name, other))
			}
			t.names, t.hashes = append(t.names, name), append(t.hashes, hash)
		}
	}
	if len(t.names) > maxTokens {
		errs = append(errs, fmt.Errorf("%d tokens, want at most %d", len(t.names), maxTokens))
	}
	if len(t.names) == 0 && len(errs) == 0 {
		errs = append(errs, errors.New("no tokens: want at least one name=token"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return t, nil
}

// find returns the client of a hash, "" for none, in a time that depends on the number of tokens alone.
func (t *Tokens) find(hash [sha256.Size]byte) string {
	found := -1
	for i := range t.hashes {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(t.hashes[i][:], hash[:]), i, found)
	}
	if found < 0 {
		return ""
	}
	return t.names[found]
}

type clientKey struct{}

// Client is the name behind the token of the request that ctx belongs to; empty for none.
func Client(ctx context.Context) string {
	name, _ := ctx.Value(clientKey{}).(string)
	return name
}

// Identify finds out who asks. It refuses nobody: RequireClient does.
func (t *Tokens) Identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if token := bearer(r); token != "" {
			if name := t.find(sha256.Sum256([]byte(token))); name != "" {
				note(r.Context()).client = name
				r = r.WithContext(context.WithValue(r.Context(), clientKey{}, name))
			}
		}
		next.ServeHTTP(w, r)
	})
}

// RequireClient answers 401 to whoever was not identified.
func RequireClient(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if Client(r.Context()) != "" {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("WWW-Authenticate", `Bearer realm="cabine"`)
		NewProblem(http.StatusUnauthorized, "nao-autenticado", "Não autenticado",
			"Envie um token válido no cabeçalho Authorization: Bearer.").Write(w, r)
	})
}

// bearer returns the token of a request; "" when there is none, more than one or one that is no token.
func bearer(r *http.Request) string {
	values := r.Header.Values("Authorization")
	if len(values) != 1 {
		return ""
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") || len(token) > maxTokenBytes {
		return ""
	}
	return token
}

// tokenText reports whether s is a b64token of RFC 6750.
func tokenText(s string) bool {
	s = strings.TrimRight(s, "=")
	for i := range len(s) {
		c := s[i]
		if (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && strings.IndexByte("-._~+/", c) < 0 {
			return false
		}
	}
	return s != ""
}
