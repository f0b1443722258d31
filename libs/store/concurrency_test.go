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

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/devstack/devtest"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
)

// side opens a plain connection of the test's own, to look and to interfere.
func side(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

// blocked waits until a backend of this database waits for a lock, and returns its process id.
func blocked(t *testing.T, conn *pgx.Conn) (pid int) {
	t.Helper()
	require.Eventually(t, func() bool {
		err := conn.QueryRow(t.Context(), `SELECT pid FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock' LIMIT 1`).Scan(&pid)
		return err == nil
	}, 20*time.Second, 10*time.Millisecond)
	return pid
}

// Two owners fight for one slot, each opening it again when it is stale: the cursor only ever holds what the newest
// owner wrote, and what is stored is exactly what was accepted.
func TestTwoOwnersOfOneSlot(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const rounds = 60
	var accepted, stale atomic.Int64
	var mu sync.Mutex
	cursors := map[int64]string{} // by term: the last cursor that was accepted
	var owners sync.WaitGroup
	for _, owner := range []string{"a", "b"} {
		owners.Go(func() {
			session := b.open(t, 1, owner)
			for i := range rounds {
				id := fmt.Sprint(owner, i)
				_, err := b.inbox.Receive(t.Context(), store.Batch{Session: session, Arrivals: arrivals(id), NextCursor: id})
				switch {
				case errors.Is(err, store.ErrStaleTerm):
					stale.Add(1)
					session = b.open(t, 1, owner)
				case err != nil:
					t.Error(err)
				default:
					accepted.Add(1)
					mu.Lock()
					cursors[session.Term] = id
					mu.Unlock()
				}
			}
		})
	}
	owners.Wait()
	require.Equal(t, accepted.Load(), b.counts(t).Received)
	require.Equal(t, int64(2*rounds), accepted.Load()+stale.Load())
	last := b.open(t, 1, "c")
	newest := int64(0)
	for term := range cursors {
		newest = max(newest, term)
	}
	require.Greater(t, last.Term, newest)
	require.Equal(t, cursors[newest], last.Cursor)
}

// A batch waits for the row of its slot while a newer owner takes it; the newer one commits first, so nothing is stored.
func TestATakeoverUnderWayMakesTheBatchStale(t *testing.T) {
	t.Parallel()
	b := setup(t)
	session := b.open(t, 1, "a")
	other := side(t, b.url)
	takeover, err := other.Begin(t.Context())
	require.NoError(t, err)
	_, err = takeover.Exec(t.Context(), "UPDATE icom_sessions SET term = term + 1")
	require.NoError(t, err)

	received := make(chan error, 1)
	go func() {
		_, err := b.inbox.Receive(t.Context(), store.Batch{
			Session: session, Arrivals: arrivals("m1"), NextCursor: "c1",
			Poison: []store.Poison{{MessageID: "p1", Reason: "charset"}},
		})
		received <- err
	}()
	blocked(t, side(t, b.url))
	require.NoError(t, takeover.Commit(t.Context()))
	require.ErrorIs(t, <-received, store.ErrStaleTerm)
	c := b.counts(t)
	require.Zero(t, c.Received+c.Dead)
	require.Empty(t, b.open(t, 1, "c").Cursor)
}

// The connection dies after the batch was inserted and before it was committed: nothing is stored, the cursor stands, and
// the same batch goes in afterwards.
func TestACrashBeforeTheCommitLeavesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	session := b.open(t, 1, "a")
	other, watcher := side(t, b.url), side(t, b.url)
	holder, err := other.Begin(t.Context())
	require.NoError(t, err)
	// The last message of the batch collides with an uncommitted one, which holds the statement after its first inserts.
	_, err = holder.Exec(t.Context(),
		"INSERT INTO inbox (id, source, message_id, msg_type, payload) VALUES (1, 'icom:cpm:12345678', 'm3', '', '')")
	require.NoError(t, err)

	batch := store.Batch{Session: session, Arrivals: arrivals("m1", "m2", "m3"), NextCursor: "c1"}
	received := make(chan error, 1)
	go func() {
		_, err := b.inbox.Receive(t.Context(), batch)
		received <- err
	}()
	pid := blocked(t, watcher)
	_, err = watcher.Exec(t.Context(), "SELECT pg_terminate_backend($1)", pid)
	require.NoError(t, err)
	require.ErrorIs(t, <-received, store.ErrUnavailable)
	require.NoError(t, holder.Rollback(t.Context()))
	require.Zero(t, b.counts(t).Received)

	stored, err := fresh(b.inbox.Receive(t.Context(), batch))
	require.NoError(t, err)
	require.Len(t, stored, 3)
	require.Equal(t, "c1", b.open(t, 1, "b").Cursor)
}

