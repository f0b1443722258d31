package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/devstack/devtest"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
)

func (b books) message(t testing.TB, id pix.MsgID) store.Message {
	t.Helper()
	m, _, err := b.outbound.ByResource(t.Context(), string(id))
	require.NoError(t, err)
	return m
}

// refuse and split answer what contradicts them.
func (b books) refuse(t testing.TB, reason string, ids ...pix.MsgID) []string {
	t.Helper()
	contradicted, err := b.outbound.Refused(t.Context(), ids, reason)
	require.NoError(t, err)
	return contradicted
}

func (b books) split(t testing.TB, id pix.MsgID) []string {
	t.Helper()
	contradicted, err := b.outbound.Split(t.Context(), id, "admi.002")
	require.NoError(t, err)
	return contradicted
}

func (b books) claim(t testing.TB, ids ...int64) (free []int64, taken []pix.MsgID) {
	t.Helper()
	operations, messages, err := b.outbound.Claim(t.Context(), ids)
	require.NoError(t, err)
	for _, o := range operations {
		free = append(free, o.ID)
	}
	for _, m := range messages {
		taken = append(taken, m.MsgID)
		require.Equal(t, "<"+string(m.MsgID)+"/>", string(m.Payload))
	}
	return free, taken
}

// goes counts an attempt of a message as somebody who knows how often it was sent, and says whether it may go out.
func (b books) goes(t testing.TB, id pix.MsgID) bool {
	t.Helper()
	ours, err := b.outbound.Attempt(t.Context(), []store.Try{{MsgID: id, Attempts: b.message(t, id).Attempts}})
	require.NoError(t, err)
	return ours[0]
}

// dueNow returns the names of messages that are to be sent again, whatever their age.
func (b books) dueNow(t testing.TB) (ids []pix.MsgID) {
	t.Helper()
	messages, err := b.outbound.Due(t.Context(), pix.CPM, store.Resend{Attempts: 100}, 100)
	require.NoError(t, err)
	for _, m := range messages {
		ids = append(ids, m.MsgID)
	}
	return ids
}

func (b books) sends(t testing.TB, id string) (sends store.Sends) {
	t.Helper()
	b.tx(t, func(ctx context.Context, tx *store.Tx) (err error) {
		sends, err = b.outbound.Sends(ctx, tx, id)
		return err
	})
	return sends
}

func (b books) unpublished(t testing.TB) (ids []int64) {
	t.Helper()
	operations, err := b.outbox.Unpublished(t.Context(), 0, 100)
	require.NoError(t, err)
	for _, o := range operations {
		ids = append(ids, o.ID)
	}
	return ids
}

func TestAMessageGetsAllOfItsOperationsOrIsNotStored(t *testing.T) {
	t.Parallel()
	b := setupBooks(t)
	ops := b.ordered(t, e2e(1), e2e(2), e2e(3), e2e(4))
	require.Equal(t, []bool{true, true}, b.build(t, draft(msgID(1), 0, ops[0], ops[1]), draft(msgID(2), 1, ops[3])))
	require.Equal(t, []bool{false, false, false}, b.build(t,
		draft(msgID(3), 0, ops[1], ops[2]), draft(msgID(4), 0, ops[3]), draft(msgID(5), 0, 1<<40)))
	for _, id := range []pix.MsgID{msgID(3), msgID(4), msgID(5)} {
		_, _, err := b.outbound.ByResource(t.Context(), string(id))
		require.ErrorIs(t, err, store.ErrNotFound)
	}
	free, taken := b.claim(t, ops...)
	require.Equal(t, []int64{ops[2]}, free)
	require.Equal(t, []pix.MsgID{msgID(1), msgID(2)}, taken)
	require.Equal(t, ops[:2], b.message(t, msgID(1)).Operations)
	require.Equal(t, 1, b.message(t, msgID(2)).Attempts)

	require.Equal(t, []bool{true, true}, b.build(t, draft(msgID(1), 0, ops[0], ops[1]), draft(msgID(2), 1, ops[3])), "repeated")
	require.Equal(t, []bool{false}, b.build(t, draft(msgID(1), 0, ops[0], ops[2])), "not what it carries")
	_, err := b.outbound.Build(t.Context(), []store.Draft{draft(msgID(1), 0, ops[2])})
	require.ErrorIs(t, err, store.ErrRefused, "the name is taken")
	for _, bad := range [][]store.Draft{
		{draft(msgID(6), 0)},
		{draft(msgID(6), 2, ops[2])},
		{draft(msgID(6), 0, ops[2], ops[2])},
		{draft(msgID(6), 0, ops[2]), draft(msgID(6), 0, ops[1])},
		make([]store.Draft, 1),
	} {
		_, err := b.outbound.Build(t.Context(), bad)
		require.Error(t, err)
	}
	require.Empty(t, b.build(t))
}

