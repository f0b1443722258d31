package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/devstack/devtest"
	"github.com/cabine-pix/cabine/libs/icom/icomtest"
	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/services/internal/core"
)

func sends() []icomtest.Kind { return []icomtest.Kind{icomtest.KindSend} }

// once requires that each payment went out under one identifier, the same bytes each time, and returns how often that of
// the most repeated one did.
func (w *world) once(ops []store.Operation) (most int) {
	w.t.Helper()
	arrived, messages := w.orders()
	for _, o := range ops {
		id := pix.EndToEndID(o.PaymentID)
		require.Len(w.t, messages[id], 1, "one message carries it")
		most = max(most, arrived[id])
	}
	bytesOf := map[pix.MsgID]string{}
	for _, a := range w.arrivals() {
		if was, ok := bytesOf[a.id]; ok {
			require.Equal(w.t, was, string(a.body), "a resend is of the very same bytes")
		}
		bytesOf[a.id] = string(a.body)
	}
	return most
}

func TestALonePaymentGoesAtOnceAndIdleGivesThePermitBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	a := w.start("a", map[string]string{"CABINE_SEND_IDLE_AFTER": "300ms"})
	a.logged(1, "ready to send")
	ops := w.send(1)
	w.became(ops, pix.Sent)
	require.Equal(t, []pix.State{pix.Created, pix.Sent}, w.history(ops[0]))
	a.logged(1, "permit given", "how", "released", "why", "idle")
	require.Len(t, w.arrivals(), 1)
	// Again, through a permit that is fetched anew.
	w.became(w.send(1), pix.Sent)
	a.logged(2, "permit given", "how", "released", "why", "idle")
	status, body := a.get("/health/ready")
	require.Equal(t, 200, status, body)
	require.Zero(t, a.stop())
}

// While the SPI changes over, the first of the two versions is written.
func TestTheConfiguredVersionIsWritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	a := w.start("a", map[string]string{"CABINE_MESSAGES_VERSIONS": "pacs.008=1.15,pacs.008=1.16"})
	w.became(w.send(1), pix.Sent)
	require.Contains(t, string(w.arrivals()[0].body), "<MsgDefIdr>pacs.008.spi.1.15</MsgDefIdr>")
	require.Zero(t, a.stop())
}

// The bank answers too late, not at all, or breaks off: nobody knows whether it has the message, and the same bytes go again.
func TestUnknownOutcomesAreResolvedByTheSameMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	a := w.start("a", nil)
	a.logged(1, "ready to send")
	for name, tt := range map[string]struct {
		fault   icomtest.Fault
		arrives int
	}{
		"answered after our timeout":    {icomtest.Fault{Delay: 2500 * time.Millisecond}, 2},
		"cut in the middle of the body": {icomtest.Fault{Drop: icomtest.DropReading}, 1},
		"cut before it was processed":   {icomtest.Fault{Drop: icomtest.DropUnprocessed}, 1},
		"cut before the answer":         {icomtest.Fault{Drop: icomtest.DropBefore}, 2},
		"cut in the middle of it":       {icomtest.Fault{Drop: icomtest.DropMiddle}, 2},
		"503":                           {icomtest.Fault{Status: 503}, 1},
		"500 in plain text":             {icomtest.Fault{Status: 500}, 1},
	} {
		tt.fault.Kinds, tt.fault.Times = sends(), 1
		require.NoError(t, w.bank.SetFaults(pix.CPM, tt.fault))
		ops := w.send(1)
		w.became(ops, pix.Sent)
		require.Equal(t, []pix.State{pix.Created, pix.Unknown, pix.Sent}, w.history(ops[0]), name)
		require.Equal(t, tt.arrives, w.once(ops), name)
	}
	require.Zero(t, a.stop())
}

