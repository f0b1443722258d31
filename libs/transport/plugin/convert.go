package plugin

import (
	"math"
	"time"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/transport"
	transportv1 "github.com/cabine-pix/cabine/libs/transport/plugin/pb/cabine/transport/v1"
)

func slotToWire(s transport.SlotID) *transportv1.SlotId {
	// A slot number that does not fit becomes 0, which no permit may have.
	n := int32(0)
	if s.Slot > 0 && s.Slot <= math.MaxInt32 {
		n = int32(s.Slot)
	}
	return &transportv1.SlotId{Channel: string(s.Channel), Ispb: string(s.ISPB), Slot: n}
}

func slotFromWire(s *transportv1.SlotId) transport.SlotID {
	return transport.SlotID{Channel: pix.Channel(s.GetChannel()), ISPB: pix.ISPB(s.GetIspb()), Slot: int(s.GetSlot())}
}

func permitToWire(p transport.Permit) *transportv1.Permit {
	return &transportv1.Permit{
		Slot:              slotToWire(p.Slot),
		Grant:             p.Grant,
		NotAfterBootNanos: int64(p.NotAfter.Boot),
		NotAfterWallNanos: p.NotAfter.Wall.UnixNano(),
	}
}

func permitFromWire(p *transportv1.Permit) transport.Permit {
	return transport.Permit{
		Slot:  slotFromWire(p.GetSlot()),
		Grant: p.GetGrant(),
		NotAfter: clock.Deadline{
			Boot: clock.Instant(p.GetNotAfterBootNanos()),
			Wall: time.Unix(0, p.GetNotAfterWallNanos()),
		},
	}
}

func exchangeToWire(x transport.Exchange) *transportv1.Exchange {
	return &transportv1.Exchange{FirstByteBootNanos: int64(x.FirstByte), Complete: x.Complete}
}

func exchangeFromWire(x *transportv1.Exchange) transport.Exchange {
	return transport.Exchange{FirstByte: clock.Instant(x.GetFirstByteBootNanos()), Complete: x.GetComplete()}
}

func pullResultToWire(r transport.PullResult) *transportv1.PullResponse {
	messages := make([]*transportv1.Message, len(r.Messages))
	for i, m := range r.Messages {
		messages[i] = &transportv1.Message{ResourceId: m.ResourceID, Body: m.Body, Fault: clean(m.Fault)}
	}
	return &transportv1.PullResponse{
		Exchange: exchangeToWire(r.Exchange), Messages: messages, Cursor: r.Cursor, TookNanos: int64(r.Took),
	}
}

func pullResultFromWire(r *transportv1.PullResponse) transport.PullResult {
	out := transport.PullResult{
		Exchange: exchangeFromWire(r.GetExchange()), Cursor: r.GetCursor(), Took: time.Duration(r.GetTookNanos()),
	}
	for _, m := range r.GetMessages() {
		out.Messages = append(out.Messages, transport.Message{ResourceID: m.GetResourceId(), Body: m.GetBody(), Fault: clean(m.GetFault())})
	}
	return out
}

func capabilitiesToWire(c transport.Capabilities) *transportv1.CapabilitiesResponse {
	channels := make([]string, len(c.Channels))
	for i, ch := range c.Channels {
		channels[i] = string(ch)
	}
	return &transportv1.CapabilitiesResponse{
		Name: c.Name, Version: c.Version, Channels: channels, Send: c.Send, Pull: c.Pull, Streams: c.Streams,
		UserTimeoutNanos: int64(c.UserTimeout),
	}
}

func capabilitiesFromWire(c *transportv1.CapabilitiesResponse) transport.Capabilities {
	out := transport.Capabilities{
		Name: clean(c.GetName()), Version: clean(c.GetVersion()),
		Send: c.GetSend(), Pull: c.GetPull(), Streams: c.GetStreams(),
		UserTimeout: time.Duration(c.GetUserTimeoutNanos()),
	}
	for _, known := range pix.Channels() {
		for _, s := range c.GetChannels() {
			if s == string(known) {
				out.Channels = append(out.Channels, known)
				break
			}
		}
	}
	return out
}
