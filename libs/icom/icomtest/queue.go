package icomtest

import (
	"context"
	"encoding/hex"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/icom"
	"github.com/cabine-pix/cabine/libs/pix"
)

// rememberedCursors is how many cursors that are over still answer 410; older ones answer 404.
const rememberedCursors = 4096

// message is one message for a participant. It belongs to the queue or to one stream's batch.
type message struct {
	id         string
	body       []byte
	at         clock.Reading // when it was enqueued
	deliveries int
	acked      bool
}

// stream is one read stream. Its batch is what was delivered last and not confirmed.
type stream struct {
	cursor string // what the next request must name
	batch  []*message
	busy   bool          // a request of the stream is in progress
	idle   clock.Reading // since when it is not busy
}

// poll is one read that waits. handed receives once, when the poll has been taken off the list.
type poll struct {
	stream *stream
	most   int
	handed chan []*message
}

// queue holds the messages and streams of one channel and ISPB. Streams compete for messages.
type queue struct {
	cfg      Config
	streamed func(delta int)

	mu      sync.Mutex
	random  *rand.ChaCha8
	waiting []*message
	polls   []*poll
	streams map[string]*stream // idle streams by cursor; a busy one has none
	open    map[*stream]struct{}
	over    map[string]struct{} // cursors that are over
	overLog []string            // the same, a ring
	overAt  int
	ids     []*message // everything ever enqueued
	traffic *icom.Traffic
	waits   waits

	enqueued, delivered, acked, redelivered, received uint64
}

func newQueue(channel pix.Channel, ispb pix.ISPB, cfg Config, streamed func(int)) *queue {
	h := fnv.New64a()
	h.Write([]byte(channel))
	h.Write([]byte(ispb))
	return &queue{
		cfg: cfg, streamed: streamed, random: seeded(cfg.Seed, h.Sum64()),
		streams: make(map[string]*stream), open: make(map[*stream]struct{}),
		over: make(map[string]struct{}), overLog: make([]string, rememberedCursors),
		traffic: icom.NewTraffic(channel, cfg.Clock.Now().Wall),
	}
}

func seeded(seed, stream uint64) *rand.ChaCha8 {
	var key [32]byte
	pcg := rand.NewPCG(seed, stream)
	for i := range key {
		key[i] = byte(pcg.Uint64() >> 32)
	}
	return rand.NewChaCha8(key)
}

// enqueue puts messages at the end of the queue and hands them to waiting reads.
func (q *queue) enqueue(bodies ...[]byte) []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	ids := make([]string, 0, len(bodies))
	now := q.cfg.Clock.Now()
	for _, body := range bodies {
		m := &message{id: q.newID(now.Wall), body: body, at: now}
		ids = append(ids, m.id)
		q.waiting = append(q.waiting, m)
		if !q.cfg.ForgetIDs {
			q.ids = append(q.ids, m)
		}
	}
	q.enqueued += uint64(len(bodies))
	q.match()
	return ids
}

func (q *queue) newID(now time.Time) string {
	// ChaCha8 never fails and the clock stands in this century.
	id, _ := icom.NewResourceID(now, q.random)
	return id.String()
}

// match hands waiting messages to waiting reads, both in order.
func (q *queue) match() {
	for len(q.polls) > 0 && len(q.waiting) > 0 {
		p := q.polls[0]
		q.polls = q.polls[1:]
		p.handed <- q.hand(p.stream, p.most)
	}
}

// hand moves messages from the queue to a stream's batch.
func (q *queue) hand(s *stream, most int) []*message {
	n := min(most, len(q.waiting))
	batch := slices.Clone(q.waiting[:n])
	q.waiting = q.waiting[n:]
	if len(q.waiting) == 0 {
		q.waiting = nil
	}
	now := q.cfg.Clock.Now()
	for _, m := range batch {
		m.deliveries++
		if m.deliveries > 1 {
			q.redelivered++
		} else {
			q.waits.add(now.Elapsed(m.at))
		}
	}
	q.delivered += uint64(n)
	s.batch = batch
	return batch
}

// take waits for messages until the hold ends, which gives none.
func (q *queue) take(ctx context.Context, s *stream, most int, hold time.Duration) []*message {
	q.mu.Lock()
	if len(q.waiting) > 0 {
		defer q.mu.Unlock()
		return q.hand(s, most)
	}
	p := &poll{stream: s, most: most, handed: make(chan []*message, 1)}
	q.polls = append(q.polls, p)
	q.mu.Unlock()

	timer := q.cfg.Clock.NewTimer(hold)
	defer timer.Stop()
	select {
	case batch := <-p.handed:
		return batch
	case <-timer.C():
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.polls, p); i >= 0 {
		q.polls = slices.Delete(q.polls, i, i+1)
		return nil
	}
	return <-p.handed
}

