package bus

import (
	"errors"
	"fmt"
	"time"

	"github.com/cabine-pix/cabine/libs/pix"
)

// The names of the declared streams and consumers.
const (
	StreamInbound     = "PIX_INBOUND"
	StreamOutbound    = "PIX_OUTBOUND"
	StreamSettlement  = "PIX_SETTLEMENT"
	StreamCoreEvents  = "CORE_EVENTS"
	StreamCoreAnswers = "CORE_ANSWERS"

	ConsumerPayments   = "payments"
	ConsumerSettlement = "settlement"
	ConsumerCoreEvents = "core-events"
)

// SenderConsumer is the consumer of PIX_OUTBOUND for one channel. Each channel has its own, because one that waits for the
// bank must not hold up the other.
func SenderConsumer(channel pix.Channel) string { return "outbound-sender-" + token(string(channel)) }

// Stream declares a stream, stored on file and kept by limits: a message stays until it
// is MaxAge old or the stream is full, whoever consumed it. The oldest go first, since
// Postgres has them all.
type Stream struct {
	Name        string
	Description string
	Subjects    []string
	// Replicas is 1, 3 or 5.
	Replicas int
	// MaxAge and MaxBytes bound what is kept. MaxBytes is reserved on the server's disk.
	MaxAge   time.Duration
	MaxBytes int64
	// MaxMessageBytes bounds one message with its headers.
	MaxMessageBytes int32
	// Duplicates is how long a Nats-Msg-Id is remembered.
	Duplicates time.Duration
}

// Consumer declares a durable pull consumer with explicit acknowledgement that starts at
// the first message of its stream and never stops delivering one: what gives up is the
// loop (Consume), which says so.
type Consumer struct {
	Stream string
	Name   string
	// Subjects narrow what it sees. Default: all of the stream.
	Subjects []string
	// AckWait is how long a delivery may stay without a sign before it goes to somebody else.
	AckWait time.Duration
	// MaxAckPending bounds the unacknowledged messages of all replicas together; at the bound
	// delivery stops silently.
	MaxAckPending int
}

// Topology is what Provision creates and Bind expects.
type Topology struct {
	Streams   []Stream
	Consumers []Consumer
}

// Declared returns Cabine's own topology with the given number of replicas.
func Declared(replicas int) Topology {
	stream := func(name, subjects, description string) Stream {
		return Stream{
			Name: name, Subjects: []string{subjects}, Description: description, Replicas: replicas,
			MaxAge: 24 * time.Hour, MaxBytes: 1 << 30, MaxMessageBytes: 1<<20 + 64<<10, Duplicates: 2 * time.Minute,
		}
	}
	consumer := func(stream, name string) Consumer {
		return Consumer{Stream: stream, Name: name, AckWait: 30 * time.Second, MaxAckPending: 4096}
	}
	sender := func(channel pix.Channel) Consumer {
		c := consumer(StreamOutbound, SenderConsumer(channel))
		c.Subjects = []string{"pix.out.*." + token(string(channel))}
		return c
	}
	// The answers have a stream of their own, so that many of them push out no request. Who reads them is the core's to declare.
	events := stream(StreamCoreEvents, "core.payment_request.*", "payment requests of the participant's core, by ISPB")
	answers := stream(StreamCoreAnswers, "core.payment_accepted.*", "what became of them, by ISPB")
	answers.Subjects = append(answers.Subjects, "core.payment_refused.*")
	answers.MaxBytes = 256 << 20
	events.MaxMessageBytes, answers.MaxMessageBytes = 64<<10, 64<<10
	return Topology{
		Streams: []Stream{
			stream(StreamInbound, "pix.in.>", "messages received from the SPI, by ISPB and type"),
			stream(StreamOutbound, "pix.out.>", "messages to be sent to the SPI, by ISPB and channel"),
			stream(StreamSettlement, "pix.settlement.>", "obligations and cycles"),
			events,
			answers,
		},
		Consumers: []Consumer{
			consumer(StreamInbound, ConsumerPayments),
			sender(pix.CPM),
			sender(pix.CSM),
			consumer(StreamSettlement, ConsumerSettlement),
			consumer(StreamCoreEvents, ConsumerCoreEvents),
		},
	}
}

// With returns the topology with more consumers.
func (t Topology) With(consumers ...Consumer) Topology {
	t.Consumers = append(t.Consumers[:len(t.Consumers):len(t.Consumers)], consumers...)
	return t
}

// Validate names every value that a server would refuse or that makes no sense.
func (t Topology) Validate() error {
	var errs []error
	known := map[string]bool{}
	for _, s := range t.Streams {
		known[s.Name] = true
		if s.Name == "" || len(s.Subjects) == 0 {
			errs = append(errs, fmt.Errorf("stream %q: name and subjects are required", s.Name))
		}
		if s.Replicas != 1 && s.Replicas != 3 && s.Replicas != 5 {
			errs = append(errs, fmt.Errorf("stream %s: %d replicas, want 1, 3 or 5", s.Name, s.Replicas))
		}
		if s.MaxAge <= 0 || s.MaxBytes <= 0 || s.MaxMessageBytes <= 0 || s.Duplicates <= 0 || s.Duplicates > s.MaxAge {
			errs = append(errs, fmt.Errorf("stream %s: every bound is required, and duplicates within the age", s.Name))
		}
	}
	for _, c := range t.Consumers {
		if c.Name == "" || !known[c.Stream] {
			errs = append(errs, fmt.Errorf("consumer %q: needs a name and a declared stream, has stream %q", c.Name, c.Stream))
		}
		if c.AckWait < time.Second || c.MaxAckPending < 1 {
			errs = append(errs, fmt.Errorf("consumer %s: AckWait %v, MaxAckPending %d: want at least 1s and 1",
				c.Name, c.AckWait, c.MaxAckPending))
		}
	}
	return errors.Join(errs...)
}
