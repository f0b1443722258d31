package store_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
)

// A sender may hold a message for minutes, while the bank throttles it.
func TestWhatHasEndedMeanwhileDoesNotGoOutAgain(t *testing.T) {
	t.Parallel()
	b := setupBooks(t)
	ops := b.ordered(t, e2e(1), e2e(2), e2e(3))
	var asked []store.Operation
	b.tx(t, func(ctx context.Context, tx *store.Tx) (err error) {
		asked, err = b.outbox.Add(ctx, tx, []store.Operation{operation(e2e(1), "camt.060")})
		return err
	})
	b.build(t, draft(msgID(1), 1, ops[0]), draft(msgID(2), 1, ops[1], ops[2]), draft(msgID(3), 1, asked[0].ID))
	require.NoError(t, b.outbound.Unknown(t.Context(), []pix.MsgID{msgID(1), msgID(2), msgID(3)}, "timeout"))
	b.tx(t, func(ctx context.Context, tx *store.Tx) error {
		_, err := b.payments.Move(ctx, tx, []store.Move{
			{ID: e2e(1), To: pix.Rejected, Who: "spi", Reason: "AM04"}, {ID: e2e(2), To: pix.Settled, Who: "spi"},
		})
		return err
	})
	require.Equal(t, []bool{false, true, true}, b.attempt(t, try(1, 1), try(2, 1), try(3, 1)),
		"the order of the first has ended, one of the second has not, and a question may be asked")
}