// A connection that is cut after the whole answer costs nothing but the connection.
func TestAConnectionCutAfterTheAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	require.NoError(t, w.bank.SetFaults(pix.CPM, icomtest.Fault{Kinds: sends(), Drop: icomtest.DropAfter, Times: 3}))
	a := w.start("a", nil)
	for range 5 {
		ops := w.send(1)
		w.became(ops, pix.Sent)
		require.Equal(t, 1, w.once(ops))
	}
	require.Zero(t, a.stop())
}

func TestThrottledTheWholeChannelWaitsAsTheBankSays(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	require.NoError(t, w.bank.SetFaults(pix.CPM, icomtest.Fault{Kinds: sends(), Status: 429, RetryAfter: 2, Times: 1}))
	a := w.start("a", nil)
	a.logged(1, "ready to send")
	ops := w.send(1)
	a.logged(1, "throttled by the bank")
	began := time.Now()
	ops = append(ops, w.send(20)...)
	w.became(ops, pix.Sent)
	require.Greater(t, time.Since(began), 1500*time.Millisecond)
	require.Equal(t, 1, w.once(ops))
	require.Equal(t, []pix.State{pix.Created, pix.Sent}, w.history(ops[0]), "a 429 is no unknown outcome")
	require.EqualValues(t, 1, a.metric(`cabine_outbound_throttled_total{channel="cpm"}`))
	require.Zero(t, a.stop())
}

// Scheduled payments fill the secondary channel, whose bucket is small, and wait there: the primary one goes on.
func TestAChannelThatWaitsDoesNotHoldUpTheOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	require.NoError(t, w.bank.SetFaults(pix.CSM, icomtest.Fault{Kinds: sends(), Status: 429, RetryAfter: 3600}))
	a := w.start("a", map[string]string{"CABINE_ICOM_CSM_ENABLED": "true", "CABINE_SEND_IN_HAND": "10"})
	scheduled := w.orderOn(pix.CSM, 100)
	w.publish(scheduled, 0)
	a.logged(1, "throttled by the bank", "channel", "csm")
	for range 3 {
		w.became(w.send(20), pix.Sent)
	}
	require.Equal(t, 100, w.states(scheduled)[pix.Created])
	d := w.arrivals()[0].document.(*iso20022.Pacs008)
	require.Equal(t, iso20022.PAGPRI, d.ServiceLevel)
	require.Zero(t, a.stop())
}

// A certificate that the bank does not know would reject every payment: the channel halts and rejects none. Another
// replica takes them.
func TestForbiddenHaltsTheChannelAndRejectsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *icomtest.Config) { c.AllowViolations = true }) // the bank counts each such request as one
	right := w.files
	var err error
	w.files, err = w.bank.PKI().WriteClient(t.TempDir(), other)
	require.NoError(t, err)
	w.anySubject = true
	a := w.start("a", nil)
	a.logged(1, "ready to send")
	ops := w.send(5)
	a.logged(1, "channel halted")
	status, body := a.get("/health/ready")
	require.Equal(t, 503, status, body)
	require.EqualValues(t, 1, a.metric(`cabine_outbound_halted{channel="cpm"}`))
	require.Equal(t, 5, w.states(ops)[pix.Created])
	require.Empty(t, w.arrivals())

	w.files, w.anySubject = right, false
	b := w.start("b", nil)
	w.became(ops, pix.Sent)
	require.Equal(t, 1, w.once(ops))
	require.Zero(t, b.stop())
	require.Zero(t, a.stop())
}

// A batch that is too large is taken apart; its messages are not.
func TestABatchThatIsRefusedGoesOneByOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *icomtest.Config) { c.MaxBody = 12 << 10 })
	// One permit and a slow bank, so that a batch forms.
	require.NoError(t, w.bank.SetFaults(pix.CPM, icomtest.Fault{Kinds: sends(), Delay: 300 * time.Millisecond}))
	a := w.start("a", map[string]string{"QUEUE_CONCURRENCY_DEFAULT": "1"})
	a.logged(1, "ready to send")
	ops := w.send(12)
	w.became(ops, pix.Sent)
	require.NotZero(t, a.count("the bank refused a batch, its messages go one by one"))
	require.Equal(t, 1, w.once(ops))
	require.Zero(t, a.metric(`cabine_outbound_refused_total{channel="cpm"}`))
	require.Zero(t, a.stop())
}

