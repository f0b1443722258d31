package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/devstack/devtest"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
)

const ispb = pix.ISPB("12345678")

// bundle is a migrated database of the test's own, and the aggregates in it.
type bundle struct {
	url   string
	db    *store.DB
	inbox *store.Inbox
	terms *store.Terms
}

func setup(t testing.TB) bundle {
	t.Helper()
	url := devtest.Postgres(t)
	require.NoError(t, store.Migrate(t.Context(), url))
	return bundleAt(t, url)
}

func bundleAt(t testing.TB, url string) bundle {
	t.Helper()
	db, err := store.Open(t.Context(), store.Config{URL: url, Application: t.Name()})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	return bundle{url: url, db: db, inbox: store.NewInbox(db), terms: store.NewTerms(db)}
}

func (b bundle) open(t testing.TB, slot int, owner string) store.Session {
	t.Helper()
	s, err := b.inbox.OpenSession(t.Context(), pix.CPM, ispb, slot, owner)
	require.NoError(t, err)
	return s
}

func (b bundle) counts(t testing.TB) store.Counts {
	t.Helper()
	c, err := b.inbox.Counts(t.Context())
	require.NoError(t, err)
	return c
}

// arrivals returns messages with the given identifiers, each with a payload of its own.
func arrivals(ids ...string) []store.Arrival {
	all := make([]store.Arrival, len(ids))
	for i, id := range ids {
		all[i] = store.Arrival{MessageID: id, MsgType: "pacs.008", Payload: []byte("<" + id + "/>")}
	}
	return all
}

func fresh(r store.Receipt, err error) ([]store.Stored, error) { return r.Fresh, err }

func messageIDs(stored []store.Stored) []string {
	ids := make([]string, len(stored))
	for i, s := range stored {
		ids[i] = s.MessageID
	}
	return ids
}

func rowIDs(stored []store.Stored) []int64 {
	ids := make([]int64, len(stored))
	for i, s := range stored {
		ids[i] = s.ID
	}
	return ids
}

func TestReceiveStoresTheBatchAndMovesTheCursor(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.open(t, 1, "a")
	require.Equal(t, store.Session{Channel: pix.CPM, ISPB: ispb, Slot: 1, Term: 1}, s)

	stored, err := fresh(b.inbox.Receive(t.Context(), store.Batch{Session: s, Arrivals: arrivals("m3", "m1", "m2"), NextCursor: "c1"}))
	require.NoError(t, err)
	require.Equal(t, []string{"m3", "m1", "m2"}, messageIDs(stored))
	require.Equal(t, []byte("<m1/>"), stored[1].Payload)
	require.Equal(t, "icom:cpm:12345678", stored[0].Source())
	require.Less(t, stored[0].ID, stored[1].ID)
	require.Less(t, stored[1].ID, stored[2].ID)

	next := b.open(t, 1, "b")
	require.Equal(t, "c1", next.Cursor)
	require.Equal(t, int64(2), next.Term)
}

func TestReceiveReturnsOnlyWhatIsNew(t *testing.T) {
	t.Parallel()
	b := setup(t)
	one, two := b.open(t, 1, "a"), b.open(t, 2, "b")

	_, err := b.inbox.Receive(t.Context(), store.Batch{Session: one, Arrivals: arrivals("m1", "m2"), NextCursor: "c1"})
	require.NoError(t, err)
	stored, err := fresh(b.inbox.Receive(t.Context(), store.Batch{Session: two, Arrivals: arrivals("m2", "m3", "m3"), NextCursor: "d1"}))
	require.NoError(t, err)
	require.Equal(t, []string{"m3"}, messageIDs(stored))
	require.Equal(t, int64(3), b.counts(t).Received)

	other, err := b.inbox.OpenSession(t.Context(), pix.CSM, ispb, 1, "a")
	require.NoError(t, err)
	stored, err = fresh(b.inbox.Receive(t.Context(), store.Batch{Session: other, Arrivals: arrivals("m1"), NextCursor: "e1"}))
	require.NoError(t, err)
	require.Len(t, stored, 1, "another channel is another source")
}

func TestReceiveOfNothingMovesTheCursor(t *testing.T) {
	t.Parallel()
	b := setup(t)
	stored, err := fresh(b.inbox.Receive(t.Context(), store.Batch{Session: b.open(t, 6, "a"), NextCursor: "c1"}))
	require.NoError(t, err)
	require.Empty(t, stored)
	require.Equal(t, "c1", b.open(t, 6, "b").Cursor)
}

