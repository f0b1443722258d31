package icomtest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/pix"
)

// Kind is what a request asked for.
type Kind string

// The kinds of request. A request whose head has not been read yet has none.
const (
	KindSend    Kind = "send"
	KindStart   Kind = "start"
	KindPull    Kind = "pull"
	KindDelete  Kind = "delete"
	KindCatalog Kind = "catalog"
	KindOther   Kind = "other"
)

// Request is one line of the judge's timeline.
type Request struct {
	// ID counts the requests of a channel and ISPB from 1.
	ID      uint64      `json:"id"`
	Channel pix.Channel `json:"channel"`
	ISPB    pix.ISPB    `json:"ispb"`
	// Conn numbers the connections of the bank from 1.
	Conn   uint64 `json:"conn"`
	Remote string `json:"remote"`
	Kind   Kind   `json:"kind"`
	// FirstByte is when the bank read the first byte, End when it had finished; End is
	// zero while the request is in progress.
	FirstByte time.Time `json:"first_byte"`
	End       time.Time `json:"end,omitzero"`
	// FirstByteBoot and EndBoot are the same on CLOCK_BOOTTIME in nanoseconds, which
	// all processes of the machine share.
	FirstByteBoot clock.Instant `json:"first_byte_boot"`
	EndBoot       clock.Instant `json:"end_boot,omitzero"`
	// ClientGone is when the bank saw the client leave with the request in progress.
	ClientGone time.Time `json:"client_gone,omitzero"`
	// Status of the answer, 0 if none was written.
	Status int `json:"status"`
}

// ViolationKind is which rule was broken.
type ViolationKind string

// The rules the judge keeps.
const (
	// OverCap: more requests in progress than Config.Cap.
	OverCap ViolationKind = "requests over cap"
	// OverStreams: a stream above Config.Limit was asked for while streams are counted.
	OverStreams ViolationKind = "streams over limit"
	// Pipelined: a first byte on a connection while a request of it was in progress.
	Pipelined ViolationKind = "second request on connection"
	// BadHeader: a header off the list, a Host with a port, an Accept the bank does not
	// know, or a body with two lengths.
	BadHeader ViolationKind = "header"
	// WrongISPB: the path named another participant than the certificate.
	WrongISPB ViolationKind = "wrong ispb"
)

// Violation is one moment at which a client broke a rule.
type Violation struct {
	Kind    ViolationKind `json:"kind"`
	Channel pix.Channel   `json:"channel"`
	ISPB    pix.ISPB      `json:"ispb"`
	At      time.Time     `json:"at"`
	// Count is how many requests (or streams) there were, Limit how many were allowed; zero for other rules.
	Count  int    `json:"count,omitempty"`
	Limit  int    `json:"limit,omitempty"`
	Detail string `json:"detail,omitempty"`
	// Requests are those in progress at that moment, oldest first.
	Requests []Request `json:"requests"`
}

// String tells the violation in a few lines, for a test's message.
func (v Violation) String() string {
	s := fmt.Sprintf("%s on %s:%s at %s", v.Kind, v.Channel, v.ISPB, v.At.Format("15:04:05.000000"))
	if v.Limit > 0 {
		s += fmt.Sprintf(" (%d, allowed %d)", v.Count, v.Limit)
	}
	if v.Detail != "" {
		s += ": " + v.Detail
	}
	for _, r := range v.Requests {
		s += fmt.Sprintf("\n\t#%d %s conn %d %s .. %s", r.ID, r.Kind, r.Conn, moment(r.FirstByte), moment(r.End))
		if !r.ClientGone.IsZero() {
			s += " (client left " + moment(r.ClientGone) + ")"
		}
	}
	return s
}

func moment(t time.Time) string {
	if t.IsZero() {
		return "in progress"
	}
	return t.Format("15:04:05.000000")
}

