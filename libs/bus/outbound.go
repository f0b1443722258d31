package bus

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/cabine-pix/cabine/libs/pix"
)

// Outbound says that an operation of the outbox waits to be sent. The operation itself stays in Postgres: what the bus
// loses, repeats or keeps too long is a number.
type Outbound struct {
	ISPB    pix.ISPB
	Channel pix.Channel
	// ID is the operation's in the outbox.
	ID int64
	// MsgType is e.g. "pacs.008".
	MsgType string
	// Attempt is zero the first time and counts deliberate republications: each passes the duplicate window.
	Attempt int
}

// outboundBody is the message on the wire.
type outboundBody struct {
	ID      int64  `json:"id"`
	MsgType string `json:"msg"`
}

// PublishOutbound is Publish for operations of the outbox.
func (b *Bus) PublishOutbound(ctx context.Context, operations []Outbound) Results {
	all := make([]Message, len(operations))
	for i, o := range operations {
		body, err := json.Marshal(outboundBody{ID: o.ID, MsgType: o.MsgType})
		if err != nil {
			return failed(len(operations), fmt.Errorf("operation %d: %w", o.ID, err))
		}
		id := "outbox/" + strconv.FormatInt(o.ID, 10)
		if o.Attempt > 0 {
			id += "/" + strconv.Itoa(o.Attempt)
		}
		all[i] = Message{Subject: OutboundSubject(o.ISPB, o.Channel), ID: id, Payload: body}
	}
	return b.Publish(ctx, all)
}

// Outbound reads the delivery as a message of PIX_OUTBOUND. The Attempt is not part of it.
func (d Delivery) Outbound() (Outbound, error) {
	parts := strings.Split(d.Subject, ".")
	if len(parts) != 4 {
		return Outbound{}, fmt.Errorf("subject %q: want pix.out.<ispb>.<channel>", d.Subject)
	}
	channel, err := pix.ParseChannel(parts[3])
	if err != nil {
		return Outbound{}, fmt.Errorf("subject: %w", err)
	}
	var body outboundBody
	if err := json.Unmarshal(d.Payload, &body); err != nil {
		return Outbound{}, fmt.Errorf("outbound: %w", err)
	}
	if body.ID < 1 {
		return Outbound{}, fmt.Errorf("outbound: id %d, want one of the outbox", body.ID)
	}
	return Outbound{ISPB: pix.ISPB(parts[2]), Channel: channel, ID: body.ID, MsgType: body.MsgType}, nil
}
