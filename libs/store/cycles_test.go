package store_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/devstack/devtest"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
)

const leadership = "settlement:12345678"

// clearing is books with the aggregates of settlement and a leader.
type clearing struct {
	books
	obligations *store.Obligations
	cycles      *store.Cycles
	by          store.Reign
}

func setupClearing(t testing.TB, parties store.Parties) clearing {
	t.Helper()
	b := setupBooks(t)
	c := clearing{books: b, cycles: store.NewCycles(b.db)}
	var err error
	c.obligations, err = store.NewObligations(b.db, parties)
	require.NoError(t, err)
	c.by = c.reign(t, "a")
	return c
}

// reign elects somebody.
func (c clearing) reign(t testing.TB, owner string) store.Reign {
	t.Helper()
	term, err := c.terms.Mint(t.Context(), leadership, owner)
	require.NoError(t, err)
	return store.Reign{Name: leadership, Term: term}
}

// yesterday is a fixed hour of the past, from which windows of an hour are counted.
func yesterday() time.Time { return time.Now().UTC().Truncate(24 * time.Hour).Add(-24 * time.Hour) }

// window is the n-th hour of yesterday.
func window(n int) store.Window {
	at := yesterday().Add(time.Duration(n) * time.Hour)
	return store.Window{Date: yesterday(), Type: fmt.Sprintf("w%d", n), OpensAt: at, ClosesAt: at.Add(time.Hour)}
}

func (c clearing) openWindows(t testing.TB, first, last int) (ids []int64) {
	t.Helper()
	var windows []store.Window
	for n := first; n <= last; n++ {
		windows = append(windows, window(n))
	}
	opened, err := c.cycles.Open(t.Context(), c.by, windows)
	require.NoError(t, err)
	for _, o := range opened {
		ids = append(ids, o.ID)
	}
	return ids
}

// settle books a payment that settled at a minute of yesterday.
func (c clearing) settle(t testing.TB, p store.Payment, minute int) {
	t.Helper()
	c.insert(t, p)
	p.SettledAt = yesterday().Add(time.Duration(minute) * time.Minute)
	c.tx(t, func(ctx context.Context, tx *store.Tx) error {
		if p.Direction == pix.Out {
			if _, err := c.payments.Move(ctx, tx, []store.Move{{ID: p.ID, To: pix.Sent, Who: "icom"}}); err != nil {
				return err
			}
		}
		moved, err := c.payments.Move(ctx, tx, []store.Move{{ID: p.ID, To: pix.Settled, Who: "spi", SettledAt: p.SettledAt}})
		require.True(t, moved[0].Changed)
		return err
	})
}

func (c clearing) book(t testing.TB, ids ...string) store.Booking {
	t.Helper()
	b, err := c.obligations.Book(t.Context(), ids)
	require.NoError(t, err)
	return b
}

func (c clearing) seal(t testing.TB, id int64) {
	t.Helper()
	sealed, err := c.cycles.Seal(t.Context(), c.by, id, store.Patience{})
	require.NoError(t, err)
	require.True(t, sealed)
}

func (c clearing) close(t testing.TB, id int64) store.Cycle {
	t.Helper()
	cycle, err := c.cycles.Close(t.Context(), c.by, id)
	require.NoError(t, err)
	require.Equal(t, store.CycleClosed, cycle.State)
	return cycle
}

func (c clearing) lines(t testing.TB, id int64) []store.Line {
	t.Helper()
	lines, err := c.cycles.Lines(t.Context(), id)
	require.NoError(t, err)
	return lines
}

