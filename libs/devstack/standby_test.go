package devstack_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/devstack"
	"github.com/cabine-pix/cabine/libs/devstack/devtest"
)

// Goal: what a primary committed its standby has, and a commit that the standby does not have is answered to nobody. The
// link between them is down when the primary's machine is lost.
func TestAStandbyHasWhatItsPrimaryCommitted(t *testing.T) {
	t.Parallel()
	primary := devtest.OwnPostgresWith(t, devstack.PostgresOptions{Replication: true})
	link := devtest.Proxy(t, primary.Addr())
	standby, err := primary.AddStandby(t.Context(), link.Addr())
	require.NoError(t, err)
	exec := func(p *devstack.Postgres, sql string) error { return p.Exec(t.Context(), "postgres", sql) }
	require.NoError(t, exec(primary, `CREATE TABLE entries (id int PRIMARY KEY)`))
	require.NoError(t, exec(primary, `INSERT INTO entries VALUES (1)`))
	require.ErrorContains(t, exec(standby, `INSERT INTO entries VALUES (2)`), "read-only transaction")

	link.Blackhole(devstack.Both)
	answer := make(chan error, 1)
	go func() { answer <- exec(primary, `INSERT INTO entries VALUES (3)`) }()
	require.Eventually(t, func() bool {
		return exec(primary, `DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep')
			THEN RAISE EXCEPTION 'nobody waits'; END IF; END $$`) == nil
	}, wait, tick)
	pids := processesIn(t, primary.PID())
	require.Greater(t, len(pids), 3, "the server and what it forked")
	require.NoError(t, primary.Lose())
	for _, pid := range pids {
		require.Contains(t, []string{"", "Z"}, stateOf(t, pid), "dead, whether or not somebody has reaped it")
	}
	require.Error(t, <-answer)
	require.NoError(t, standby.Promote(t.Context()))
	require.ErrorContains(t, exec(standby, `INSERT INTO entries VALUES (1)`), "duplicate key")
	require.NoError(t, exec(standby, `INSERT INTO entries VALUES (3)`), "nobody was told that it was there")
	require.NoError(t, primary.Start(t.Context()), "a lost server comes back")
}

// Goal: a standby ends and goes with the stack like any other server, and a server that was not meant to have one says so.
func TestAStandbyGoesWithTheStack(t *testing.T) {
	t.Parallel()
	_, err := devtest.PostgresServer(t).AddStandby(t.Context(), devtest.PostgresServer(t).Addr())
	require.ErrorContains(t, err, "without Replication")
	stack, err := devstack.Start(t.Context(), devstack.Options{
		Postgres: true, PostgresOptions: devstack.PostgresOptions{Replication: true},
	})
	require.NoError(t, err)
	standby, err := stack.Postgres.AddStandby(t.Context(), stack.Postgres.Addr())
	require.NoError(t, err)
	info, err := os.Stat(fmt.Sprintf("/proc/%d", standby.PID()))
	require.NoError(t, err)
	require.NotZero(t, ownerOf(t, info), "PostgreSQL runs as root")
	pids := append(processesIn(t, stack.Postgres.PID()), processesIn(t, standby.PID())...)
	require.NoError(t, stack.Stop())
	require.NoDirExists(t, stack.Dir())
	for _, pid := range pids {
		require.Eventually(t, func() bool { return stateOf(t, pid) == "" }, wait, tick, "process %d", pid)
	}
}

// processesIn are the processes that work in the directory of one, itself among them.
func processesIn(t *testing.T, pid int) (pids []int) {
	t.Helper()
	dir, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	require.NoError(t, err)
	links, err := filepath.Glob("/proc/[0-9]*/cwd")
	require.NoError(t, err)
	for _, link := range links {
		if cwd, err := os.Readlink(link); err == nil && cwd == dir {
			var found int
			_, err := fmt.Sscanf(strings.TrimPrefix(link, "/proc/"), "%d/cwd", &found)
			require.NoError(t, err)
			pids = append(pids, found)
		}
	}
	return pids
}
