package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

const (
	hammered = 16 // payments, the first half outgoing with orders, the second incoming and settled
	hands    = 6
	blows    = 60
)

// Everything that services do with the same few payments, at the same time and in any order: nothing is turned down by a
// deadlock, and every law holds at the end.
func TestHammer(t *testing.T) {
	t.Parallel()
	b := setupBooks(t)
	random := devtest.Rand(t)
	ids := make([]string, hammered)
	for i := range ids {
		ids[i] = e2e(i)
	}
	ops := b.ordered(t, ids[:hammered/2]...)
	for _, id := range ids[hammered/2:] {
		b.insert(t, incoming(id))
	}
	b.move(t, to(pix.Settled, ids[hammered/2:]...)...)
	h := &hammer{books: b, ids: ids, ops: ops}
	var all sync.WaitGroup
	for range hands {
		own := rand.New(rand.NewPCG(random.Uint64(), random.Uint64()))
		all.Go(func() {
			for range blows {
				name, err := h.blow(t.Context(), own)
				if err != nil && !errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrExceeds) {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
	all.Wait()
	b.checkLaws(t)
}

type hammer struct {
	books
	ids      []string
	ops      []int64
	messages atomic.Int64
	returns  atomic.Int64
}

// some returns a few of all, in any order.
func some[T any](random *rand.Rand, all []T) []T {
	all = slices.Clone(all)
	random.Shuffle(len(all), func(x, y int) { all[x], all[y] = all[y], all[x] })
	return all[:1+random.IntN(len(all))]
}

// known returns the names of some messages that may exist.
func (h *hammer) known(random *rand.Rand) (ids []pix.MsgID) {
	for range 1 + random.IntN(5) {
		ids = append(ids, msgID(random.IntN(int(h.messages.Load())+1)))
	}
	return ids
}

// tries are guesses of how often some messages were sent.
func (h *hammer) tries(random *rand.Rand) (tries []store.Try) {
	for _, id := range h.known(random) {
		tries = append(tries, store.Try{MsgID: id, Attempts: random.IntN(3)})
	}
	return tries
}

// payment returns the name of a payment or return.
func (h *hammer) payment(random *rand.Rand) string {
	if n := int(h.returns.Load()); n > 0 && random.IntN(2) == 0 {
		return rtr(random.IntN(n) + 1)
	}
	return h.ids[random.IntN(len(h.ids))]
}

func (h *hammer) blow(ctx context.Context, random *rand.Rand) (string, error) {
	switch random.IntN(12) {
	case 0, 1:
		free, taken, err := h.outbound.Claim(ctx, some(random, h.ops))
		if err != nil || len(free) == 0 {
			return "claim", err
		}
		var drafts []store.Draft
		for group := range slices.Chunk(free, 1+random.IntN(4)) {
			var carried []int64
			for _, o := range group {
				carried = append(carried, o.ID)
			}
			drafts = append(drafts, draft(msgID(int(h.messages.Add(1))), random.IntN(2), carried...))
		}
		for _, m := range taken {
			_, failed := h.outbound.Attempt(ctx, []store.Try{{MsgID: m.MsgID, Attempts: m.Attempts}})
			err = errors.Join(err, failed)
		}
		_, failed := h.outbound.Build(ctx, drafts)
		return "build", errors.Join(err, failed)
	case 2:
		_, err := h.outbound.Attempt(ctx, h.tries(random))
		return "attempt", errors.Join(err, h.outbound.Withdraw(ctx, h.tries(random), true))
	case 3, 4:
		var posted []store.Posted
		for _, id := range h.known(random) {
			posted = append(posted, store.Posted{MsgID: id, ResourceID: fmt.Sprint("PI", random.IntN(100))})
		}
		return "sent", h.outbound.Sent(ctx, posted)
	case 5:
		return "unknown", h.outbound.Unknown(ctx, h.known(random), "timeout")
	case 6:
		_, err := h.outbound.Refused(ctx, h.known(random), "400")
		return "refused", err
	case 7:
		_, err := h.outbound.Split(ctx, h.known(random)[0], "admi.002")
		return "split", err
	case 8:
		_, err := h.outbound.Due(ctx, pix.CPM, store.Resend{Attempts: 3}, 5)
		_, stuck := h.outbox.Stuck(ctx, 0, time.Minute, 5)
		return "sweep", errors.Join(err, stuck, h.outbox.MarkPublished(ctx, some(random, h.ops)),
			h.outbound.Release(ctx, h.known(random)), h.outbound.Tidy(ctx, 3, time.Millisecond))
	case 9:
		return "return", h.db.InTx(ctx, func(ctx context.Context, tx *store.Tx) error {
			n := int(h.returns.Add(1))
			p := giveBack(rtr(n), h.ids[hammered/2+random.IntN(hammered/2)], fmt.Sprint(n), pix.Amount(1+random.IntN(50_00)))
			fresh, err := h.payments.InsertReturn(ctx, tx, p, "api")
			if fresh {
				_, err = h.outbox.Add(ctx, tx, []store.Operation{operation(p.ID, "pacs.004")})
			}
			return err
		})
	case 10:
		return "sends", h.db.InTx(ctx, func(ctx context.Context, tx *store.Tx) error {
			id := h.payment(random)
			sends, err := h.outbound.Sends(ctx, tx, id)
			if err == nil && !sends.Open {
				_, err = h.payments.Move(ctx, tx, to(pix.Rejected, id))
			}
			return err
		})
	}
	return "move", h.db.InTx(ctx, func(ctx context.Context, tx *store.Tx) error {
		var moves []store.Move
		for range 1 + random.IntN(8) {
			moves = append(moves, to(pix.States()[random.IntN(6)], h.payment(random))...)
		}
		_, err := h.payments.Move(ctx, tx, moves)
		return err
	})
}

// checkLaws looks at every payment and message there is.
func (b books) checkLaws(t testing.TB) {
	t.Helper()
	all, next, err := b.payments.List(t.Context(), store.Filter{Limit: 1000})
	require.NoError(t, err)
	require.Empty(t, next)
	given := map[string]pix.Amount{}
	for _, p := range all {
		history := b.history(t, p.ID)
		require.Equal(t, p.State, history[len(history)-1], p.ID)
		for i := range history[1:] {
			require.True(t, history[i] == history[i+1] || history[i].May(history[i+1]), "%s: %v", p.ID, history)
		}
		if p.Kind == pix.Return && p.State != pix.Rejected {
			given[p.OriginalID] += p.Amount
		}
	}
	for _, p := range all {
		require.Equal(t, given[p.ID], p.Returned, p.ID)
		require.LessOrEqual(t, p.Returned, p.Amount)
	}
	for law, sql := range map[string]string{
		"a message that is not refused carries something": `SELECT m.msg_id FROM outbound_messages m WHERE m.state <> 'refused'
			AND NOT EXISTS (SELECT FROM outbox o WHERE o.msg_id = m.msg_id)`,
		"an operation is in a message that exists": `SELECT o.id::text FROM outbox o WHERE o.msg_id IS NOT NULL
			AND NOT EXISTS (SELECT FROM outbound_messages m WHERE m.msg_id = o.msg_id)`,
	} {
		var broken string
		require.ErrorContains(t, side(t, b.url).QueryRow(t.Context(), sql).Scan(&broken), "no rows", "%s: %s", law, broken)
	}
}

// ledger is what the books should hold, told in a few lines of Go.
type ledger struct {
	states   map[string]pix.State
	original map[string]string
	amount   map[string]pix.Amount
	returned map[string]pix.Amount
	rows     []*row
	messages map[pix.MsgID]*letter
}

type row struct {
	id      int64
	payment string
	carrier pix.MsgID
	doubts  int
}

type letter struct {
	state    store.MessageState
	attempts int
}

func (l *ledger) move(id string, to pix.State) {
	if !l.states[id].May(to) {
		return
	}
	l.states[id] = to
	if to == pix.Rejected && l.original[id] != "" {
		l.returned[l.original[id]] -= l.amount[id]
	}
}

// contradict returns the payments that a refusal of a message contradicts.
func (l *ledger) contradict(m *letter, rows []*row) (ids []string) {
	for _, r := range rows {
		if m.state != store.MessageRefused && l.states[r.payment] == pix.Settled && r.doubts+m.attempts <= 1 {
			ids = append(ids, r.payment)
		}
	}
	return ids
}

func (l *ledger) carried(id pix.MsgID) (rows []*row) {
	for _, r := range l.rows {
		if r.carrier == id {
			rows = append(rows, r)
		}
	}
	return rows
}

// open reports that the message is built or unknown.
func (m *letter) open() bool {
	return m != nil && (m.state == store.MessageBuilt || m.state == store.MessageUnknown)
}

func TestRandomMovesAgreeWithALedger(t *testing.T) {
	t.Parallel()
	b := setupBooks(t)
	random := devtest.Rand(t)
	l := &ledger{
		states: map[string]pix.State{}, original: map[string]string{}, amount: map[string]pix.Amount{},
		returned: map[string]pix.Amount{}, messages: map[pix.MsgID]*letter{},
	}
	for i := range 6 {
		id := e2e(i)
		for _, op := range b.ordered(t, id) {
			l.rows = append(l.rows, &row{id: op, payment: id})
		}
		l.states[id], l.amount[id] = pix.Created, 100_00
	}
	for i := range 2 {
		id := e2e(10 + i)
		b.insert(t, incoming(id))
		b.move(t, to(pix.Settled, id)...)
		l.states[id], l.amount[id] = pix.Settled, 100_00
	}
	for step := range 150 {
		name := b.step(t, l, random, step)
		for id, state := range l.states {
			p := b.get(t, id)
			require.Equal(t, state, p.State, "step %d, %s: %s", step, name, id)
			require.Equal(t, l.returned[id], p.Returned, "step %d, %s: %s", step, name, id)
		}
		for id, m := range l.messages {
			have := b.message(t, id)
			require.Equal(t, m.state, have.State, "step %d, %s: %s", step, name, id)
			require.Equal(t, m.attempts, have.Attempts, "step %d, %s: %s", step, name, id)
		}
		for _, r := range l.rows {
			m := l.messages[r.carrier]
			want := store.Sends{Attempts: r.doubts, Open: r.carrier == "" || m.open()}
			if m != nil {
				want.Attempts += m.attempts
			}
			require.Equal(t, want, b.sends(t, r.payment), "step %d, %s: %s", step, name, r.payment)
		}
	}
	b.checkLaws(t)
}

// step does one thing at random to the books and to the ledger, and says what.
func (b books) step(t testing.TB, l *ledger, random *rand.Rand, n int) string {
	t.Helper()
	payments, messages := make([]string, 0, len(l.states)), make([]pix.MsgID, 0, len(l.messages))
	for id := range l.states {
		payments = append(payments, id)
	}
	for id := range l.messages {
		messages = append(messages, id)
	}
	slices.Sort(payments)
	slices.Sort(messages)
	if what := random.IntN(4); what < 2 || len(messages) == 0 {
		return b.stepBooks(t, l, random, n, payments)
	}
	return b.stepMessage(t, l, random.IntN(6), messages[random.IntN(len(messages))])
}

func (b books) stepBooks(t testing.TB, l *ledger, random *rand.Rand, n int, payments []string) string {
	t.Helper()
	switch random.IntN(3) {
	case 0:
		var moves []store.Move
		for range 1 + random.IntN(4) {
			m := to(pix.States()[random.IntN(6)], payments[random.IntN(len(payments))])
			moves = append(moves, m...)
			l.move(m[0].ID, m[0].To)
		}
		b.move(t, moves...)
		return fmt.Sprint("move ", moves)
	case 1:
		original, amount := e2e(10+random.IntN(2)), pix.Amount(1+random.IntN(70_00))
		_, err := b.insertReturn(t, giveBack(rtr(n), original, fmt.Sprint(n), amount))
		if l.returned[original]+amount > l.amount[original] {
			require.ErrorIs(t, err, store.ErrExceeds)
			return "too much"
		}
		require.NoError(t, err)
		op := b.add(t, operation(rtr(n), "pacs.004"))
		l.rows = append(l.rows, &row{id: op[0].ID, payment: rtr(n)})
		l.states[rtr(n)], l.amount[rtr(n)], l.original[rtr(n)] = pix.Created, amount, original
		l.returned[original] += amount
		return "return"
	}
	chosen := some(random, l.rows)
	var ids []int64
	free := true
	for _, r := range chosen {
		ids, free = append(ids, r.id), free && r.carrier == ""
	}
	attempts := random.IntN(2)
	require.Equal(t, []bool{free}, b.build(t, draft(msgID(n), attempts, ids...)))
	if free {
		l.messages[msgID(n)] = &letter{store.MessageBuilt, attempts}
		for _, r := range chosen {
			r.carrier = msgID(n)
		}
	}
	return "build"
}

func (b books) stepMessage(t testing.TB, l *ledger, what int, id pix.MsgID) string {
	t.Helper()
	m, rows := l.messages[id], l.carried(id)
	switch what {
	case 0:
		// What carries only orders that have ended goes out no more.
		goes := m.open() && slices.ContainsFunc(rows, func(r *row) bool { return !l.states[r.payment].Final() })
		require.Equal(t, goes, b.goes(t, id))
		if goes {
			m.attempts++
		}
		return "attempt"
	case 1:
		require.NoError(t, b.outbound.Sent(t.Context(), []store.Posted{{MsgID: id, ResourceID: "PI" + string(id)}}))
		if m.open() {
			m.state = store.MessageSent
		}
		for _, r := range rows {
			l.move(r.payment, pix.Sent)
		}
		return "sent"
	case 2:
		require.NoError(t, b.outbound.Unknown(t.Context(), []pix.MsgID{id}, "timeout"))
		for _, r := range rows {
			if m.open() {
				l.move(r.payment, pix.Unknown)
			}
		}
		if m.open() {
			m.state = store.MessageUnknown
		}
		return "unknown"
	case 3:
		require.ElementsMatch(t, l.contradict(m, rows), b.refuse(t, "400", id))
		if m.state == store.MessageRefused {
			return "refused again"
		}
		m.state = store.MessageRefused
		for _, r := range rows {
			if r.doubts+m.attempts <= 1 {
				l.move(r.payment, pix.Rejected)
			} else {
				l.move(r.payment, pix.Unknown)
			}
		}
		return "refused"
	}
	if what == 4 {
		counted := []store.Try{{MsgID: id, Attempts: m.attempts}}
		require.NoError(t, b.outbound.Withdraw(t.Context(), counted, false))
		if m.open() && m.attempts > 0 {
			m.attempts--
		}
		return "withdraw"
	}
	contradict := l.contradict(m, rows)
	contradicted, err := b.outbound.Split(t.Context(), id, "admi.002")
	if m.state == store.MessageRefused {
		require.NoError(t, err)
		return "split again"
	}
	if len(rows) < 2 {
		require.ErrorIs(t, err, store.ErrNotFound)
		return "no group"
	}
	require.NoError(t, err)
	require.ElementsMatch(t, contradict, contradicted)
	m.state = store.MessageRefused
	for _, r := range rows {
		if !l.states[r.payment].Final() {
			r.carrier = ""
			r.doubts += max(m.attempts-1, 0)
		}
	}
	return "split"
}
