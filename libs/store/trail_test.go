package store_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
)

func TestWhatWasSaidAboutAPaymentIsExplained(t *testing.T) {
	t.Parallel()
	b := setupBooks(t)
	operations := b.ordered(t, e2e(1), e2e(2))
	carriers, err := b.outbound.Carriers(t.Context(), e2e(1))
	require.NoError(t, err)
	require.Len(t, carriers, 1)
	require.Equal(t, operations[0], carriers[0].OperationID)
	require.Empty(t, carriers[0].Message.MsgID, "nothing carries it yet")

	built, err := b.outbound.Build(t.Context(), []store.Draft{{
		Message:      store.Message{MsgID: msgID(1), Channel: pix.CPM, MsgType: "pacs.008", Payload: []byte("<x/>"), Attempts: 1},
		OperationIDs: operations,
	}})
	require.NoError(t, err)
	require.Equal(t, []bool{true}, built)
	require.NoError(t, b.outbound.Unknown(t.Context(), []pix.MsgID{msgID(1)}, "timeout"))
	carriers, err = b.outbound.Carriers(t.Context(), e2e(2))
	require.NoError(t, err)
	require.Len(t, carriers, 1)
	m := carriers[0].Message
	require.Equal(t, []any{msgID(1), store.MessageUnknown, 1, "timeout"}, []any{m.MsgID, m.State, m.Attempts, m.Reason})
}

func TestEndsAreCounted(t *testing.T) {
	t.Parallel()
	b := setupBooks(t)
	b.ordered(t, e2e(1), e2e(2))
	b.tx(t, func(ctx context.Context, tx *store.Tx) error {
		_, err := b.payments.Move(ctx, tx, []store.Move{{ID: e2e(1), To: pix.Settled}, {ID: e2e(2), To: pix.Rejected}, {ID: e2e(1), To: pix.Rejected}})
		return err
	})
	twice, err := b.payments.EndedTwice(t.Context())
	require.NoError(t, err)
	require.Empty(t, twice)
	// No move of ours writes this.
	_, err = side(t, b.url).Exec(t.Context(), `
		INSERT INTO payment_events (payment_id, was, became, who, reason, detail) VALUES ($1, 'settled', 'rejected', 'x', '', '')`, e2e(1))
	require.NoError(t, err)
	twice, err = b.payments.EndedTwice(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{e2e(1)}, twice)
}

func TestDeadLettersAreListed(t *testing.T) {
	t.Parallel()
	b := setupBooks(t)
	for _, id := range []string{"a", "b", "c"} {
		_, err := side(t, b.url).Exec(t.Context(), `
			INSERT INTO dead_letters (source, message_id, msg_type, reason, payload) VALUES ('icom:cpm:12345678', $1, 'pacs.008', 'because', '<x/>')`, id)
		require.NoError(t, err)
	}
	inbox := store.NewInbox(b.db)
	first, err := inbox.DeadLetters(t.Context(), 0, 2)
	require.NoError(t, err)
	require.Len(t, first, 2)
	rest, err := inbox.DeadLetters(t.Context(), first[1].ID, 2)
	require.NoError(t, err)
	require.Len(t, rest, 1)
	l := rest[0]
	require.Equal(t, []string{"icom:cpm:12345678", "c", "pacs.008", "because"}, []string{l.Source, l.MessageID, l.MsgType, l.Reason})
}
