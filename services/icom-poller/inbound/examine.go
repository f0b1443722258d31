package inbound

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/libs/transport"
)

// maxIDBytes bounds a resource id; the bank's have 32.
const maxIDBytes = 128

// examine turns a message into an arrival, or into a dead letter with its reason. A dead
// letter without a usable id is named after its content, so that it too is stored once.
func examine(msg transport.Message, maxBytes int) (store.Arrival, *store.Poison) {
	bury := func(id, reason string) (store.Arrival, *store.Poison) {
		return store.Arrival{}, &store.Poison{MessageID: id, Payload: msg.Body, Reason: reason}
	}
	if reason := badID(msg.ResourceID); reason != "" {
		sum := sha256.Sum256(msg.Body)
		if msg.Fault != "" {
			reason += "; " + msg.Fault
		}
		return bury("sha256:"+hex.EncodeToString(sum[:]), reason)
	}
	if msg.Fault != "" {
		return bury(msg.ResourceID, msg.Fault)
	}
	if len(msg.Body) > maxBytes {
		return bury(msg.ResourceID, fmt.Sprintf("message has %d bytes, want at most %d", len(msg.Body), maxBytes))
	}
	kind, err := messageType(msg.Body)
	if err != nil {
		return bury(msg.ResourceID, err.Error())
	}
	return store.Arrival{MessageID: msg.ResourceID, MsgType: kind, Payload: msg.Body}, nil
}

func badID(id string) string {
	if id == "" {
		return "no PI-ResourceId"
	}
	if len(id) > maxIDBytes {
		return fmt.Sprintf("PI-ResourceId has %d characters, want at most %d", len(id), maxIDBytes)
	}
	for i := range len(id) {
		if id[i] <= ' ' || id[i] > '~' {
			return "PI-ResourceId has characters that are not printable ASCII"
		}
	}
	return ""
}