// A message that the bank refuses alone is not repeated; several in a row are no fault of the messages.
func TestARefusedMessageRejectsItsPaymentsAndThreeHaltTheChannel(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *icomtest.Config) { c.MaxBody = 1 << 10 })
	a := w.start("a", map[string]string{"QUEUE_CONCURRENCY_DEFAULT": "1"})
	a.logged(1, "ready to send")
	first := w.send(1)
	w.became(first, pix.Rejected)
	p, err := w.payments.Get(t.Context(), first[0].PaymentID)
	require.NoError(t, err)
	require.Contains(t, p.Reason, "413")
	ops := w.send(6)
	a.logged(1, "channel halted")
	w.eventually("two more to be rejected", func() bool { return w.states(ops)[pix.Rejected] == 2 })
	// The bank breaks the connection off while it refuses, which leaves a POST on it unknown.
	require.Equal(t, 4, w.states(ops)[pix.Created]+w.states(ops)[pix.Unknown])
	require.Empty(t, w.arrivals())
	require.Equal(t, 3.0, a.metric(`cabine_outbound_refused_total{channel="cpm"}`))
	require.Zero(t, a.stop())
}

// The bank has the message, and its sender is no more.
func TestSenderKilledBetweenPostAndCommit(t *testing.T) {
	t.Parallel()
	var a *replica
	killed := make(chan struct{})
	w := newWorld(t, func(c *icomtest.Config) {
		inner := c.OnReceive
		c.OnReceive = func(r icomtest.Received) {
			inner(r)
			select {
			case <-killed:
			default:
				a.kill()
				close(killed)
			}
		}
	})
	a = w.start("a", nil)
	ops := w.send(1)
	<-killed
	require.Equal(t, 1, w.states(ops)[pix.Created], "nothing was recorded")
	b := w.start("b", nil)
	w.became(ops, pix.Sent)
	require.Equal(t, []pix.State{pix.Created, pix.Unknown, pix.Sent}, w.history(ops[0]))
	require.Equal(t, 2, w.once(ops))
	require.Zero(t, b.stop())
}

// The answer came, and PostgreSQL is away: nothing more is sent, and the outcome is recorded when it is back.
func TestPostgresAwayAfterThePost(t *testing.T) {
	t.Parallel()
	var w *world
	cut := false
	w = newWorld(t, func(c *icomtest.Config) {
		inner := c.OnReceive
		c.OnReceive = func(r icomtest.Received) {
			inner(r)
			if !cut {
				cut = true
				w.postgres.Refuse()
				w.postgres.Cut()
			}
		}
	})
	a := w.start("a", map[string]string{"QUEUE_CONCURRENCY_DEFAULT": "1"})
	a.logged(1, "ready to send")
	ops := w.send(1)
	a.logged(1, "outcome of a POST not recorded")
	more := w.send(20)
	require.Never(t, func() bool { return len(w.arrivals()) > 1 }, 2*time.Second, 50*time.Millisecond)
	w.postgres.Pass()
	w.became(append(ops, more...), pix.Sent)
	require.Equal(t, 1, w.once(append(ops, more...)))
	require.Zero(t, a.stop())
}

// Everything is delivered twice, to whichever of two senders: each payment goes out once.
func TestDeliveredTwiceToTwoSenders(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	a := w.start("a", map[string]string{"CABINE_SEND_IN_HAND": "5"})
	b := w.start("b", map[string]string{"CABINE_SEND_IN_HAND": "5"})
	a.logged(1, "ready to send")
	b.logged(1, "ready to send")
	ops := w.order(100)
	for attempt := range 3 {
		w.publish(ops, attempt)
	}
	w.became(ops, pix.Sent)
	require.Zero(t, a.stop())
	require.Zero(t, b.stop())
	require.Equal(t, 1, w.once(ops))
	require.NotZero(t, a.count("permit given"))
	require.NotZero(t, b.count("permit given"))
}

