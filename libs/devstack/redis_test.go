package devstack_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/devstack"
	"github.com/cabine-pix/cabine/libs/devstack/devtest"
)

// do runs a command that must succeed.
func do(t *testing.T, r *devstack.Redis, args ...string) any {
	t.Helper()
	answer, err := r.Do(t.Context(), args...)
	require.NoError(t, err)
	return answer
}

// field reads one field of INFO.
func field(t *testing.T, r *devstack.Redis, name string) string {
	t.Helper()
	for line := range strings.Lines(do(t, r, "INFO").(string)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+":"); ok {
			return value
		}
	}
	t.Fatalf("INFO has no %s", name)
	return ""
}

func TestRedisSpeaksEveryKindOfAnswer(t *testing.T) {
	t.Parallel()
	r := devtest.OwnRedis(t, devstack.RedisOptions{Password: "correct horse"})
	require.Equal(t, "OK", do(t, r, "SET", "k", "v"))
	require.Equal(t, "v", do(t, r, "GET", "k"))
	require.Nil(t, do(t, r, "GET", "absent"))
	require.Equal(t, int64(1), do(t, r, "INCR", "n"))
	require.Equal(t, []any{"v", nil}, do(t, r, "MGET", "k", "absent"))
	_, err := r.Do(t.Context(), "INCR", "k")
	require.ErrorContains(t, err, "not an integer")
}

func TestRedisRestartKeepsWhatItsOptionsKeep(t *testing.T) {
	t.Parallel()
	for _, appendOnly := range []bool{true, false} {
		t.Run(fmt.Sprintf("appendonly=%t", appendOnly), func(t *testing.T) {
			t.Parallel()
			r := devtest.OwnRedis(t, devstack.RedisOptions{AppendOnly: appendOnly})
			do(t, r, "SET", "k", "v")
			addr, run := r.Addr(), field(t, r, "run_id")
			require.NoError(t, r.Restart(t.Context()))
			require.Equal(t, addr, r.Addr())
			require.NotEqual(t, run, field(t, r, "run_id"))
			if appendOnly {
				require.Equal(t, "v", do(t, r, "GET", "k"))
			} else {
				require.Nil(t, do(t, r, "GET", "k"))
			}
		})
	}
}

func TestRedisComesBackEmptyOrFromAnOldFile(t *testing.T) {
	t.Parallel()
	for _, appendOnly := range []bool{true, false} {
		t.Run(fmt.Sprintf("appendonly=%t", appendOnly), func(t *testing.T) {
			t.Parallel()
			r := devtest.OwnRedis(t, devstack.RedisOptions{AppendOnly: appendOnly})
			do(t, r, "SET", "k", "old")
			old, err := r.Snapshot(t.Context())
			require.NoError(t, err)
			do(t, r, "SET", "k", "new")

			require.NoError(t, r.RestartFrom(t.Context(), old))
			require.Equal(t, "old", do(t, r, "GET", "k"))
			require.Equal(t, map[bool]string{true: "1", false: "0"}[appendOnly], field(t, r, "aof_enabled"))

			require.NoError(t, r.RestartEmpty(t.Context()))
			require.Nil(t, do(t, r, "GET", "k"))
		})
	}
}

func TestRedisKilledAndStartedAgain(t *testing.T) {
	t.Parallel()
	r := devtest.OwnRedis(t, devstack.RedisOptions{AppendOnly: true, AppendFsync: "always"})
	do(t, r, "SET", "k", "v")
	pid := r.PID()
	require.NoError(t, r.Kill())
	_, err := r.Do(t.Context(), "PING")
	require.ErrorContains(t, err, "refused")
	require.NoError(t, r.Start(t.Context()))
	require.NotEqual(t, pid, r.PID())
	require.Equal(t, "v", do(t, r, "GET", "k"))
	require.NoError(t, r.Stop())
	require.NoError(t, r.Stop(), "stopping twice is no error")
	require.NoError(t, r.Start(t.Context()))
	require.NoError(t, r.Start(t.Context()), "starting twice is no error")
}

func TestRedisPausedTakesCommandsAndAnswersAfterResume(t *testing.T) {
	t.Parallel()
	r := devtest.OwnRedis(t, devstack.RedisOptions{})
	require.NoError(t, r.Pause())
	answer := make(chan error, 1)
	go func() {
		_, err := r.Do(t.Context(), "SET", "k", "v")
		answer <- err
	}()
	require.Eventually(t, func() bool { return stateOf(t, r.PID()) == "T" }, wait, tick, "stopped by the kernel")
	require.Empty(t, answer)
	require.NoError(t, r.Resume())
	require.NoError(t, <-answer)
	require.NoError(t, r.Pause())
	require.NoError(t, r.Restart(t.Context()), "a paused server can be restarted")
}

func TestRedisFailsOverToItsReplica(t *testing.T) {
	t.Parallel()
	master := devtest.OwnRedis(t, devstack.RedisOptions{MinReplicasToWrite: 1})
	_, err := master.Do(t.Context(), "SET", "k", "v")
	require.ErrorContains(t, err, "NOREPLICAS")

	replica, err := master.AddReplica(t.Context())
	require.NoError(t, err)
	do(t, master, "SET", "k", "v")
	require.Eventually(t, func() bool { return do(t, replica, "GET", "k") == "v" }, wait, tick, "replicated")
	before := field(t, replica, "master_replid")

	require.NoError(t, master.Kill())
	require.NoError(t, replica.Promote(t.Context()))
	require.Equal(t, "master", field(t, replica, "role"))
	require.NotEqual(t, before, field(t, replica, "master_replid"))
	require.Equal(t, "v", do(t, replica, "GET", "k"))

	require.NoError(t, master.Start(t.Context()))
	require.NoError(t, master.Follow(t.Context(), replica))
	require.Equal(t, "v", do(t, master, "GET", "k"))
}

func TestRedisOptionsReachTheServer(t *testing.T) {
	t.Parallel()
	r := devtest.OwnRedis(t, devstack.RedisOptions{
		MaxMemory: "3mb", Save: "60 1", MaxMemoryPolicy: "allkeys-lru", Extra: []string{"--hz", "42"},
	})
	for name, want := range map[string]string{
		"maxmemory": "3145728", "save": "60 1", "maxmemory-policy": "allkeys-lru", "hz": "42",
	} {
		require.Equal(t, []any{name, want}, do(t, r, "CONFIG", "GET", name))
	}
	_, err := devtestStack(t).StartRedis(t.Context(), devstack.RedisOptions{Extra: []string{"--no-such-option", "1"}})
	require.ErrorContains(t, err, "no-such-option", "the server's own words reach whoever started it")
}
