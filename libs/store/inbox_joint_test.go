package store_test

import (
	"context"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/devstack/devtest"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
)

// joined has six slots, of which the first is held up in its commit, so that the others wait.
type joined struct {
	bundle

	sessions [7]store.Session // by slot
	holder   pgx.Tx
	side     *pgx.Conn
	first    <-chan answered
	waiting  int
}

type answered struct {
	receipt store.Receipt
	err     error
}

func setupJoined(t *testing.T) *joined { t.Helper(); return holdUp(t, setup(t)) }

func holdUp(t *testing.T, b bundle) *joined {
	t.Helper()
	j := &joined{bundle: b, side: side(t, b.url)}
	for slot := 1; slot <= 6; slot++ {
		j.sessions[slot] = b.open(t, slot, "a")
	}
	j.hold(t)
	j.first = j.receive(t.Context(), j.batch(1))
	blocked(t, side(t, b.url))
	return j
}

// hold keeps the first slot's row from whoever wants to move its cursor.
func (j *joined) hold(t *testing.T) {
	t.Helper()
	var err error
	j.holder, err = j.side.Begin(t.Context())
	require.NoError(t, err)
	_, err = j.holder.Exec(t.Context(), "SELECT FROM icom_sessions WHERE slot = 1 FOR UPDATE")
	require.NoError(t, err)
}

// batch has two messages of the slot's own, not in the order of their identifiers.
func (j *joined) batch(slot int) store.Batch {
	return store.Batch{
		Session: j.sessions[slot], NextCursor: fmt.Sprintf("c%d", slot),
		Arrivals: arrivals(fmt.Sprintf("z%d", slot), fmt.Sprintf("a%d", slot)),
	}
}

func (j *joined) receive(ctx context.Context, batch store.Batch) <-chan answered {
	done := make(chan answered, 1)
	go func() {
		r, err := j.inbox.Receive(ctx, batch)
		done <- answered{r, err}
	}()
	return done
}

// queue gives a batch and returns once it waits.
func (j *joined) queue(ctx context.Context, t *testing.T, batch store.Batch) <-chan answered {
	t.Helper()
	done := j.receive(ctx, batch)
	j.waiting++
	require.Eventually(t, func() bool { return j.inbox.Waiting(batch.Session) == j.waiting }, 20*time.Second, time.Millisecond)
	return done
}

// queueAll lets the slots 2 to 6 wait with their batches.
func (j *joined) queueAll(t *testing.T) (all [7]<-chan answered) {
	t.Helper()
	for slot := 2; slot <= 6; slot++ {
		all[slot] = j.queue(t.Context(), t, j.batch(slot))
	}
	return all
}

func (j *joined) release(t *testing.T) {
	t.Helper()
	require.NoError(t, j.holder.Rollback(t.Context()))
	require.NoError(t, (<-j.first).err)
}

// commits returns by which transaction each cursor was moved last.
func (j *joined) commits(t *testing.T) map[int]string {
	t.Helper()
	rows, err := j.side.Query(t.Context(), "SELECT slot, xmin::text FROM icom_sessions")
	require.NoError(t, err)
	all := map[int]string{}
	var slot int
	var xmin string
	_, err = pgx.ForEachRow(rows, []any{&slot, &xmin}, func() error { all[slot] = xmin; return nil })
	require.NoError(t, err)
	return all
}

func (j *joined) cursor(t *testing.T, slot int) (cursor string) {
	t.Helper()
	require.NoError(t, j.side.QueryRow(t.Context(), "SELECT cursor FROM icom_sessions WHERE slot = $1", slot).Scan(&cursor))
	return cursor
}

// What waits while a commit is under way is one commit after it: every slot with its own cursor, its own messages, and
// these in the order of their arrival.
func TestBatchesThatWaitTogetherAreOneCommit(t *testing.T) {
	t.Parallel()
	j := setupJoined(t)
	all := j.queueAll(t)
	j.release(t)
	for slot := 2; slot <= 6; slot++ {
		stored, err := fresh((<-all[slot]).receipt, nil)
		require.NoError(t, err)
		require.Equal(t, []string{fmt.Sprintf("z%d", slot), fmt.Sprintf("a%d", slot)}, messageIDs(stored))
		require.Equal(t, stored[0].ID+1, stored[1].ID)
		require.Equal(t, fmt.Sprintf("c%d", slot), j.cursor(t, slot))
	}
	by := j.commits(t)
	for slot := 3; slot <= 6; slot++ {
		require.Equal(t, by[2], by[slot])
	}
	require.NotEqual(t, by[1], by[2])
	require.Equal(t, int64(12), j.counts(t).Received)
	rows, err := j.inbox.Unpublished(t.Context(), 0, 100)
	require.NoError(t, err)
	last := map[byte]int64{}
	for _, row := range rows { // the table tells the same order
		slot := row.MessageID[1]
		if row.MessageID[0] == 'z' {
			last[slot] = row.ID
		} else {
			require.Equal(t, last[slot]+1, row.ID)
		}
	}
}

