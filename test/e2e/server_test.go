package e2e_test

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/devstack/devtest"
	"github.com/cabine-pix/cabine/libs/pix"
)

// Goal: PostgreSQL killed in the middle of traffic costs nothing but time: the bank is
// told to forget only what is stored, and everything goes on by itself.
//
// Method: SIGKILL to the server, twice, with three replicas under traffic. What the bank
// has had confirmed when the server comes back must be in its table; a message that was
// confirmed and not stored would never come again and be missing from the books at the end.
func TestPostgresKilledInTraffic(t *testing.T) {
	t.Parallel()
	own := devtest.OwnPostgres(t)
	w := newWorld(t, options{postgres: own})
	w.consume()
	w.traffic(60)
	a, b, c := w.three()
	for range 2 {
		before := w.count().Acked
		w.eventually("messages to be confirmed", func() bool { return w.count().Acked > before+50 })
		killed, pid := time.Now(), own.PID()
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		for _, r := range []*replica{a, b, c} {
			r.logged(killed, "store does not answer, no further poll")
		}
		confirmed := w.bank.IDs(pix.CPM, ispb).Acked
		w.eventually("PostgreSQL to start again", func() bool { return own.Start(t.Context()) == nil && own.PID() != pid })
		up := time.Now()
		require.NoError(t, own.Exec(t.Context(), "cabine", missing(confirmed)), "confirmed and not stored")
		w.eventually("messages to be confirmed again", func() bool { return len(w.bank.IDs(pix.CPM, ispb).Acked) > len(confirmed)+50 })
		t.Logf("%d confirmed when it came back, the next 50 after %v", len(confirmed), time.Since(up))
	}
	w.booksAgree()
	for _, r := range []*replica{a, b, c} {
		require.Zero(t, r.stop())
	}
}

// missing is a statement that fails unless each of these messages is in the inbox.
func missing(ids []string) string {
	return "DO $$ BEGIN IF (SELECT count(*) FROM unnest('{" + strings.Join(ids, ",") + "}'::text[]) AS u(id)" +
		" WHERE NOT EXISTS (SELECT FROM inbox WHERE message_id = u.id)) > 0 THEN RAISE 'missing'; END IF; END $$"
}

// Goal: a NATS that lost everything it had acknowledged costs nothing but time: after the
// deploy step ran again, all that nobody finished goes out once more from the inbox, in the
// order of arrival of its stream; consumers see every message and act on it once.
//
// Method: one stream, so that there is one order. Nobody consumes while the first messages
// are published; then the store is wiped under traffic. The messages that were lost and
// those that came later each appear in their own order: the later ones need not wait.
func TestNATSLosesItsStoreInTraffic(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	one := settings{env: map[string]string{
		"CABINE_ICOM_CPM_LIMIT": "2", "ICOM_MAX_SLOTS": "1",
		"CABINE_PUBLISH_STUCK_AGE": "4s", "CABINE_PUBLISH_SWEEP_EVERY": "1s",
	}}
	replicas := []*replica{w.start("a", one), w.start("b", one), w.start("c", one)}
	w.traffic(40)
	w.eventually("messages to be published", func() bool {
		open, err := w.inbox.Backlog(t.Context())
		return err == nil && open.Published > 100
	})
	require.NoError(t, w.nats.RestartEmpty(t.Context()))
	w.migrate()
	wiped := w.bank.IDs(pix.CPM, ispb).Enqueued
	w.eventually("more messages to be published", func() bool {
		open, err := w.inbox.Backlog(t.Context())
		return err == nil && int(open.Published) > len(wiped)+50
	})
	w.consume()
	w.booksAgree()
	sent, got := w.bank.IDs(pix.CPM, ispb).Enqueued, w.core.distinct()
	lost, late := sent[:100], sent[len(wiped):] // what was published for certain, what came for certain later
	only := func(of []string) []string {
		return slices.DeleteFunc(slices.Clone(got), func(id string) bool { return !slices.Contains(of, id) })
	}
	require.Equal(t, lost, only(lost), "what was lost comes in the order of its arrival")
	require.Equal(t, late, only(late), "what came later does too")
	t.Logf("%d sent, %d delivered", len(sent), len(w.core.all()))
	for _, r := range replicas {
		require.Zero(t, r.stop())
	}
}
