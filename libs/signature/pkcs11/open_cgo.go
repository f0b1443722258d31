//go:build cgo

package pkcs11

import (
	"errors"
	"fmt"

	"github.com/ThalesGroup/crypto11"
)

// Open logs in to a token and finds the key. Close the key after its last signature.
func Open(cfg Config) (*Key, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	token, err := crypto11.Configure(&crypto11.Config{
		Path: cfg.Module, TokenLabel: cfg.Token, Pin: cfg.PIN,
		MaxSessions: cfg.MaxSessions, PoolWaitTimeout: cfg.WaitTimeout,
	})
	if err != nil {
		return nil, fmt.Errorf("pkcs11: open token %q through %s: %w", cfg.Token, cfg.Module, err)
	}
	key, err := token.FindKeyPair(nil, []byte(cfg.KeyLabel))
	if err == nil && key == nil {
		err = errors.New("not there, or without its public key")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("pkcs11: find key %q in token %q: %w", cfg.KeyLabel, cfg.Token, err), token.Close())
	}
	return &Key{Signer: key, logout: token.Close}, nil
}
