package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
)

func try(n, attempts int) store.Try { return store.Try{MsgID: msgID(n), Attempts: attempts} }

func (b books) attempt(t testing.TB, tries ...store.Try) []bool {
	t.Helper()
	ours, err := b.outbound.Attempt(t.Context(), tries)
	require.NoError(t, err)
	return ours
}

func (b books) due(t testing.TB, r store.Resend) (ids []pix.MsgID) {
	t.Helper()
	messages, err := b.outbound.Due(t.Context(), pix.CPM, r, 10)
	require.NoError(t, err)
	for _, m := range messages {
		ids = append(ids, m.MsgID)
		require.NotEmpty(t, m.Payload)
		require.NotEmpty(t, m.Operations)
	}
	return ids
}

// Of two senders that know the same count one counts.
func TestAnAttemptIsCountedByWhoKnowsTheCount(t *testing.T) {
	t.Parallel()
	b := setupBooks(t)
	ops := b.ordered(t, e2e(1), e2e(2), e2e(3))
	require.Equal(t, []bool{true, true, true}, b.build(t, draft(msgID(1), 0, ops[0]), draft(msgID(2), 1, ops[1]), draft(msgID(3), 0, ops[2])))
	require.Equal(t, []bool{true, false, false}, b.attempt(t, try(1, 0), try(2, 0), try(9, 0)))
	require.Equal(t, []bool{false, true}, b.attempt(t, try(1, 0), try(2, 1)))
	require.NoError(t, b.outbound.Sent(t.Context(), []store.Posted{{MsgID: msgID(1), ResourceID: "r1"}}))
	require.Equal(t, []bool{false}, b.attempt(t, try(1, 1)), "it is at the bank")

	// What certainly stored nothing is taken back, once.
	for range 3 {
		require.NoError(t, b.outbound.Withdraw(t.Context(), []store.Try{try(2, 2), try(1, 1), try(3, 0)}, false))
	}
	require.Equal(t, 1, b.message(t, msgID(2)).Attempts)
	require.Equal(t, 1, b.message(t, msgID(1)).Attempts, "sent is sent")
	require.Zero(t, b.message(t, msgID(3)).Attempts)
	require.Empty(t, b.attempt(t))
}

func TestMessagesAreDueAfterTheirPauseAndForOneSender(t *testing.T) {
	t.Parallel()
	b := setupBooks(t)
	ops := b.ordered(t, e2e(1), e2e(2), e2e(3), e2e(4))
	b.build(t, draft(msgID(1), 0, ops[0]), draft(msgID(2), 1, ops[1]), draft(msgID(3), 1, ops[2]), draft(msgID(4), 1, ops[3]))
	require.NoError(t, b.outbound.Unknown(t.Context(), []pix.MsgID{msgID(2), msgID(3)}, "timeout"))
	require.NoError(t, b.outbound.Sent(t.Context(), []store.Posted{{MsgID: msgID(4)}}))

	hour := store.Resend{First: time.Hour, Most: 2 * time.Hour, Attempts: 5, LostAfter: time.Hour}
	require.Empty(t, b.due(t, hour))
	now := store.Resend{First: time.Microsecond, Most: time.Second, Attempts: 5, LostAfter: time.Hour}
	require.ElementsMatch(t, []pix.MsgID{msgID(2), msgID(3)}, b.due(t, now), "what is built may be in a sender's hands")
	require.NoError(t, b.outbound.Release(t.Context(), []pix.MsgID{msgID(1), msgID(4)}))
	require.Equal(t, []pix.MsgID{msgID(1)}, b.due(t, hour), "released is due at once")
	require.Empty(t, b.due(t, hour), "and taken")

	// The attempts are bounded, and pauses grow with them.
	require.Equal(t, []bool{true}, b.attempt(t, try(2, 1)))
	require.ElementsMatch(t, []pix.MsgID{msgID(3)}, b.due(t, store.Resend{Most: time.Second, First: time.Microsecond, Attempts: 2, LostAfter: time.Hour}))
	// Nobody resends what has ended.
	b.tx(t, func(ctx context.Context, tx *store.Tx) error {
		_, err := b.payments.Move(ctx, tx, []store.Move{{ID: e2e(3), To: pix.Settled, Who: "spi"}})
		return err
	})
	require.Equal(t, []pix.MsgID{msgID(2)}, b.due(t, now))
	other, err := b.outbound.Due(t.Context(), pix.CSM, now, 10)
	require.NoError(t, err)
	require.Empty(t, other)
}

