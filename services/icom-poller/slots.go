package main

import (
	"encoding/json"
	"net/http"

	"github.com/cabine-pix/cabine/services/icom-poller/inbound"
)

// slotsHandler shows the slots that this replica holds. It holds no personal data.
func slotsHandler(p *inbound.Poller) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		held := p.Held()
		if held == nil {
			held = []inbound.Held{}
		}
		w.Header().Set("Content-Type", "application/json")
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		_ = enc.Encode(held) // the client went away
	})
}
