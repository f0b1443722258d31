package plugin

import (
	"context"
	"time"

	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/transport"
	transportv1 "github.com/cabine-pix/cabine/libs/transport/plugin/pb/cabine/transport/v1"
)

// server is the plugin's side: it translates and checks, impl does the work.
type server struct {
	transportv1.UnimplementedTransportServiceServer
	impl transport.Transport
}

func notSent(reason error) error {
	return errorToWire(&transport.Error{Kind: transport.NotSent, Reason: reason.Error()})
}

func (s *server) Capabilities(
	ctx context.Context, _ *transportv1.CapabilitiesRequest,
) (*transportv1.CapabilitiesResponse, error) {
	c, err := s.impl.Capabilities(ctx)
	if err != nil {
		return nil, errorToWire(err)
	}
	return capabilitiesToWire(c), nil
}

func (s *server) Ready(ctx context.Context, in *transportv1.ReadyRequest) (*transportv1.ReadyResponse, error) {
	if err := s.impl.Ready(ctx, pix.Channel(in.GetChannel()), pix.ISPB(in.GetIspb())); err != nil {
		return nil, errorToWire(err)
	}
	return &transportv1.ReadyResponse{}, nil
}

func (s *server) Pull(ctx context.Context, in *transportv1.PullRequest) (*transportv1.PullResponse, error) {
	req := transport.PullRequest{
		Permit: permitFromWire(in.GetPermit()), Cursor: in.GetCursor(), Timeout: time.Duration(in.GetTimeoutNanos()),
	}
	if err := req.Validate(); err != nil {
		return nil, notSent(err)
	}
	r, err := s.impl.Pull(ctx, req)
	if err != nil {
		return nil, errorToWire(err)
	}
	if err := r.Validate(); err != nil {
		// Said here, because a text that is not UTF-8 would lose the whole answer on its way.
		return nil, errorToWire(&transport.Error{Kind: transport.Malformed, Exchange: r.Exchange, Reason: err.Error()})
	}
	return pullResultToWire(r), nil
}

func (s *server) Send(ctx context.Context, in *transportv1.SendRequest) (*transportv1.SendResponse, error) {
	req := transport.SendRequest{
		Permit: permitFromWire(in.GetPermit()), Messages: in.GetMessages(), Timeout: time.Duration(in.GetTimeoutNanos()),
	}
	if err := req.Validate(); err != nil {
		return nil, notSent(err)
	}
	r, err := s.impl.Send(ctx, req)
	if err != nil {
		return nil, errorToWire(err)
	}
	if err := r.Validate(); err != nil {
		return nil, errorToWire(&transport.Error{Kind: transport.Malformed, Exchange: r.Exchange, Reason: err.Error()})
	}
	return &transportv1.SendResponse{Exchange: exchangeToWire(r.Exchange), ResourceIds: r.ResourceIDs}, nil
}

func (s *server) CloseStream(
	ctx context.Context, in *transportv1.CloseStreamRequest,
) (*transportv1.CloseStreamResponse, error) {
	req := transport.CloseRequest{
		Permit: permitFromWire(in.GetPermit()), Cursor: in.GetCursor(), Timeout: time.Duration(in.GetTimeoutNanos()),
	}
	if err := req.Validate(); err != nil {
		return nil, notSent(err)
	}
	r, err := s.impl.CloseStream(ctx, req)
	if err != nil {
		return nil, errorToWire(err)
	}
	return &transportv1.CloseStreamResponse{Exchange: exchangeToWire(r.Exchange)}, nil
}

func (s *server) Disconnect(
	ctx context.Context, in *transportv1.DisconnectRequest,
) (*transportv1.DisconnectResponse, error) {
	if err := s.impl.Disconnect(ctx, slotFromWire(in.GetSlot())); err != nil {
		return nil, errorToWire(err)
	}
	return &transportv1.DisconnectResponse{}, nil
}
