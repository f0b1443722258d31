package icomtest

import (
	"cmp"
	"slices"

	"github.com/cabine-pix/cabine/libs/pix"
)

// Report is the bank's own count of everything since it was made.
type Report struct {
	Seed uint64 `json:"seed"`
	// HandshakesFailed counts connections that ended before the client had identified itself.
	HandshakesFailed uint64 `json:"handshakes_failed"`
	// Participants has one entry per channel and ISPB that was ever seen, ordered by both.
	Participants []Participant `json:"participants"`
}

// Participant is the bank's count for one channel and ISPB.
type Participant struct {
	Channel         pix.Channel `json:"channel"`
	ISPB            pix.ISPB    `json:"ispb"`
	Cap             int         `json:"cap"`
	RequestsNow     int         `json:"requests_now"`
	PeakRequests    int         `json:"peak_requests"`
	StreamsNow      int         `json:"streams_now"`
	PeakStreams     int         `json:"peak_streams"`
	ConnectionsNow  int         `json:"connections_now"`
	PeakConnections int         `json:"peak_connections"`
	RequestsTotal   uint64      `json:"requests_total"`
	// Enqueued counts messages for the participant, Delivered deliveries of them,
	// Redelivered those deliveries that were not a message's first, Acked messages confirmed.
	Enqueued    uint64 `json:"enqueued"`
	Delivered   uint64 `json:"delivered"`
	Acked       uint64 `json:"acked"`
	Redelivered uint64 `json:"redelivered"`
	// Queued is how many wait now. Enqueued - Acked - Queued are on the way.
	Queued int `json:"queued"`
	// Received counts messages that the participant sent.
	Received   uint64 `json:"received"`
	Violations int    `json:"violations"`
	// Waits of the messages for the participant.
	Waits Waits `json:"waits"`
}

// IDs are the PI-ResourceIds of the messages for a participant, in the order of their arrival.
type IDs struct {
	Enqueued []string `json:"enqueued"`
	Acked    []string `json:"acked"`
}

// Participant returns the count of one channel and ISPB, zero if it was never seen.
func (r Report) Participant(channel pix.Channel, ispb pix.ISPB) Participant {
	for _, p := range r.Participants {
		if p.Channel == channel && p.ISPB == ispb {
			return p
		}
	}
	return Participant{Channel: channel, ISPB: ispb}
}

// Violations sums over all participants.
func (r Report) Violations() int {
	n := 0
	for _, p := range r.Participants {
		n += p.Violations
	}
	return n
}

// Report counts.
func (b *Bank) Report() Report {
	r := Report{Seed: b.cfg.Seed, HandshakesFailed: b.handshakesFailed.Load(), Participants: []Participant{}}
	for _, d := range b.all() {
		p := Participant{Channel: d.channel, ISPB: d.ispb}
		d.ledger.fill(&p)
		d.queue.fill(&p)
		r.Participants = append(r.Participants, p)
	}
	return r
}

// Violations returns all violations kept, by channel, ISPB and time.
func (b *Bank) Violations() []Violation {
	out := []Violation{}
	for _, d := range b.all() {
		out = append(out, d.ledger.kept()...)
	}
	return out
}

// Requests returns the remembered timeline of one channel and ISPB, oldest first.
func (b *Bank) Requests(channel pix.Channel, ispb pix.ISPB) []Request {
	return b.desk(channel, ispb).ledger.timeline()
}

// IDs returns what was enqueued and what was confirmed; empty with Config.ForgetIDs.
func (b *Bank) IDs(channel pix.Channel, ispb pix.ISPB) IDs {
	return b.desk(channel, ispb).queue.known()
}

func (b *Bank) all() []*desk {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]*desk, 0, len(b.desks))
	for _, d := range b.desks {
		out = append(out, d)
	}
	slices.SortFunc(out, func(x, y *desk) int {
		return cmp.Or(cmp.Compare(x.channel, y.channel), cmp.Compare(x.ispb, y.ispb))
	})
	return out
}
