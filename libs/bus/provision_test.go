package bus_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/bus"
)

// older is a stream and a consumer of it as another release, or somebody by hand, left them.
type older struct {
	stream   func(*jetstream.StreamConfig)
	consumer func(*jetstream.ConsumerConfig)
	drift    string
	// fixed: the server takes the declaration back. What it refuses has to be deleted by hand.
	fixed bool
}

// TestEachDriftIsNamedAndChangedOnlyWhenTold goes through every declared field of a stream and of a consumer on a real server.
func TestEachDriftIsNamedAndChangedOnlyWhenTold(t *testing.T) {
	t.Parallel()
	b := setup(t)
	declared := bus.Topology{
		Streams: []bus.Stream{{
			Name: "S", Description: "d", Subjects: []string{"s.>"}, Replicas: 1, MaxAge: time.Hour, MaxBytes: 1 << 20, MaxMessageBytes: 1 << 10,
			Duplicates: time.Minute,
		}},
		Consumers: []bus.Consumer{{Stream: "S", Name: "c", Subjects: []string{"s.a"}, AckWait: 30 * time.Second, MaxAckPending: 10}},
	}
	is := jetstream.StreamConfig{
		Name: "S", Description: "d", Subjects: []string{"s.>"}, Replicas: 1, MaxAge: time.Hour, MaxBytes: 1 << 20, MaxMsgSize: 1 << 10,
		Duplicates: time.Minute, Discard: jetstream.DiscardOld, Storage: jetstream.FileStorage,
	}
	reads := jetstream.ConsumerConfig{
		Durable: "c", FilterSubject: "s.a", AckPolicy: jetstream.AckExplicitPolicy, AckWait: 30 * time.Second, MaxDeliver: -1, MaxAckPending: 10,
	}
	js := declare(t, b.server.URL(), is)
	for _, o := range []older{
		{drift: "", fixed: true},
		{stream: func(c *jetstream.StreamConfig) { c.Description = "x" }, drift: "description: x, declared d", fixed: true},
		{stream: func(c *jetstream.StreamConfig) { c.Subjects = []string{"s.a"} }, drift: "subjects: [s.a], declared [s.>]", fixed: true},
		{stream: func(c *jetstream.StreamConfig) { c.MaxAge = 2 * time.Hour }, drift: "max_age: 2h0m0s, declared 1h0m0s", fixed: true},
		{stream: func(c *jetstream.StreamConfig) { c.MaxBytes = 1 << 21 }, drift: "max_bytes: 2097152, declared 1048576", fixed: true},
		{stream: func(c *jetstream.StreamConfig) { c.MaxMsgSize = 1 }, drift: "max_msg_size: 1, declared 1024", fixed: true},
		{stream: func(c *jetstream.StreamConfig) { c.Duplicates = time.Second }, drift: "duplicate_window: 1s, declared 1m0s", fixed: true},
		{stream: func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardNew }, drift: "discard: DiscardNew, declared DiscardOld", fixed: true},
		{stream: func(c *jetstream.StreamConfig) { c.Retention = jetstream.InterestPolicy }, drift: "retention: Interest, declared Limits", fixed: true},
		{stream: func(c *jetstream.StreamConfig) { c.Retention = jetstream.WorkQueuePolicy }, drift: "retention: WorkQueue, declared Limits"},
		{stream: func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage }, drift: "storage: Memory, declared File"},
		{consumer: func(c *jetstream.ConsumerConfig) { c.AckWait = time.Second }, drift: "ack_wait: 1s, declared 30s", fixed: true},
		{consumer: func(c *jetstream.ConsumerConfig) { c.MaxDeliver = 3 }, drift: "max_deliver: 3, declared -1", fixed: true},
		{consumer: func(c *jetstream.ConsumerConfig) { c.MaxAckPending = 1 }, drift: "max_ack_pending: 1, declared 10", fixed: true},
		{consumer: func(c *jetstream.ConsumerConfig) { c.FilterSubject = "" }, drift: "filter_subjects: [], declared [s.a]", fixed: true},
		{
			consumer: func(c *jetstream.ConsumerConfig) { c.FilterSubject, c.FilterSubjects = "", []string{"s.a", "s.b"} },
			drift:    "filter_subjects: [s.a s.b], declared [s.a]", fixed: true,
		},
		{consumer: func(c *jetstream.ConsumerConfig) { c.AckPolicy = jetstream.AckAllPolicy }, drift: "ack_policy: AckAll, declared AckExplicit"},
		{consumer: func(c *jetstream.ConsumerConfig) { c.DeliverPolicy = jetstream.DeliverNewPolicy }, drift: "deliver_policy: new, declared all"},
	} {
		stream, consumer := is, reads
		if o.stream != nil {
			o.stream(&stream)
		}
		if o.consumer != nil {
			o.consumer(&consumer)
		}
		require.NoError(t, js.DeleteStream(t.Context(), "S"))
		_, err := js.CreateStream(t.Context(), stream)
		require.NoError(t, err, o.drift)
		_, err = js.CreateConsumer(t.Context(), "S", consumer)
		require.NoError(t, err, o.drift)

		want := []string{}
		if o.drift != "" {
			want = append(want, o.drift)
		}
		for _, look := range []func() ([]bus.Change, error){
			func() ([]bus.Change, error) { return b.bus.Inspect(t.Context(), declared) },
			func() ([]bus.Change, error) { return b.bus.Provision(t.Context(), declared, false) },
			func() ([]bus.Change, error) { return b.bus.Inspect(t.Context(), declared) },
		} {
			changes, err := look()
			require.NoError(t, err)
			require.Equal(t, want, append(changes[0].Drift, changes[1].Drift...))
			require.Equal(t, o.drift == "", changes[0].Settled() && changes[1].Settled(), o.drift)
		}
		_, err = b.bus.Provision(t.Context(), declared, true)
		changes, errThen := b.bus.Inspect(t.Context(), declared)
		require.NoError(t, errThen)
		left := append(changes[0].Drift, changes[1].Drift...)
		if o.fixed {
			require.NoError(t, err, o.drift)
			require.Empty(t, left)
			continue
		}
		require.Error(t, err, o.drift)
		require.NotErrorIs(t, err, bus.ErrUnavailable, "nobody should wait for %s", o.drift)
		require.Equal(t, want, left)
	}
}