func TestASettledPaymentHasOneObligation(t *testing.T) {
	t.Parallel()
	c := setupClearing(t, nil)
	c.settle(t, order(e2e(1)), 30)
	backlog, err := c.obligations.Backlog(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, backlog.Due)
	require.Greater(t, backlog.Lag, time.Minute)
	require.Equal(t, []string{e2e(1)}, c.book(t, e2e(1)).Waiting, "no cycle is open")

	ids := c.openWindows(t, 0, 1)
	c.insert(t, order(e2e(2)))
	got := c.book(t, e2e(1), e2e(2), e2e(3), e2e(1))
	require.Equal(t, []string{e2e(1)}, got.Fresh)
	require.Equal(t, []string{e2e(2), e2e(3)}, got.Strange)
	require.Zero(t, got.Late)
	require.Equal(t, []string{e2e(1)}, c.book(t, e2e(1)).Known)

	o, err := c.obligations.Get(t.Context(), e2e(1))
	require.NoError(t, err)
	require.Equal(t, ids[0], o.CycleID)
	require.Zero(t, o.LateFrom)
	require.Equal(t, []any{pix.Out, pix.Payment, pix.Amount(100_00), pix.ISPB("87654321")}, []any{o.Direction, o.Kind, o.Amount, o.Party})
	require.True(t, o.SettledAt.Equal(yesterday().Add(30*time.Minute)))
	_, err = c.obligations.Get(t.Context(), e2e(2))
	require.ErrorIs(t, err, store.ErrNotFound)
	due, lost, err := c.obligations.Missing(t.Context())
	require.NoError(t, err)
	require.Equal(t, []int64{0, 0}, []int64{due, lost})
}

