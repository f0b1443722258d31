package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/bus"
	"github.com/cabine-pix/cabine/libs/devstack"
)

// heard creates a consumer by hand, as no service may, and requires that it is counted: a count of none was not deaf.
func (w *world) heard() {
	w.t.Helper()
	before := len(w.creations.Subjects())
	byHand := bus.Consumer{Stream: bus.StreamSettlement, Name: "by-hand", AckWait: time.Second, MaxAckPending: 1}
	_, err := w.bus.Provision(w.t.Context(), bus.Declared(1).With(byHand), false)
	require.NoError(w.t, err)
	w.created(w.creations, before+1)
}

// created waits until so many requests to create were heard, and requires that there are no more: the server may answer who
// asks before it has told who listens.
func (w *world) created(by *devstack.Requests, n int) []string {
	w.t.Helper()
	w.eventually("the creations to be heard", func() bool { return len(by.Subjects()) >= n })
	require.Len(w.t, by.Subjects(), n)
	return by.Subjects()
}

// A service that starts before the deploy step did its part ends, and creates nothing of what it misses; after it, it binds.
func TestAServiceBindsToWhatTheDeployStepMade(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.NoError(t, w.nats.RestartEmpty(t.Context()))
	creations, err := w.nats.ConsumerCreations()
	require.NoError(t, err)
	t.Cleanup(creations.Close)
	require.Equal(t, 1, w.start("early", nil).wait())
	require.Empty(t, creations.Subjects())

	w.provision()
	made := w.created(creations, len(bus.Declared(1).Consumers)) // the deploy step creates each once
	w.start("late", nil)
	w.settle(20, w.now())
	w.written()
	w.provision()
	require.Equal(t, made, creations.Subjects(), "neither a service nor a second deploy step creates anything")
	w.sound()
}

// JetStream is away for a while, comes back with what it held, is restarted, and comes back with nothing, while payments
// settle all the time: replicas live through what loses nothing and end when their consumer is gone, and after the deploy
// step, whoever is started finds each payment that has no obligation, and gives it one.
func TestJetStreamIsAwayAndComesBackEmpty(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	replicas := three(w, nil)
	stop := w.settling()
	w.booked(w.settle(20, w.now()))
	require.NoError(t, w.nats.Stop())
	meanwhile := w.settle(20, w.now())
	require.NoError(t, w.nats.Start(t.Context()))
	require.NoError(t, w.nats.Restart(t.Context()))
	w.booked(append(meanwhile, w.settle(20, w.now())...))
	for _, p := range replicas {
		select {
		case <-p.done:
			t.Errorf("%s ended at a restart that lost nothing", p.name)
		default:
		}
	}
	// A consumer that is not there any more is a fault of operation: the service ends, to be started again.
	require.NoError(t, w.nats.RestartEmpty(t.Context()))
	for _, p := range replicas {
		require.Equal(t, 1, p.wait())
	}
	w.provision()
	w.start("d", nil)
	w.booked(w.settle(20, w.now()))
	stop()
	w.written()
	w.sound()
}

// booked waits until payments have their obligations.
func (w *world) booked(ids []string) {
	w.t.Helper()
	w.eventually("obligations to be written", func() bool {
		for _, id := range ids {
			if _, err := w.obligations.Get(w.t.Context(), id); err != nil {
				return false
			}
		}
		return true
	})
}