// start opens a stream, busy with the request that asked for it. It refuses one above
// limit (0: no limit) and says how many there are.
func (q *queue) start(limit int) (s *stream, streams int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if limit > 0 && len(q.open) >= limit {
		return nil, len(q.open)
	}
	s = &stream{busy: true}
	q.open[s] = struct{}{}
	q.streamed(1)
	return s, len(q.open)
}

// resume confirms the last delivery of the stream that the cursor names, makes it busy
// and ends the cursor. Without such a stream, over says whether there was one.
func (q *queue) resume(cursor string) (s *stream, over bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s, ok := q.streams[cursor]
	if !ok {
		_, over = q.over[cursor]
		return nil, over
	}
	q.forget(s)
	s.busy = true
	for _, m := range s.batch {
		m.acked = true
		m.body = nil
	}
	q.acked += uint64(len(s.batch))
	s.batch = nil
	return s, false
}

// pause gives the stream its next cursor when its answer is ready; its idle time runs
// from now. From here on another request may resume it and forget the batch's bodies.
func (q *queue) pause(s *stream) (cursor string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s.cursor = q.newCursor()
	q.streams[s.cursor] = s
	s.busy, s.idle = false, q.cfg.Clock.Now()
	return s.cursor
}

// close ends a stream that resume made busy.
func (q *queue) close(s *stream) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.drop(s)
}

func (q *queue) drop(s *stream) {
	q.forget(s)
	delete(q.open, s)
	q.streamed(-1)
}

// forget ends the stream's cursor, so that a request that names it is answered 410.
func (q *queue) forget(s *stream) {
	if s.cursor == "" {
		return
	}
	delete(q.streams, s.cursor)
	delete(q.over, q.overLog[q.overAt])
	q.overLog[q.overAt] = s.cursor
	q.over[s.cursor] = struct{}{}
	q.overAt = (q.overAt + 1) % len(q.overLog)
	s.cursor = ""
}

func (q *queue) newCursor() string {
	var u [16]byte
	// ChaCha8 never fails.
	_, _ = q.random.Read(u[:])
	u[6] = u[6]&0x0f | 0x40
	u[8] = u[8]&0x3f | 0x80
	var text [36]byte
	hex.Encode(text[:8], u[:4])
	text[8] = '-'
	hex.Encode(text[9:13], u[4:6])
	text[13] = '-'
	hex.Encode(text[14:18], u[6:8])
	text[18] = '-'
	hex.Encode(text[19:23], u[8:10])
	text[23] = '-'
	hex.Encode(text[24:], u[10:])
	return string(text[:])
}

// sweep returns the deliveries of abandoned streams to the front of the queue and ends streams that expired.
func (q *queue) sweep() {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.cfg.Clock.Now()
	for s := range q.open {
		if s.busy {
			continue
		}
		idle := now.Elapsed(s.idle)
		if len(s.batch) > 0 && idle >= q.cfg.RedeliverAfter {
			q.waiting = append(s.batch, q.waiting...)
			s.batch = nil
		}
		if idle >= q.cfg.StreamExpiry {
			q.drop(s)
		}
	}
	q.match()
}

// store keeps what a participant sent and returns the identifiers.
func (q *queue) store(n int) []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.cfg.Clock.Now().Wall
	ids := make([]string, n)
	for i := range ids {
		ids[i] = q.newID(now)
	}
	q.received += uint64(n)
	return ids
}

// admit returns how long messages of these types must wait for their bucket.
func (q *queue) admit(msgTypes []string) (wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.cfg.Clock.Now().Wall
	for _, t := range msgTypes {
		wait = max(wait, q.traffic.Wait(now, t))
	}
	return wait
}

func (q *queue) debit(msgType string, cost float64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.traffic.Debit(q.cfg.Clock.Now().Wall, msgType, cost)
}

func (q *queue) fill(p *Participant) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p.Enqueued, p.Delivered, p.Acked, p.Redelivered = q.enqueued, q.delivered, q.acked, q.redelivered
	p.Received, p.Queued, p.Waits = q.received, len(q.waiting), q.waits.report()
}

// known returns the identifiers of everything enqueued and of what was confirmed.
func (q *queue) known() IDs {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := IDs{Enqueued: make([]string, 0, len(q.ids)), Acked: []string{}}
	for _, m := range q.ids {
		out.Enqueued = append(out.Enqueued, m.id)
		if m.acked {
			out.Acked = append(out.Acked, m.id)
		}
	}
	return out
}
