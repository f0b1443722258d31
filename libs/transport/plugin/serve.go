package plugin

import (
	"log/slog"
	"os"
	"runtime/debug"
	"strconv"
	"time"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/cabine-pix/cabine/libs/transport"
)

// parentWatch is how often a process looks whether its host is still its parent. The
// kernel's own signal is faster; this holds where that one was lost.
const parentWatch = 200 * time.Millisecond

// gcPercent lets the heap grow to five times what lives before it is collected: what lives in a transport is a few
// megabytes, and most of what it makes is gone with the answer.
const gcPercent = 400

// exitOrphaned is the exit code of a process whose host is gone. Nobody is left to read it.
const exitOrphaned = 3

// Serve runs impl as a plugin process until its host ends it, and does not return: it
// is the last line of a plugin's main. Started by hand it prints what it is and exits
// with 1. It never outlives its host.
func Serve(impl transport.Transport, log *slog.Logger) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	go leaveWithParent()
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig:  handshake(),
		VersionedPlugins: serverSets(impl),
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server {
			return grpc.NewServer(serverOptions(opts)...)
		},
		Logger: newBridge(log),
	})
}

func leaveWithParent() {
	parent, err := strconv.Atoi(os.Getenv(envHostPID))
	if err != nil {
		parent = os.Getppid()
	}
	for tick := time.NewTicker(parentWatch); os.Getppid() == parent; {
		<-tick.C
	}
	os.Exit(exitOrphaned)
}
