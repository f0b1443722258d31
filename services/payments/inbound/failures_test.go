package inbound_test

import (
	"context"
	"crypto/x509"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/corebank"
	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/signature"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/services/payments/decision"
	"github.com/cabine-pix/cabine/services/payments/inbound"
)

// faulty is a decider with a fault in it, for so many questions.
type faulty struct {
	inbound.Decider
	times int
}

func (f *faulty) Decide(ctx context.Context, q corebank.Question, left time.Duration) (decision.Verdict, error) {
	if f.times > 0 {
		f.times--
		return decision.Verdict{}, errors.New("index out of range")
	}
	return f.Decider.Decide(ctx, q, left)
}

// After an hour without the database a message was delivered often, and has failed by no fault of ours once.
func TestOnlyFailuresOfOurOwnBuryAMessage(t *testing.T) {
	t.Parallel()
	var core *faulty
	w := newWorldWith(t, 0, nil, func(d *inbound.Deps) {
		core = &faulty{Decider: d.Core, times: 4}
		d.Core = core
	})
	outage := func(m string, handle func(context.Context) error) {
		away, end := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
		defer end()
		for range 20 {
			require.ErrorIs(t, handle(away), store.ErrUnavailable, m)
		}
	}
	p := transfer(t)
	m := w.receive(pacs008(p))
	handle := func(ctx context.Context) error { return w.processor.Handle(ctx, m) }
	for range 4 {
		outage("before each", handle)
		require.ErrorContains(t, handle(t.Context()), "index out of range")
	}
	outage("after all", handle)
	require.NoError(t, handle(t.Context()), "the fault has passed")
	require.Equal(t, pix.Accepted, w.state(string(p.EndToEndID)))
	_, dead := w.dead()
	require.Zero(t, dead)

	core.times = 5
	m = w.receive(pacs008(transfer(t)))
	for range 4 {
		require.Error(t, handle(t.Context()))
	}
	require.EqualValues(t, 1, w.open())
	require.NoError(t, handle(t.Context()))
	kinds, dead := w.dead()
	require.Equal(t, map[string]int{"fault": 1}, kinds)
	require.EqualValues(t, 1, dead)
	letters, err := w.books.Inbox.DeadLetters(t.Context(), 0, 10)
	require.NoError(t, err)
	require.Equal(t, "fault: failed 5 times, at last: index out of range", letters[0].Reason)
	require.NoError(t, handle(t.Context()), "closed")
	require.Zero(t, core.times)
}

// behind is a verifier of a replica that has not got the SPI's new certificate, or has a wrong clock, for so many messages.
type behind struct {
	inbound.Verifier
	reason signature.Reason
	times  int
}

func (b *behind) Verify(message []byte) (*x509.Certificate, error) {
	if b.times > 0 {
		b.times--
		return nil, &signature.Error{Reason: b.reason, Detail: "none"}
	}
	return b.Verifier.Verify(message)
}

func TestWhatMayBeTheFaultOfOurCertificatesComesAgain(t *testing.T) {
	t.Parallel()
	var verifier *behind
	w := newWorldWith(t, 0, nil, func(d *inbound.Deps) {
		verifier = &behind{Verifier: d.Verifier}
		d.Verifier = verifier
	})
	for _, reason := range []signature.Reason{signature.UnknownCertificate, signature.NotInForce} {
		verifier.reason, verifier.times = reason, 4
		p := transfer(t)
		m := w.receive(pacs008(p))
		for range 4 {
			require.ErrorContains(t, w.processor.Handle(t.Context(), m), string(reason))
		}
		w.handle(m)
		require.Equal(t, pix.Accepted, w.state(string(p.EndToEndID)))

		verifier.times = 5
		m = w.receive(pacs008(transfer(t)))
		for range 4 {
			require.Error(t, w.processor.Handle(t.Context(), m))
		}
		w.handle(m)
		require.Zero(t, w.open())
	}
	kinds, _ := w.dead()
	require.Equal(t, map[string]int{"signature": 2}, kinds)
	require.Equal(t, map[string]int{"unknown_certificate": 9, "certificate_not_in_force": 9}, w.counter("cabine_payments_unverified_total", "reason"))

	// What was changed on the way is nobody's fault here.
	verifier.reason, verifier.times = signature.WrongDigest, 1
	w.handle(w.receive(pacs008(transfer(t))))
	kinds, dead := w.dead()
	require.Equal(t, map[string]int{"signature": 3}, kinds)
	require.EqualValues(t, 3, dead)
}

// The bus only says which message there is.
func TestTheInboxIsBelievedAndNotTheBus(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id, row := w.order()
	w.sent(w.build(1, row), "r1")
	rejects := w.receive(status(string(id), id, iso20022.RJCT, "AM04"))
	settles := w.receive(status(string(id), id, iso20022.ACSC))
	settles.Payload = rejects.Payload
	w.handle(settles)
	require.Equal(t, pix.Settled, w.state(string(id)))
}
