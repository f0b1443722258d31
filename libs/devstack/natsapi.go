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

	mu       sync.Mutex
	subjects []string
}

// ConsumerCreations hears every request to create or change a consumer, from when it returns until Close.
func (n *NATS) ConsumerCreations() (*Requests, error) {
	conn, err := nats.Connect(n.URL(), nats.Name("devstack"))
	if err != nil {
		return nil, fmt.Errorf("devstack: hear JetStream's API: %w", err)
	}
	r := &Requests{conn: conn}
	for _, subject := range []string{"$JS.API.CONSUMER.CREATE.>", "$JS.API.CONSUMER.DURABLE.CREATE.>"} {
		if _, err := conn.Subscribe(subject, r.hear); err != nil {
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

func (r *Requests) hear(m *nats.Msg) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.subjects = append(r.subjects, m.Subject)
}

// Subjects returns those of the requests that came so far, first to last.
func (r *Requests) Subjects() []string {
	_ = r.conn.Flush() // what was asked before is heard, unless the server is gone
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.subjects)
}

// Close ends the hearing.
func (r *Requests) Close() { r.conn.Close() }
