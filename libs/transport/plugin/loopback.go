package plugin

import (
	"context"
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/transport"
	transportv1 "github.com/cabine-pix/cabine/libs/transport/plugin/pb/cabine/transport/v1"
)

// Loopback serves impl inside this process and returns it as a host sees it, through
// the real protocol with its translations, limits and checks, but without a process of
// its own. It is for tests of transports. stop ends it.
func Loopback(
	ctx context.Context, impl transport.Transport, clk clock.Clock,
) (t transport.Transport, stop func() error, err error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, fmt.Errorf("loopback: %w", err)
	}
	s := grpc.NewServer(serverOptions(nil)...)
	transportv1.RegisterTransportServiceServer(s, &server{impl: impl})
	opts := append(dialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	conn, err := grpc.NewClient("passthrough:///"+ln.Addr().String(), opts...)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("loopback: %w", err), ln.Close())
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	stop = func() error {
		err := conn.Close()
		s.Stop()
		return errors.Join(err, <-served)
	}
	return newClient(conn, clk), stop, nil
}
