package icom

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"time"
)

const (
	resourceIDText  = 32
	resourceIDBytes = 24
	maxMillis       = 1<<48 - 1
)

// ResourceID is the bank's identifier of one message, PI-ResourceId. It is opaque to
// the interface; its form was recomputed from seven real samples: Base64 of "PI", the
// Unix time in milliseconds (6 bytes, big endian) and a random UUIDv4. A receiver
// drops duplicates by the text and reads the form only to show when the bank made it.
type ResourceID struct {
	// At is when the bank stored the message, in whole milliseconds, UTC.
	At time.Time
	// UUID is a version 4 UUID.
	UUID [16]byte
}

// NewResourceID makes an identifier for the moment at, with 16 bytes of randomness from random.
func NewResourceID(at time.Time, random io.Reader) (ResourceID, error) {
	ms := at.UnixMilli()
	if ms < 0 || ms > maxMillis {
		return ResourceID{}, fmt.Errorf("resource id: time %s does not fit 48 bits of milliseconds", at)
	}
	id := ResourceID{At: time.UnixMilli(ms).UTC()}
	if _, err := io.ReadFull(random, id.UUID[:]); err != nil {
		return ResourceID{}, fmt.Errorf("resource id: %w", err)
	}
	id.UUID[6] = id.UUID[6]&0x0f | 0x40
	id.UUID[8] = id.UUID[8]&0x3f | 0x80
	return id, nil
}

// String returns the 32 characters of the header.
func (id ResourceID) String() string {
	var raw [resourceIDBytes]byte
	raw[0], raw[1] = 'P', 'I'
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(id.At.UnixMilli()))
	copy(raw[2:8], ms[2:])
	copy(raw[8:], id.UUID[:])
	return base64.StdEncoding.EncodeToString(raw[:])
}

// ParseResourceID reads the 32 characters of the header. An identifier of another form
// is an error here and still a valid identifier for the interface.
func ParseResourceID(s string) (ResourceID, error) {
	if len(s) != resourceIDText {
		return ResourceID{}, fmt.Errorf("resource id has %d characters, want %d", len(s), resourceIDText)
	}
	var raw [resourceIDBytes]byte
	n, err := base64.StdEncoding.Strict().Decode(raw[:], []byte(s))
	if err != nil {
		return ResourceID{}, fmt.Errorf("resource id: %w", err)
	}
	if n != resourceIDBytes {
		return ResourceID{}, fmt.Errorf("resource id has %d bytes, want %d", n, resourceIDBytes)
	}
	if raw[0] != 'P' || raw[1] != 'I' {
		return ResourceID{}, fmt.Errorf("resource id starts with %q, want \"PI\"", raw[:2])
	}
	id := ResourceID{At: time.UnixMilli(int64(binary.BigEndian.Uint64(raw[:8]) & maxMillis)).UTC()}
	copy(id.UUID[:], raw[8:])
	if id.UUID[6]>>4 != 4 || id.UUID[8]>>6 != 2 {
		return ResourceID{}, fmt.Errorf("resource id %q holds no version 4 UUID", s)
	}
	return id, nil
}