// Of six slots one was taken over by somebody else while its batch waited: it alone is refused, and nothing of it is stored.
func TestAStaleSlotAmongOthersRefusesItsOwnBatchOnly(t *testing.T) {
	t.Parallel()
	j := setupJoined(t)
	all := j.queueAll(t)
	taken := j.open(t, 4, "b")
	j.release(t)
	for slot := 2; slot <= 6; slot++ {
		a := <-all[slot]
		if slot == 4 {
			require.ErrorIs(t, a.err, store.ErrStaleTerm)
			require.Empty(t, a.receipt)
			require.Empty(t, j.cursor(t, slot))
			continue
		}
		require.NoError(t, a.err)
		require.Len(t, a.receipt.Fresh, 2)
	}
	require.Equal(t, int64(10), j.counts(t).Received)
	batch := j.batch(4)
	batch.Session = taken
	stored, err := fresh(j.inbox.Receive(t.Context(), batch))
	require.NoError(t, err)
	require.Len(t, stored, 2)
}

// An owner who was replaced and the one who replaced him wait at the same time, in one process: the newer one's batch is
// stored, the older one's is not.
func TestTwoOwnersOfASlotThatWaitTogether(t *testing.T) {
	t.Parallel()
	j := setupJoined(t)
	stale := j.queue(t.Context(), t, store.Batch{Session: j.sessions[2], NextCursor: "stale"})
	batch := j.batch(2)
	batch.Session, batch.Arrivals, batch.NextCursor = j.open(t, 2, "b"), arrivals("new"), "new"
	newer := j.queue(t.Context(), t, batch)
	j.release(t)
	require.ErrorIs(t, (<-stale).err, store.ErrStaleTerm)
	require.NoError(t, (<-newer).err)
	require.Equal(t, "new", j.cursor(t, 2))
	require.Equal(t, int64(3), j.counts(t).Received)
}

// What the server refuses of one batch, and what is here already, costs the other batches nothing.
func TestABatchThatIsRefusedCostsTheOthersNothing(t *testing.T) {
	t.Parallel()
	j := setupJoined(t)
	bad := j.batch(2)
	bad.Arrivals[0].MsgType = "no text: \x00"
	again, other := j.batch(3), j.batch(4)
	again.Arrivals = arrivals("a5", "z3") // a5 comes on the fifth slot too
	other.Arrivals = []store.Arrival{{MessageID: "z1", MsgType: "pacs.008", Payload: []byte("not what the first slot was given")}}
	all := [7]<-chan answered{2: j.queue(t.Context(), t, bad), 3: j.queue(t.Context(), t, again), 4: j.queue(t.Context(), t, other), 5: j.queue(t.Context(), t, j.batch(5))}
	j.release(t)
	require.Error(t, (<-all[2]).err)
	third, fourth, fifth := <-all[3], <-all[4], <-all[5]
	require.NoError(t, third.err)
	require.NoError(t, fifth.err)
	require.ElementsMatch(t, []string{"a5", "z3", "z5"}, append(messageIDs(third.receipt.Fresh), messageIDs(fifth.receipt.Fresh)...))
	require.NoError(t, fourth.err)
	require.Empty(t, fourth.receipt.Fresh)
	require.Equal(t, []string{"z1"}, fourth.receipt.Conflicts)
	require.Empty(t, j.cursor(t, 2))
	for slot := 3; slot <= 5; slot++ {
		require.Equal(t, fmt.Sprintf("c%d", slot), j.cursor(t, slot))
	}
	c := j.counts(t)
	require.Equal(t, []int64{5, 1}, []int64{c.Received, c.Dead})
}

