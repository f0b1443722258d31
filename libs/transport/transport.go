package transport

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/pix"
)

// Limits on what crosses the contract, in either direction.
const (
	// MaxMessages is the most messages in one read or one send (icom.md 1.6, 1.7; ICOM manual 2.2).
	MaxMessages = 10
	// MaxMessageBytes bounds one message after decompression.
	MaxMessageBytes = 1 << 20
	// MaxBodyBytes bounds one whole response body after decompression.
	MaxBodyBytes = 12 << 20
	// MaxCursorBytes bounds a cursor, which is a path or URL of the bank (PI-Pull-Next).
	MaxCursorBytes = 2048
	// MaxResourceIDBytes bounds one PI-ResourceId, whose known form has 32 characters.
	MaxResourceIDBytes = 128
)

// SlotID names one of the numbered connections of a channel and ISPB.
type SlotID struct {
	Channel pix.Channel
	ISPB    pix.ISPB
	// Slot counts from 1.
	Slot int
}

// String returns "cpm:12345678:3".
func (s SlotID) String() string { return fmt.Sprintf("%s:%s:%d", s.Channel, s.ISPB, s.Slot) }

// Permit is leave to start one request on one slot.
type Permit struct {
	Slot SlotID
	// Grant is the lease's own opaque name for this grant. A connection opened
	// under another grant is closed, never reused: the cursor belongs to the
	// connection and the connection to the grant.
	Grant string
	// NotAfter is D: the first byte may be written only before it.
	NotAfter clock.Deadline
}

// Exchange says what happened on the wire during one call.
type Exchange struct {
	// FirstByte is the last instant at which a first byte of the request was
	// written, on CLOCK_BOOTTIME. Zero: nothing was written and nothing will be.
	FirstByte clock.Instant
	// Complete reports that the response was read to its end, so that the bank has
	// finished with the request.
	Complete bool
}

// Settled reports whether the bank has certainly nothing of ours in progress after the call.
func (x Exchange) Settled() bool { return x.FirstByte.IsZero() || x.Complete }

// Message is one message as it was on the wire.
type Message struct {
	// ResourceID is the bank's identifier of this delivery (PI-ResourceId), the
	// key on which receivers drop duplicates. Empty when the bank sent none, which
	// the receiver must treat as a fault of the message, not of the batch.
	ResourceID string
	// Body is the payload, decompressed, otherwise untouched. Of a message at fault it may be
	// cut off, or missing.
	Body []byte
	// Fault says why the message cannot be taken as it is, without quoting it: too large,
	// empty, of another type, charset or encoding. It is the message's alone: the receiver
	// puts this one aside and goes on. Empty: none. Between processes it is cut off at 512 bytes.
	Fault string
}

// PullRequest asks for the next messages of a slot's stream.
type PullRequest struct {
	Permit Permit
	// Cursor continues a stream; asking with it acknowledges what was delivered
	// before. Empty opens a new stream.
	Cursor string
	// Timeout is the longest wait for the response, from the first byte written to
	// the last byte read. It is shorter than the bank hold B.
	Timeout time.Duration
}

// PullResult is what one read brought.
type PullResult struct {
	Exchange Exchange
	// Messages has 0 to MaxMessages messages in the order of the response.
	Messages []Message
	// Cursor is where the next Pull goes on.
	Cursor string
	// Took is the time from the first byte written to the last byte read.
	Took time.Duration
}

// SendRequest carries 1 to MaxMessages signed messages in one request.
type SendRequest struct {
	Permit   Permit
	Messages [][]byte
	// Timeout as in PullRequest.
	Timeout time.Duration
}

// SendResult is the bank's receipt: it stored the messages and validated nothing yet.
type SendResult struct {
	Exchange Exchange
	// ResourceIDs are the bank's identifiers in the order of the messages.
	ResourceIDs []string
}

// CloseRequest ends a stream, which acknowledges its last delivery.
type CloseRequest struct {
	Permit Permit
	Cursor string
	// Timeout as in PullRequest.
	Timeout time.Duration
}

// CloseResult is empty but for what happened on the wire.
type CloseResult struct {
	Exchange Exchange
}

// Capabilities says what a transport is and can do, so that a host knows before it calls.
type Capabilities struct {
	// Name and Version of the transport, e.g. "bacen" and a release.
	Name, Version string
	// Channels it can serve.
	Channels []pix.Channel
	// Send and Pull report the directions it offers.
	Send, Pull bool
	// Streams reports that reads have cursors and CloseStream means something.
	Streams bool
	// UserTimeout is u, the longest time for which the kernel may go on delivering what
	// was written. The bank hold B contains it, so a host uses no transport that does not
	// bound it or bounds it more loosely than B assumes. Zero: not bounded.
	UserTimeout time.Duration
}

// Transport carries requests. Implementations are safe for concurrent use by
// different slots; calls for one slot are made one after another by the host, and a
// transport refuses a second one (NotSent) while the first is under way.
type Transport interface {
	Capabilities(ctx context.Context) (Capabilities, error)
	// Ready reports whether a request could be made now for this channel and ISPB:
	// name resolved, certificates valid, TLS established. It makes no request.
	Ready(ctx context.Context, channel pix.Channel, ispb pix.ISPB) error
	// Pull reads from the slot's stream. A 204 is a result without messages. An answer whose
	// messages can be told apart and whose cursor is known is a result, whatever is wrong
	// with a message of it (Message.Fault): asked for again it would be the same for ever.
	Pull(ctx context.Context, req PullRequest) (PullResult, error)
	// Send posts messages. It may be repeated only by resending the very same messages.
	Send(ctx context.Context, req SendRequest) (SendResult, error)
	// CloseStream ends the stream; a stream that is already gone counts as success.
	CloseStream(ctx context.Context, req CloseRequest) (CloseResult, error)
	// Disconnect closes the slot's connection, if any. It makes no request.
	Disconnect(ctx context.Context, slot SlotID) error
}

// Need is what a host asks of a transport before it takes a slot for one channel.
type Need struct {
	Channel pix.Channel
	ISPB    pix.ISPB
	// Send or Pull is what the slot is for.
	Send, Pull bool
	// UserTimeout is u, on which the bank hold of the host's leases rests.
	UserTimeout time.Duration
}

// Readiness is what a transport says about itself; every Transport does.
type Readiness interface {
	Capabilities(ctx context.Context) (Capabilities, error)
	Ready(ctx context.Context, channel pix.Channel, ispb pix.ISPB) error
}

// Usable says why a slot would be of no use with t now, nil if it would be. It makes no request.
func Usable(ctx context.Context, t Readiness, need Need) error {
	can, err := t.Capabilities(ctx)
	if err != nil {
		return fmt.Errorf("transport: %w", err)
	}
	if need.Pull && !can.Pull || need.Send && !can.Send || !slices.Contains(can.Channels, need.Channel) {
		return fmt.Errorf("transport %s %s does not serve this channel (read: %t, send: %t, channels: %v)",
			can.Name, can.Version, can.Pull, can.Send, can.Channels)
	}
	if can.UserTimeout <= 0 || can.UserTimeout > need.UserTimeout {
		return fmt.Errorf("transport %s %s may deliver for %v what it wrote, want more than 0 and at most lease.user_timeout %v: the bank hold rests on it",
			can.Name, can.Version, can.UserTimeout, need.UserTimeout)
	}
	if err := t.Ready(ctx, need.Channel, need.ISPB); err != nil {
		return fmt.Errorf("transport: %w", err)
	}
	return nil
}