func TestDoubtsAreCountedAndTidiedUp(t *testing.T) {
	t.Parallel()
	b := setupBooks(t)
	ops := b.ordered(t, e2e(1), e2e(2), e2e(3))
	var question []store.Operation
	b.tx(t, func(ctx context.Context, tx *store.Tx) (err error) {
		question, err = b.outbox.Add(ctx, tx, []store.Operation{operation(e2e(1), "camt.060")})
		return err
	})
	asks := draft(msgID(4), 1, question[0].ID)
	asks.Message.MsgType = "camt.060"
	b.build(t, draft(msgID(1), 0, ops[0]), draft(msgID(2), 1, ops[1]), draft(msgID(3), 1, ops[2]), asks)
	require.NoError(t, b.outbound.Unknown(t.Context(), []pix.MsgID{msgID(2), msgID(3), msgID(4)}, "timeout"))
	b.attempt(t, try(2, 1), try(4, 1))
	doubts := func() store.Doubts {
		all, err := b.outbound.Doubts(t.Context(), 2)
		require.NoError(t, err)
		return all[pix.CPM]
	}
	d := doubts()
	require.Equal(t, [3]int64{1, 3, 2}, [3]int64{d.Built, d.Unknown, d.Exhausted})
	require.Positive(t, d.Oldest)

	b.tx(t, func(ctx context.Context, tx *store.Tx) error {
		_, err := b.payments.Move(ctx, tx, []store.Move{{ID: e2e(3), To: pix.Rejected, Who: "spi", Reason: "AM04"}})
		return err
	})
	require.NoError(t, b.outbound.Tidy(t.Context(), 2, time.Hour))
	require.EqualValues(t, 3, doubts().Unknown, "too fresh")
	require.NoError(t, b.outbound.Tidy(t.Context(), 2, 0))
	d = doubts()
	require.Equal(t, [3]int64{1, 1, 1}, [3]int64{d.Built, d.Unknown, d.Exhausted}, "an order is never given up here")
	require.Equal(t, store.MessageSpent, b.message(t, msgID(2)).State)
	require.Equal(t, store.MessageClosed, b.message(t, msgID(3)).State)
	require.Equal(t, store.MessageClosed, b.message(t, msgID(4)).State)
	b.move(t, to(pix.Rejected, e2e(2))...)
	require.NoError(t, b.outbound.Tidy(t.Context(), 2, 0))
	d = doubts()
	require.Equal(t, [3]int64{1, 0, 0}, [3]int64{d.Built, d.Unknown, d.Exhausted})
	require.Equal(t, store.MessageClosed, b.message(t, msgID(2)).State)
}

// An order that was sent as often as may be goes out no more, so that the SPI's word ends it; a late answer still counts.
func TestASpentOrderIsNotSentAgain(t *testing.T) {
	t.Parallel()
	b := setupBooks(t)
	ops := b.ordered(t, e2e(1), e2e(2))
	b.build(t, draft(msgID(1), 1, ops[0]), draft(msgID(2), 1, ops[1]))
	require.NoError(t, b.outbound.Unknown(t.Context(), []pix.MsgID{msgID(1), msgID(2)}, "503"))
	b.attempt(t, try(1, 1), try(2, 1))
	require.Equal(t, store.Sends{Attempts: 2, Open: true}, b.sends(t, e2e(1)))
	before := b.message(t, msgID(1)).UpdatedAt
	require.NoError(t, b.outbound.Tidy(t.Context(), 2, 0))
	require.Equal(t, store.Sends{Attempts: 2}, b.sends(t, e2e(1)))
	require.True(t, b.message(t, msgID(1)).UpdatedAt.After(before), "its last copy may have gone out until now")

	require.NoError(t, b.outbound.Unknown(t.Context(), []pix.MsgID{msgID(1)}, "503"))
	require.NoError(t, b.outbound.Withdraw(t.Context(), []store.Try{try(1, 2)}, true))
	require.NoError(t, b.outbound.Release(t.Context(), []pix.MsgID{msgID(1)}))
	require.Equal(t, []bool{false}, b.attempt(t, try(1, 2)))
	require.Empty(t, b.due(t, store.Resend{Attempts: 9}))
	require.Equal(t, store.Sends{Attempts: 2}, b.sends(t, e2e(1)))

	require.NoError(t, b.outbound.Sent(t.Context(), []store.Posted{{MsgID: msgID(1), ResourceID: "r1"}}))
	require.Equal(t, store.MessageSent, b.message(t, msgID(1)).State)
	b.refuse(t, "admi.002", msgID(2))
	require.Equal(t, store.MessageRefused, b.message(t, msgID(2)).State)
	require.Equal(t, pix.Unknown, b.get(t, e2e(2)).State, "the other attempt may have been stored")
}

func TestWhatNoMessageCanCarryIsGivenUp(t *testing.T) {
	t.Parallel()
	b := setupBooks(t)
	ops := b.ordered(t, e2e(1), e2e(2))
	b.build(t, draft(msgID(1), 1, ops[1]))
	for range 2 {
		for _, id := range ops {
			require.NoError(t, b.outbound.Discard(t.Context(), id, "Amount is no number"))
		}
	}
	p, err := b.payments.Get(t.Context(), e2e(1))
	require.NoError(t, err)
	require.Equal(t, pix.Rejected, p.State)
	require.Equal(t, "Amount is no number", p.Reason)
	free, _ := b.claim(t, ops...)
	require.Empty(t, free)
	p, err = b.payments.Get(t.Context(), e2e(2))
	require.NoError(t, err)
	require.Equal(t, pix.Created, p.State, "a message carries it")
}
