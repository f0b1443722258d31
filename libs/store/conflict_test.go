package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/store"
)

// letters returns the dead letters as "message_id reason payload", in the order of their burial.
func (b bundle) letters(t *testing.T) []string {
	t.Helper()
	rows, err := side(t, b.url).Query(t.Context(), "SELECT message_id || ' ' || reason || ' ' || encode(payload, 'escape') FROM dead_letters ORDER BY id")
	require.NoError(t, err)
	defer rows.Close()
	var all []string
	for rows.Next() {
		var line string
		require.NoError(t, rows.Scan(&line))
		all = append(all, line)
	}
	require.NoError(t, rows.Err())
	return all
}

func arrival(id, payload string) store.Arrival {
	return store.Arrival{MessageID: id, MsgType: "pacs.008", Payload: []byte(payload)}
}

func TestOtherContentUnderATakenIdentifierIsADeadLetter(t *testing.T) {
	t.Parallel()
	b := setup(t)
	one, two := b.open(t, 1, "a"), b.open(t, 2, "b")
	receive := func(s store.Session, poison []store.Poison, all ...store.Arrival) store.Receipt {
		r, err := b.inbox.Receive(t.Context(), store.Batch{Session: s, Arrivals: all, Poison: poison, NextCursor: "c"})
		require.NoError(t, err)
		return r
	}
	const reason = " same identifier, other content "
	first := receive(one, nil, arrival("m1", "<a/>"), arrival("m1", "<b/>"))
	require.Equal(t, []string{"m1"}, messageIDs(first.Fresh), "within one batch the first is it")
	require.Equal(t, []byte("<a/>"), first.Fresh[0].Payload)
	require.Equal(t, []string{"m1"}, first.Conflicts)
	require.Equal(t, []string{"m1" + reason + "<b/>"}, b.letters(t))

	again := receive(two, nil, arrival("m1", "<a/>"), arrival("m2", "<m2/>"))
	require.Equal(t, []string{"m2"}, messageIDs(again.Fresh))
	require.Empty(t, again.Conflicts, "a repeated delivery is none")

	other := receive(two, []store.Poison{{MessageID: "p1", Payload: []byte("?"), Reason: "charset"}},
		arrival("m1", "<c/>"), arrival("m2", "<m2/>"), arrival("m3", "<m3/>"))
	require.Equal(t, []string{"m3"}, messageIDs(other.Fresh))
	require.Equal(t, []string{"m1"}, other.Conflicts)
	want := []string{"m1" + reason + "<b/>", "p1 charset ?", "m1" + reason + "<c/>"}
	require.Equal(t, want, b.letters(t), "each content once")

	repeated := receive(one, nil, arrival("m1", "<c/>"))
	require.Equal(t, []string{"m1"}, repeated.Conflicts, "said each time")
	require.Equal(t, want, b.letters(t), "and kept once")

	receive(one, []store.Poison{{MessageID: "p1", Payload: []byte("!"), Reason: "charset"}})
	require.Equal(t, append(want, "p1 charset !"), b.letters(t), "the same holds among the poison")

	require.NoError(t, b.inbox.Bury(t.Context(), first.Fresh[0].ID, "consumer says no"))
	require.Equal(t, append(want, "p1 charset !", "m1 consumer says no <a/>"), b.letters(t), "nor does a burial take their place")
	c := b.counts(t)
	require.Equal(t, int64(2), c.Received)
	require.Equal(t, int64(5), c.Dead)
	require.Zero(t, c.Done)
}

// The other slot's message is not committed yet when this one arrives: which of the two is stored is open, that
// both are kept is not.
func TestOtherContentFromAnotherSlotAtTheSameTimeIsADeadLetter(t *testing.T) {
	t.Parallel()
	for name, poison := range map[string][]store.Poison{"usual": nil, "with poison": {{MessageID: "p1", Reason: "charset"}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			session := b.open(t, 1, "a")
			holder, err := side(t, b.url).Begin(t.Context())
			require.NoError(t, err)
			_, err = holder.Exec(t.Context(),
				"INSERT INTO inbox (id, source, message_id, msg_type, payload) VALUES (1, 'icom:cpm:12345678', 'm1', '', '<first/>')")
			require.NoError(t, err)
			received := make(chan store.Receipt, 1)
			go func() {
				r, err := b.inbox.Receive(t.Context(), store.Batch{
					Session: session, Arrivals: []store.Arrival{arrival("m1", "<second/>")}, Poison: poison, NextCursor: "c1",
				})
				if err != nil {
					t.Error(err)
				}
				received <- r
			}()
			blocked(t, side(t, b.url))
			require.NoError(t, holder.Commit(t.Context()))
			select {
			case r := <-received:
				require.Empty(t, r.Fresh)
				require.Equal(t, []string{"m1"}, r.Conflicts)
			case <-time.After(20 * time.Second):
				require.Fail(t, "not received")
			}
			require.Contains(t, b.letters(t), "m1 same identifier, other content <second/>")
		})
	}
}
