package store_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/devstack"
	"github.com/cabine-pix/cabine/libs/devstack/devtest"
	"github.com/cabine-pix/cabine/libs/store"
)

// Goal: nothing is read from a standby, which may not know yet what was committed, and a failover is waited for like a
// database that is away: by a service that starts, and by one that runs while its address leads to a standby.
func TestAStandbyIsNotUsedUntilItIsPromoted(t *testing.T) {
	t.Parallel()
	primary := devtest.OwnPostgresWith(t, devstack.PostgresOptions{Replication: true})
	standby, err := primary.AddStandby(t.Context(), primary.Addr())
	require.NoError(t, err)
	require.NoError(t, store.Migrate(t.Context(), primary.DSN("postgres")))
	address := devtest.Proxy(t, primary.Addr())
	open := func(url string) *store.DB {
		db, err := store.Open(t.Context(), store.Config{URL: url})
		require.NoError(t, err)
		t.Cleanup(db.Close)
		return db
	}
	running := open(devstack.DSNThrough(address.Addr(), "postgres"))
	several := open(devstack.DSNThrough(standby.Addr()+","+primary.Addr(), "postgres"))
	_, err = store.NewTerms(several).Mint(t.Context(), "x", "test")
	require.NoError(t, err, "of several servers the one that takes writes is used")
	_, err = store.Open(t.Context(), store.Config{URL: standby.DSN("postgres")})
	require.ErrorIs(t, err, store.ErrUnavailable)

	address.Target(standby.Addr())
	require.NoError(t, primary.Lose())
	read := func() error {
		return running.InTx(t.Context(), func(context.Context, *store.Tx) error { return nil })
	}
	for range 3 { // connections that the pool had end first
		require.ErrorIs(t, read(), store.ErrUnavailable)
	}
	require.NoError(t, standby.Promote(t.Context()))
	require.NoError(t, read())
	term, err := store.NewTerms(running).Mint(t.Context(), "x", "test")
	require.NoError(t, err)
	require.EqualValues(t, 2, term, "the first one was not lost")
}
