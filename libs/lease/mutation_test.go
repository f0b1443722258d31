package lease

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/devstack/devtest"
)

// Goal: show that the tests of this package can fail. Method: each line of a script that
// keeps a rule is taken out, and the situation that the rule exists for then breaks
// the Cap or the liveness before our eyes.
func TestWithoutItsRuleEachSituationBreaks(t *testing.T) {
	t.Parallel()
	for _, m := range []struct {
		rule   string
		alter  func(*scripts)
		breaks func(*testing.T, *world, func(...option) (*Set, *Keeper)) bool
	}{
		{"a slot with a key is taken", func(s *scripts) {
			replace(&s.acquire, "'NX', ", "")
			replace(&s.acquire, "if cut('until:' .. s, before, longest) > now then return false end", "")
		}, func(t *testing.T, w *world, replica func(...option) (*Set, *Keeper)) bool {
			a, _ := replica(notRunning())
			w.acquire(a, Poll)
			return granted(t, a)
		}},
		{"F13 until is asked beside the key", func(s *scripts) {
			replace(&s.acquire, "if cut('until:' .. s, before, longest) > now then return false end", "")
		}, func(t *testing.T, w *world, replica func(...option) (*Set, *Keeper)) bool {
			a, _ := replica(notRunning())
			w.acquire(a, Poll)
			require.NoError(t, w.rdb.Del(t.Context(), w.name+":1").Err())
			return granted(t, a)
		}},
		{"quarantine on a changed incarnation", func(s *scripts) {
			replace(&s.acquire, "if not (was and", "if false and not (was and")
		}, func(t *testing.T, w *world, replica func(...option) (*Set, *Keeper)) bool {
			a, _ := replica(notRunning())
			w.acquire(a, Poll)
			require.NoError(t, w.rdb.Del(t.Context(), w.name+":1", w.name+":state").Err())
			return granted(t, a)
		}},
		{"F5 master_replid is the incarnation", func(s *scripts) {
			replace(&s.acquire, "and string.find(info, 'master_replid:' .. was, 1, true)", "")
		}, func(t *testing.T, w *world, replica func(...option) (*Set, *Keeper)) bool {
			a, _ := replica(notRunning())
			require.NoError(t, w.rdb.HSet(t.Context(), w.name+":state", "incarnation", strings.Repeat("a", 40)).Err())
			return granted(t, a)
		}},
		{"a replica decides nothing", func(s *scripts) {
			replace(&s.acquire, "if not string.find(info, 'role:master', 1, true) then", "if false then")
		}, func(t *testing.T, _ *world, replica func(...option) (*Set, *Keeper)) bool {
			r := devtest.OwnRedis(t, redisOptions())
			second, err := r.AddReplica(t.Context())
			require.NoError(t, err)
			_, err = second.Do(t.Context(), "CONFIG", "SET", "replica-read-only", "no")
			require.NoError(t, err)
			on := newWorld(t, second).settled()
			a, _ := replica(notRunning(), func(o *replicaOptions) { o.addr, o.name = second.Addr(), on.name })
			return granted(t, a)
		}},
		{"an incarnation that is cut short is another", func(s *scripts) {
			replace(&s.acquire, "and #was == 40", "")
		}, func(t *testing.T, w *world, replica func(...option) (*Set, *Keeper)) bool {
			a, _ := replica(notRunning())
			require.NoError(t, w.rdb.HSet(t.Context(), w.name+":state", "incarnation", "").Err())
			return granted(t, a)
		}},
		{"F6 renewal opens the quarantine", func(s *scripts) {
			replace(&s.renew, "if known[1] ~= incarnation then", "if false then")
		}, func(t *testing.T, w *world, replica func(...option) (*Set, *Keeper)) bool {
			a, k := replica(notRunning())
			w.acquire(a, Poll)
			require.NoError(t, w.rdb.HSet(t.Context(), w.name+":state", "incarnation", "another").Err())
			require.NoError(t, k.renewAll(t.Context()))
			return w.rdb.HGet(t.Context(), w.name+":state", "incarnation").Val() == "another"
		}},
		{"renewal compares", func(s *scripts) {
			replace(&s.renew, "if holder == value then", "if holder then")
		}, func(t *testing.T, w *world, replica func(...option) (*Set, *Keeper)) bool {
			a, k := replica(notRunning())
			l := w.acquire(a, Poll)
			require.NoError(t, w.rdb.Set(t.Context(), w.name+":1", "theirs poll r9 x", time.Minute).Err())
			require.NoError(t, k.renewAll(t.Context()))
			return l.Err() == nil
		}},
		{"renewal re-creates only in a quarantine", func(s *scripts) {
			replace(&s.renew, "not holder and grace", "not holder")
		}, func(t *testing.T, w *world, replica func(...option) (*Set, *Keeper)) bool {
			a, k := replica(notRunning())
			l := w.acquire(a, Poll)
			require.NoError(t, w.rdb.Del(t.Context(), w.name+":1").Err())
			require.NoError(t, k.renewAll(t.Context()))
			return l.Err() == nil
		}},
		{"grace", func(s *scripts) {
			replace(&s.renew, "not holder and grace", "false")
		}, func(t *testing.T, w *world, replica func(...option) (*Set, *Keeper)) bool {
			a, k := replica(notRunning())
			l := w.acquire(a, Poll)
			require.NoError(t, w.rdb.Del(t.Context(), w.name+":1", w.name+":state").Err())
			require.NoError(t, k.renewAll(t.Context()))
			return l.Err() != nil
		}},
		{"grace ends where others with another config hold the set", func(s *scripts) {
			replace(&s.renew, "and not (tonumber(known[4] or 0) > now and known[3] ~= config)", "")
		}, func(t *testing.T, w *world, replica func(...option) (*Set, *Keeper)) bool {
			a, k := replica(notRunning())
			l := w.acquire(a, Poll)
			far := time.Now().Add(time.Minute).UnixMilli()
			require.NoError(t, w.rdb.Del(t.Context(), w.name+":1", w.name+":state").Err())
			require.NoError(t, w.rdb.HSet(t.Context(), w.name+":state", "config", "theirs", "config_until", far).Err())
			require.NoError(t, k.renewAll(t.Context()))
			return l.Err() == nil
		}},
		{"release compares", func(s *scripts) {
			replace(&s.release, "if redis.call('GET', key) == ARGV[i + 1] then", "do")
		}, func(t *testing.T, w *world, replica func(...option) (*Set, *Keeper)) bool {
			a, _ := replica(notRunning())
			l := w.acquire(a, Poll)
			require.NoError(t, w.rdb.Set(t.Context(), w.name+":1", "theirs poll r9 x", time.Minute).Err())
			require.NoError(t, l.Release(t.Context()))
			require.NoError(t, a.Flush(t.Context()))
			return w.rdb.Exists(t.Context(), w.name+":1").Val() == 0
		}},
		{"what an acquire takes along is compared as well", func(s *scripts) {
			replace(&s.acquire, "if redis.call('GET', key) == ARGV[i + 1] then", "do")
		}, func(t *testing.T, w *world, replica func(...option) (*Set, *Keeper)) bool {
			a, _ := replica(notRunning())
			l := w.acquire(a, Poll)
			require.NoError(t, w.rdb.Set(t.Context(), w.name+":1", "theirs poll r9 x", time.Minute).Err())
			require.NoError(t, l.Release(t.Context()))
			return granted(t, a)
		}},
		{"F13 what an acquire takes along is free at once", func(s *scripts) {
			replace(&s.acquire, "redis.call('HDEL', state, 'until:' .. ARGV[i])", "")
		}, func(t *testing.T, w *world, replica func(...option) (*Set, *Keeper)) bool {
			a, _ := replica(notRunning())
			require.NoError(t, w.acquire(a, Poll).Release(t.Context()))
			return !granted(t, a)
		}},
		{"cool-down compares", func(s *scripts) {
			replace(&s.cooldown, "if redis.call('GET', KEYS[2]) ~= ARGV[1] then return 0 end", "")
		}, func(t *testing.T, w *world, replica func(...option) (*Set, *Keeper)) bool {
			a, _ := replica(notRunning())
			l := w.acquire(a, Poll)
			require.NoError(t, w.rdb.Set(t.Context(), w.name+":1", "theirs poll r9 x", time.Minute).Err())
			require.NoError(t, l.CoolDown(t.Context(), clock.System().Now().Boot))
			return w.rdb.Get(t.Context(), w.name+":1").Val() != "theirs poll r9 x"
		}},
		{"config record", func(s *scripts) {
			replace(&s.acquire, "> now and known[3] ~= config then", "> now and false then")
		}, func(t *testing.T, w *world, replica func(...option) (*Set, *Keeper)) bool {
			a, _ := replica(notRunning())
			require.NoError(t, w.acquire(a, Poll).Release(t.Context()))
			require.NoError(t, a.Flush(t.Context()))
			tm := short()
			tm.BankHold /= 2
			tm.ReceiveTimeout /= 2
			b, _ := replica(notRunning(), withTiming(tm))
			return granted(t, b)
		}},
		{"F7 renewal rewrites the record", func(s *scripts) {
			replace(&s.renew, "'config_until', now + longest", "'other', 0")
		}, func(t *testing.T, w *world, replica func(...option) (*Set, *Keeper)) bool {
			a, k := replica(notRunning())
			w.acquire(a, Poll)
			require.NoError(t, w.rdb.HSet(t.Context(), w.name+":state", "config_until", 0).Err())
			require.NoError(t, k.renewAll(t.Context()))
			return w.rdb.HGet(t.Context(), w.name+":state", "config_until").Val() == "0"
		}},
		{"F8 keys of the far future are cut", func(s *scripts) {
			replace(&s.acquire, "left > longest or left == -1", "false")
		}, func(t *testing.T, w *world, replica func(...option) (*Set, *Keeper)) bool {
			a, _ := replica(notRunning())
			require.NoError(t, w.rdb.Set(t.Context(), w.name+":1", "dead poll r9 x", time.Hour).Err())
			require.False(t, granted(t, a))
			return w.ttl(1) > time.Minute
		}},
		{"F10 the last class leaves a shared slot", func(s *scripts) {
			replace(&s.acquire, "local leaves = i > #own and rival_waits and before[2] == class", "local leaves = false")
		}, func(t *testing.T, w *world, replica func(...option) (*Set, *Keeper)) bool {
			a, _ := replica(notRunning())
			require.NoError(t, w.acquire(a, Poll).Release(t.Context()))
			mark := time.Now().Add(time.Second).UnixMilli()
			require.NoError(t, w.rdb.Do(t.Context(), "ZADD", w.name+":waiting", mark, "send r9").Err())
			return granted(t, a)
		}},
		{"F11 a replica at its share leaves the rest to its peers", func(s *scripts) {
			replace(&s.acquire, "if peer_waits and (holds[replica] >= share or poorer_waits) then", "if false then")
		}, func(t *testing.T, w *world, replica func(...option) (*Set, *Keeper)) bool {
			a, _ := replica(notRunning(), func(o *replicaOptions) { o.slots = 2 })
			w.acquire(a, Poll)
			mark := time.Now().Add(time.Second).UnixMilli()
			require.NoError(t, w.rdb.Do(t.Context(), "ZADD", w.name+":waiting", mark, "poll r9").Err())
			return granted(t, a)
		}},
	} {
		for _, broken := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/removed=%v", m.rule, broken), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, devtest.Redis(t)).settled()
				replica := func(o ...option) (*Set, *Keeper) {
					if broken {
						o = append(o, mutated(m.alter))
					}
					set := replicaOptions{slots: 1}
					for _, opt := range o {
						opt(&set)
					}
					return w.replica(SetConfig{Slots: set.slots, Floors: icom(set.slots, 0, 0)}, o...)
				}
				require.Equal(t, broken, m.breaks(t, w, replica))
			})
		}
	}
}

// granted reports whether s gives a slot for the asking.
func granted(t *testing.T, s *Set) bool {
	t.Helper()
	_, err := s.TryAcquire(t.Context(), Poll)
	return err == nil
}
