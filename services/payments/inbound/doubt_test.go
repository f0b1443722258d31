package inbound_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/services/payments/inbound"
)

// What the SPI says of an entry holds for when it said so. A copy of the order that went out shortly before, or after, may
// be settled yet.
func TestNotSettledIsNoEndForWhatWentOutLately(t *testing.T) {
	t.Parallel()
	const limit = 1500 * time.Millisecond
	w := newWorldWith(t, 0, func(c *inbound.Config) {
		c.SettleWithin, c.AnswerMargin, c.InfoMargin = limit, time.Millisecond, time.Millisecond
	})
	pass := func() {
		from := time.Now()
		require.Eventually(t, func() bool { return time.Since(from) > limit+100*time.Millisecond }, long, 10*time.Millisecond)
	}
	id, row := w.order()
	said := now()
	pass()
	w.sent(w.build(1, row), "r1")
	w.handle(w.receive(notification(t, id, iso20022.Debit, iso20022.NotSettled, "", "")))
	require.Equal(t, pix.Sent, w.state(string(id)), "its first copy went out just now")
	pass()
	w.handle(w.receiveFrom(iso20022.Header{From: pix.SPI, To: us, Created: said}, notification(t, id, iso20022.Debit, iso20022.NotSettled, "", "")))
	require.Equal(t, pix.Sent, w.state(string(id)), "that was said long ago")
	w.handle(w.receive(notification(t, id, iso20022.Debit, iso20022.NotSettled, "", "")))
	require.Equal(t, pix.Rejected, w.state(string(id)))
}

func TestLongWordsWithAccentsAreCutBetweenCharacters(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, start := range []string{"", "x"} {
		id, row := w.order()
		msg := w.build(1, row)
		w.sent(msg, "r-"+string(id))
		doc := status(string(id), id, iso20022.RJCT, "AM04")
		info := start + strings.Repeat("ã", 104)
		doc.Statuses[0].Reasons[0].Info = []string{info, info, info}
		w.handle(w.receive(doc))
		require.Equal(t, pix.Rejected, w.state(string(id)))
		require.True(t, strings.HasPrefix(w.payment(string(id)).Detail, info[:200]))

		id, row = w.order()
		msg = w.build(1, row)
		w.handle(w.receive(&iso20022.Admi002{Ref: string(msg), Reason: "x", Location: start + strings.Repeat("ã", 300)}))
		require.Equal(t, pix.Rejected, w.state(string(id)))
	}
	_, dead := w.dead()
	require.Zero(t, dead)
}

// An order that went out twice and was refused each time may have been stored once more than was refused. That the SPI
// has no such entry is what ends it.
func TestWhatTheSPIHasNoEntryOfEndsWhenItsTimeIsOver(t *testing.T) {
	t.Parallel()
	const limit = 1500 * time.Millisecond
	w := newWorldWith(t, 0, func(c *inbound.Config) {
		c.SettleWithin, c.AnswerMargin, c.InfoMargin, c.NoEntryCode = limit, time.Millisecond, time.Millisecond, "NOEN"
	})
	id, row := w.order()
	msg := w.build(1, row)
	require.NoError(t, w.books.Outbound.Unknown(t.Context(), []pix.MsgID{msg}, "timeout"))
	attempted, err := w.books.Outbound.Attempt(t.Context(), []store.Try{{MsgID: msg, Attempts: 1}})
	require.NoError(t, err)
	require.Equal(t, []bool{true}, attempted)
	w.sent(msg, "r1")
	w.handle(w.receive(&iso20022.Admi002{Ref: "r1", Reason: "x"}))
	require.Equal(t, pix.Sent, w.state(string(id)), "the other copy may have been taken")

	none := func(code string) *iso20022.Camt054 {
		return notification(t, id, iso20022.Debit, iso20022.NotSettled, code, "sem lançamento")
	}
	w.handle(w.receive(none("NOEN")))
	require.Equal(t, pix.Sent, w.state(string(id)), "it may be on its way")
	from := time.Now()
	require.Eventually(t, func() bool { return time.Since(from) > limit+100*time.Millisecond }, long, 10*time.Millisecond)
	w.handle(w.receive(none("ED05")))
	require.Equal(t, pix.Sent, w.state(string(id)), "another code says nothing")
	w.handle(w.receive(none("NOEN")))
	require.Equal(t, pix.Rejected, w.state(string(id)))
	_, dead := w.dead()
	require.Zero(t, dead)
}

// The bank answered 503 until the attempts were spent: the SPI's "not settled" ends such an order, once its last copy is
// older than the SPI's limit.
func TestAnOrderWhoseAttemptsAreSpentEndsByAsking(t *testing.T) {
	t.Parallel()
	const limit = 1500 * time.Millisecond
	w := newWorldWith(t, 0, func(c *inbound.Config) {
		c.SettleWithin, c.AnswerMargin, c.InfoMargin = limit, time.Millisecond, time.Millisecond
	})
	pass := func() {
		from := time.Now()
		require.Eventually(t, func() bool { return time.Since(from) > limit+100*time.Millisecond }, long, 10*time.Millisecond)
	}
	id, row := w.order()
	msg := w.build(2, row)
	require.NoError(t, w.books.Outbound.Unknown(t.Context(), []pix.MsgID{msg}, "503"))
	says := func() pix.State {
		w.handle(w.receive(notification(t, id, iso20022.Debit, iso20022.NotSettled, "", "")))
		return w.state(string(id))
	}
	pass()
	require.NoError(t, w.books.Outbound.Tidy(t.Context(), 3, 0))
	require.Equal(t, pix.Unknown, says(), "it may go out a third time")
	require.NoError(t, w.books.Outbound.Tidy(t.Context(), 2, 0))
	require.Equal(t, pix.Unknown, says(), "its last copy may have gone out just now")
	pass()
	require.Equal(t, pix.Rejected, says())
	_, dead := w.dead()
	require.Zero(t, dead)
}