func TestReceiveKeepsPayloadsAsTheyWere(t *testing.T) {
	t.Parallel()
	b := setup(t)
	random := devtest.Rand(t)
	var batch []store.Arrival
	for i, size := range []int{0, 1, 2 << 10, 4 << 10, 64 << 10, 1 << 20} {
		payload := make([]byte, size)
		for j := range payload {
			payload[j] = byte(random.Uint32())
		}
		batch = append(batch, store.Arrival{MessageID: fmt.Sprint("m", i), Payload: payload})
	}
	_, err := b.inbox.Receive(t.Context(), store.Batch{Session: b.open(t, 1, "a"), Arrivals: batch, NextCursor: "c1"})
	require.NoError(t, err)
	stored, err := b.inbox.Unpublished(t.Context(), 0, 100)
	require.NoError(t, err)
	require.Len(t, stored, len(batch))
	for i := range stored {
		require.Equal(t, batch[i].Payload, stored[i].Payload)
		require.Empty(t, stored[i].MsgType)
		require.WithinDuration(t, time.Now(), stored[i].ReceivedAt, time.Minute)
	}
}

func TestPoisonIsBuriedWithTheBatch(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.open(t, 1, "a")
	batch := store.Batch{
		Session: s, Arrivals: arrivals("m1"), NextCursor: "c1",
		Poison: []store.Poison{
			{MessageID: "p1", Payload: []byte("?"), Reason: "charset"},
			{Payload: nil, Reason: "no PI-ResourceId"},
		},
	}
	stored, err := fresh(b.inbox.Receive(t.Context(), batch))
	require.NoError(t, err)
	require.Equal(t, []string{"m1"}, messageIDs(stored))
	require.Equal(t, int64(2), b.counts(t).Dead)

	batch.Poison = batch.Poison[:1]
	stored, err = fresh(b.inbox.Receive(t.Context(), batch))
	require.NoError(t, err)
	require.Empty(t, stored)
	require.Equal(t, int64(2), b.counts(t).Dead, "delivered again, one dead letter")

	b.open(t, 1, "b")
	batch.Poison = []store.Poison{{MessageID: "p2", Reason: "charset"}}
	_, err = b.inbox.Receive(t.Context(), batch)
	require.ErrorIs(t, err, store.ErrStaleTerm)
	require.Equal(t, int64(2), b.counts(t).Dead)
}

func TestReceiveRefusesABatchThatBreaksTheContract(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.open(t, 1, "a")
	for name, batch := range map[string]store.Batch{
		"no identifier": {Session: s, Arrivals: arrivals("")},
		"no reason":     {Session: s, Poison: []store.Poison{{MessageID: "p"}}},
		"too many":      {Session: s, Arrivals: make([]store.Arrival, store.MaxBatch+1)},
	} {
		_, err := b.inbox.Receive(t.Context(), batch)
		require.Error(t, err, name)
	}
	_, err := b.inbox.OpenSession(t.Context(), pix.CPM, ispb, 7, "a")
	require.ErrorIs(t, err, store.ErrRefused)
	_, err = b.inbox.OpenSession(t.Context(), "xyz", ispb, 1, "a")
	require.ErrorIs(t, err, store.ErrRefused)
	_, err = b.inbox.OpenSession(t.Context(), pix.CPM, "1234", 1, "a")
	require.ErrorIs(t, err, store.ErrRefused)
}

func TestAStaleSessionMovesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	old := b.open(t, 1, "a")
	_, err := b.inbox.Receive(t.Context(), store.Batch{Session: old, Arrivals: arrivals("m1"), NextCursor: "c1"})
	require.NoError(t, err)
	owner := b.open(t, 1, "b")

	_, err = b.inbox.Receive(t.Context(), store.Batch{Session: old, Arrivals: arrivals("m2"), NextCursor: "c2"})
	require.ErrorIs(t, err, store.ErrStaleTerm)
	require.ErrorIs(t, b.inbox.CloseSession(t.Context(), old), store.ErrStaleTerm)
	require.ErrorIs(t, b.inbox.ResetCursor(t.Context(), old), store.ErrStaleTerm)
	require.Equal(t, int64(1), b.counts(t).Received)

	_, err = b.inbox.Receive(t.Context(), store.Batch{Session: owner, Arrivals: arrivals("m2"), NextCursor: "c2"})
	require.NoError(t, err)
	require.Equal(t, "c2", b.open(t, 1, "c").Cursor)
}

