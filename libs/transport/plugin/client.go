package plugin

import (
	"context"

	"google.golang.org/grpc"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/transport"
	transportv1 "github.com/cabine-pix/cabine/libs/transport/plugin/pb/cabine/transport/v1"
)

// client is the host's side of one connection: it translates, and believes nothing
// that cannot be.
type client struct {
	rpc transportv1.TransportServiceClient
	clk clock.Clock
}

func newClient(conn grpc.ClientConnInterface, clk clock.Clock) *client {
	return &client{rpc: transportv1.NewTransportServiceClient(conn), clk: clk}
}

// failed turns a call's failure into the contract's error.
func (c *client) failed(err error, began clock.Instant) error {
	e := errorFromWire(err)
	if e.Kind == transport.PluginGone {
		return e
	}
	if d := doubt(e.Kind, e.Exchange, began, c.clk.Now().Boot); d != nil {
		return d
	}
	return e
}

// accepted checks a success in the same way.
func (c *client) accepted(x transport.Exchange, invalid error, began clock.Instant) error {
	if d := doubt("", x, began, c.clk.Now().Boot); d != nil {
		return d
	}
	if invalid != nil {
		return &transport.Error{Kind: transport.Malformed, Exchange: x, Reason: "transport process: " + invalid.Error()}
	}
	return nil
}

// Capabilities implements transport.Transport.
func (c *client) Capabilities(ctx context.Context) (transport.Capabilities, error) {
	out, err := c.rpc.Capabilities(ctx, &transportv1.CapabilitiesRequest{})
	if err != nil {
		return transport.Capabilities{}, errorFromWire(err)
	}
	return capabilitiesFromWire(out), nil
}

// Ready implements transport.Transport.
func (c *client) Ready(ctx context.Context, channel pix.Channel, ispb pix.ISPB) error {
	_, err := c.rpc.Ready(ctx, &transportv1.ReadyRequest{Channel: string(channel), Ispb: string(ispb)})
	if err != nil {
		return errorFromWire(err)
	}
	return nil
}

// Pull implements transport.Transport.
func (c *client) Pull(ctx context.Context, req transport.PullRequest) (transport.PullResult, error) {
	began := c.clk.Now().Boot
	out, err := c.rpc.Pull(ctx, &transportv1.PullRequest{
		Permit: permitToWire(req.Permit), Cursor: req.Cursor, TimeoutNanos: int64(req.Timeout),
	})
	if err != nil {
		return transport.PullResult{}, c.failed(err, began)
	}
	r := pullResultFromWire(out)
	if err := c.accepted(r.Exchange, r.Validate(), began); err != nil {
		return transport.PullResult{}, err
	}
	return r, nil
}

// Send implements transport.Transport.
func (c *client) Send(ctx context.Context, req transport.SendRequest) (transport.SendResult, error) {
	began := c.clk.Now().Boot
	out, err := c.rpc.Send(ctx, &transportv1.SendRequest{
		Permit: permitToWire(req.Permit), Messages: req.Messages, TimeoutNanos: int64(req.Timeout),
	})
	if err != nil {
		return transport.SendResult{}, c.failed(err, began)
	}
	r := transport.SendResult{Exchange: exchangeFromWire(out.GetExchange()), ResourceIDs: out.GetResourceIds()}
	if err := c.accepted(r.Exchange, r.Validate(), began); err != nil {
		return transport.SendResult{}, err
	}
	return r, nil
}

// CloseStream implements transport.Transport.
func (c *client) CloseStream(ctx context.Context, req transport.CloseRequest) (transport.CloseResult, error) {
	began := c.clk.Now().Boot
	out, err := c.rpc.CloseStream(ctx, &transportv1.CloseStreamRequest{
		Permit: permitToWire(req.Permit), Cursor: req.Cursor, TimeoutNanos: int64(req.Timeout),
	})
	if err != nil {
		return transport.CloseResult{}, c.failed(err, began)
	}
	r := transport.CloseResult{Exchange: exchangeFromWire(out.GetExchange())}
	if err := c.accepted(r.Exchange, nil, began); err != nil {
		return transport.CloseResult{}, err
	}
	return r, nil
}

// Disconnect implements transport.Transport.
func (c *client) Disconnect(ctx context.Context, slot transport.SlotID) error {
	_, err := c.rpc.Disconnect(ctx, &transportv1.DisconnectRequest{Slot: slotToWire(slot)})
	if err != nil {
		return errorFromWire(err)
	}
	return nil
}
