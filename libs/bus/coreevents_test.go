package bus_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/bus"
)

// An event is read by its subject alone; whose it is stands there, and no other subject passes for one.
func TestPaymentRequestsAreReadStrictly(t *testing.T) {
	t.Parallel()
	r, err := bus.Delivery{Subject: "core.payment_request.12345678", Payload: []byte("x")}.PaymentRequest()
	require.NoError(t, err)
	require.Equal(t, bus.PaymentRequest{ISPB: ispb, Body: []byte("x")}, r)
	for _, subject := range []string{"", "core.payment_request", "core.payment_request.", "core.payment_request.a.b", "core.payment_refused.12345678", "pix.settlement.obligation"} {
		_, err := bus.Delivery{Subject: subject}.PaymentRequest()
		require.Error(t, err, subject)
	}
}

func TestSubjectsOfTheCore(t *testing.T) {
	t.Parallel()
	require.Equal(t, "core.payment_request.12345678", bus.PaymentRequestSubject(ispb))
	require.Equal(t, "core.payment_request.other", bus.PaymentRequestSubject(".>"))
	require.Equal(t, "core.payment_accepted.12345678", bus.CoreAnswerSubject(ispb, true))
	require.Equal(t, "core.payment_refused.12345678", bus.CoreAnswerSubject(ispb, false))
}

// An event published again without an attempt is stored once, one with an attempt passes; what is too large is refused to
// whoever publishes it.
func TestPaymentRequestsArePublishedOnce(t *testing.T) {
	t.Parallel()
	b := provisioned(t)
	sub := b.bus.Subscribe(bus.SubscriptionConfig{
		Stream: bus.StreamCoreEvents, Durable: bus.ConsumerCoreEvents, PullWait: 200 * time.Millisecond,
	})
	e := bus.PaymentRequest{ISPB: ispb, ID: "a", Body: []byte(`{"id":"a"}`)}
	again := e
	again.Attempt = 1
	other := bus.PaymentRequest{ISPB: ispb, ID: "b", Body: []byte(`{"id":"b"}`)}
	require.NoError(t, b.bus.PublishPaymentRequests(t.Context(), []bus.PaymentRequest{e, e, again, other}).Err())
	large := bus.PaymentRequest{ISPB: ispb, ID: "large", Body: make([]byte, 65<<10)}
	require.ErrorIs(t, b.bus.PublishPaymentRequests(t.Context(), []bus.PaymentRequest{large}).Err(), bus.ErrRefused)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- sub.Run(ctx) }()
	for _, want := range [][]byte{e.Body, again.Body, other.Body} {
		h := <-sub.Deliveries()
		r, err := h.PaymentRequest()
		require.NoError(t, err)
		require.Equal(t, want, r.Body)
		h.Ack()
	}
	cancel()
	require.NoError(t, <-ended)
	require.NoError(t, b.bus.PublishCoreAnswers(t.Context(), []bus.CoreAnswer{{ISPB: ispb, Accepted: true, Name: "a", Body: []byte("{}")}, {ISPB: ispb, Name: "b", Body: []byte("{}")}}).Err())
}