// Senders claim the same operations at the same time and group them each in its own way.
func TestAnOperationIsCarriedByOneMessage(t *testing.T) {
	t.Parallel()
	b := setupBooks(t)
	random := devtest.Rand(t)
	const orders, senders, rounds = 40, 5, 8
	ids := make([]string, orders)
	for i := range ids {
		ids[i] = e2e(i)
	}
	ops := b.ordered(t, ids...)
	seeds := make([][][]int64, senders)
	for s := range seeds {
		for range rounds {
			mine := slices.Clone(ops)
			random.Shuffle(orders, func(x, y int) { mine[x], mine[y] = mine[y], mine[x] })
			seeds[s] = append(seeds[s], mine)
		}
	}
	var mu sync.Mutex
	carriers := map[int64]pix.MsgID{}
	var all sync.WaitGroup
	for s := range senders {
		all.Go(func() {
			for r, mine := range seeds[s] {
				var drafts []store.Draft
				for i, group := range slices.Collect(slices.Chunk(mine, 1+r%3)) {
					drafts = append(drafts, draft(msgID(s*10_000+r*100+i), 1, group...))
				}
				built, err := b.outbound.Build(t.Context(), drafts)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for i, ok := range built {
					for _, id := range drafts[i].OperationIDs {
						if ok && carriers[id] != "" {
							t.Errorf("operation %d is in two messages", id)
						}
						if ok {
							carriers[id] = drafts[i].Message.MsgID
						}
					}
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	require.Len(t, carriers, orders)
	for id, msg := range carriers {
		require.Contains(t, b.message(t, msg).Operations, id)
	}
	free, _ := b.claim(t, ops...)
	require.Empty(t, free)
}

func TestAnAttemptIsCountedByOneSender(t *testing.T) {
	t.Parallel()
	b := setupBooks(t)
	ops := b.ordered(t, e2e(1), e2e(2))
	b.build(t, draft(msgID(1), 0, ops[0]), draft(msgID(2), 1, ops[1]))
	tries := []store.Try{{MsgID: msgID(2), Attempts: 1}, {MsgID: msgID(9)}, {MsgID: msgID(1)}}
	var mine [3]atomic.Int64
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() {
			counted, err := b.outbound.Attempt(t.Context(), tries)
			if err != nil {
				t.Error(err)
				return
			}
			for i, ok := range counted {
				if ok {
					mine[i].Add(1)
				}
			}
		})
	}
	all.Wait()
	require.Equal(t, [3]int64{1, 0, 1}, [3]int64{mine[0].Load(), mine[1].Load(), mine[2].Load()})
	require.Equal(t, 1, b.message(t, msgID(1)).Attempts)
	require.Equal(t, 2, b.message(t, msgID(2)).Attempts)

	for range 2 { // of which the second one finds nothing to take back
		require.NoError(t, b.outbound.Withdraw(t.Context(), []store.Try{{MsgID: msgID(2), Attempts: 2}}, true))
	}
	require.Equal(t, 1, b.message(t, msgID(2)).Attempts)
	due, err := b.outbound.Due(t.Context(), pix.CPM, store.Resend{LostAfter: time.Hour, Attempts: 5}, 10)
	require.NoError(t, err)
	require.Len(t, due, 1, "what was released")
	require.Equal(t, msgID(2), due[0].MsgID)
	b.refuse(t, "400", msgID(2))
	require.False(t, b.goes(t, msgID(2)), "nobody sends what was refused")
}

func TestASendWithoutAnAnswerIsUnknownUntilOneComes(t *testing.T) {
	t.Parallel()
	b := setupBooks(t)
	ops := b.ordered(t, e2e(1), e2e(2), e2e(3))
	b.build(t, draft(msgID(1), 1, ops...))
	b.move(t, to(pix.Settled, e2e(3))...) // the SPI was faster
	one := []pix.MsgID{msgID(1)}
	for range 2 {
		require.NoError(t, b.outbound.Unknown(t.Context(), one, "timeout"))
	}
	require.Equal(t, store.MessageUnknown, b.message(t, msgID(1)).State)
	require.Equal(t, "timeout", b.message(t, msgID(1)).Reason)
	require.Equal(t, store.Sends{Attempts: 1, Open: true}, b.sends(t, e2e(1)))
	_, taken := b.claim(t, ops...)
	require.Equal(t, one, taken, "the very same message goes out again")
	require.True(t, b.goes(t, msgID(1)))
	for range 2 {
		require.NoError(t, b.outbound.Sent(t.Context(), []store.Posted{{MsgID: msgID(1), ResourceID: "PI2"}}))
	}
	require.NoError(t, b.outbound.Unknown(t.Context(), one, "a slower attempt"))
	require.Equal(t, store.MessageSent, b.message(t, "PI2").State)
	require.Equal(t, store.Sends{Attempts: 2}, b.sends(t, e2e(1)))
	for _, id := range []string{e2e(1), e2e(2)} {
		require.Equal(t, []pix.State{pix.Created, pix.Unknown, pix.Sent}, b.history(t, id))
	}
	require.Equal(t, []pix.State{pix.Created, pix.Settled}, b.history(t, e2e(3)))
	events, err := b.payments.Events(t.Context(), e2e(1))
	require.NoError(t, err)
	require.Equal(t, "timeout", events[1].Reason)
	require.Equal(t, string(msgID(1)), events[2].Detail)
	free, taken := b.claim(t, ops...)
	require.Empty(t, free)
	require.Empty(t, taken)
}

func TestARefusalProvesOnlyWhatItSaysOfTheOnlyAttempt(t *testing.T) {
	t.Parallel()
	b := setupBooks(t)
	ops := b.ordered(t, e2e(1), e2e(2), e2e(3), e2e(4))
	b.insert(t, incoming(e2e(5)))
	answer := b.add(t, operation(e2e(5), "pacs.002"), operation(e2e(1), "camt.060"))
	b.build(t, draft(msgID(1), 1, ops[0]), draft(msgID(2), 1, ops[1]), draft(msgID(3), 1, ops[2]), draft(msgID(4), 1, ops[3]),
		draft(msgID(5), 1, answer[0].ID), draft(msgID(6), 1, answer[1].ID))
	refuse := func(ids ...pix.MsgID) { require.Empty(t, b.refuse(t, "400", ids...)) }

	require.True(t, b.goes(t, msgID(2)))
	require.True(t, b.goes(t, msgID(3)))
	require.NoError(t, b.outbound.Unknown(t.Context(), []pix.MsgID{msgID(3)}, "timeout"))
	require.NoError(t, b.outbound.Sent(t.Context(), []store.Posted{{MsgID: msgID(4)}}))
	for range 2 {
		refuse(msgID(1), msgID(2), msgID(3), msgID(4), msgID(5), msgID(6), msgID(7))
	}
	require.Equal(t, []pix.State{pix.Created, pix.Rejected}, b.history(t, e2e(1)), "never sent but once")
	require.Equal(t, []pix.State{pix.Created, pix.Unknown}, b.history(t, e2e(2)), "an attempt before it may have arrived")
	require.Equal(t, []pix.State{pix.Created, pix.Unknown, pix.Unknown}, b.history(t, e2e(3)), "noted")
	require.Equal(t, []pix.State{pix.Created, pix.Sent, pix.Rejected}, b.history(t, e2e(4)), "by an admi.002")
	require.Equal(t, []pix.State{pix.Accepted, pix.Accepted}, b.history(t, e2e(5)), "noted")
	for i := range 6 {
		require.Equal(t, store.MessageRefused, b.message(t, msgID(i+1)).State)
	}
	require.Empty(t, b.dueNow(t))
	require.Equal(t, store.Sends{Attempts: 2}, b.sends(t, e2e(2)))
}

// What went out once, was settled and is said to be refused is told; what went out again is not, as a copy may be refused.
func TestARefusalOfWhatSettledContradictsIt(t *testing.T) {
	t.Parallel()
	b := setupBooks(t)
	ops := b.ordered(t, e2e(1), e2e(2), e2e(3))
	b.build(t, draft(msgID(1), 1, ops[0]), draft(msgID(2), 1, ops[1]), draft(msgID(3), 1, ops[2]))
	require.True(t, b.goes(t, msgID(2)))
	b.move(t, to(pix.Settled, e2e(1), e2e(2))...)
	b.move(t, to(pix.Rejected, e2e(3))...)
	require.Equal(t, []string{e2e(1)}, b.refuse(t, "400", msgID(1), msgID(2), msgID(3)))
	require.Empty(t, b.refuse(t, "400", msgID(1)))
	require.Equal(t, []pix.State{pix.Created, pix.Settled, pix.Settled}, b.history(t, e2e(1)), "it stays, and it is noted")
}

func TestARefusedReturnGivesItsAmountBack(t *testing.T) {
	t.Parallel()
	b := setupBooks(t)
	b.insert(t, incoming(e2e(1)))
	b.move(t, to(pix.Settled, e2e(1))...)
	_, err := b.insertReturn(t, giveBack(rtr(1), e2e(1), "a", 100_00))
	require.NoError(t, err)
	op := b.add(t, operation(rtr(1), "pacs.004"))
	b.build(t, draft(msgID(1), 1, op[0].ID))
	b.refuse(t, "400", msgID(1))
	require.Equal(t, pix.Rejected, b.get(t, rtr(1)).State)
	require.Zero(t, b.get(t, e2e(1)).Returned)
}

func TestARefusedGroupIsTakenApart(t *testing.T) {
	t.Parallel()
	b := setupBooks(t)
	ops := b.ordered(t, e2e(1), e2e(2), e2e(3))
	require.NoError(t, b.outbox.MarkPublished(t.Context(), ops))
	b.build(t, draft(msgID(1), 1, ops...))
	require.NoError(t, b.outbound.Sent(t.Context(), []store.Posted{{MsgID: msgID(1), ResourceID: "PI1"}}))
	b.move(t, to(pix.Settled, e2e(3))...) // which was in it, and went out once
	require.Empty(t, b.unpublished(t))
	require.Equal(t, []string{e2e(3)}, b.split(t, msgID(1)), "that contradicts it")
	require.Empty(t, b.split(t, msgID(1)))
	require.Equal(t, ops[:2], b.unpublished(t))
	free, taken, err := b.outbound.Claim(t.Context(), ops)
	require.NoError(t, err)
	require.Empty(t, taken)
	require.Len(t, free, 2)
	for _, o := range free {
		require.True(t, o.Alone)
		require.Equal(t, 1, o.Attempts, "the bus must not take it for the publication before")
	}
	require.Equal(t, []pix.State{pix.Created, pix.Sent, pix.Sent}, b.history(t, e2e(1)), "noted")
	require.Equal(t, store.Sends{Open: true}, b.sends(t, e2e(1)), "the only attempt was refused")

	require.Equal(t, []bool{true, true}, b.build(t, draft(msgID(2), 1, ops[0]), draft(msgID(3), 1, ops[1])))
	require.Equal(t, store.Sends{Attempts: 1, Open: true}, b.sends(t, e2e(1)))
	require.NoError(t, b.outbound.Sent(t.Context(), []store.Posted{{MsgID: msgID(2)}, {MsgID: msgID(3)}}))
	_, err = b.outbound.Split(t.Context(), msgID(2), "admi.002")
	require.ErrorIs(t, err, store.ErrNotFound, "no group")
	_, err = b.outbound.Split(t.Context(), msgID(9), "admi.002")
	require.ErrorIs(t, err, store.ErrNotFound)
	b.refuse(t, "admi.002", msgID(2))
	require.Equal(t, pix.Rejected, b.get(t, e2e(1)).State)
	require.Equal(t, pix.Sent, b.get(t, e2e(2)).State)
}

func TestAGroupThatWentOutTwiceLeavesADoubt(t *testing.T) {
	t.Parallel()
	b := setupBooks(t)
	ops := b.ordered(t, e2e(1), e2e(2))
	b.build(t, draft(msgID(1), 1, ops...))
	require.True(t, b.goes(t, msgID(1)))
	require.Empty(t, b.split(t, msgID(1)))
	b.build(t, draft(msgID(2), 1, ops[0]))
	require.Equal(t, store.Sends{Attempts: 2, Open: true}, b.sends(t, e2e(1)))
	b.refuse(t, "400", msgID(2))
	require.Equal(t, pix.Unknown, b.get(t, e2e(1)).State, "the first of the two may have arrived")

	// The answer to it comes before the other one was sent again: it is not.
	b.move(t, to(pix.Settled, e2e(2))...)
	free, _ := b.claim(t, ops...)
	require.Empty(t, free)
	stuck, err := b.outbox.Stuck(t.Context(), 0, time.Hour, 10)
	require.NoError(t, err)
	require.Empty(t, stuck)
	require.Empty(t, b.unpublished(t))
	require.Equal(t, []bool{false}, b.build(t, draft(msgID(3), 1, ops[1])))
	backlog, err := b.outbox.Backlog(t.Context())
	require.NoError(t, err)
	require.Zero(t, backlog)
}

func TestMessagesToBeSentAgainAreHandedToOneAtATime(t *testing.T) {
	t.Parallel()
	b := setupBooks(t)
	const n = 12
	ids := make([]string, n)
	for i := range ids {
		ids[i] = e2e(i)
	}
	ops := b.ordered(t, ids...)
	drafts := make([]store.Draft, n)
	for i := range drafts {
		drafts[i] = draft(msgID(i), 1, ops[i])
	}
	b.build(t, drafts...)
	require.NoError(t, b.outbound.Unknown(t.Context(), []pix.MsgID{msgID(0), msgID(1)}, "timeout"))
	b.move(t, to(pix.Settled, e2e(0))...) // answered: not sent again
	require.NoError(t, b.outbound.Sent(t.Context(), []store.Posted{{MsgID: msgID(2)}}))
	_, err := side(t, b.url).Exec(t.Context(), "UPDATE outbound_messages SET updated_at = now() - interval '1 min'")
	require.NoError(t, err)

	resend := store.Resend{First: 30 * time.Second, Most: time.Minute, Attempts: 5, LostAfter: 30 * time.Second}
	var mu sync.Mutex
	var got []pix.MsgID
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 3 {
				messages, err := b.outbound.Due(t.Context(), pix.CPM, resend, 2)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				for _, m := range messages {
					got = append(got, m.MsgID)
					if len(m.Operations) != 1 || string(m.Payload) != "<"+string(m.MsgID)+"/>" {
						t.Errorf("%s is not what was built", m.MsgID)
					}
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	slices.Sort(got)
	require.Len(t, slices.Compact(got), len(got), "no message twice")
	require.Len(t, got, n-2)
	require.NoError(t, b.outbound.Tidy(t.Context(), 5, 30*time.Second))
	require.Equal(t, store.MessageClosed, b.message(t, msgID(0)).State)
	require.False(t, b.goes(t, msgID(0)))
	doubts, err := b.outbound.Doubts(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, int64(n-3), doubts[pix.CPM].Built)
	require.Equal(t, int64(1), doubts[pix.CPM].Unknown)
	require.Equal(t, int64(1), doubts[pix.CPM].Exhausted)
}

func TestAnOrderGoesIntoTheOutboxOnceAndAQuestionOften(t *testing.T) {
	t.Parallel()
	b := setupBooks(t)
	b.ordered(t, e2e(1))
	err := b.db.InTx(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		_, err := b.outbox.Add(ctx, tx, []store.Operation{operation(e2e(1), "pacs.008")})
		return err
	})
	require.ErrorIs(t, err, store.ErrRefused)
	added := b.add(t, operation(e2e(1), "camt.060"), operation(e2e(1), "camt.060"), operation("echo", "pibr.001"))
	require.Len(t, added, 3)
	require.Less(t, added[0].ID, added[1].ID)
	require.Less(t, added[1].ID, added[2].ID)
	free, _, err := b.outbound.Claim(t.Context(), []int64{added[2].ID})
	require.NoError(t, err)
	require.Equal(t, "echo", free[0].PaymentID)
	require.JSONEq(t, `{"id": "echo"}`, string(free[0].Body))
	require.Empty(t, b.add(t))
	require.Zero(t, b.sends(t, "echo"))
}

func TestOperationsThatTheBusLostComeAgain(t *testing.T) {
	t.Parallel()
	b := setupBooks(t)
	ops := b.ordered(t, e2e(1), e2e(2))
	require.Equal(t, ops, b.unpublished(t))
	require.NoError(t, b.outbox.MarkPublished(t.Context(), nil))
	require.NoError(t, b.outbox.MarkPublished(t.Context(), ops[:1]))
	require.Equal(t, ops[1:], b.unpublished(t))
	conn := side(t, b.url)
	for attempts, wait := range map[int]time.Duration{0: time.Minute, 1: 2 * time.Minute, 3: 8 * time.Minute, 1000: time.Hour} {
		for _, late := range []bool{false, true} {
			age := wait - 10*time.Second
			if late {
				age = wait + 10*time.Second
			}
			_, err := conn.Exec(t.Context(), "UPDATE outbox SET attempts = $1, published_at = now() - $2::interval WHERE id = $3", attempts, age, ops[0])
			require.NoError(t, err)
			stuck, err := b.outbox.Stuck(t.Context(), time.Minute, time.Hour, 10)
			require.NoError(t, err)
			require.Equal(t, late, len(stuck) == 1, "%d attempts, published %v ago", attempts, age)
			if !late {
				continue
			}
			for range 2 { // two replicas that saw the same
				require.NoError(t, b.outbox.Republished(t.Context(), stuck))
			}
			backlog, err := b.outbox.Backlog(t.Context())
			require.NoError(t, err)
			require.Equal(t, int64(attempts+1), backlog.Attempts)
			require.Equal(t, int64(1), backlog.Created)
			require.Equal(t, int64(1), backlog.Published)
		}
	}
	require.NoError(t, b.outbox.Republished(t.Context(), nil))
	b.build(t, draft(msgID(1), 1, ops...))
	backlog, err := b.outbox.Backlog(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(1), backlog.Doubtful)
	require.Zero(t, backlog.Created+backlog.Published)
}

// A payment is not rejected on somebody's word while a refused group with it is about to be sent anew: Sends, asked in
// the transaction that would reject it, and Split wait for each other.
func TestSendsAndSplitWaitForEachOther(t *testing.T) {
	t.Parallel()
	b := setupBooks(t)
	ops := b.ordered(t, e2e(1), e2e(2))
	b.build(t, draft(msgID(1), 1, ops...))
	require.NoError(t, b.outbound.Sent(t.Context(), []store.Posted{{MsgID: msgID(1)}}))
	watcher := side(t, b.url)
	split := make(chan error, 1)
	b.tx(t, func(ctx context.Context, tx *store.Tx) error {
		sends, err := b.outbound.Sends(ctx, tx, e2e(1))
		require.NoError(t, err)
		require.False(t, sends.Open)
		go func() {
			_, err := b.outbound.Split(t.Context(), msgID(1), "admi.002")
			split <- err
		}()
		blocked(t, watcher)
		_, err = b.payments.Move(ctx, tx, to(pix.Rejected, e2e(1)))
		return err
	})
	require.NoError(t, <-split)
	free, _ := b.claim(t, ops...)
	require.Equal(t, ops[1:], free, "what was rejected meanwhile is not sent")
}

func TestAnswersAreKeptByTheirKeys(t *testing.T) {
	t.Parallel()
	b := setupBooks(t)
	one, other := [32]byte{1}, [32]byte{2}
	begin := func(request [32]byte) store.Key {
		key, err := b.keys.Begin(t.Context(), "k", request)
		require.NoError(t, err)
		return key
	}
	finish := func(status int) error {
		return b.db.InTx(t.Context(), func(ctx context.Context, tx *store.Tx) error {
			return b.keys.Finish(ctx, tx, "k", status, []byte("body"))
		})
	}
	require.ErrorIs(t, finish(201), store.ErrNotFound)
	require.Equal(t, store.Key{State: store.KeyFresh}, begin(one))
	require.Equal(t, store.Key{State: store.KeyInProgress}, begin(one))
	require.Equal(t, store.Key{State: store.KeyMismatch}, begin(other))
	require.NoError(t, b.keys.Abandon(t.Context(), "k"))
	require.Equal(t, store.Key{State: store.KeyFresh}, begin(other))

	conn := side(t, b.url)
	_, err := conn.Exec(t.Context(), "UPDATE idempotency_keys SET created_at = now() - interval '2 min'")
	require.NoError(t, err)
	require.Equal(t, store.Key{State: store.KeyMismatch}, begin(one))
	require.Equal(t, store.Key{State: store.KeyFresh}, begin(other), "the first one is taken for dead")
	require.Equal(t, store.Key{State: store.KeyInProgress}, begin(other))
	require.NoError(t, finish(201))
	require.ErrorIs(t, finish(200), store.ErrNotFound, "one of the two has an effect")
	require.NoError(t, b.keys.Abandon(t.Context(), "k"))
	require.Equal(t, store.Key{State: store.KeyAnswered, Status: 201, Body: []byte("body")}, begin(other))
	require.Equal(t, store.Key{State: store.KeyMismatch}, begin(one))

	n, err := b.keys.Purge(t.Context(), time.Hour)
	require.NoError(t, err)
	require.Zero(t, n)
	n, err = b.keys.Purge(t.Context(), 0)
	require.NoError(t, err)
	require.Equal(t, int64(1), n)
	require.Equal(t, store.KeyFresh, begin(one).State)
}

// Clients repeat an order all at once: one of them has the effect, the others are told to wait or get its answer.
func TestOfTheSameOrderGivenAtOnceOneHasAnEffect(t *testing.T) {
	t.Parallel()
	b := setupBooks(t)
	const clients, keys = 6, 10
	effects := make([]int, keys)
	var mu sync.Mutex
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for k := range keys {
				name := fmt.Sprint("key ", k)
				key, err := b.keys.Begin(t.Context(), name, [32]byte{9})
				switch {
				case err != nil:
					t.Error(err)
				case key.State == store.KeyMismatch:
					t.Error("the same order is another one")
				case key.State == store.KeyAnswered && string(key.Body) != name:
					t.Errorf("%s has the answer %q", name, key.Body)
				case key.State == store.KeyFresh:
					err := b.db.InTx(t.Context(), func(ctx context.Context, tx *store.Tx) error {
						fresh, err := b.payments.Insert(ctx, tx, order(e2e(k)), "api")
						if err == nil && !fresh {
							err = errors.New("booked before")
						}
						return errors.Join(err, b.keys.Finish(ctx, tx, name, 201, []byte(name)))
					})
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					effects[k]++
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	for k := range keys {
		require.Equal(t, 1, effects[k])
		key, err := b.keys.Begin(t.Context(), fmt.Sprint("key ", k), [32]byte{9})
		require.NoError(t, err)
		require.Equal(t, store.KeyAnswered, key.State)
	}
}
