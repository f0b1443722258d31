package store_test

import (
	"context"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/devstack/devtest"
	"github.com/cabine-pix/cabine/libs/store"
)

func TestMigrationsUpDownUp(t *testing.T) {
	t.Parallel()
	url := devtest.Postgres(t)
	m, err := store.OpenMigrator(url)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	_, err = store.Open(t.Context(), store.Config{URL: url})
	require.ErrorIs(t, err, store.ErrSchema)

	for range 2 {
		up, err := m.Up(t.Context())
		require.NoError(t, err)
		require.NotEmpty(t, up)
		again, err := m.Up(t.Context())
		require.NoError(t, err)
		require.Empty(t, again)
		status, err := m.Status(t.Context())
		require.NoError(t, err)
		require.Len(t, status, len(up))
		for _, s := range status {
			require.False(t, s.Pending(), s.Name)
		}
		db, err := store.Open(t.Context(), store.Config{URL: url})
		require.NoError(t, err)
		db.Close()

		down, err := m.Down(t.Context(), 1)
		require.NoError(t, err)
		require.Len(t, down, 1)
		_, err = store.Open(t.Context(), store.Config{URL: url})
		require.ErrorIs(t, err, store.ErrSchema, "a database one migration behind")
		down, err = m.Down(t.Context(), 1000)
		require.NoError(t, err)
		require.Len(t, down, len(up)-1)
		var left int
		require.NoError(t, side(t, url).QueryRow(t.Context(),
			"SELECT count(*) FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'goose_db_version'").Scan(&left))
		require.Zero(t, left)
	}
}

func TestMigrationsRunOnceWhenStartedTwice(t *testing.T) {
	t.Parallel()
	url := devtest.Postgres(t)
	var both sync.WaitGroup
	for range 3 {
		both.Go(func() {
			if err := store.Migrate(t.Context(), url); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
}

// TestMigrationsKeepTheirForm checks what a reader and a deploy rely on.
func TestMigrationsKeepTheirForm(t *testing.T) {
	t.Parallel()
	files, err := fs.Glob(os.DirFS("migrations"), "*.sql")
	require.NoError(t, err)
	for _, name := range files {
		require.Regexp(t, `^\d{5}_[a-z_]+\.sql$`, name)
		text, err := os.ReadFile("migrations/" + name)
		require.NoError(t, err)
		first, _, _ := strings.Cut(string(text), "\n")
		require.Regexp(t, `^-- .+lock`, first, "%s: the first line says why and whether it locks", name)
		require.Contains(t, string(text), "-- +goose Down", name)
	}
}

// TestQueriesNameTheirIndexes checks that each query says what it relies on, and that this exists.
func TestQueriesNameTheirIndexes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	conn := side(t, b.url)
	files, err := fs.Glob(os.DirFS("queries"), "*.sql")
	require.NoError(t, err)
	for _, name := range files {
		text, err := os.ReadFile("queries/" + name)
		require.NoError(t, err)
		for _, query := range strings.Split(string(text), "-- name: ")[1:] {
			title, _, _ := strings.Cut(query, " ")
			named := regexp.MustCompile(`-- Index: (.+)\.`).FindStringSubmatch(query)
			require.NotNil(t, named, "%s names no index", title)
			if strings.HasPrefix(named[1], "none") {
				continue
			}
			for _, index := range strings.Split(named[1], ", ") {
				var there bool
				require.NoError(t, conn.QueryRow(t.Context(), "SELECT to_regclass($1) IS NOT NULL", index).Scan(&there))
				require.True(t, there, "%s relies on %s, which does not exist", title, index)
			}
		}
	}
}

func TestEachForeignKeyHasAnIndex(t *testing.T) {
	t.Parallel()
	b := setup(t)
	rows, err := side(t, b.url).Query(t.Context(), `
		SELECT c.conrelid::regclass || '.' || c.conname FROM pg_constraint c
		WHERE c.contype = 'f' AND NOT EXISTS (
			SELECT FROM pg_index i WHERE i.indrelid = c.conrelid
			AND (i.indkey::int2[])[0:cardinality(c.conkey) - 1] @> c.conkey)`)
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var name string
		require.NoError(t, rows.Scan(&name))
		t.Errorf("foreign key %s has no index", name)
	}
	require.NoError(t, rows.Err())
}

func TestPayloadsAreLookedUpByIndexAfterAnyStatistics(t *testing.T) {
	t.Parallel()
	b := setup(t)
	conn := side(t, b.url)
	_, err := conn.Exec(t.Context(), `
		WITH i AS (INSERT INTO inbox (id, source, message_id, msg_type, payload)
			SELECT n, 'icom:cpm:12345678', 'm' || n, '', 'x' FROM generate_series(1, 20000) n RETURNING id, source, message_id)
		INSERT INTO inbox_open (id, source, message_id) SELECT id, source, message_id FROM i`)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "ANALYZE inbox, inbox_open")
	require.NoError(t, err)
	sequential := func() (scans int) {
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'inbox'").Scan(&scans))
		return scans
	}
	before := sequential()
	stored, err := b.inbox.Unpublished(t.Context(), 0, 10)
	require.NoError(t, err)
	require.Len(t, stored, 10)
	b.db.Close() // a backend reports its statistics at the latest when it ends
	require.Equal(t, before, sequential())
}

