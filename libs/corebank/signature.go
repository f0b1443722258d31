package corebank

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// The headers of a signature.
const (
	HeaderKeyID     = "Cabine-Key-Id"
	HeaderTimestamp = "Cabine-Timestamp"
	HeaderSignature = "Cabine-Signature"
)

// MaxSkew is how far a question's timestamp may be from the core's clock.
const MaxSkew = 5 * time.Minute

// MinSecret is the least length of a secret, in bytes: that of the digest.
const MinSecret = sha256.Size

// ErrSignature says that a signature is absent, by an unknown key, too old, or wrong.
var ErrSignature = errors.New("signature is not valid")

// Key is a secret and the name by which both sides know it.
type Key struct {
	ID     string
	Secret []byte
}

// Keys are the known keys; the first signs.
type Keys []Key

// Validate names what is wrong with the keys and never shows a secret.
func (k Keys) Validate() error {
	if len(k) == 0 {
		return errors.New("no key")
	}
	seen := map[string]bool{}
	var errs []error
	for _, key := range k {
		if key.ID == "" || len(key.ID) > 64 || seen[key.ID] {
			errs = append(errs, fmt.Errorf("key %.64q: want a name of its own, up to 64 characters", key.ID))
		}
		if len(key.Secret) < MinSecret {
			errs = append(errs, fmt.Errorf("key %.64q has %d bytes, want at least %d", key.ID, len(key.Secret), MinSecret))
		}
		seen[key.ID] = true
	}
	return errors.Join(errs...)
}

const (
	questionDomain = "cabine-pergunta-v1"
	answerDomain   = "cabine-resposta-v1"
)

// SignQuestion sets the headers of a question that is asked at an instant, and returns its signature, which CheckAnswer wants.
func (k Keys) SignQuestion(h http.Header, body []byte, at time.Time) string {
	return k.sign(h, at, questionDomain, "", body)
}

// CheckQuestion checks the headers of a question at the core and returns its signature, which SignAnswer wants. ErrSignature.
func (k Keys) CheckQuestion(h http.Header, body []byte, now time.Time) (string, error) {
	at, err := strconv.ParseInt(h.Get(HeaderTimestamp), 10, 64)
	if err != nil {
		return "", fmt.Errorf("%w: no timestamp", ErrSignature)
	}
	if off := now.Sub(time.UnixMilli(at)).Abs(); off > MaxSkew {
		return "", fmt.Errorf("%w: timestamp is off by %v", ErrSignature, off.Round(time.Second))
	}
	return h.Get(HeaderSignature), k.check(h, questionDomain, "", body)
}

// SignAnswer sets the headers of the answer to the question with that signature.
func (k Keys) SignAnswer(h http.Header, body []byte, at time.Time, question string) {
	k.sign(h, at, answerDomain, question, body)
}

// CheckAnswer checks the headers of an answer to the question with that signature. ErrSignature.
func (k Keys) CheckAnswer(h http.Header, body []byte, question string) error {
	return k.check(h, answerDomain, question, body)
}

func (k Keys) sign(h http.Header, at time.Time, domain, question string, body []byte) string {
	timestamp := strconv.FormatInt(at.UnixMilli(), 10)
	signature := hex.EncodeToString(digest(k[0].Secret, domain, timestamp, question, body))
	h.Set(HeaderKeyID, k[0].ID)
	h.Set(HeaderTimestamp, timestamp)
	h.Set(HeaderSignature, signature)
	return signature
}

func (k Keys) check(h http.Header, domain, question string, body []byte) error {
	got, err := hex.DecodeString(h.Get(HeaderSignature))
	if err != nil || len(got) != sha256.Size {
		return fmt.Errorf("%w: none of 64 hexadecimal digits", ErrSignature)
	}
	for _, key := range k {
		if key.ID != h.Get(HeaderKeyID) {
			continue
		}
		if hmac.Equal(got, digest(key.Secret, domain, h.Get(HeaderTimestamp), question, body)) {
			return nil
		}
		return fmt.Errorf("%w: it does not fit the key %.64q", ErrSignature, key.ID)
	}
	return fmt.Errorf("%w: key %.64q is unknown", ErrSignature, h.Get(HeaderKeyID))
}

func digest(secret []byte, domain, timestamp, question string, body []byte) []byte {
	mac := hmac.New(sha256.New, secret)
	_, _ = io.WriteString(mac, domain+"\n"+timestamp+"\n")
	if question != "" {
		_, _ = io.WriteString(mac, question+"\n")
	}
	_, _ = mac.Write(body)
	return mac.Sum(nil)
}