func TestASessionThatWasClosedOrResetStartsANewStream(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.open(t, 1, "a")
	receive := func(cursor string) error {
		_, err := b.inbox.Receive(t.Context(), store.Batch{Session: s, NextCursor: cursor})
		return err
	}
	require.NoError(t, receive("c1"))
	require.NoError(t, b.inbox.ResetCursor(t.Context(), s))
	require.NoError(t, receive("c2"), "the session goes on after a reset")
	require.NoError(t, b.inbox.CloseSession(t.Context(), s))
	require.ErrorIs(t, receive("c3"), store.ErrStaleTerm, "not after a close")
	require.ErrorIs(t, b.inbox.CloseSession(t.Context(), s), store.ErrStaleTerm)
	next := b.open(t, 1, "a")
	require.Empty(t, next.Cursor)
	require.Equal(t, s.Term+1, next.Term)
}

func TestRecovery(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	_, err := b.inbox.Receive(ctx, store.Batch{
		Session: b.open(t, 1, "a"), Arrivals: arrivals("m1", "m2", "m3", "m4"), NextCursor: "c1",
	})
	require.NoError(t, err)

	open, err := b.inbox.Unpublished(ctx, 0, 3)
	require.NoError(t, err)
	require.Equal(t, []string{"m1", "m2", "m3"}, messageIDs(open))
	require.Equal(t, []byte("<m1/>"), open[0].Payload)
	young, err := b.inbox.Unpublished(ctx, time.Hour, 10)
	require.NoError(t, err)
	require.Empty(t, young)

	ids := rowIDs(open)
	require.NoError(t, b.inbox.MarkPublished(ctx, ids))
	require.NoError(t, b.inbox.MarkPublished(ctx, nil))
	left, err := b.inbox.Unpublished(ctx, 0, 10)
	require.NoError(t, err)
	require.Equal(t, []string{"m4"}, messageIDs(left))

	stuck, err := b.inbox.Stuck(ctx, 0, time.Hour, 10)
	require.NoError(t, err)
	require.Equal(t, []string{"m1", "m2", "m3"}, messageIDs(stuck))
	require.NoError(t, b.inbox.Republished(ctx, open[:1]))
	stuck, err = b.inbox.Stuck(ctx, 0, time.Hour, 1)
	require.NoError(t, err)
	require.Equal(t, 1, stuck[0].Attempts)
	stuck, err = b.inbox.Stuck(ctx, time.Hour, time.Hour, 10)
	require.NoError(t, err)
	require.Empty(t, stuck)

	source := open[0].Source()
	n, err := b.inbox.MarkDone(ctx, []string{"m1", "m4", "unknown"}, source)
	require.NoError(t, err)
	require.Equal(t, int64(2), n, "also what was never marked published")
	n, err = b.inbox.MarkDone(ctx, []string{"m1", "m4"}, source)
	require.NoError(t, err)
	require.Zero(t, n)
	require.NoError(t, b.inbox.MarkPublished(ctx, []int64{left[0].ID}), "the mark came late")
	require.NoError(t, b.inbox.Republished(ctx, open[:1]))

	require.NoError(t, b.inbox.Bury(ctx, ids[1], "five attempts"))
	require.NoError(t, b.inbox.Bury(ctx, ids[1], "five attempts"))
	require.ErrorIs(t, b.inbox.Bury(ctx, ids[0], "done already"), store.ErrNotFound)
	require.ErrorIs(t, b.inbox.Bury(ctx, 1<<40, "unknown"), store.ErrNotFound)
	require.ErrorIs(t, b.inbox.Bury(ctx, ids[2], ""), store.ErrRefused)

	c := b.counts(t)
	require.Equal(t, int64(1), c.Published)
	require.Equal(t, int64(2), c.Done)
	require.Equal(t, int64(1), c.Dead)
	require.Zero(t, c.Received)
	require.Positive(t, c.Lag)
	require.Less(t, c.Lag, time.Minute)
}

func TestMarkDoneTxIsPartOfTheEffect(t *testing.T) {
	t.Parallel()
	b := setup(t)
	stored, err := fresh(b.inbox.Receive(t.Context(), store.Batch{
		Session: b.open(t, 1, "a"), Arrivals: arrivals("m1"), NextCursor: "c1",
	}))
	require.NoError(t, err)
	done := func(end error) error {
		return b.db.InTx(t.Context(), func(ctx context.Context, tx *store.Tx) error {
			n, err := b.inbox.MarkDoneTx(ctx, tx, messageIDs(stored), stored[0].Source())
			require.NoError(t, err)
			require.Equal(t, int64(1), n)
			return end
		})
	}
	require.ErrorIs(t, done(context.Canceled), context.Canceled)
	require.Zero(t, b.counts(t).Done)
	require.NoError(t, done(nil))
	require.Equal(t, int64(1), b.counts(t).Done)
}
