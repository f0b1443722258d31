package bus

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"
)

// Change is what Provision did, or Inspect found, about one stream or consumer.
type Change struct {
	// Object is e.g. "stream PIX_INBOUND" or "consumer PIX_INBOUND/payments".
	Object string
	// Missing: it does not exist. Created, Updated: it did not, or differed, and was changed.
	Missing, Created, Updated bool
	// Drift names each field that differs or differed, e.g. "max_age: 1h0m0s, declared 24h0m0s".
	Drift []string
}

// Drifted reports a difference that stands.
func (c Change) Drifted() bool { return len(c.Drift) > 0 && !c.Updated }

// Settled reports that the object is now as it was declared.
func (c Change) Settled() bool { return !c.Missing && !c.Drifted() }

// mode is how far provisioning may go.
type mode int

const (
	inspect mode = iota
	create
	update
)

// Inspect compares what exists with the topology and changes nothing.
func (b *Bus) Inspect(ctx context.Context, t Topology) ([]Change, error) {
	return b.provision(ctx, t, inspect)
}

// Provision creates what is missing of the topology and compares the rest with it. What
// differs is changed only if updateDrift is set, and reported either way. It may be repeated and
// may run twice at once. Nothing is ever deleted. It is a deploy step, not a service's.
func (b *Bus) Provision(ctx context.Context, t Topology, updateDrift bool) ([]Change, error) {
	if updateDrift {
		return b.provision(ctx, t, update)
	}
	return b.provision(ctx, t, create)
}

func (b *Bus) provision(ctx context.Context, t Topology, m mode) ([]Change, error) {
	if err := t.Validate(); err != nil {
		return nil, fmt.Errorf("topology: %w", err)
	}
	missing := map[string]bool{}
	changes := make([]Change, 0, len(t.Streams)+len(t.Consumers))
	for _, s := range t.Streams {
		c, err := b.provisionStream(ctx, s, m)
		if err != nil {
			return changes, untenable("provision "+c.Object, err)
		}
		missing[s.Name] = c.Missing
		changes = append(changes, c)
	}
	for _, k := range t.Consumers {
		c := k.change()
		if missing[k.Stream] {
			c.Missing = true
		} else {
			var err error
			if c, err = b.provisionConsumer(ctx, k, m); err != nil {
				return changes, untenable("provision "+c.Object, err)
			}
		}
		changes = append(changes, c)
	}
	return changes, nil
}

// Bind looks every stream and consumer of the topology up and creates none. All that is
// missing is named in one ErrNotProvisioned.
func (b *Bus) Bind(ctx context.Context, t Topology) error {
	var missing []error
	for _, s := range t.Streams {
		if _, err := b.js.Stream(ctx, s.Name); err != nil {
			missing = append(missing, translate("stream "+s.Name, err))
		}
	}
	for _, c := range t.Consumers {
		if _, err := b.js.Consumer(ctx, c.Stream, c.Name); err != nil {
			missing = append(missing, translate("consumer "+c.Stream+"/"+c.Name, err))
		}
	}
	return errors.Join(missing...)
}

func (b *Bus) provisionStream(ctx context.Context, s Stream, m mode) (Change, error) {
	c := Change{Object: "stream " + s.Name}
	stream, err := b.js.Stream(ctx, s.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if m == inspect {
			c.Missing = true
			return c, nil
		}
		want := s.apply(jetstream.StreamConfig{})
		if stream, err = b.js.CreateStream(ctx, want); err == nil {
			c.Created = true
			return c, nil
		}
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // somebody else created it meanwhile
			stream, err = b.js.Stream(ctx, s.Name)
		}
	}
	if err != nil {
		return c, err
	}
	have := stream.CachedInfo().Config
	c.Drift = s.drift(have)
	if len(c.Drift) > 0 && m == update {
		_, err = b.js.UpdateStream(ctx, s.apply(have))
		c.Updated = err == nil
	}
	return c, err
}

