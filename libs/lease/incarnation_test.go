package lease

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/devstack"
	"github.com/cabine-pix/cabine/libs/devstack/devtest"
)

// infoField reads one field of a server's INFO.
func infoField(t testing.TB, r *devstack.Redis, name string) string {
	t.Helper()
	answer, err := r.Do(t.Context(), "INFO", "everything")
	require.NoError(t, err)
	text, _ := answer.(string)
	_, rest, found := strings.Cut("\n"+text, "\n"+name+":")
	require.True(t, found, "INFO has no %s", name)
	value, _, _ := strings.Cut(rest, "\r\n")
	return value
}

// Goal: master_replid alone may stand for the incarnation. Method: every way in which a real
// server comes to decide without having seen the last grants; afterwards whoever decides is
// a master with an id that no master had before. Each case starts with a primary and its replica, in step,
// and returns the server that decides at last.
func TestEveryNewMasterHasANewReplicationID(t *testing.T) {
	t.Parallel()
	type world struct {
		first, second *devstack.Redis
		saw           func() // notes the ids of all masters
	}
	promote := func(t *testing.T, r *devstack.Redis) { require.NoError(t, r.Promote(t.Context())) }
	follow := func(t *testing.T, r, master *devstack.Redis) { require.NoError(t, r.Follow(t.Context(), master)) }
	restart := func(t *testing.T, r *devstack.Redis) { require.NoError(t, r.Restart(t.Context())) }
	for name, lose := range map[string]func(*testing.T, world) *devstack.Redis{
		"stopped and started with its file": func(t *testing.T, w world) *devstack.Redis { restart(t, w.first); return w.first },
		"killed and started with its file": func(t *testing.T, w world) *devstack.Redis {
			require.NoError(t, w.first.Kill())
			require.NoError(t, w.first.Start(t.Context()))
			return w.first
		},
		"started empty": func(t *testing.T, w world) *devstack.Redis {
			require.NoError(t, w.first.RestartEmpty(t.Context()))
			return w.first
		},
		"started from an old snapshot of its own": func(t *testing.T, w world) *devstack.Redis {
			old, err := w.first.Snapshot(t.Context())
			require.NoError(t, err)
			require.NoError(t, w.first.RestartFrom(t.Context(), old))
			return w.first
		},
		"its replica promoted": func(t *testing.T, w world) *devstack.Redis { promote(t, w.second); return w.second },
		"its replica restarted from its file, then promoted": func(t *testing.T, w world) *devstack.Redis {
			restart(t, w.second)
			promote(t, w.second)
			return w.second
		},
		"a snapshot of its replica started as a primary": func(t *testing.T, w world) *devstack.Redis {
			old, err := w.second.Snapshot(t.Context())
			require.NoError(t, err)
			require.NoError(t, w.first.RestartFrom(t.Context(), old))
			return w.first
		},
		"handed over by FAILOVER": func(t *testing.T, w world) *devstack.Redis {
			host, port, err := net.SplitHostPort(w.second.Addr())
			require.NoError(t, err)
			_, err = w.first.Do(t.Context(), "FAILOVER", "TO", host, port, "TIMEOUT", "5000")
			require.NoError(t, err)
			eventually(t, func() bool { return infoField(t, w.second, "role") == "master" }, "handed over")
			return w.second
		},
		"failed over and back, by partial resynchronization": func(t *testing.T, w world) *devstack.Redis {
			promote(t, w.second)
			w.saw()
			follow(t, w.first, w.second)
			require.Equal(t, "1", infoField(t, w.second, "sync_partial_ok"), "the case is about a data set that stayed")
			promote(t, w.first)
			return w.first
		},
		"failed over and back, by full resynchronization": func(t *testing.T, w world) *devstack.Redis {
			promote(t, w.second)
			w.saw()
			_, err := w.second.Do(t.Context(), "DEBUG", "CHANGE-REPL-ID") // forgets what a partial one needs
			require.NoError(t, err)
			w.saw()
			follow(t, w.first, w.second)
			promote(t, w.first)
			return w.first
		},
		"failed over, restarted, failed back": func(t *testing.T, w world) *devstack.Redis {
			promote(t, w.second)
			w.saw()
			follow(t, w.first, w.second)
			restart(t, w.first) // its --replicaof is none: a primary again, from a replica's file
			return w.first
		},
	} {
		for _, appendOnly := range []bool{true, false} {
			if appendOnly && !strings.Contains(name, "started") {
				continue // what is on the disk matters only where a server starts from it
			}
			t.Run(fmt.Sprintf("%s/appendonly=%v", name, appendOnly), func(t *testing.T) {
				t.Parallel()
				first := devtest.OwnRedis(t, devstack.RedisOptions{AppendOnly: appendOnly, AppendFsync: "always", Save: "3600 1"})
				second, err := first.AddReplica(t.Context())
				require.NoError(t, err)
				seen := map[string]bool{}
				saw := func() {
					for _, r := range []*devstack.Redis{first, second} {
						if infoField(t, r, "role") == "master" {
							seen[infoField(t, r, "master_replid")] = true
						}
					}
				}
				_, err = first.Do(t.Context(), "SET", "k", "v")
				require.NoError(t, err)
				eventually(t, func() bool {
					v, err := second.Do(t.Context(), "GET", "k")
					return err == nil && v == "v"
				}, "replicated")
				saw()
				last := lose(t, world{first, second, saw})
				require.Equal(t, "master", infoField(t, last, "role"))
				require.NotContains(t, seen, infoField(t, last, "master_replid"))
			})
		}
	}
}

// A replica carries its master's replication id: it decides nothing, even where somebody made it writable.
func TestWritableReplicaDecidesNothing(t *testing.T) {
	t.Parallel()
	r := devtest.OwnRedis(t, redisOptions())
	replica, err := r.AddReplica(t.Context())
	require.NoError(t, err)
	w := newWorld(t, r).settled()
	on := newWorld(t, replica)
	on.name = w.name
	holder, _ := w.replica(polls(2), notRunning())
	l := w.acquire(holder, Poll)
	require.NoError(t, on.rdb.ConfigSet(t.Context(), "replica-read-only", "no").Err())
	eventually(t, func() bool { return on.rdb.Exists(t.Context(), w.name+":1", w.name+":2").Val() == 1 }, "replicated")
	require.Equal(t, infoField(t, r, "master_replid"), infoField(t, replica, "master_replid"))

	s, k := on.replica(polls(2), notRunning())
	_, err = s.TryAcquire(t.Context(), Poll)
	require.ErrorIs(t, err, ErrStoreUnavailable)
	require.True(t, redis.HasErrorPrefix(err, "READONLY"), "%v", err)
	err = k.renew(t.Context(), []batch{{set: s, leases: []*Lease{l}}})
	require.ErrorIs(t, err, ErrStoreUnavailable)
	require.NoError(t, l.Err())
}