func TestManyWorkersWriteEachObligationOnce(t *testing.T) {
	t.Parallel()
	c := setupClearing(t, nil)
	c.openWindows(t, 0, 1)
	random := devtest.Rand(t)
	const payments, workers = 60, 6
	ids := make([]string, payments)
	for i := range ids {
		ids[i] = e2e(i)
		c.settle(t, incoming(ids[i]), i%60)
	}
	var mu sync.Mutex
	fresh := map[string]int{}
	var all sync.WaitGroup
	for range workers {
		mine := slices.Clone(ids)
		random.Shuffle(payments, func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
		all.Go(func() {
			for batch := range slices.Chunk(mine, 7) {
				b, err := c.obligations.Book(t.Context(), batch)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				for _, id := range b.Fresh {
					fresh[id]++
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	require.Len(t, fresh, payments)
	for id, n := range fresh {
		require.Equal(t, 1, n, id)
	}
}

func TestDueObligationsAreAnnouncedWithGrowingPauses(t *testing.T) {
	t.Parallel()
	c := setupClearing(t, nil)
	c.openWindows(t, 0, 1)
	c.settle(t, incoming(e2e(1)), 1)
	c.settle(t, incoming(e2e(2)), 1)
	due, err := c.obligations.Due(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, due, 2)
	announced := func(due []store.DueObligation, first time.Duration) error {
		return c.terms.InTx(t.Context(), c.by, func(ctx context.Context, tx *store.Tx) error {
			return c.obligations.Announced(ctx, tx, due, first, time.Hour)
		})
	}
	require.NoError(t, announced(due, 0))
	again, err := c.obligations.Due(t.Context(), 1)
	require.NoError(t, err)
	require.Len(t, again, 1)
	require.Equal(t, 1, again[0].Attempts)
	require.NoError(t, announced(due, time.Minute), "seen before it was announced: not counted")
	again, err = c.obligations.Due(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, again, 2)
	require.NoError(t, announced(again, time.Minute))
	none, err := c.obligations.Due(t.Context(), 10)
	require.NoError(t, err)
	require.Empty(t, none)
	old := c.by
	c.reign(t, "b")
	c.by = old
	require.ErrorIs(t, announced(again, 0), store.ErrStaleTerm)
}

func TestALateObligationFallsIntoTheNextCycleAndSaysSo(t *testing.T) {
	t.Parallel()
	c := setupClearing(t, nil)
	ids := c.openWindows(t, 0, 2)
	c.settle(t, order(e2e(1)), 10)
	c.settle(t, incoming(e2e(2)), 20)
	sealed, err := c.cycles.Seal(t.Context(), c.by, ids[0], store.Patience{Most: 48 * time.Hour})
	require.NoError(t, err)
	require.False(t, sealed, "what settled before its end is waited for")
	c.book(t, e2e(1))
	c.seal(t, ids[0])
	_, err = c.cycles.Close(t.Context(), c.by, ids[1])
	require.ErrorIs(t, err, store.ErrNotFound, "it is open")

	require.Equal(t, 1, c.book(t, e2e(2)).Late)
	o, err := c.obligations.Get(t.Context(), e2e(2))
	require.NoError(t, err)
	require.Equal(t, []int64{ids[1], ids[0]}, []int64{o.CycleID, o.LateFrom})
	require.EqualValues(t, 1, c.close(t, ids[0]).Obligations)
	c.seal(t, ids[1])
	require.EqualValues(t, 1, c.close(t, ids[1]).Obligations)
	require.Equal(t, []store.Line{{Party: "87654321", Credits: 100_00, CreditCount: 1}}, c.lines(t, ids[1]))
	sealed, err = c.cycles.Seal(t.Context(), c.by, ids[2], store.Patience{})
	require.NoError(t, err)
	require.False(t, sealed, "no next one is open")
	unclosed, _, last, err := c.cycles.Unclosed(t.Context())
	require.NoError(t, err)
	require.Len(t, unclosed, 1)
	require.True(t, last.Equal(window(2).ClosesAt))
}

func TestACycleIsOpenedOnceAndBeginsWhereTheLastEnds(t *testing.T) {
	t.Parallel()
	c := setupClearing(t, nil)
	ids := c.openWindows(t, 0, 1)
	require.Len(t, ids, 2)
	require.Empty(t, c.openWindows(t, 0, 1))
	later := window(5)
	opened, err := c.cycles.Open(t.Context(), c.by, []store.Window{window(0), later})
	require.NoError(t, err)
	require.Len(t, opened, 1)
	require.True(t, opened[0].OpensAt.Equal(window(1).ClosesAt), "no instant is without its cycle")
	all, err := c.cycles.Between(t.Context(), yesterday(), yesterday())
	require.NoError(t, err)
	require.Len(t, all, 3)
	_, err = c.cycles.Open(t.Context(), c.by, []store.Window{{Date: yesterday(), Type: "NO", ClosesAt: time.Now()}})
	require.ErrorIs(t, err, store.ErrRefused)
}

func TestAnOlderTermChangesNoCycle(t *testing.T) {
	t.Parallel()
	c := setupClearing(t, nil)
	ids := c.openWindows(t, 0, 2)
	c.settle(t, order(e2e(1)), 10)
	c.book(t, e2e(1))
	c.seal(t, ids[0])
	old := c.by
	c.by = c.reign(t, "b")
	_, err := c.cycles.Open(t.Context(), old, []store.Window{window(3)})
	require.ErrorIs(t, err, store.ErrStaleTerm)
	_, err = c.cycles.Seal(t.Context(), old, ids[1], store.Patience{})
	require.ErrorIs(t, err, store.ErrStaleTerm)
	_, err = c.cycles.Close(t.Context(), old, ids[0])
	require.ErrorIs(t, err, store.ErrStaleTerm)
	require.Empty(t, c.lines(t, ids[0]))
	c.close(t, ids[0])
	require.Len(t, c.lines(t, ids[0]), 1)
}

// A leader is deposed after it netted and before it committed: the next one does not wait for it, and what it did is undone.
func TestATermThatEndsWhileClosingIsRefusedAtItsEnd(t *testing.T) {
	t.Parallel()
	c := setupClearing(t, nil)
	ids := c.openWindows(t, 0, 1)
	c.settle(t, order(e2e(1)), 10)
	c.book(t, e2e(1))
	c.seal(t, ids[0])
	other := side(t, c.url)
	tx, err := other.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "LOCK TABLE nettings IN EXCLUSIVE MODE")
	require.NoError(t, err)
	closed := make(chan error, 1)
	go func() {
		_, err := c.cycles.Close(t.Context(), c.by, ids[0])
		closed <- err
	}()
	blocked(t, side(t, c.url))
	began := time.Now()
	next := c.reign(t, "b")
	require.Less(t, time.Since(began), 2*time.Second)
	require.NoError(t, tx.Rollback(t.Context()))
	require.ErrorIs(t, <-closed, store.ErrStaleTerm)
	require.Empty(t, c.lines(t, ids[0]))
	c.by = next
	c.close(t, ids[0])
}

// Two leaders close the same cycle at the same time, of whom one is deposed: it is netted once.
func TestTwoLeadersCloseACycle(t *testing.T) {
	t.Parallel()
	c := setupClearing(t, nil)
	ids := c.openWindows(t, 0, 12)
	for n := range 12 {
		c.settle(t, order(e2e(n)), 60*n+10)
		c.book(t, e2e(n))
		c.seal(t, ids[n])
		old := c.by
		next := c.reign(t, "b")
		var both sync.WaitGroup
		both.Go(func() {
			if _, err := c.cycles.Close(t.Context(), old, ids[n]); !errors.Is(err, store.ErrStaleTerm) {
				t.Errorf("the old one: %v", err)
			}
		})
		for range 2 { // and the new one repeats itself
			both.Go(func() {
				if _, err := c.cycles.Close(t.Context(), next, ids[n]); err != nil {
					t.Errorf("the new one: %v", err)
				}
			})
		}
		both.Wait()
		c.by = next
		require.Equal(t, []store.Line{{Party: "87654321", Debits: 100_00, DebitCount: 1}}, c.lines(t, ids[n]))
	}
}

// A replica that dies in the middle of closing leaves nothing, and its transaction is over before anybody waits for long.
func TestALeaderThatDiesWhileClosingLeavesNothing(t *testing.T) {
	t.Parallel()
	c := setupClearing(t, nil)
	ids := c.openWindows(t, 0, 1)
	c.settle(t, order(e2e(1)), 10)
	c.book(t, e2e(1))
	c.seal(t, ids[0])
	holder := side(t, c.url)
	tx, err := holder.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "LOCK TABLE nettings IN EXCLUSIVE MODE")
	require.NoError(t, err)
	doomed, err := store.Open(t.Context(), store.Config{URL: c.url, Application: "doomed"})
	require.NoError(t, err)
	dying, kill := context.WithCancel(t.Context())
	closed := make(chan error, 1)
	go func() {
		_, err := store.NewCycles(doomed).Close(dying, c.by, ids[0])
		closed <- err
	}()
	other := side(t, c.url)
	blocked(t, other)
	kill()
	require.Error(t, <-closed)
	doomed.Close()
	require.Eventually(t, func() bool {
		var left int
		err := other.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'doomed'").Scan(&left)
		return err == nil && left == 0
	}, 10*time.Second, 10*time.Millisecond, "the server sees that the client has gone, although its statement waits")
	require.NoError(t, tx.Rollback(t.Context()))
	require.Empty(t, c.lines(t, ids[0]))
	c.by = c.reign(t, "b")
	c.close(t, ids[0])
	require.Len(t, c.lines(t, ids[0]), 1)
}

func TestAClosedCycleIsComparedAndNeverRewritten(t *testing.T) {
	t.Parallel()
	c := setupClearing(t, nil)
	ids := c.openWindows(t, 0, 1)
	for i := range 3 {
		c.settle(t, order(e2e(i)), i)
		c.book(t, e2e(i))
	}
	c.seal(t, ids[0])
	first := c.close(t, ids[0])
	before := c.lines(t, ids[0])
	require.Equal(t, first, c.close(t, ids[0]), "the same, and nothing written")
	require.NoError(t, c.cycles.Check(t.Context(), ids[0]))

	conn := side(t, c.url)
	_, err := conn.Exec(t.Context(), "UPDATE obligations SET amount = amount + 1 WHERE payment_id = $1", e2e(1))
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "UPDATE obligations SET party = '00000000' WHERE payment_id = $1", e2e(2))
	require.NoError(t, err)
	_, err = c.cycles.Close(t.Context(), c.by, ids[0])
	var differ *store.DifferError
	require.ErrorAs(t, err, &differ)
	require.Equal(t, []store.Difference{
		{Written: store.Line{Party: "00000000"}, Again: store.Line{Party: "00000000", Debits: 100_00, DebitCount: 1}},
		{Written: before[0], Again: store.Line{Party: "87654321", Debits: 200_01, DebitCount: 2}},
	}, differ.Lines)
	require.ErrorContains(t, err, "2 lines differ")
	require.Equal(t, before, c.lines(t, ids[0]))
}

func TestPartiesAreConfiguration(t *testing.T) {
	t.Parallel()
	for _, bad := range []store.Parties{{"": "11111111"}, {"12345": "11111111"}, {"1": "x"}, {"1": "11111111", "0001": "22222222"}} {
		require.Error(t, bad.Validate())
	}
	c := setupClearing(t, store.Parties{"7": "11111111"})
	ids := c.openWindows(t, 0, 1)
	mine := order(e2e(1))
	mine.Document = []byte(`{"debtor_account": {"id": "1", "branch": "0007"}, "creditor_account": {"id": "2", "branch": "9"}}`)
	theirs := incoming(e2e(2))
	theirs.Document = []byte(`{"debtor_account": {"id": "1", "branch": "0007"}, "creditor_account": {"id": "2", "branch": "7"}}`)
	plain := incoming(e2e(3))
	plain.Document = []byte(`{"debtor_account": {"id": "1", "branch": "0007"}, "creditor_account": {"id": "2"}}`)
	c.settle(t, mine, 1)
	c.settle(t, theirs, 2)
	c.settle(t, plain, 3)
	back := giveBack(rtr(1), e2e(2), "", 30_00)
	c.tx(t, func(ctx context.Context, tx *store.Tx) error {
		_, err := c.payments.InsertReturn(ctx, tx, back, "api")
		require.NoError(t, err)
		_, err = c.payments.Move(ctx, tx, []store.Move{
			{ID: back.ID, To: pix.Sent, Who: "icom"}, {ID: back.ID, To: pix.Settled, Who: "spi", SettledAt: yesterday().Add(time.Minute)},
		})
		return err
	})
	require.Len(t, c.book(t, e2e(1), e2e(2), e2e(3), rtr(1)).Fresh, 4)
	c.seal(t, ids[0])
	c.close(t, ids[0])
	require.Equal(t, []store.Line{
		{Party: "11111111", Debits: 130_00, Credits: 100_00, DebitCount: 2, CreditCount: 1},
		{Party: "87654321", Credits: 100_00, CreditCount: 1},
	}, c.lines(t, ids[0]))
	require.EqualValues(t, -30_00, c.lines(t, ids[0])[0].Net())
}

// Whatever settles when, and is written when, the lines are what a plain model comes to, and each centavo is in one cycle.
func TestNettingAgreesWithAModel(t *testing.T) {
	t.Parallel()
	c := setupClearing(t, nil)
	random := devtest.Rand(t)
	const windows, payments = 6, 240
	ids := c.openWindows(t, 0, windows)
	model := make([]map[pix.ISPB]store.Line, windows)
	for i := range model {
		model[i] = map[pix.ISPB]store.Line{}
	}
	var waiting []int
	settled := make([]store.Payment, payments)
	minutes := make([]int, payments)
	closed := 0
	write := func(n int) {
		batch := make([]string, 0, n)
		for _, i := range waiting[:n] {
			p, at := settled[i], max(minutes[i]/60, closed)
			l := model[at][p.Counterparty]
			l.Party = p.Counterparty
			if p.Direction == pix.Out {
				l.Debits, l.DebitCount = l.Debits+p.Amount, l.DebitCount+1
			} else {
				l.Credits, l.CreditCount = l.Credits+p.Amount, l.CreditCount+1
			}
			model[at][p.Counterparty] = l
			batch = append(batch, p.ID)
		}
		waiting = waiting[n:]
		require.Len(t, c.book(t, batch...).Fresh, n)
	}
	for i := range payments {
		settled[i], minutes[i] = anyPayment(random, i), random.IntN(60*windows)
		c.settle(t, settled[i], minutes[i])
		waiting = append(waiting, i)
		switch d := random.IntN(10); {
		case d < 3:
			write(random.IntN(len(waiting) + 1))
		case d == 3 && closed < windows-1:
			c.seal(t, ids[closed])
			c.close(t, ids[closed])
			closed++
		}
	}
	write(len(waiting))
	for ; closed < windows; closed++ {
		c.seal(t, ids[closed])
		c.close(t, ids[closed])
	}
	var total int64
	for i, lines := range model {
		want := slices.SortedFunc(maps.Values(lines), func(a, b store.Line) int { return strings.Compare(string(a.Party), string(b.Party)) })
		got := c.lines(t, ids[i])
		require.Len(t, got, len(want))
		for j := range want {
			require.Equal(t, want[j], got[j])
		}
		cycle := c.close(t, ids[i])
		total += cycle.Obligations
	}
	require.EqualValues(t, payments, total)
	due, lost, err := c.obligations.Missing(t.Context())
	require.NoError(t, err)
	require.Equal(t, []int64{0, 0}, []int64{due, lost})
}

func anyPayment(random *rand.Rand, n int) store.Payment {
	p := order(e2e(n))
	if random.IntN(2) == 0 {
		p = incoming(e2e(n))
	}
	p.Amount = pix.Amount(1 + random.Int64N(1_000_000))
	p.Counterparty = pix.ISPB(fmt.Sprintf("%08d", random.IntN(7)))
	return p
}
