package pkcs11

import (
	"crypto"
	"errors"
	"fmt"
	"time"
)

// Config says where a key is. The zero value of a field that has a default means that.
type Config struct {
	// Module is the path of the vendor's library, like "/usr/lib/softhsm/libsofthsm2.so".
	Module string
	// Token is the label of the token.
	Token string
	// PIN is the user's, and secret.
	PIN string
	// KeyLabel is the label that private and public key have in the token. Both must be there.
	KeyLabel string
	// MaxSessions bounds the signatures at the same time, one session being kept for the login: at least 2, and no more
	// than the token allows us. Default 16.
	MaxSessions int
	// WaitTimeout is how long a signature waits for a free session before it fails. Default 5 s.
	WaitTimeout time.Duration
}

// WithDefaults returns a copy in which zero fields have their defaults.
func (c Config) WithDefaults() Config {
	if c.MaxSessions == 0 {
		c.MaxSessions = 16
	}
	if c.WaitTimeout == 0 {
		c.WaitTimeout = 5 * time.Second
	}
	return c
}

// Validate names every field that is wrong.
func (c Config) Validate() error {
	var wrong []error
	for name, value := range map[string]string{"Module": c.Module, "Token": c.Token, "PIN": c.PIN, "KeyLabel": c.KeyLabel} {
		if value == "" {
			wrong = append(wrong, fmt.Errorf("pkcs11: %s is needed", name))
		}
	}
	if c.MaxSessions < 2 {
		wrong = append(wrong, fmt.Errorf("pkcs11: MaxSessions is %d, at least 2 are needed", c.MaxSessions))
	}
	if c.WaitTimeout < 0 {
		wrong = append(wrong, fmt.Errorf("pkcs11: WaitTimeout is %s, it cannot be negative", c.WaitTimeout))
	}
	return errors.Join(wrong...)
}

// Key is a key in a token.
type Key struct {
	crypto.Signer
	logout func() error
}

// Close logs out and ends all sessions. The key signs no more.
func (k *Key) Close() error {
	if err := k.logout(); err != nil {
		return fmt.Errorf("pkcs11: close: %w", err)
	}
	return nil
}