func TestALostDatabaseIsUnavailableAndComesBack(t *testing.T) {
	t.Parallel()
	server := devtest.OwnPostgres(t)
	url := server.DSN("postgres")
	require.NoError(t, store.Migrate(t.Context(), url))
	b := bundleAt(t, url)
	session := b.open(t, 1, "a")
	require.NoError(t, server.Stop())

	require.ErrorIs(t, b.db.Ping(t.Context()), store.ErrUnavailable)
	batch := store.Batch{Session: session, Arrivals: arrivals("m1"), NextCursor: "c1"}
	_, err := b.inbox.Receive(t.Context(), batch)
	require.ErrorIs(t, err, store.ErrUnavailable)
	require.ErrorIs(t, b.db.InTx(t.Context(), nil), store.ErrUnavailable)
	_, err = store.Open(t.Context(), store.Config{URL: url})
	require.ErrorIs(t, err, store.ErrUnavailable)

	require.NoError(t, server.Start(t.Context()))
	require.Eventually(t, func() bool { return b.db.Ping(t.Context()) == nil }, 20*time.Second, 50*time.Millisecond)
	_, err = b.inbox.Receive(t.Context(), batch)
	require.NoError(t, err)
}

func TestLimitsOfTime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	db, err := store.Open(t.Context(), store.Config{
		URL: b.url, MaxConns: 1, AcquireTimeout: 300 * time.Millisecond, StatementTimeout: 200 * time.Millisecond,
	})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	inbox := store.NewInbox(db)
	session := b.open(t, 1, "a")
	other := side(t, b.url)
	holder, err := other.Begin(t.Context())
	require.NoError(t, err)
	_, err = holder.Exec(t.Context(), "SELECT FROM icom_sessions FOR UPDATE")
	require.NoError(t, err)

	_, err = inbox.Receive(t.Context(), store.Batch{Session: session, NextCursor: "c1"})
	require.ErrorIs(t, err, store.ErrUnavailable, "the server ended the statement")

	require.NoError(t, db.InTx(t.Context(), func(context.Context, *store.Tx) error {
		err := db.Ping(t.Context())
		require.ErrorIs(t, err, store.ErrUnavailable, "no connection is free")
		return nil
	}))

	gone, cancel := context.WithCancel(t.Context())
	cancel()
	err = db.Ping(gone)
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, store.ErrUnavailable, "the caller left")
	require.NoError(t, holder.Rollback(t.Context()))
	require.NoError(t, db.Ping(t.Context()))
}

func TestConfigNamesWhatIsWrongAndNoSecret(t *testing.T) {
	t.Parallel()
	_, err := store.Open(t.Context(), store.Config{MaxConns: -1, AcquireTimeout: -1, CallTimeout: time.Second, StatementTimeout: time.Minute})
	require.Error(t, err)
	for _, name := range []string{"URL", "MaxConns", "AcquireTimeout", "StatementTimeout"} {
		require.ErrorContains(t, err, name)
	}
	for _, url := range []string{
		"postgres://app:hunter2@%zz/pix", "host=db password=hunter2 port=x", "postgres://app:hunter2@127.0.0.1:1/pix",
	} {
		_, err := store.Open(t.Context(), store.Config{URL: url})
		require.Error(t, err)
		require.NotContains(t, err.Error(), "hunter2")
		if m, err := store.OpenMigrator(url); err != nil {
			require.NotContains(t, err.Error(), "hunter2")
		} else {
			require.NoError(t, m.Close())
		}
	}
}