// Six slots are given overlapping messages in different orders, as after a redelivery: each is stored once, returned to
// exactly one slot, and nobody is left behind by a deadlock.
func TestDuplicatesAcrossSlotsAreStoredOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	random := devtest.Rand(t)
	const slots, rounds, size = 6, 15, 10
	batches := make([][][]string, slots)
	for i := range batches {
		for r := range rounds {
			ids := make([]string, size)
			for j := range ids {
				ids[j] = fmt.Sprintf("m%d-%d", r, j)
			}
			random.Shuffle(size, func(x, y int) { ids[x], ids[y] = ids[y], ids[x] })
			batches[i] = append(batches[i], ids)
		}
	}
	var mu sync.Mutex
	var returned []string
	var readers sync.WaitGroup
	for i := range slots {
		readers.Go(func() {
			session := b.open(t, i+1, "a")
			for _, ids := range batches[i] {
				stored, err := fresh(b.inbox.Receive(t.Context(), store.Batch{Session: session, Arrivals: arrivals(ids...), NextCursor: "c"}))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				returned = append(returned, messageIDs(stored)...)
				mu.Unlock()
			}
		})
	}
	readers.Wait()
	require.Len(t, returned, rounds*size)
	slices.Sort(returned)
	require.Len(t, slices.Compact(returned), rounds*size)
	require.Equal(t, int64(rounds*size), b.counts(t).Received)
}

func TestAConsumerThatComesTwiceTakesEffectOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.inbox.Receive(t.Context(), store.Batch{Session: b.open(t, 1, "a"), Arrivals: arrivals("m1"), NextCursor: "c1"})
	require.NoError(t, err)
	source := store.Source(pix.CPM, ispb)
	again := errors.New("been here")
	var effects atomic.Int64
	var consumers sync.WaitGroup
	for range 4 {
		consumers.Go(func() {
			err := b.db.InTx(t.Context(), func(ctx context.Context, tx *store.Tx) error {
				n, err := b.inbox.MarkDoneTx(ctx, tx, []string{"m1"}, source)
				if err == nil && n == 0 {
					return again
				}
				return err
			})
			if err == nil {
				effects.Add(1)
			} else if !errors.Is(err, again) {
				t.Error(err)
			}
		})
	}
	consumers.Wait()
	require.Equal(t, int64(1), effects.Load())
}

func TestTermsGrow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const contenders, rounds = 4, 20
	terms := make([][]int64, contenders)
	var all sync.WaitGroup
	for i := range contenders {
		all.Go(func() {
			for range rounds {
				term, err := b.terms.Mint(t.Context(), "scheduler", fmt.Sprint(i))
				if err != nil {
					t.Error(err)
					return
				}
				terms[i] = append(terms[i], term)
			}
		})
	}
	all.Wait()
	var minted []int64
	for _, one := range terms {
		require.True(t, slices.IsSorted(one))
		minted = append(minted, one...)
	}
	slices.Sort(minted)
	require.Len(t, slices.Compact(minted), contenders*rounds)
	other, err := b.terms.Mint(t.Context(), "importer", "a")
	require.NoError(t, err)
	require.Equal(t, int64(1), other, "each name has its own")
}

func TestAGuardedWriteRefusesAnOlderTermAndHoldsOffANewerOne(t *testing.T) {
	t.Parallel()
	b := setup(t)
	guard := func(term int64, then func()) error {
		return b.db.InTx(t.Context(), func(ctx context.Context, tx *store.Tx) error {
			if err := b.terms.GuardTx(ctx, tx, "scheduler", term); err != nil {
				return err
			}
			then()
			return nil
		})
	}
	require.ErrorIs(t, guard(1, func() {}), store.ErrNotFound, "never minted")
	old, err := b.terms.Mint(t.Context(), "scheduler", "a")
	require.NoError(t, err)

	var next int64
	minted := make(chan error, 1)
	require.NoError(t, guard(old, func() {
		go func() {
			var err error
			next, err = b.terms.Mint(t.Context(), "scheduler", "b")
			minted <- err
		}()
		blocked(t, side(t, b.url))
		select {
		case err := <-minted:
			t.Error("a term was minted under a guarded write", err)
		default:
		}
	}))
	require.NoError(t, <-minted)
	require.Greater(t, next, old)
	require.ErrorIs(t, guard(old, func() { t.Error("a deposed leader wrote") }), store.ErrStaleTerm)
	require.NoError(t, guard(next, func() {}))
}