func TestGroupsAndBatchesFormUnderLoad(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *icomtest.Config) { c.Unmetered = true })
	require.NoError(t, w.bank.SetFaults(pix.CPM, icomtest.Fault{Kinds: sends(), Delay: 250 * time.Millisecond}))
	a := w.start("a", map[string]string{"CABINE_SEND_GROUP_PACS008": "10"})
	a.logged(1, "ready to send")
	w.became(w.send(1), pix.Sent)
	ops := w.order(800)
	began := time.Now()
	w.publish(ops, 0)
	w.eventually("all to arrive", func() bool { arrived, _ := w.orders(); return len(arrived) == 801 })
	took := time.Since(began)
	w.became(ops, pix.Sent)
	require.Equal(t, 1, w.once(ops))
	posts := w.bank.Report().Participant(pix.CPM, ispb).RequestsTotal
	t.Logf("800 payments in %v with %d POSTs: %.0f/s", took, posts, 800/took.Seconds())
	require.Less(t, posts, uint64(25))
	require.Positive(t, a.metric(`cabine_outbound_batch_operations_bucket{channel="cpm",le="+Inf"}`)-
		a.metric(`cabine_outbound_batch_operations_bucket{channel="cpm",le="50"}`), "a POST with more than 50")
	require.LessOrEqual(t, w.bank.Report().Participant(pix.CPM, ispb).PeakRequests, 2)
	require.Zero(t, a.stop())
}

// A sender that is told to stop under load answers for everything: what it built goes out, the rest goes to the other.
func TestStopUnderLoadHandsOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	require.NoError(t, w.bank.SetFaults(pix.CPM, icomtest.Fault{Kinds: sends(), Delay: 100 * time.Millisecond}))
	a := w.start("a", nil)
	a.logged(1, "ready to send")
	ops := w.send(200)
	w.eventually("some to be sent", func() bool { return len(w.arrivals()) >= 20 })
	require.Zero(t, a.stop())
	require.Zero(t, a.count("permit given", "how", "cooled"))
	left := w.states(ops)[pix.Created]
	t.Logf("%d left to the other", left)
	b := w.start("b", nil)
	w.became(ops, pix.Sent)
	require.Equal(t, 1, w.once(ops))
	require.Zero(t, b.stop())
}

// A group that the SPI refused as a whole is taken apart by whoever reads the admi.002, and each goes alone.
func TestWhatWasTakenApartGoesAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	ops := w.order(3)
	w.publish(ops, 0)
	a := w.start("a", map[string]string{"CABINE_SEND_GROUP_PACS008": "10"})
	w.became(ops, pix.Sent)
	outbound := store.NewOutbound(w.db)
	for _, m := range w.arrivals() {
		if d := m.document.(*iso20022.Pacs008); len(d.Transactions) > 1 {
			_, err := outbound.Split(t.Context(), m.id, "one of them is wrong")
			require.NoError(t, err)
		}
	}
	again, err := w.outbox.Unpublished(t.Context(), 0, 10)
	require.NoError(t, err)
	require.NotEmpty(t, again)
	before := len(w.arrivals())
	w.publish(again, 1)
	w.eventually("each to go alone", func() bool { return len(w.arrivals()) == before+len(again) })
	for _, m := range w.arrivals()[before:] {
		require.Len(t, m.document.(*iso20022.Pacs008).Transactions, 1)
	}
	require.Zero(t, a.stop())
}

