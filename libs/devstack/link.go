package devstack

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// chunkSize is what one read takes; queueLength bounds what a link keeps per direction: 32 MB.
	chunkSize   = 32 << 10
	queueLength = 1024
)

// link is one connection through a proxy: its two sides and, per direction, a reader that queues and a writer that
// waits for whatever fault is on.
type link struct {
	proxy          *Proxy
	client, server *net.TCPConn
	pending        atomic.Pointer[Held] // set by the writer to the server, taken by the writer to the client
	ended          chan struct{}        // closed by cut
	once           sync.Once
}

// chunk is what one read returned. end is its error, after which nothing follows.
type chunk struct {
	data []byte
	at   time.Time
	end  error
}

func newLink(p *Proxy, client, server *net.TCPConn) *link {
	return &link{proxy: p, client: client, server: server, ended: make(chan struct{})}
}

// cut resets both sides, at once.
func (l *link) cut() {
	l.once.Do(func() {
		close(l.ended)
		reset(l.client)
		reset(l.server)
	})
}

// serve passes both directions on until both have ended.
func (l *link) serve() {
	var group sync.WaitGroup
	toServer, toClient := make(chan chunk, queueLength), make(chan chunk, queueLength)
	group.Go(func() { l.read(l.client, toServer) })
	group.Go(func() { l.read(l.server, toClient) })
	group.Go(func() { l.write(toServer, l.server, ToServer) })
	group.Go(func() { l.write(toClient, l.client, ToClient) })
	group.Wait()
	_, _ = l.client.Close(), l.server.Close() // both directions have ended: nothing is lost
}

func (l *link) read(from *net.TCPConn, queue chan<- chunk) {
	defer close(queue)
	for {
		buffer := make([]byte, chunkSize)
		n, err := from.Read(buffer)
		select {
		case queue <- chunk{data: buffer[:n], at: time.Now(), end: err}:
		case <-l.ended:
			return
		}
		if err != nil {
			return
		}
	}
}

func (l *link) write(queue <-chan chunk, to *net.TCPConn, d Direction) {
	for c := range queue {
		if !l.wait(c.at, d) || !l.apply(c.data, d) {
			return
		}
		if len(c.data) > 0 {
			if _, err := to.Write(c.data); err != nil {
				l.cut() // the other side learns that this one is gone
				return
			}
		}
		switch {
		case c.end == nil:
		case errors.Is(c.end, io.EOF):
			_ = to.CloseWrite() // half closed, as it came; gone already is as good
		default:
			l.cut()
		}
	}
}

// wait returns once the proxy lets bytes of this direction pass that were read at the given time; false means that the
// link was cut.
func (l *link) wait(at time.Time, d Direction) bool {
	for {
		l.proxy.mu.Lock()
		held, late, changed := l.proxy.held&d != 0, time.Until(at.Add(l.proxy.delay)), l.proxy.changed
		l.proxy.mu.Unlock()
		var due <-chan time.Time
		if !held {
			if late <= 0 {
				return true
			}
			timer := time.NewTimer(late)
			defer timer.Stop() // few changes while one chunk waits
			due = timer.C
		}
		select {
		case <-due:
		case <-changed:
		case <-l.ended:
			return false
		}
	}
}

// apply carries out the one-shot faults; false means that the bytes are not to be written.
func (l *link) apply(data []byte, d Direction) bool {
	if len(data) == 0 {
		return true
	}
	var rule *Held
	if d == ToServer {
		rule = l.proxy.takeRule(data)
		if rule == nil || rule.fault != holdRequest {
			if rule != nil {
				l.pending.Store(rule)
			}
			return true
		}
	} else if rule = l.pending.Swap(nil); rule == nil {
		return true
	}
	close(rule.arrived)
	if rule.fault == loseReply {
		l.cut()
		return false
	}
	select {
	case <-rule.deliver:
		return true
	case <-l.ended:
		return false
	}
}
