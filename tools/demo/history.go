package main

import (
	"encoding/json"
	"errors"
	"sync"
	"time"
)

// event is a line of a replica's log that says who has a slot.
type event struct {
	Time    time.Time `json:"time"`
	Msg     string    `json:"msg"`
	Channel string    `json:"channel"`
	Slot    int       `json:"slot"`
	At      time.Time `json:"at"`
	How     string    `json:"how"`
	Level   string    `json:"level"`
	replica string
}

// history collects what the replicas say about slots, in the order of their clocks, which is one clock.
type history struct {
	mu     sync.Mutex
	events []event
}

func (h *history) read(replica string, line []byte) {
	var e event
	if json.Unmarshal(line, &e) != nil {
		return
	}
	e.replica = replica
	h.mu.Lock()
	defer h.mu.Unlock()
	switch e.Msg {
	case "slot granted", "first poll", "slot given":
		h.events = append(h.events, e)
	}
}

type slotID struct {
	channel string
	slot    int
}

// held returns the slots that replica held at a moment.
func (h *history) held(replica string, at time.Time) []slotID {
	h.mu.Lock()
	defer h.mu.Unlock()
	has := make(map[slotID]bool)
	for _, e := range h.events {
		if e.replica != replica || e.Time.After(at) {
			continue
		}
		switch e.Msg {
		case "first poll":
			has[slotID{e.Channel, e.Slot}] = true
		case "slot given":
			delete(has, slotID{e.Channel, e.Slot})
		}
	}
	slots := make([]slotID, 0, len(has))
	for s := range has {
		slots = append(slots, s)
	}
	return slots
}

// polledAfter returns when another replica first polled a slot after a moment.
func (h *history) polledAfter(s slotID, not string, after time.Time) (time.Time, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.events {
		if e.Msg == "first poll" && e.Channel == s.channel && e.Slot == s.slot && e.replica != not && e.At.After(after) {
			return e.At, true
		}
	}
	return time.Time{}, false
}

// killedTakeover is the longest wait from a kill to the next poll of the slots it left.
func (h *history) killedTakeover(f Fault) (ms int64, missing int) {
	ms = -1
	for _, s := range h.held(f.Replica, f.At) {
		at, ok := h.polledAfter(s, f.Replica, f.At)
		if !ok {
			missing++
			continue
		}
		ms = max(ms, at.Sub(f.At).Milliseconds())
	}
	return ms, missing
}

// gracefulTakeover is the longest wait from a slot given back by a stopping replica to its next poll.
func (h *history) gracefulTakeover(f Fault) int64 {
	h.mu.Lock()
	var given []event
	for _, e := range h.events {
		if e.replica == f.Replica && e.Msg == "slot given" && e.Time.After(f.At) {
			given = append(given, e)
		}
	}
	h.mu.Unlock()
	ms := int64(-1)
	for _, g := range given {
		if at, ok := h.polledAfter(slotID{g.Channel, g.Slot}, f.Replica, g.Time); ok {
			ms = max(ms, at.Sub(g.Time).Milliseconds())
		}
	}
	return ms
}

var errGone = errors.New("uma réplica terminou sozinha")
