package store_test

import (
	"bytes"
	"context"
	"net/url"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/devstack"
	"github.com/cabine-pix/cabine/libs/devstack/devtest"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
)

// throughProxy returns books that are reached through a proxy.
func throughProxy(t *testing.T) (books, *devstack.Proxy) {
	t.Helper()
	direct := setupBooks(t)
	u, err := url.Parse(direct.url)
	require.NoError(t, err)
	proxy := devtest.Proxy(t, u.Host)
	u.Host = proxy.Addr()
	b := bundleAt(t, u.String())
	b.url = direct.url
	return books{
		bundle: b, payments: store.NewPayments(b.db), outbox: store.NewOutbox(b.db),
		outbound: store.NewOutbound(b.db), keys: store.NewIdempotency(b.db),
	}, proxy
}

// saying matches a request that contains text.
func saying(text string) func([]byte) bool {
	return func(request []byte) bool { return bytes.Contains(request, []byte(text)) }
}

// The commit of an order reaches the database and its answer is lost: repeated, the order is known, with its answer.
func TestAnOrderWhoseCommitIsNotAnsweredIsThereOnce(t *testing.T) {
	t.Parallel()
	b, proxy := throughProxy(t)
	give := func() (fresh bool, err error) {
		err = b.db.InTx(t.Context(), func(ctx context.Context, tx *store.Tx) error {
			if fresh, err = b.payments.Insert(ctx, tx, order(e2e(1)), "api"); err != nil || !fresh {
				return err
			}
			if _, err := b.outbox.Add(ctx, tx, []store.Operation{operation(e2e(1), "pacs.008")}); err != nil {
				return err
			}
			return b.keys.Finish(ctx, tx, "k", 201, []byte("done"))
		})
		return fresh, err
	}
	key, err := b.keys.Begin(t.Context(), "k", [32]byte{1})
	require.NoError(t, err)
	require.Equal(t, store.KeyFresh, key.State)
	proxy.LoseReply(saying("commit"))
	_, err = give()
	require.ErrorIs(t, err, store.ErrUnavailable)

	fresh, err := give()
	require.NoError(t, err)
	require.False(t, fresh)
	key, err = b.keys.Begin(t.Context(), "k", [32]byte{1})
	require.NoError(t, err)
	require.Equal(t, store.Key{State: store.KeyAnswered, Status: 201, Body: []byte("done")}, key)
	require.Len(t, b.unpublished(t), 1)
	require.Equal(t, []pix.State{pix.Created}, b.history(t, e2e(1)))
}

// The database dies with the connection before the commit: nothing of the order is there, and it can be given again.
func TestAnOrderThatDiedBeforeItsCommitIsNotThere(t *testing.T) {
	t.Parallel()
	b := setupBooks(t)
	watcher := side(t, b.url)
	give := func(then func()) error {
		return b.db.InTx(t.Context(), func(ctx context.Context, tx *store.Tx) error {
			fresh, err := b.payments.Insert(ctx, tx, order(e2e(1)), "api")
			if err != nil {
				return err
			}
			require.True(t, fresh)
			_, err = b.outbox.Add(ctx, tx, []store.Operation{operation(e2e(1), "pacs.008")})
			then()
			return err
		})
	}
	require.ErrorIs(t, give(func() {
		_, err := watcher.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND state = 'idle in transaction'`)
		require.NoError(t, err)
	}), store.ErrUnavailable)
	_, err := b.payments.Get(t.Context(), e2e(1))
	require.ErrorIs(t, err, store.ErrNotFound)
	require.Empty(t, b.unpublished(t))
	require.NoError(t, give(func() {}))
	require.Len(t, b.unpublished(t), 1)
}

// Every call of a sender is done by the database and its answer is lost: repeated, it changes nothing.
func TestASenderRepeatsWhateverWasNotAnswered(t *testing.T) {
	t.Parallel()
	b, proxy := throughProxy(t)
	warm := b.ordered(t, e2e(1), e2e(2))
	ops := b.ordered(t, e2e(3), e2e(4))
	twice := func(text string, call func() error) {
		t.Helper()
		proxy.LoseReply(saying(text))
		require.ErrorIs(t, call(), store.ErrUnavailable)
		require.NoError(t, call())
	}
	// The statements are prepared by a message of their own first, or it is that answer which is lost.
	prepared := func(call func(id pix.MsgID) error, text string) {
		t.Helper()
		require.NoError(t, call(msgID(1)))
		twice(text, func() error { return call(msgID(2)) })
	}
	require.Equal(t, []bool{true}, b.build(t, draft(msgID(1), 0, warm...)))
	var built []bool
	twice(string(msgID(2)), func() (err error) {
		built, err = b.outbound.Build(t.Context(), []store.Draft{draft(msgID(2), 0, ops...)})
		return err
	})
	require.Equal(t, []bool{true}, built)
	var counted []bool
	prepared(func(id pix.MsgID) (err error) {
		counted, err = b.outbound.Attempt(t.Context(), []store.Try{{MsgID: id}})
		return err
	}, string(msgID(2)))
	require.Equal(t, []bool{false}, counted, "it is counted, and who counted it does not know: nobody sends now")
	require.Equal(t, 1, b.message(t, msgID(2)).Attempts)
	prepared(func(id pix.MsgID) error { return b.outbound.Unknown(t.Context(), []pix.MsgID{id}, "timeout") }, "commit")
	prepared(func(id pix.MsgID) error {
		return b.outbound.Sent(t.Context(), []store.Posted{{MsgID: id, ResourceID: "PI" + string(id)}})
	}, "PI"+string(msgID(2)))
	require.Equal(t, store.MessageSent, b.message(t, "PI"+msgID(2)).State)
	require.Equal(t, []pix.State{pix.Created, pix.Unknown, pix.Sent}, b.history(t, e2e(3)))
	prepared(func(id pix.MsgID) error {
		_, err := b.outbound.Split(t.Context(), id, "admi.002")
		return err
	}, string(msgID(2)))
	require.Equal(t, slices.Concat(warm, ops), b.unpublished(t))
	require.Equal(t, []pix.State{pix.Created, pix.Unknown, pix.Sent, pix.Sent}, b.history(t, e2e(3)), "split once")
}
