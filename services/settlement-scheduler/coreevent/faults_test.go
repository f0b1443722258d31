package coreevent_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/bus"
	"github.com/cabine-pix/cabine/libs/devstack/devtest"
	"github.com/cabine-pix/cabine/libs/order"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/services/settlement-scheduler/coreevent"
)

// dying is the bus of a replica that dies when it is about to answer: nothing of it gets out any more.
type dying struct {
	*bus.Bus
	died chan struct{}
	once sync.Once
}

func (d *dying) PublishCoreAnswers(ctx context.Context, answers []bus.CoreAnswer) bus.Results {
	d.once.Do(func() {
		gone, cancel := context.WithCancel(ctx)
		cancel()
		_ = d.Close(gone) // hard
		close(d.died)
	})
	return d.Bus.PublishCoreAnswers(ctx, answers)
}

// A replica that dies between its commit and its answer: another one finds the verdict and tells it, the name that was
// minted among it.
func TestKilledBetweenCommitAndAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.provisionWith(time.Second)
	first := &dying{Bus: w.connect(), died: make(chan struct{})}
	w.publish(0, event("good", nil), event("bad", set("valor", "0.00")))
	w.work(replica{bus: first, cfg: func(c *coreevent.Config) { c.Workers = 1 }}) // takes them in their order
	<-first.died
	before := w.booked()
	require.Len(t, before, 1)
	reg, _ := w.work(replica{})
	answers := w.answered(2)
	require.Equal(t, before, w.booked())
	require.Len(t, w.dead(), 1)
	require.Equal(t, before[0].ID, w.of(answers, "good", "").E2E)
	w.of(answers, "bad", "campos-invalidos")
	require.Positive(t, counted(t, reg, events, "repeated"))
}

// The commit happened and its answer is lost: the replica does not know, the event comes again, and there is one order.
func TestTheAnswerToTheCommitIsLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	proxy := devtest.Proxy(t, devtest.PostgresServer(t).Addr())
	db := w.open(strings.Replace(w.dsn, devtest.PostgresServer(t).Addr(), proxy.Addr(), 1))
	proxy.LoseReply(func(request []byte) bool { return bytes.Contains(bytes.ToLower(request), []byte("commit")) })
	reg, _ := w.work(replica{db: db, cfg: func(c *coreevent.Config) { c.Workers = 1 }})
	w.publish(0, event("a", nil))
	a := w.of(w.answered(1), "a", "")
	require.Len(t, w.booked(), 1)
	require.Equal(t, w.booked()[0].ID, a.E2E)
	require.EqualValues(t, 1, counted(t, reg, events, "repeated"))
	require.Zero(t, counted(t, reg, events, "failing"))
}

// The database is away: nothing is acknowledged, nothing refused, and all comes again, as often as it takes.
func TestTheDatabaseIsAwayNothingIsLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	proxy := devtest.Proxy(t, devtest.PostgresServer(t).Addr())
	db := w.open(strings.Replace(w.dsn, devtest.PostgresServer(t).Addr(), proxy.Addr(), 1))
	proxy.Refuse()
	proxy.Cut()
	reg, _ := w.work(replica{db: db, cfg: func(c *coreevent.Config) { c.MaxFailures = 1 }})
	var bodies []string
	for i := range 10 {
		bodies = append(bodies, event(fmt.Sprintf("e%d", i), nil))
	}
	bodies = append(bodies, event("bad", set("valor", "0.00")))
	w.publish(0, bodies...)
	w.eventually("each to have come again", func() bool { return counted(t, reg, events, "waiting") > 2*float64(len(bodies)) })
	proxy.Pass()
	answers := w.answered(len(bodies))
	w.of(answers, "bad", "campos-invalidos")
	require.Len(t, w.booked(), 10)
	require.Len(t, w.dead(), 1)
	require.Zero(t, counted(t, reg, events, "failing"))
}

