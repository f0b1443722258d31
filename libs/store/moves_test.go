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

func TestAnEndToEndIDIsBookedOnce(t *testing.T) {
	t.Parallel()
	b := setupBooks(t)
	var fresh atomic.Int64
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			p := order(e2e(1))
			p.Amount = pix.Amount(i + 1)
			err := b.db.InTx(t.Context(), func(ctx context.Context, tx *store.Tx) error {
				ok, err := b.payments.Insert(ctx, tx, p, "api")
				if ok {
					fresh.Add(1)
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	require.Equal(t, int64(1), fresh.Load())
	require.Equal(t, []pix.State{pix.Created}, b.history(t, e2e(1)))
}

// Every pair of states: what pix allows moves and is explained, everything else stays.
func TestMovesAreThoseOfPix(t *testing.T) {
	t.Parallel()
	b := setupBooks(t)
	n := 0
	for _, was := range pix.States() {
		for _, next := range pix.States() {
			n++
			p := order(e2e(n))
			p.State = was
			if was == pix.Accepted {
				p.Direction = pix.In
			}
			if was == pix.Settled {
				p.SettledAt = time.Now()
			}
			b.insert(t, p)
			moved := b.move(t, store.Move{ID: p.ID, To: next, Who: "spi", Reason: "R", Detail: "d"})
			name := fmt.Sprint(was, " to ", next)
			require.Len(t, moved, 1, name)
			require.Equal(t, was, moved[0].Was, name)
			require.Equal(t, was.May(next), moved[0].Changed, name)
			stands := b.get(t, p.ID)
			require.Equal(t, moved[0].Became, stands.State, name)
			require.Equal(t, stands.State == pix.Settled, !stands.SettledAt.IsZero(), name)
			if was.May(next) {
				require.Equal(t, next, stands.State, name)
				require.Equal(t, "R", stands.Reason, name)
				require.Equal(t, []pix.State{was, next}, b.history(t, p.ID), name)
			} else {
				require.Equal(t, was, stands.State, name)
				require.Equal(t, []pix.State{was}, b.history(t, p.ID), name)
			}
		}
	}
}

func TestMovesOfOnePaymentInOneCallFollowEachOther(t *testing.T) {
	t.Parallel()
	b := setupBooks(t)
	b.insert(t, order(e2e(1)), order(e2e(2)))
	moves := slices.Concat(to(pix.Sent, e2e(1), e2e(9), e2e(2)), to(pix.Settled, e2e(1)), to(pix.Rejected, e2e(1)))
	moved := b.move(t, moves...)
	require.Len(t, moved, 4, "an unknown payment is missing")
	for i, want := range []struct {
		id          string
		was, became pix.State
		changed     bool
	}{
		{e2e(1), pix.Created, pix.Sent, true},
		{e2e(2), pix.Created, pix.Sent, true},
		{e2e(1), pix.Sent, pix.Settled, true},
		{e2e(1), pix.Settled, pix.Settled, false},
	} {
		require.Equal(t, want.id, moved[i].ID)
		require.Equal(t, want.was, moved[i].Was)
		require.Equal(t, want.became, moved[i].Became)
		require.Equal(t, want.changed, moved[i].Changed)
	}
	require.Empty(t, b.move(t))
}

// A move waits for another one of the same payment, and is decided by where that left it, not by what it saw at first.
func TestAMoveThatWaitedSeesWhereTheOtherLeftThePayment(t *testing.T) {
	t.Parallel()
	b := setupBooks(t)
	b.insert(t, order(e2e(1)))
	watcher := side(t, b.url)
	second := make(chan []store.Moved, 1)
	b.tx(t, func(ctx context.Context, tx *store.Tx) error {
		moved, err := b.payments.Move(ctx, tx, to(pix.Settled, e2e(1)))
		require.True(t, moved[0].Changed)
		go func() {
			var moved []store.Moved
			if err := b.db.InTx(t.Context(), func(ctx context.Context, tx *store.Tx) (err error) {
				moved, err = b.payments.Move(ctx, tx, to(pix.Rejected, e2e(1)))
				return err
			}); err != nil {
				t.Error(err)
			}
			second <- moved
		}()
		blocked(t, watcher)
		return err
	})
	moved := <-second
	require.False(t, moved[0].Changed)
	require.Equal(t, pix.Settled, moved[0].Was)
	require.Equal(t, []pix.State{pix.Created, pix.Settled}, b.history(t, e2e(1)))
}

func TestTransactionsThatMoveTheSamePaymentsMoveEachOnce(t *testing.T) {
	t.Parallel()
	b := setupBooks(t)
	random := devtest.Rand(t)
	const payments, movers = 30, 6
	ids := make([]string, payments)
	for i := range ids {
		ids[i] = e2e(i)
		b.insert(t, order(ids[i]))
	}
	orders := make([][]string, movers)
	for i := range orders {
		orders[i] = slices.Clone(ids)
		random.Shuffle(payments, func(x, y int) { orders[i][x], orders[i][y] = orders[i][y], orders[i][x] })
	}
	var changed atomic.Int64
	var all sync.WaitGroup
	for i := range movers {
		all.Go(func() {
			state := []pix.State{pix.Settled, pix.Rejected}[i%2]
			err := b.db.InTx(t.Context(), func(ctx context.Context, tx *store.Tx) error {
				moved, err := b.payments.Move(ctx, tx, to(state, orders[i]...))
				for _, m := range moved {
					if m.Changed {
						changed.Add(1)
					}
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	require.Equal(t, int64(payments), changed.Load())
	for _, id := range ids {
		require.Len(t, b.history(t, id), 2)
	}
}

func TestReturnsTakeFromTheirOriginalAndGiveBackWhenRejected(t *testing.T) {
	t.Parallel()
	b := setupBooks(t)
	_, err := b.insertReturn(t, giveBack(rtr(1), e2e(1), "a", 1))
	require.ErrorIs(t, err, store.ErrNotFound, "no original")
	b.insert(t, incoming(e2e(1)))
	_, err = b.insertReturn(t, giveBack(rtr(1), e2e(1), "a", 1))
	require.ErrorIs(t, err, store.ErrNotFound, "not settled")
	b.move(t, to(pix.Settled, e2e(1))...)
	wrong := giveBack(rtr(1), e2e(1), "a", 1)
	wrong.Direction, wrong.State = pix.In, pix.Accepted
	_, err = b.insertReturn(t, wrong)
	require.ErrorIs(t, err, store.ErrNotFound, "of the same direction")

	_, err = b.insertReturn(t, giveBack(rtr(1), e2e(1), "a", 100_01))
	require.ErrorIs(t, err, store.ErrExceeds)
	fresh, err := b.insertReturn(t, giveBack(rtr(1), e2e(1), "a", 60_00))
	require.NoError(t, err)
	require.True(t, fresh)
	for _, again := range []store.Payment{giveBack(rtr(1), e2e(1), "z", 60_00), giveBack(rtr(9), e2e(1), "a", 60_00)} {
		fresh, err = b.insertReturn(t, again)
		require.NoError(t, err, "what is here already exceeds nothing")
		require.False(t, fresh)
	}
	_, err = b.insertReturn(t, giveBack(rtr(2), e2e(1), "b", 40_01))
	require.ErrorIs(t, err, store.ErrExceeds)
	fresh, err = b.insertReturn(t, giveBack(rtr(2), e2e(1), "b", 40_00))
	require.NoError(t, err)
	require.True(t, fresh)
	require.Equal(t, pix.Amount(100_00), b.get(t, e2e(1)).Returned)
	_, err = b.insertReturn(t, giveBack(rtr(3), rtr(1), "c", 1))
	require.ErrorIs(t, err, store.ErrNotFound, "a return is not returned")

	b.move(t, slices.Concat(to(pix.Rejected, rtr(1)), to(pix.Settled, rtr(2)), to(pix.Rejected, rtr(1)))...)
	require.Equal(t, pix.Amount(40_00), b.get(t, e2e(1)).Returned, "given back once")
	returns, err := b.payments.Returns(t.Context(), e2e(1))
	require.NoError(t, err)
	require.Len(t, returns, 2)
	named, err := b.payments.ReturnByClient(t.Context(), e2e(1), "b")
	require.NoError(t, err)
	require.Equal(t, rtr(2), named.ID)
	for _, client := range []string{"", "c"} {
		_, err = b.payments.ReturnByClient(t.Context(), e2e(1), client)
		require.ErrorIs(t, err, store.ErrNotFound)
	}
}

func TestAReturnOfNobodysPaymentIsOnlyBookedRejected(t *testing.T) {
	t.Parallel()
	b := setupBooks(t)
	p := giveBack(rtr(1), e2e(1), "", 1)
	p.Direction, p.State = pix.In, pix.Accepted
	err := b.db.InTx(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		_, err := b.payments.Insert(ctx, tx, p, "core")
		return err
	})
	require.ErrorContains(t, err, "InsertReturn")
	p.State, p.Reason = pix.Rejected, "AG03"
	b.insert(t, p)
	_, err = b.insertReturn(t, p)
	require.ErrorContains(t, err, "not rejected")
	require.Equal(t, "AG03", b.get(t, rtr(1)).Reason)
}

// Many returns of one payment at once, some rejected at once again: at no time is more given back than was received.
func TestReturnsRaceForTheLastCentavo(t *testing.T) {
	t.Parallel()
	b := setupBooks(t)
	random := devtest.Rand(t)
	original := incoming(e2e(1))
	original.Amount = 10
	b.insert(t, original)
	b.move(t, to(pix.Settled, e2e(1))...)
	const clients, rounds = 6, 12
	amounts, rejects := make([]pix.Amount, clients*rounds), make([]bool, clients*rounds)
	for i := range amounts {
		amounts[i], rejects[i] = pix.Amount(1+random.IntN(3)), random.IntN(3) > 0
	}
	var exceeded atomic.Int64
	var all sync.WaitGroup
	for c := range clients {
		all.Go(func() {
			for r := range rounds {
				n := c*rounds + r
				_, err := b.insertReturn(t, giveBack(rtr(n), e2e(1), fmt.Sprint(n), amounts[n]))
				switch {
				case errors.Is(err, store.ErrExceeds):
					exceeded.Add(1)
					continue
				case err != nil:
					t.Error(err)
					return
				}
				state := pix.Settled
				if rejects[n] {
					state = pix.Rejected
				}
				b.move(t, to(state, rtr(n))...)
			}
		})
	}
	all.Wait()
	require.Positive(t, exceeded.Load())
	var sum pix.Amount
	returns, err := b.payments.Returns(t.Context(), e2e(1))
	require.NoError(t, err)
	for _, r := range returns {
		if r.State != pix.Rejected {
			sum += r.Amount
		}
	}
	require.LessOrEqual(t, sum, original.Amount)
	require.Equal(t, sum, b.get(t, e2e(1)).Returned)
}

func TestNoteMovesNothing(t *testing.T) {
	t.Parallel()
	b := setupBooks(t)
	b.insert(t, order(e2e(1)))
	note := func(id string) error {
		return b.db.InTx(t.Context(), func(ctx context.Context, tx *store.Tx) error {
			return b.payments.Note(ctx, tx, id, "spi", "DUPL", "again")
		})
	}
	require.NoError(t, note(e2e(1)))
	require.ErrorIs(t, note(e2e(2)), store.ErrNotFound)
	require.Equal(t, []pix.State{pix.Created, pix.Created}, b.history(t, e2e(1)))
	events, err := b.payments.Events(t.Context(), e2e(1))
	require.NoError(t, err)
	require.Equal(t, "DUPL", events[1].Reason)
	require.WithinDuration(t, time.Now(), events[1].At, time.Minute)
	_, err = b.payments.Get(t.Context(), e2e(2))
	require.ErrorIs(t, err, store.ErrNotFound)
}

func TestConstraintsRefuseWhatNoPaymentIs(t *testing.T) {
	t.Parallel()
	b := setupBooks(t)
	for name, spoil := range map[string]func(*store.Payment){
		"payments_amounts":   func(p *store.Payment) { p.Amount = 0 },
		"centavos_check":     func(p *store.Payment) { p.Amount = pix.MaxAmount + 1 },
		"payments_return":    func(p *store.Payment) { p.OriginalID = e2e(2) },
		"payments_settled":   func(p *store.Payment) { p.SettledAt = time.Now() },
		"payments_sides":     func(p *store.Payment) { p.State = pix.Accepted },
		"payment_id_check":   func(p *store.Payment) { p.ID = "E1" },
		"icom_ispb_check":    func(p *store.Payment) { p.Counterparty = "1" },
		"icom_channel_check": func(p *store.Payment) { p.Channel = "x" },
	} {
		p := order(e2e(1))
		spoil(&p)
		err := b.db.InTx(t.Context(), func(ctx context.Context, tx *store.Tx) error {
			_, err := b.payments.Insert(ctx, tx, p, "api")
			return err
		})
		require.ErrorIs(t, err, store.ErrRefused, name)
		require.ErrorContains(t, err, name)
	}
}

func TestListsArePaged(t *testing.T) {
	t.Parallel()
	b := setupBooks(t)
	begin := time.Now().Add(-time.Minute)
	const n = 25
	b.tx(t, func(ctx context.Context, tx *store.Tx) error { // all of one instant: the ID decides
		for i := range n {
			p := order(e2e(i))
			if i%5 == 0 {
				p = incoming(e2e(i))
			}
			if _, err := b.payments.Insert(ctx, tx, p, "api"); err != nil {
				return err
			}
		}
		return nil
	})
	list := func(f store.Filter) (ids []string) {
		for {
			page, next, err := b.payments.List(t.Context(), f)
			require.NoError(t, err)
			require.LessOrEqual(t, len(page), f.Limit)
			for _, p := range page {
				ids = append(ids, p.ID)
			}
			if next == "" {
				return ids
			}
			require.Len(t, page, f.Limit)
			f.After = next
		}
	}
	for _, limit := range []int{1, 7, n, 1000} {
		ids := list(store.Filter{Limit: limit, From: begin})
		require.Len(t, ids, n)
		require.True(t, slices.IsSorted(ids))
	}
	require.Len(t, list(store.Filter{Limit: 2, Direction: pix.In}), 5)
	require.Len(t, list(store.Filter{Limit: 9, State: pix.Created, Kind: pix.Payment}), 20)
	require.Empty(t, list(store.Filter{Limit: 9, Kind: pix.Return}))
	require.Empty(t, list(store.Filter{Limit: 9, To: begin}))
	for _, after := range []string{"x", "AAAA", "!!", string(make([]byte, 500)), "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"} {
		_, _, err := b.payments.List(t.Context(), store.Filter{Limit: 1, After: after})
		require.ErrorIs(t, err, store.ErrCursor, after)
	}
	_, _, err := b.payments.List(t.Context(), store.Filter{})
	require.ErrorContains(t, err, "limit 0")
}

func TestWhatIsOpenIsFoundAndWhatSettledIsSummed(t *testing.T) {
	t.Parallel()
	b := setupBooks(t)
	b.insert(t, order(e2e(1)), order(e2e(2)), order(e2e(3)), incoming(e2e(4)), incoming(e2e(5)))
	b.move(t, slices.Concat(to(pix.Sent, e2e(1)), to(pix.Unknown, e2e(2)), to(pix.Settled, e2e(3), e2e(4)))...)
	_, err := b.insertReturn(t, giveBack(rtr(1), e2e(4), "a", 30))
	require.NoError(t, err)
	b.move(t, to(pix.Settled, rtr(1))...)
	_, err = side(t, b.url).Exec(t.Context(), "UPDATE payments SET updated_at = now() - interval '90 s' WHERE id = $1", e2e(1))
	require.NoError(t, err)

	counts, err := b.payments.OpenCounts(t.Context())
	require.NoError(t, err)
	require.Len(t, counts, 4)
	require.Equal(t, int64(1), counts[pix.Sent].Count)
	require.InDelta(t, 90, counts[pix.Sent].Oldest.Seconds(), 30)
	require.Equal(t, int64(1), counts[pix.Unknown].Count)
	require.Equal(t, int64(1), counts[pix.Accepted].Count)
	require.Zero(t, counts[pix.Created])

	sums, err := b.payments.Books(t.Context())
	require.NoError(t, err)
	require.Equal(t, []store.Book{
		{Kind: pix.Payment, Direction: pix.In, Count: 1, Amount: 100_00},
		{Kind: pix.Payment, Direction: pix.Out, Count: 1, Amount: 100_00},
		{Kind: pix.Return, Direction: pix.Out, Count: 1, Amount: 30},
	}, sums)
}
