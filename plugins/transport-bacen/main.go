// Command transport-bacen is the transport to BACEN's ICOM. A host starts it; see package bacen for its configuration.
package main

import (
	"log/slog"
	"os"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/transport/plugin"
	"github.com/cabine-pix/cabine/plugins/transport-bacen/bacen"
)

func main() {
	log := plugin.Logger(slog.LevelInfo)
	t, err := bacen.FromEnv(os.Getenv, clock.System(), log)
	if err != nil {
		log.Error("bacen transport: wrong configuration", "error", err)
		os.Exit(2)
	}
	plugin.Serve(t, log)
}