// What no message can carry is rejected and holds nobody up.
func TestAnOperationThatCannotBeBuilt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	good := w.order(4)
	var bad []store.Operation
	require.NoError(t, w.db.InTx(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		id := "E" + string(ispb) + time.Now().UTC().Format("200601021504") + "abcdefghijk"
		body := []byte(fmt.Sprintf(`{"end_to_end_id":%q,"amount":"not a number"}`, id))
		_, err := w.payments.Insert(ctx, tx, store.Payment{
			ID: id, Kind: pix.Payment, Direction: pix.Out, State: pix.Created, Amount: 1, Channel: pix.CPM,
			Counterparty: other, Document: body, AcceptedAt: time.Now(),
		}, "api")
		require.NoError(t, err)
		bad, err = w.outbox.Add(ctx, tx, []store.Operation{{PaymentID: id, MsgType: "pacs.008", Channel: pix.CPM, Body: body}})
		return err
	}))
	w.publish(append(bad, good...), 0)
	a := w.start("a", map[string]string{"CABINE_SEND_GROUP_PACS008": "10"})
	w.became(bad, pix.Rejected)
	w.became(good, pix.Sent)
	require.EqualValues(t, 1, a.metric(`cabine_outbound_discarded_total{channel="cpm"}`))
	require.Zero(t, a.stop())
}

// pacs.002 ends what the sends left unknown: the message is not sent again, and is closed.
func TestResendsEndWithTheAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	require.NoError(t, w.bank.SetFaults(pix.CPM, icomtest.Fault{Kinds: sends(), Status: 503}))
	a := w.start("a", map[string]string{"CABINE_RESEND_LOST_AFTER": "3s"})
	ops := w.send(1)
	w.became(ops, pix.Unknown)
	require.NoError(t, w.db.InTx(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		_, err := w.payments.Move(ctx, tx, []store.Move{{ID: ops[0].PaymentID, To: pix.Settled, Who: "spi", SettledAt: time.Now()}})
		return err
	}))
	outbound := store.NewOutbound(w.db)
	w.eventually("nothing to be open", func() bool {
		doubts, err := outbound.Doubts(t.Context(), 6)
		require.NoError(t, err)
		return len(doubts) == 0
	})
	require.Equal(t, 1, w.states(ops)[pix.Settled])
	require.NoError(t, w.bank.SetFaults(pix.CPM))
	require.Never(t, func() bool { return len(w.arrivals()) > 0 }, 2*time.Second, 50*time.Millisecond)
	require.Zero(t, a.stop())
}

// After the last attempt the message is left to enquiries, and stands where an alarm looks.
func TestAttemptsAreCapped(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	require.NoError(t, w.bank.SetFaults(pix.CPM, icomtest.Fault{Kinds: sends(), Status: 503}))
	a := w.start("a", map[string]string{"CABINE_RESEND_ATTEMPTS": "3"})
	ops := w.send(1)
	w.eventually("the attempts to be spent", func() bool {
		return a.metric(`cabine_outbound_open_messages{channel="cpm",state="exhausted"}`) == 1
	})
	require.Equal(t, 1, w.states(ops)[pix.Unknown])
	require.EqualValues(t, 3, w.bank.Report().Participant(pix.CPM, ispb).RequestsTotal)
	require.Zero(t, a.stop())
}

// Pollers and senders of one channel share the bank's six: the bank judges.
func TestTheCapIsSharedWithPollers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *icomtest.Config) { c.Hold = 500 * time.Millisecond })
	require.NoError(t, w.bank.SetFaults(pix.CPM, icomtest.Fault{Kinds: sends(), Delay: 50 * time.Millisecond}))
	// Nothing is reserved but one slot each: the other four go to and fro.
	split := map[string]string{
		"CABINE_ICOM_CPM_POLL_FLOOR": "1", "CABINE_ICOM_CPM_SEND_FLOOR": "1", "ICOM_CPM_MAX_SLOTS": "5",
		"QUEUE_CONCURRENCY_DEFAULT": "5", "CABINE_SEND_IDLE_AFTER": "300ms",
	}
	p := w.run(os.Getenv(pollerVariable), "p", split)
	p.logged(5, "first poll")
	a := w.start("a", split)
	b := w.start("b", split)
	a.logged(1, "ready to send")
	b.logged(1, "ready to send")
	var ops []store.Operation
	for range 3 {
		ops = append(ops, w.send(150)...)
		_, err := w.bank.EnqueueExamples(pix.CPM, ispb, 20)
		require.NoError(t, err)
		w.became(ops, pix.Sent)
	}
	require.Equal(t, 1, w.once(ops))
	count := w.bank.Report().Participant(pix.CPM, ispb)
	t.Logf("the bank counted: %+v", count)
	require.LessOrEqual(t, count.PeakRequests, 6)
	for _, r := range []*replica{a, b, p} {
		require.Zero(t, r.stop())
	}
}

