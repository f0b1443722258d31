package bacen

import (
	"context"
	"sync"
	"time"
)

// slot is the connection of one slot between and during calls.
type slot struct {
	mu sync.Mutex
	// busy while a call is under way; cancel ends that call.
	busy   bool
	cancel context.CancelFunc
	// conn is the kept connection; while busy it belongs to the call.
	conn *connection
	// idle closes conn when nothing was asked for too long.
	idle *time.Timer
}

// begin makes the slot the caller's until end. It returns the kept connection, if any,
// and false when another call is under way.
func (s *slot) begin(cancel context.CancelFunc) (*connection, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy {
		return nil, false
	}
	s.busy, s.cancel = true, cancel
	if s.idle != nil {
		s.idle.Stop()
	}
	conn := s.conn
	s.conn, s.idle = nil, nil
	return conn, true
}

// end gives the slot back with a connection to keep, or nil.
func (s *slot) end(conn *connection, maxIdle time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy, s.cancel, s.conn = false, nil, conn
	if conn != nil {
		s.idle = time.AfterFunc(maxIdle, func() { s.drop(conn) })
	}
}

// drop closes conn if it is still the kept one.
func (s *slot) drop(conn *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == conn {
		s.conn = nil
		conn.close()
	}
}

// disconnect closes the kept connection or ends the call under way, whose connection
// is then reset.
func (s *slot) disconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy {
		s.cancel()
		return
	}
	if s.idle != nil {
		s.idle.Stop()
	}
	if s.conn != nil {
		s.conn.close()
	}
	s.conn, s.idle = nil, nil
}
