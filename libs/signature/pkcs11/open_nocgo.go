//go:build !cgo

package pkcs11

import "errors"

// Open says that this program cannot: it was built without cgo.
func Open(cfg Config) (*Key, error) {
	return nil, errors.Join(cfg.WithDefaults().Validate(),
		errors.New("pkcs11: this program was built without cgo and loads no library of a token: build it with CGO_ENABLED=1"))
}