// The connection dies in the middle of a joint commit: nobody's batch is stored and no cursor moves, all are told, and
// each slot goes alone until it was stored once, so that what holds one up holds up no other again.
func TestACrashInAJointCommitLeavesNothing(t *testing.T) {
	t.Parallel()
	j := setupJoined(t)
	all := j.queueAll(t)
	other := side(t, j.url)
	late, err := other.Begin(t.Context()) // holds the second commit after its first inserts
	require.NoError(t, err)
	_, err = late.Exec(t.Context(),
		"INSERT INTO inbox (id, source, message_id, msg_type, payload) VALUES (1, 'icom:cpm:12345678', 'z6', '', '')")
	require.NoError(t, err)
	j.release(t)
	watcher := side(t, j.url)
	_, err = watcher.Exec(t.Context(), "SELECT pg_terminate_backend($1)", blocked(t, watcher))
	require.NoError(t, err)
	for slot := 2; slot <= 6; slot++ {
		require.ErrorIs(t, (<-all[slot]).err, store.ErrUnavailable)
		require.Empty(t, j.cursor(t, slot))
	}
	require.Equal(t, int64(2), j.counts(t).Received)

	// The sixth slot is still held up. The others do not wait for it.
	sixth := j.receive(t.Context(), j.batch(6))
	blocked(t, watcher)
	for slot := 2; slot <= 5; slot++ {
		stored, err := fresh(j.inbox.Receive(t.Context(), j.batch(slot)))
		require.NoError(t, err)
		require.Len(t, stored, 2)
	}
	require.NoError(t, late.Rollback(t.Context()))
	require.NoError(t, (<-sixth).err)
	require.Equal(t, int64(12), j.counts(t).Received)

	// Stored once, they wait together again.
	j.hold(t)
	j.first, j.waiting = j.receive(t.Context(), store.Batch{Session: j.sessions[1], NextCursor: "d1"}), 0
	blocked(t, watcher)
	second := j.queue(t.Context(), t, store.Batch{Session: j.sessions[2], NextCursor: "d2"})
	third := j.queue(t.Context(), t, store.Batch{Session: j.sessions[3], NextCursor: "d3"})
	j.release(t)
	require.NoError(t, (<-second).err)
	require.NoError(t, (<-third).err)
	by := j.commits(t)
	require.Equal(t, by[2], by[3])
}

// A joint commit reaches the database and its answer is lost: all are told that nobody knows, and given again nothing is
// stored twice.
func TestAJointCommitWhoseAnswerIsLostIsThereOnce(t *testing.T) {
	t.Parallel()
	direct := setup(t)
	u, err := url.Parse(direct.url)
	require.NoError(t, err)
	proxy := devtest.Proxy(t, u.Host)
	u.Host = proxy.Addr()
	b := bundleAt(t, u.String())
	b.url = direct.url
	j := holdUp(t, b)
	all := j.queueAll(t)
	proxy.LoseReply(saying("z6"))
	j.release(t)
	for slot := 2; slot <= 6; slot++ {
		require.ErrorIs(t, (<-all[slot]).err, store.ErrUnavailable)
	}
	require.Equal(t, int64(12), direct.counts(t).Received)
	for slot := 2; slot <= 6; slot++ {
		r, err := j.inbox.Receive(t.Context(), j.batch(slot))
		require.NoError(t, err)
		require.Empty(t, r.Fresh)
		require.Empty(t, r.Conflicts)
		require.Equal(t, fmt.Sprintf("c%d", slot), j.cursor(t, slot))
	}
	c := direct.counts(t)
	require.Equal(t, []int64{12, 0}, []int64{c.Received, c.Dead})
}

// A caller who gives up while his batch waits takes it back; one who does so during the commit does not stop it.
func TestWhoGivesUpStopsNobodyElse(t *testing.T) {
	t.Parallel()
	j := setupJoined(t)
	impatient, leave := context.WithCancel(t.Context())
	second := j.queue(impatient, t, j.batch(2))
	third := j.queue(t.Context(), t, j.batch(3))
	leave()
	require.ErrorIs(t, (<-second).err, context.Canceled)
	j.release(t)
	require.NoError(t, (<-third).err)
	require.Empty(t, j.cursor(t, 2))

	j.hold(t)
	impatient, leave = context.WithCancel(t.Context())
	first := j.receive(impatient, store.Batch{Session: j.sessions[1], Arrivals: arrivals("late"), NextCursor: "late"})
	blocked(t, side(t, j.url))
	j.waiting = 0
	third = j.queue(t.Context(), t, store.Batch{Session: j.sessions[3], NextCursor: "d3"})
	leave()
	require.ErrorIs(t, (<-first).err, context.Canceled)
	require.NoError(t, j.holder.Rollback(t.Context()))
	require.NoError(t, (<-third).err)
	require.Eventually(t, func() bool { return j.cursor(t, 1) == "late" }, 20*time.Second, 5*time.Millisecond)
}

// Channels share no commit: each is read and stored for itself.
func TestChannelsDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	j := setupJoined(t)
	s, err := j.inbox.OpenSession(t.Context(), pix.CSM, ispb, 1, "a")
	require.NoError(t, err)
	stored, err := fresh(j.inbox.Receive(t.Context(), store.Batch{Session: s, Arrivals: arrivals("m1"), NextCursor: "c"}))
	require.NoError(t, err)
	require.Len(t, stored, 1)
	j.release(t)
}