// ledger is the judge's book of one channel and ISPB. It knows nothing of messages.
type ledger struct {
	channel pix.Channel
	ispb    pix.ISPB
	cap     int
	keep    int // violations kept in full

	mu          sync.Mutex
	total       uint64
	active      []*Request // in progress, oldest first
	peak        int
	conns       int
	peakConns   int
	streams     int
	peakStreams int
	ring        []*Request // the last requests, ring[total%len] is the next to go
	violations  []kept
	broken      int // all violations, also those not kept
}

// kept is a violation whose requests go on changing until they end.
type kept struct {
	Violation
	requests []*Request
}

func newLedger(channel pix.Channel, ispb pix.ISPB, cfg Config) *ledger {
	return &ledger{
		channel: channel, ispb: ispb, cap: cfg.Cap, keep: cfg.MaxViolations,
		ring: make([]*Request, cfg.Timeline),
	}
}

// begin books the first byte of a request.
func (l *ledger) begin(now clock.Reading, conn uint64, remote string) *Request {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total++
	r := &Request{
		ID: l.total, Channel: l.channel, ISPB: l.ispb, Conn: conn, Remote: remote,
		FirstByte: now.Wall, FirstByteBoot: now.Boot,
	}
	l.ring[l.total%uint64(len(l.ring))] = r
	second := slices.ContainsFunc(l.active, func(o *Request) bool { return o.Conn == conn })
	l.active = append(l.active, r)
	l.peak = max(l.peak, len(l.active))
	if second {
		l.book(now, Violation{Kind: Pipelined})
	}
	if len(l.active) > l.cap {
		l.book(now, Violation{Kind: OverCap, Count: len(l.active), Limit: l.cap})
	}
	return r
}

// end books the bank's own end of a request; the second call for a request does nothing.
func (l *ledger) end(now clock.Reading, r *Request, status int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.active, r)
	if i < 0 {
		return
	}
	l.active = slices.Delete(l.active, i, i+1)
	r.End, r.EndBoot, r.Status = now.Wall, now.Boot, status
}

// name books what a request turned out to ask for and returns how many are in progress.
func (l *ledger) name(r *Request, kind Kind) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.Kind = kind
	return len(l.active)
}

// left books that the client of a connection is gone, which ends nothing.
func (l *ledger) left(now clock.Reading, conn uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns--
	for _, r := range l.active {
		if r.Conn == conn {
			r.ClientGone = now.Wall
		}
	}
}

func (l *ledger) connected() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns++
	l.peakConns = max(l.peakConns, l.conns)
}

func (l *ledger) streamed(delta int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.streams += delta
	l.peakStreams = max(l.peakStreams, l.streams)
}

// violate keeps a violation with the requests in progress.
func (l *ledger) violate(now clock.Reading, v Violation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.book(now, v)
}

func (l *ledger) book(now clock.Reading, v Violation) {
	l.broken++
	if len(l.violations) == l.keep {
		return
	}
	v.Channel, v.ISPB, v.At = l.channel, l.ispb, now.Wall
	l.violations = append(l.violations, kept{Violation: v, requests: slices.Clone(l.active)})
}

func (l *ledger) kept() []Violation {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]Violation, 0, len(l.violations))
	for _, k := range l.violations {
		v := k.Violation
		v.Requests = make([]Request, 0, len(k.requests))
		for _, r := range k.requests {
			v.Requests = append(v.Requests, *r)
		}
		out = append(out, v)
	}
	return out
}

// timeline returns the remembered requests, oldest first.
func (l *ledger) timeline() []Request {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []Request
	n := uint64(len(l.ring))
	for i := l.total + 1; i <= l.total+n; i++ {
		if r := l.ring[i%n]; r != nil {
			out = append(out, *r)
		}
	}
	return out
}

func (l *ledger) fill(p *Participant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p.Cap = l.cap
	p.RequestsNow, p.PeakRequests, p.RequestsTotal = len(l.active), l.peak, l.total
	p.StreamsNow, p.PeakStreams = l.streams, l.peakStreams
	p.ConnectionsNow, p.PeakConnections = l.conns, l.peakConns
	p.Violations = l.broken
}