// drift names the fields that apply would change.
func (s Stream) drift(have jetstream.StreamConfig) []string {
	want := s.apply(have)
	return drift(
		field("description", have.Description, want.Description),
		field("retention", have.Retention, want.Retention),
		field("storage", have.Storage, want.Storage),
		field("discard", have.Discard, want.Discard),
		field("replicas", have.Replicas, want.Replicas),
		field("max_age", have.MaxAge, want.MaxAge),
		field("max_bytes", have.MaxBytes, want.MaxBytes),
		field("max_msg_size", have.MaxMsgSize, want.MaxMsgSize),
		field("duplicate_window", have.Duplicates, want.Duplicates),
		list("subjects", have.Subjects, want.Subjects),
	)
}

func (s Stream) apply(c jetstream.StreamConfig) jetstream.StreamConfig {
	c.Name, c.Description, c.Subjects = s.Name, s.Description, s.Subjects
	c.Retention, c.Storage, c.Discard = jetstream.LimitsPolicy, jetstream.FileStorage, jetstream.DiscardOld
	c.Replicas, c.MaxAge, c.MaxBytes = s.Replicas, s.MaxAge, s.MaxBytes
	c.MaxMsgSize, c.Duplicates = s.MaxMessageBytes, s.Duplicates
	return c
}

func (b *Bus) provisionConsumer(ctx context.Context, k Consumer, m mode) (Change, error) {
	c := k.change()
	consumer, err := b.js.Consumer(ctx, k.Stream, k.Name)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		if m == inspect {
			c.Missing = true
			return c, nil
		}
		want := k.apply(jetstream.ConsumerConfig{})
		if consumer, err = b.js.CreateConsumer(ctx, k.Stream, want); err == nil {
			c.Created = true
			return c, nil
		}
		if errors.Is(err, jetstream.ErrConsumerExists) { // somebody else created it meanwhile
			consumer, err = b.js.Consumer(ctx, k.Stream, k.Name)
		}
	}
	if err != nil {
		return c, err
	}
	have := consumer.CachedInfo().Config
	c.Drift = k.drift(have)
	if len(c.Drift) > 0 && m == update {
		_, err = b.js.UpdateConsumer(ctx, k.Stream, k.apply(have))
		c.Updated = err == nil
	}
	return c, err
}

func (k Consumer) change() Change { return Change{Object: "consumer " + k.Stream + "/" + k.Name} }

// drift names the fields that apply would change.
func (k Consumer) drift(have jetstream.ConsumerConfig) []string {
	want := k.apply(have)
	return drift(
		field("ack_policy", have.AckPolicy, want.AckPolicy),
		field("deliver_policy", have.DeliverPolicy, want.DeliverPolicy),
		field("ack_wait", have.AckWait, want.AckWait),
		field("max_deliver", have.MaxDeliver, want.MaxDeliver),
		field("max_ack_pending", have.MaxAckPending, want.MaxAckPending),
		list("filter_subjects", filters(have), filters(want)),
	)
}

func (k Consumer) apply(c jetstream.ConsumerConfig) jetstream.ConsumerConfig {
	c.Durable, c.Name = k.Name, k.Name
	c.AckPolicy, c.DeliverPolicy = jetstream.AckExplicitPolicy, jetstream.DeliverAllPolicy
	c.AckWait, c.MaxDeliver, c.MaxAckPending = k.AckWait, -1, k.MaxAckPending
	c.FilterSubject, c.FilterSubjects = "", nil
	if len(k.Subjects) == 1 { // the server answers one filter in this field
		c.FilterSubject = k.Subjects[0]
	} else {
		c.FilterSubjects = k.Subjects
	}
	return c
}

func filters(c jetstream.ConsumerConfig) []string {
	if c.FilterSubject != "" {
		return append([]string{c.FilterSubject}, c.FilterSubjects...)
	}
	return c.FilterSubjects
}

func drift(differences ...string) []string {
	return slices.DeleteFunc(differences, func(s string) bool { return s == "" })
}

func field[T comparable](name string, have, want T) string {
	if have == want {
		return ""
	}
	return fmt.Sprintf("%s: %v, declared %v", name, have, want)
}

func list(name string, have, want []string) string {
	if slices.Equal(have, want) {
		return ""
	}
	return fmt.Sprintf("%s: %v, declared %v", name, have, want)
}
