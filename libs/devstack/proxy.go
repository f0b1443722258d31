package devstack

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Direction is one way through a [Proxy], or both.
type Direction int

// The directions of a connection.
const (
	ToServer Direction = 1 << iota
	ToClient
	Both = ToServer | ToClient
)

// dialLimit bounds the dial to the target.
const dialLimit = 5 * time.Second

// Proxy passes TCP connections from a client to a server and does to them what networks do: it delays, it swallows
// silently, it cuts, it delivers late. It starts passing everything on. Safe for concurrent use.
//
// The client's kernel sees its bytes acknowledged by the proxy, so TCP_USER_TIMEOUT does not fire and a connection
// attempt succeeds during a blackhole: what a test sees is a peer that took the bytes and says nothing.
type Proxy struct {
	listener net.Listener
	group    sync.WaitGroup

	mu       sync.Mutex
	target   string
	held     Direction
	delay    time.Duration
	refuse   bool
	rules    []*Held
	changed  chan struct{} // closed and renewed at every change of the fields above
	links    map[*link]struct{}
	accepted int
	closed   bool
}

// NewProxy starts a proxy to target, "host:port", on a free port of 127.0.0.1.
func NewProxy(target string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // does not block
	if err != nil {
		return nil, fmt.Errorf("devstack: listen for proxy: %w", err)
	}
	p := &Proxy{listener: listener, target: target, changed: make(chan struct{}), links: map[*link]struct{}{}}
	p.group.Go(p.accept)
	return p, nil
}

// Addr is where clients connect, "127.0.0.1:port".
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Pass ends every fault: what was held is delivered now, late and in order, and new connections are accepted.
func (p *Proxy) Pass() {
	p.change(func() {
		for _, rule := range p.rules {
			rule.Deliver()
		}
		p.held, p.delay, p.refuse, p.rules = 0, 0, false, nil
	})
}

// Blackhole keeps the bytes of direction d from now on, without a word to either side: no FIN and no RST, also when a
// side closes. Pass delivers them.
func (p *Proxy) Blackhole(d Direction) { p.change(func() { p.held |= d }) }

// Delay makes every byte arrive at least d late, both ways.
func (p *Proxy) Delay(d time.Duration) { p.change(func() { p.delay = d }) }

// Refuse resets new connections; open ones stay.
func (p *Proxy) Refuse() { p.change(func() { p.refuse = true }) }

// Target sends new connections to another server, as a failover does; open ones stay where they are.
func (p *Proxy) Target(addr string) { p.change(func() { p.target = addr }) }

// Cut resets every open connection.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.cut()
	}
}

// Open is the number of connections open now, Accepted how many there have been.
func (p *Proxy) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// Accepted is the number of connections accepted since the beginning, without the refused.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// LoseReply lets the next request that match accepts reach the server, waits for the answer to begin, throws it away
// and resets the connection: the request was executed and the client does not know. match nil accepts any request. It
// sees what one read from the client returned, so requests of a client that pipelines cannot be told apart.
func (p *Proxy) LoseReply(match func(request []byte) bool) *Held { return p.rule(loseReply, match) }

// HoldReply lets the next request that match accepts reach the server and keeps its answer until Deliver.
func (p *Proxy) HoldReply(match func(request []byte) bool) *Held { return p.rule(holdReply, match) }

// HoldRequest keeps the next request that match accepts until Deliver; it then reaches the server even when the client
// has given up and closed meanwhile. What the client sends after it on the same connection waits behind it.
func (p *Proxy) HoldRequest(match func(request []byte) bool) *Held { return p.rule(holdRequest, match) }

// Close stops accepting, resets every connection and waits until all goroutines have ended.
func (p *Proxy) Close() error {
	p.mu.Lock()
	already := p.closed
	p.closed = true
	p.mu.Unlock()
	if already {
		return nil
	}
	err := p.listener.Close()
	p.Cut()
	p.group.Wait()
	if err != nil {
		return fmt.Errorf("devstack: close proxy: %w", err)
	}
	return nil
}

func (p *Proxy) change(apply func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	apply()
	close(p.changed)
	p.changed = make(chan struct{})
}

type fault int

const (
	loseReply fault = iota
	holdReply
	holdRequest
)

// Held is one request or answer that a [Proxy] does something to, once.
type Held struct {
	fault   fault
	match   func([]byte) bool
	arrived chan struct{}
	deliver chan struct{}
	once    sync.Once
}

// Arrived is closed when the proxy has the bytes in its hands: the request for HoldRequest, the answer otherwise (the
// server has executed the request then).
func (h *Held) Arrived() <-chan struct{} { return h.arrived }

// Deliver passes on what is held, or lets it pass when it has not come yet. It is idempotent.
func (h *Held) Deliver() { h.once.Do(func() { close(h.deliver) }) }

func (p *Proxy) rule(f fault, match func([]byte) bool) *Held {
	if match == nil {
		match = func([]byte) bool { return true }
	}
	h := &Held{fault: f, match: match, arrived: make(chan struct{}), deliver: make(chan struct{})}
	p.change(func() { p.rules = append(p.rules, h) })
	return h
}

// takeRule returns the first rule that accepts the request, which is used up by that.
func (p *Proxy) takeRule(request []byte) *Held {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, rule := range p.rules {
		if rule.match(request) {
			p.rules = append(p.rules[:i:i], p.rules[i+1:]...)
			return rule
		}
	}
	return nil
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // out of descriptors, say: the client will see it
		}
		p.group.Go(func() { p.connect(client.(*net.TCPConn)) })
	}
}

// connect dials the target for a client and serves the pair until both sides have ended.
func (p *Proxy) connect(client *net.TCPConn) {
	p.mu.Lock()
	target, refuse := p.target, p.refuse || p.closed
	p.mu.Unlock()
	var server net.Conn
	if !refuse {
		var err error
		server, err = net.DialTimeout("tcp", target, dialLimit) //nolint:noctx // bounded by dialLimit
		refuse = err != nil
	}
	if refuse {
		reset(client)
		return
	}
	l := newLink(p, client, server.(*net.TCPConn))
	p.mu.Lock()
	p.links[l] = struct{}{}
	p.accepted++
	if p.closed {
		l.cut()
	}
	p.mu.Unlock()
	l.serve()
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

// reset closes a connection with RST instead of FIN.
func reset(conn *net.TCPConn) {
	_ = conn.SetLinger(0) // fails only on a closed connection
	_ = conn.Close()
}