func TestRedisAwayNothingIsSent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	a := w.start("a", map[string]string{"CABINE_SEND_IDLE_AFTER": "200ms"})
	w.became(w.send(1), pix.Sent)
	a.logged(1, "permit given", "why", "idle")
	require.NoError(t, w.redis.Stop())
	ops := w.send(3)
	require.Never(t, func() bool { return len(w.arrivals()) > 1 }, 2*time.Second, 50*time.Millisecond)
	require.NoError(t, w.redis.Start(t.Context()))
	w.became(ops, pix.Sent)
	require.Equal(t, 1, w.once(ops))
	require.Zero(t, a.stop())
}

func TestTheKeyMayStayInItsToken(t *testing.T) {
	t.Parallel()
	token := devtest.SoftHSM(t)
	w := newWorld(t, nil)
	require.NoError(t, token.Import(t.Context(), w.key, "assinatura"))
	settings := map[string]string{
		"CABINE_SIGNATURE_KEY_FILE": "", "CABINE_SIGNATURE_PKCS11_MODULE": token.Module, "CABINE_SIGNATURE_PKCS11_TOKEN": token.Label,
		"CABINE_SIGNATURE_PKCS11_PIN": token.PIN, "CABINE_SIGNATURE_PKCS11_KEY": "assinatura",
	}
	for _, pair := range token.Env() { // its library finds the token by these
		name, value, _ := strings.Cut(pair, "=")
		settings[name] = value
	}
	a := w.start("a", settings)
	ops := w.send(20)
	w.became(ops, pix.Sent)
	require.Equal(t, 1, w.once(ops))
	require.NotContains(t, a.text(), token.PIN)
	require.Zero(t, a.stop())
}

func TestWrongNumbersAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for name, tt := range map[string]struct {
		set  map[string]string
		says string
	}{
		"group":       {map[string]string{"CABINE_SEND_GROUP_PACS008": "11"}, "group of pacs.008 is 11, want 1 to 10"},
		"no key":      {map[string]string{"CABINE_SIGNATURE_KEY_FILE": ""}, "want either key_file or pkcs11.module"},
		"wrong key":   {map[string]string{"CABINE_SIGNATURE_KEY_FILE": w.cert}, "signature.key_file"},
		"traffic":     {map[string]string{"CABINE_TRAFFIC_MODE": "ignore"}, "want observe or enforce"},
		"lost after":  {map[string]string{"CABINE_RESEND_LOST_AFTER": "2s"}, "resend.lost_after is 2s"},
		"attempts":    {map[string]string{"CABINE_RESEND_ATTEMPTS": "0"}, "resend.attempts is 0"},
		"pauses":      {map[string]string{"CABINE_RESEND_MOST": "1ms"}, "resend pauses from"},
		"N of 7":      {map[string]string{"CABINE_ICOM_CPM_LIMIT": "7"}, "icom.cpm.limit is 7, want 1 to 6"},
		"concurrency": {map[string]string{"QUEUE_CONCURRENCY_DEFAULT": "0"}, "queue.concurrency_default is 0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := w.start("a", tt.set)
			require.Equal(t, core.ExitUsage, r.wait())
			require.Contains(t, r.text(), tt.says)
		})
	}
}
