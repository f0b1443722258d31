package bus

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cabine-pix/cabine/libs/pix"
)

// Headers of an inbound message.
const (
	headerSource    = "Cabine-Source"
	headerMessageID = "Cabine-Message-Id"
	headerMsgType   = "Cabine-Message-Type"
	headerAttempt   = "Cabine-Attempt"
)

// Message is one message to publish.
type Message struct {
	Subject string
	// ID is the Nats-Msg-Id: within the duplicate window of its stream a second message
	// with the same ID is acknowledged and not stored.
	ID      string
	Payload []byte
	// Headers go along, e.g. a trace context. Default: none.
	Headers map[string]string
}

// Results has one entry per message of a batch, in its order: nil for a message that the
// stream acknowledged.
type Results []error

// Acked returns the indexes of the messages that were acknowledged.
func (r Results) Acked() []int {
	acked := make([]int, 0, len(r))
	for i, err := range r {
		if err == nil {
			acked = append(acked, i)
		}
	}
	return acked
}

// Err returns the first failure, nil if every message was acknowledged.
func (r Results) Err() error {
	for i, err := range r {
		if err != nil {
			return fmt.Errorf("message %d of %d: %w", i+1, len(r), err)
		}
	}
	return nil
}

func failed(n int, err error) Results {
	r := make(Results, n)
	for i := range r {
		r[i] = err
	}
	return r
}

// Publish sends the messages in order, without waiting in between, and then waits for
// their acknowledgements. After a message that could not be sent the rest is not
// attempted (ErrNotAttempted), so that no message overtakes another one; a message whose
// acknowledgement failed may have been overtaken. One that can never be sent (ErrRefused)
// holds nobody up. What failed otherwise may be published again under the same ID. Calls
// may overlap; together they keep to MaxInFlight, which a batch must not exceed.
func (b *Bus) Publish(ctx context.Context, messages []Message) Results {
	n := len(messages)
	if n == 0 {
		return nil
	}
	if n > b.cfg.MaxInFlight {
		return failed(n, fmt.Errorf("publish: batch of %d, want at most %d", n, b.cfg.MaxInFlight))
	}
	if err := b.flight.Acquire(ctx, int64(n)); err != nil {
		return failed(n, translate("publish", err))
	}
	defer b.flight.Release(int64(n))

	results := make(Results, n)
	futures := make([]jetstream.PubAckFuture, n)
	for i := range messages {
		future, err := b.send(&messages[i])
		futures[i], results[i] = future, translate("publish", err)
		if err != nil && !faulty(err) {
			copy(results[i+1:], failed(n-i-1, ErrNotAttempted))
			break
		}
	}
	for i, future := range futures {
		if future != nil {
			results[i] = acknowledged(ctx, future)
		}
	}
	return results
}

func (b *Bus) send(m *Message) (jetstream.PubAckFuture, error) {
	if !b.conn.IsConnected() { // while connecting for the first time, nats.go would hold the message back
		return nil, nats.ErrDisconnected
	}
	header := make(nats.Header, len(m.Headers)+1)
	for k, v := range m.Headers {
		header[k] = []string{v}
	}
	if m.ID != "" {
		header[nats.MsgIdHdr] = []string{m.ID}
	}
	return b.js.PublishMsgAsync(&nats.Msg{Subject: m.Subject, Header: header, Data: m.Payload},
		// A retry inside nats.go would let later messages overtake; repeating is the caller's.
		jetstream.WithRetryAttempts(0))
}

func acknowledged(ctx context.Context, future jetstream.PubAckFuture) error {
	select {
	case <-future.Ok():
		return nil
	case err := <-future.Err():
		return translate("publish", err)
	case <-ctx.Done():
		return translate("publish", ctx.Err())
	}
}

// Inbound is a message received from the SPI on its way to the consumers.
type Inbound struct {
	ISPB pix.ISPB
	// MsgType is e.g. "pacs.008"; empty when unknown.
	MsgType string
	// MessageID is the bank's identifier of the delivery and Source where it came from: together the key of the inbox.
	MessageID, Source string
	// Attempt is zero the first time and counts deliberate republications: each passes the
	// duplicate window.
	Attempt int
	Payload []byte
	// Headers go along, e.g. a trace context. Names that begin with "Cabine-" and "Nats-" are the bus's own.
	Headers map[string]string
}

// PublishInbound is Publish for messages of the inbox.
func (b *Bus) PublishInbound(ctx context.Context, messages []Inbound) Results {
	all := make([]Message, len(messages))
	for i := range messages {
		all[i] = messages[i].message()
	}
	return b.Publish(ctx, all)
}

func (m *Inbound) message() Message {
	headers := make(map[string]string, len(m.Headers)+4)
	for k, v := range m.Headers {
		headers[k] = v
	}
	headers[headerSource] = m.Source
	headers[headerMessageID] = m.MessageID
	headers[headerMsgType] = m.MsgType
	id := m.Source + "/" + m.MessageID
	if m.Attempt > 0 {
		attempt := strconv.Itoa(m.Attempt)
		headers[headerAttempt] = attempt
		id += "#" + attempt
	}
	return Message{Subject: InboundSubject(m.ISPB, m.MsgType), ID: id, Payload: m.Payload, Headers: headers}
}

var errNoKey = errors.New("no source or message id in the headers")
