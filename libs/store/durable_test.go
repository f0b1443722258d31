package store_test

import (
	"context"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/devstack/devtest"
	"github.com/cabine-pix/cabine/libs/store"
)

func TestASessionThatMayForgetItsCommitsIsRefused(t *testing.T) {
	t.Parallel()
	server := devtest.OwnPostgres(t)
	dsn := server.DSN("postgres")
	require.NoError(t, store.Migrate(t.Context(), dsn))
	conn := side(t, dsn)
	system := func(sql string) {
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err)
		_, err = conn.Exec(t.Context(), "SELECT pg_reload_conf()")
		require.NoError(t, err)
	}
	shows := func(setting, value string) {
		require.Eventually(t, func() bool {
			var have string
			return conn.QueryRow(t.Context(), "SELECT current_setting($1)", setting).Scan(&have) == nil && have == value
		}, 20*time.Second, 10*time.Millisecond)
	}
	open := func(commit string) error {
		with, err := url.Parse(dsn)
		require.NoError(t, err)
		q := with.Query()
		q.Set("synchronous_commit", commit)
		with.RawQuery = q.Encode()
		db, err := store.Open(t.Context(), store.Config{URL: with.String()})
		if err == nil {
			db.Close()
		}
		return err
	}
	refused := func(err error, reason string) {
		require.ErrorIs(t, err, store.ErrNotDurable)
		require.NotErrorIs(t, err, store.ErrUnavailable)
		require.ErrorContains(t, err, reason)
	}
	for _, commit := range []string{"on", "remote_apply", "remote_write", "local"} {
		require.NoError(t, open(commit), commit)
	}
	refused(open("off"), "synchronous_commit is off")

	system("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
	shows("synchronous_standby_names", "standby")
	refused(open("local"), "synchronous_commit is local")
	require.NoError(t, open("remote_apply"))
	system("ALTER SYSTEM RESET synchronous_standby_names")
	shows("synchronous_standby_names", "")

	system("ALTER SYSTEM SET fsync = off")
	shows("fsync", "off")
	refused(open("on"), "fsync is off")
}

// The database's setting changes under a service that runs: its next connection is refused, and with it all that
// would be acknowledged.
func TestASettingThatChangesLaterIsSeenByTheNextConnection(t *testing.T) {
	t.Parallel()
	b := setup(t)
	session := b.open(t, 1, "a")
	conn := side(t, b.url)
	var name string
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT current_database()").Scan(&name))
	set := func(value string) {
		_, err := conn.Exec(t.Context(), fmt.Sprintf("ALTER DATABASE %q SET synchronous_commit = %s", name, value))
		require.NoError(t, err)
	}
	set("off")
	// The connection that the pool has is in use, so the call needs another.
	require.NoError(t, b.db.InTx(t.Context(), func(ctx context.Context, _ *store.Tx) error {
		_, err := b.inbox.Receive(ctx, store.Batch{Session: session, Arrivals: arrivals("m1"), NextCursor: "c1"})
		require.ErrorIs(t, err, store.ErrNotDurable)
		return nil
	}))
	require.Zero(t, b.counts(t).Received)
	set("remote_apply")
	require.NoError(t, b.db.InTx(t.Context(), func(ctx context.Context, _ *store.Tx) error {
		_, err := b.inbox.Receive(ctx, store.Batch{Session: session, Arrivals: arrivals("m1"), NextCursor: "c1"})
		return err
	}))
}