// Only faults of our own are counted, and the last that may be refuses the event, which is told.
func TestAFaultOfOurOwnEndsInARefusal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var asked atomic.Int32
	reg, _ := w.work(replica{cfg: func(c *coreevent.Config) { c.MaxFailures = 3 }, gate: gate(func(order.Order) error {
		switch asked.Add(1) {
		case 1, 3:
			return fmt.Errorf("gate: %w", store.ErrUnavailable)
		case 2:
			return errors.New("a fault")
		default:
			panic("a fault")
		}
	})})
	body := event("a", nil)
	w.publish(0, body)
	w.of(w.answered(1), "a", "erro-interno")
	require.EqualValues(t, 5, asked.Load())
	require.EqualValues(t, 3, counted(t, reg, events, "failing"))
	require.EqualValues(t, 2, counted(t, reg, events, "waiting"))
	require.Empty(t, w.booked())
	require.Len(t, w.dead(), 1)
	require.Equal(t, "erro-interno", w.dead()[0].Reason)
}

// JetStream is restarted, and then loses everything that it acknowledged: what the core publishes again gets the verdict
// that it had, what was lost before is judged for the first time.
func TestJetStreamIsRestartedAndEmptied(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, stop := w.work(replica{})
	first := event("first", nil)
	w.publish(0, first)
	id := w.of(w.answered(1), "first", "").E2E
	require.NoError(t, w.nats.Restart(t.Context()))
	second := event("second", nil)
	w.publish(0, second)
	w.answered(2)
	stop()

	lost := event("lost", nil)
	w.publish(0, lost)
	require.NoError(t, w.nats.RestartEmpty(t.Context()))
	w.provision()
	reg, _ := w.work(replica{})
	w.publish(0, first, second, lost)
	w.eventually("all to be decided", func() bool {
		return counted(t, reg, events, "repeated") == 2 && counted(t, reg, events, "accepted") == 1
	})
	rows := w.booked()
	require.Len(t, rows, 3)
	row, err := w.payments.Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, id, row.ID)
}

// mute is a bus that takes no announcement, and the first answers not either.
type mute struct {
	*bus.Bus
	answers atomic.Int32
}

func (m *mute) PublishOutbound(_ context.Context, operations []bus.Outbound) bus.Results {
	all := make(bus.Results, len(operations))
	for i := range all {
		all[i] = bus.ErrUnavailable
	}
	return all
}

func (m *mute) PublishCoreAnswers(ctx context.Context, answers []bus.CoreAnswer) bus.Results {
	if m.answers.Add(-1) < 0 {
		return m.Bus.PublishCoreAnswers(ctx, answers)
	}
	all := make(bus.Results, len(answers))
	for i := range all {
		all[i] = bus.ErrUnavailable
	}
	return all
}

// What could not be announced is in the outbox, where payments finds it; what could not be answered comes again.
func TestWhatTheBusDoesNotTake(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := &mute{Bus: w.connect()}
	m.answers.Store(2)
	reg, _ := w.work(replica{bus: m})
	w.publish(0, event("a", nil))
	a := w.of(w.answered(1), "a", "")
	left, err := w.outbox.Unpublished(t.Context(), 0, 10)
	require.NoError(t, err)
	require.Len(t, left, 1)
	require.Equal(t, a.E2E, left[0].PaymentID)
	require.EqualValues(t, 1, counted(t, reg, "cabine_core_events_unannounced_total", ""))
	require.EqualValues(t, 2, counted(t, reg, "cabine_core_events_unanswered_total", ""))
	require.Len(t, w.booked(), 1)
}

// Told to end, a replica decides what it has in hand and gives the rest back.
func TestStoppingLosesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var bodies []string
	for i := range 60 {
		bodies = append(bodies, event(fmt.Sprintf("e%d", i), nil))
	}
	began := make(chan struct{})
	var once sync.Once
	_, stop := w.work(replica{gate: gate(func(order.Order) error { once.Do(func() { close(began) }); return nil })})
	w.publish(0, bodies...)
	<-began
	stop()
	w.work(replica{})
	w.answered(len(bodies))
	require.Len(t, w.booked(), len(bodies))
}
