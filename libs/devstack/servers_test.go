package devstack_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/devstack"
	"github.com/cabine-pix/cabine/libs/devstack/devtest"
)

// wait and tick are how long and how often tests poll.
const (
	wait = 20 * time.Second
	tick = 5 * time.Millisecond
)

// stateOf is the one-letter state of a process, "" when it is gone.
func stateOf(t *testing.T, pid int) string {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return rest[:1]
}

// devtestStack is a stack of this test alone.
func devtestStack(t *testing.T) *devstack.Stack {
	t.Helper()
	stack, err := devstack.Start(t.Context(), devstack.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, stack.Stop()) })
	return stack
}

func TestPostgresIsDurableAndNeverRoot(t *testing.T) {
	t.Parallel()
	p := devtest.OwnPostgres(t)
	// A statement that fails when a setting is not as it must be: the rows are thrown away, errors are not.
	for name, want := range map[string]string{
		"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "listen_addresses": "127.0.0.1",
	} {
		require.NoError(t, p.Exec(t.Context(), "postgres", fmt.Sprintf(
			`DO $$ BEGIN IF current_setting('%s') <> '%s' THEN RAISE EXCEPTION '%% is %%', '%[1]s', current_setting('%[1]s');
			END IF; END $$`, name, want)))
	}
	info, err := os.Stat(fmt.Sprintf("/proc/%d", p.PID()))
	require.NoError(t, err)
	require.NotZero(t, ownerOf(t, info), "PostgreSQL runs as root")
}

func TestPostgresKeepsWhatIsCommittedAcrossCrashAndRestart(t *testing.T) {
	t.Parallel()
	p := devtest.OwnPostgres(t)
	require.NoError(t, p.CreateDatabase(t.Context(), "books"))
	exec := func(sql string) error { return p.Exec(t.Context(), "books", sql) }
	require.NoError(t, exec(`CREATE TABLE entries (id int PRIMARY KEY)`))
	require.NoError(t, exec(`INSERT INTO entries VALUES (1)`))

	addr := p.Addr()
	require.NoError(t, p.Kill())
	require.ErrorContains(t, exec(`SELECT 1`), "refused")
	require.NoError(t, p.Start(t.Context()))
	require.Equal(t, addr, p.Addr())
	require.ErrorContains(t, exec(`INSERT INTO entries VALUES (1)`), "duplicate key")

	require.NoError(t, p.Restart(t.Context()))
	require.ErrorContains(t, exec(`INSERT INTO entries VALUES (1)`), "duplicate key")
	require.NoError(t, p.DropDatabase(t.Context(), "books"))
	require.ErrorContains(t, exec(`SELECT 1`), "does not exist")
}

func TestEachTestHasItsOwnDatabase(t *testing.T) {
	t.Parallel()
	for i := range 3 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			dsn := devtest.Postgres(t)
			database := dsn[strings.LastIndex(dsn, "/")+1 : strings.Index(dsn, "?")]
			require.NoError(t, devtest.PostgresServer(t).Exec(t.Context(), database, `CREATE TABLE entries (id int)`))
		})
	}
}

func TestNATSKeepsItsStoreOrLosesIt(t *testing.T) {
	t.Parallel()
	n := devtest.OwnNATS(t)
	url := n.URL()
	streams := func() []string {
		conn, err := nats.Connect(n.URL())
		require.NoError(t, err)
		defer conn.Close()
		js, err := conn.JetStream()
		require.NoError(t, err)
		var names []string
		for name := range js.StreamNames() {
			names = append(names, name)
		}
		if len(names) == 0 {
			_, err = js.AddStream(&nats.StreamConfig{Name: "KEPT"})
			require.NoError(t, err)
		}
		return names
	}
	require.Empty(t, streams())
	require.NoError(t, n.Restart(t.Context()))
	require.Equal(t, []string{"KEPT"}, streams())
	require.NoError(t, n.RestartEmpty(t.Context()))
	require.Empty(t, streams())
	require.Equal(t, url, n.URL())
	require.NoError(t, n.Stop())
	require.NoError(t, n.Stop(), "stopping twice is no error")
	_, err := nats.Connect(url)
	require.ErrorIs(t, err, nats.ErrNoServers)
}

func TestStopLeavesNothing(t *testing.T) {
	t.Parallel()
	stack, err := devstack.Start(t.Context(), devstack.Options{Postgres: true, Redis: true, NATS: true})
	require.NoError(t, err)
	replica, err := stack.Redis.AddReplica(t.Context())
	require.NoError(t, err)
	require.DirExists(t, stack.Dir())
	require.NoError(t, stack.Stop())
	require.NoError(t, stack.Stop(), "stopping twice is no error")
	require.NoDirExists(t, stack.Dir())
	for _, pid := range []int{stack.Postgres.PID(), stack.Redis.PID(), replica.PID()} {
		require.Empty(t, stateOf(t, pid))
	}
	_, err = stack.StartRedis(t.Context(), devstack.RedisOptions{})
	require.Error(t, err, "a stopped stack starts nothing")
	require.NoDirExists(t, filepath.Join(stack.Dir(), "redis-1"))
}
