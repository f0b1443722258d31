package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cabine-pix/cabine/libs/pix"
)

// reign is one leadership of one replica, as that said itself; one that was killed reigned until it was gone.
type reign struct {
	of         pix.ISPB
	name       string // of the leadership
	replica    string
	term       int64
	begin, end time.Time // end is zero while it lasts
}

// hearing collects what the replicas of both participants say of leaderships, and of a bus that does not answer. Every time is
// by the clock of this machine, which is the database's too; see (*troupe).clocks.
type hearing struct {
	mu     sync.Mutex
	reigns []reign
	silent []string // a line for each time that JetStream did not answer
}

// silences are the messages in which a service says that JetStream did not answer, or answered too late.
func silences() []string {
	return []string{
		"consumer unavailable", "pull interrupted", "subscription interrupted", "bus error", "bus disconnected", "answer to the bus failed",
		"deliveries were not answered in time", "publishing fails, rows wait in the table", "announcing fails, rows wait in the outbox",
		"obligations are not announced, they wait in the table", "nothing can be taken from the bus",
	}
}

// said is what is read of a line.
type said struct {
	Time       time.Time `json:"time"`
	Msg        string    `json:"msg"`
	Leadership string    `json:"leadership"`
	Term       int64     `json:"term"`
	Error      any       `json:"error"`
}

func (h *hearing) read(of pix.ISPB, replica string, line []byte) {
	var s said
	if json.Unmarshal(line, &s) != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case s.Msg == "leading":
		h.reigns = append(h.reigns, reign{of: of, name: s.Leadership, replica: replica, term: s.Term, begin: s.Time})
	case s.Msg == "leadership given up" || s.Msg == "leadership lost":
		h.end(replica, s.Time)
	case s.Msg == "bus disconnected" && s.Error == nil: // its own end
	case slices.Contains(silences(), s.Msg):
		h.silent = append(h.silent, fmt.Sprintf("%s: %s: %v", replica, s.Msg, s.Error))
	}
}

// gone says that a replica has ended, however it did.
func (h *hearing) gone(replica string, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.end(replica, at)
}

func (h *hearing) end(replica string, at time.Time) {
	for i := range h.reigns {
		if r := &h.reigns[i]; r.replica == replica && r.end.IsZero() {
			r.end = at
		}
	}
}

// leader returns who leads a participant's singletons; empty for nobody.
func (h *hearing) leader(of pix.ISPB) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range slices.Backward(h.reigns) {
		if r.of == of && r.end.IsZero() {
			return r.replica
		}
	}
	return ""
}

// leaders counts how often a leadership changed hands, and the pairs of reigns that lasted at the same time, or under one term.
func (h *hearing) leaders() (l Leader) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, a := range h.reigns {
		followed := false
		for j, b := range h.reigns {
			if i == j || a.of != b.of || a.name != b.name {
				continue
			}
			followed = followed || b.term > a.term
			if b.term == a.term && i < j {
				l.Overlaps++
				l.Lines = append(l.Lines, fmt.Sprintf("%s: mandato %d foi de %s e de %s", a.name, a.term, a.replica, b.replica))
			}
			if b.term > a.term && (a.end.IsZero() || b.begin.Before(a.end)) {
				l.Overlaps++
				l.Lines = append(l.Lines, fmt.Sprintf("%s: mandato %d de %s começou antes do fim do mandato %d de %s", a.name, b.term, b.replica, a.term, a.replica))
			}
		}
		if followed {
			l.Changes++
		}
	}
	return l
}
