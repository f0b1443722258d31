package icomtest

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// Drop is where in a request the bank cuts the connection.
type Drop string

// The places.
const (
	// DropReading: by a reset, with half of the request's body read, or before anything was done where it has none. A send
	// is not stored.
	DropReading Drop = "reading"
	// DropUnprocessed: before anything was done. A send is not stored.
	DropUnprocessed Drop = "unprocessed"
	// DropBefore: after the work, before the first byte of the answer. A send is stored.
	DropBefore Drop = "before"
	// DropMiddle: with half of the answer written.
	DropMiddle Drop = "middle"
	// DropAfter: after the answer, without having announced it.
	DropAfter Drop = "after"
)

// Malformed is how the bank spoils an answer that carries messages.
type Malformed string

// The ways.
const (
	// NoBoundary: multipart/mixed without its parameter.
	NoBoundary Malformed = "no boundary"
	// NoResourceID: the first message without PI-ResourceId.
	NoResourceID Malformed = "no resource id"
	// NoCursor: no PI-Pull-Next.
	NoCursor Malformed = "no cursor"
	// WrongCharset: messages said to be ISO-8859-1.
	WrongCharset Malformed = "wrong charset"
	// BrokenXML: the first message cut in the middle.
	BrokenXML Malformed = "broken xml"
	// TruncatedMultipart: no closing boundary.
	TruncatedMultipart Malformed = "truncated multipart"
	// NotGzip: said to be gzip, and plain.
	NotGzip Malformed = "not gzip"
	// GzipBomb: a small body that grows to bombBytes.
	GzipBomb Malformed = "gzip bomb"
	// Oversize: a plain first message of oversizeBytes.
	Oversize Malformed = "oversize"
)

// malformations lists all, for validation.
func malformations() []Malformed {
	return []Malformed{
		NoBoundary, NoResourceID, NoCursor, WrongCharset, BrokenXML, TruncatedMultipart, NotGzip, GzipBomb, Oversize,
	}
}

// Fault is one rule of misbehaviour. Its effects add up.
type Fault struct {
	// Kinds of request it applies to; empty: all.
	Kinds []Kind
	// Rate is the share of those requests, above 0 to 1, chosen by the bank's seed and
	// the request's number under the rule. Default 1.
	Rate float64
	// Times ends the rule after so many requests; 0: never.
	Times int

	// Status answers 429, 500 (text/plain), 502 or 503 (problem) and does nothing else.
	Status int
	// RetryAfter goes with Status, in whole seconds; 0: no header.
	RetryAfter int
	// ExtraHold is added to the hold of a read.
	ExtraHold time.Duration
	// Delay is spent after the work and before the answer.
	Delay time.Duration
	// SlowBody is how long the answer takes to be written.
	SlowBody time.Duration
	// Drop cuts the connection.
	Drop Drop
	// Malformed spoils the answer. A rule that has it looks only at answers with messages.
	Malformed Malformed
}

func (f Fault) validate() error {
	if f.Rate < 0 || f.Rate > 1 || f.Times < 0 || f.Delay < 0 || f.ExtraHold < 0 || f.SlowBody < 0 {
		return fmt.Errorf("icomtest: fault %+v: rate outside 0..1 or something negative", f)
	}
	switch f.Drop {
	case "", DropReading, DropUnprocessed, DropBefore, DropMiddle, DropAfter:
	default:
		return fmt.Errorf("icomtest: unknown drop %q", f.Drop)
	}
	if f.Malformed != "" && !slices.Contains(malformations(), f.Malformed) {
		return fmt.Errorf("icomtest: unknown malformation %q", f.Malformed)
	}
	if f.Status != 0 && f.Status != 429 && (f.Status < 500 || f.Status > 599) {
		return fmt.Errorf("icomtest: fault status %d: want 429 or 5xx", f.Status)
	}
	return nil
}

// rules are the faults of one channel and how often each was asked and struck.
type rules struct {
	seed uint64

	mu     sync.Mutex
	faults []Fault
	asked  []uint64
	struck []int
}

func (r *rules) set(faults []Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = slices.Clone(faults)
	r.asked, r.struck = make([]uint64, len(faults)), make([]int, len(faults))
}

// phase is when in a request a rule is asked.
type phase int

const (
	reading phase = iota
	working
	spoiling
)

func (f Fault) phase() phase {
	switch {
	case f.Drop == DropReading:
		return reading
	case f.Malformed != "":
		return spoiling
	}
	return working
}

// strike merges the rules of a phase that hit a request of this kind.
func (r *rules) strike(kind Kind, now phase) Fault {
	r.mu.Lock()
	defer r.mu.Unlock()
	var hit Fault
	for i, f := range r.faults {
		if f.phase() != now || len(f.Kinds) > 0 && !slices.Contains(f.Kinds, kind) {
			continue
		}
		r.asked[i]++
		if f.Times > 0 && r.struck[i] == f.Times || !chosen(r.seed, uint64(i), r.asked[i], f.Rate) {
			continue
		}
		r.struck[i]++
		hit = hit.and(f)
	}
	return hit
}

func (f Fault) and(g Fault) Fault {
	f.Delay += g.Delay
	f.ExtraHold += g.ExtraHold
	f.SlowBody += g.SlowBody
	if g.Status != 0 {
		f.Status, f.RetryAfter = g.Status, g.RetryAfter
	}
	if g.Drop != "" {
		f.Drop = g.Drop
	}
	if g.Malformed != "" {
		f.Malformed = g.Malformed
	}
	return f
}

// chosen decides by a hash, so that the n-th request of a rule has the same fate in every run of a seed.
func chosen(seed, rule, n uint64, rate float64) bool {
	if rate == 0 || rate == 1 {
		return true
	}
	x := seed ^ rule<<56 ^ n*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	x ^= x >> 31
	return float64(x>>11)/(1<<53) < rate
}
