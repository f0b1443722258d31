package devstack

import (
	"fmt"
	"slices"
	"sync"

	"github.com/nats-io/nats.go"
)

// Requests hears what clients ask of JetStream's API.
type Requests struct {
	conn *nats.Conn
	// came is filled by the connection itself, before it answers a flush: what was asked before is then in it.
	came chan *nats.Msg

	mu       sync.Mutex
	subjects []string
}

// mostUnread is how many requests may wait for Subjects.
const mostUnread = 1 << 16

// ConsumerCreations hears every request to create or change a consumer, from when it returns until Close.
func (n *NATS) ConsumerCreations() (*Requests, error) {
	conn, err := nats.Connect(n.URL(), nats.Name("devstack"))
	if err != nil {
		return nil, fmt.Errorf("devstack: hear JetStream's API: %w", err)
	}
	r := &Requests{conn: conn, came: make(chan *nats.Msg, mostUnread)}
	for _, subject := range []string{"$JS.API.CONSUMER.CREATE.>", "$JS.API.CONSUMER.DURABLE.CREATE.>"} {
		if _, err := conn.ChanSubscribe(subject, r.came); err != nil {
			conn.Close()
			return nil, fmt.Errorf("devstack: hear JetStream's API: %w", err)
		}
	}
	if err := conn.Flush(); err != nil {
		conn.Close()
		return nil, fmt.Errorf("devstack: hear JetStream's API: %w", err)
	}
	return r, nil
}

// Subjects returns those of the requests that came so far, first to last. The server may answer who asks a moment before it
// tells who listens.
func (r *Requests) Subjects() []string {
	_ = r.conn.Flush() // what was asked before is heard, unless the server is gone
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		select {
		case m := <-r.came:
			r.subjects = append(r.subjects, m.Subject)
			continue
		default:
		}
		return slices.Clone(r.subjects)
	}
}

// Close ends the hearing.
func (r *Requests) Close() { r.conn.Close() }
