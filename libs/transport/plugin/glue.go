package plugin

import (
	"context"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/cabine-pix/cabine/libs/transport"
	transportv1 "github.com/cabine-pix/cabine/libs/transport/plugin/pb/cabine/transport/v1"
)

// Message sizes on both sides of the process boundary: the largest legal call and room
// for its envelope.
const maxRPCBytes = transport.MaxBodyBytes + 1<<20

// ioBytes is what is read or written at once: a usual answer, ten messages, in one system call. The windows have room for
// the largest call, so that no answer waits for leave to go on, and gRPC measures no round trips to find that out; both
// together took a tenth of the processor time of a call.
const ioBytes = 64 << 10

// glue is go-plugin's view of the transport service.
type glue struct {
	goplugin.NetRPCUnsupportedPlugin
	impl transport.Transport
}

// GRPCServer implements goplugin.GRPCPlugin.
func (g glue) GRPCServer(_ *goplugin.GRPCBroker, s *grpc.Server) error {
	transportv1.RegisterTransportServiceServer(s, &server{impl: g.impl})
	return nil
}

// GRPCClient implements goplugin.GRPCPlugin; the host makes its own client of the connection.
func (g glue) GRPCClient(_ context.Context, _ *goplugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return conn, nil
}

func serverOptions(opts []grpc.ServerOption) []grpc.ServerOption {
	return append(opts,
		grpc.MaxRecvMsgSize(maxRPCBytes), grpc.MaxSendMsgSize(maxRPCBytes),
		grpc.InitialWindowSize(maxRPCBytes), grpc.InitialConnWindowSize(maxRPCBytes),
		grpc.ReadBufferSize(ioBytes), grpc.WriteBufferSize(ioBytes),
	)
}

func dialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxRPCBytes), grpc.MaxCallSendMsgSize(maxRPCBytes)),
		grpc.WithInitialWindowSize(maxRPCBytes), grpc.WithInitialConnWindowSize(maxRPCBytes),
		grpc.WithReadBufferSize(ioBytes), grpc.WithWriteBufferSize(ioBytes),
		// One call is at most one request: nothing below may repeat it.
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
		// An idle connection stays, because a lost one means a lost process.
		grpc.WithIdleTimeout(0),
	}
}
