package e2e_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/icom/icomtest"
)

// Goal: a replica that was told another N or another B never polls while the others run,
// says so, and leaves them unharmed; when they are gone it takes over without a hand.
//
// Method: three replicas under traffic and two intruders beside them, for longer than the
// config record lives; then the three stop. The intruders disagree with each other as
// well, so one of them takes the channel and the other goes on waiting.
func TestReplicaWithOtherNumbersWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	w.consume()
	w.traffic(20)
	a, b, c := w.three()
	came := time.Now()
	fewer := w.start("fewer", settings{env: map[string]string{"CABINE_ICOM_CPM_LIMIT": "5", "ICOM_MAX_SLOTS": "5"}})
	longer := w.start("longer", settings{env: map[string]string{"CABINE_LEASE_BANK_HOLD": "2800ms"}})
	intruders := []*replica{fewer, longer}
	for _, r := range intruders {
		l := r.logged(came, "no permit", "reason", "conflict")
		require.Contains(t, l.text("err"), "N=6", "the numbers of both are named")
		require.Contains(t, l.text("err"), "B=2.5s")
		status, body := r.get("/health/ready")
		require.Equal(t, 200, status, "ready without a slot, so that a deploy goes on: %s", body)
	}
	require.Contains(t, fewer.logged(came, "no permit").text("err"), "N=5")
	require.Contains(t, longer.logged(came, "no permit").text("err"), "B=2.8s")
	w.until(came.Add(2 * w.timing.LongestTTL))
	for _, r := range []*replica{a, b, c} {
		require.Empty(t, r.logs(came, "slot given"), "unharmed")
		require.Len(t, r.held(), 2)
		require.NotEmpty(t, w.asked(r, came.Add(w.timing.LongestTTL)))
	}

	stopped := time.Now()
	for _, r := range []*replica{a, b, c} {
		require.Zero(t, r.stop())
	}
	gone := time.Now()
	for _, r := range intruders {
		require.Empty(t, w.askedBetween(r, came, stopped), "%s asked nothing while the others ran", r.name)
	}
	var first []icomtest.Request
	w.eventually("an intruder to take over", func() bool {
		first = append(w.asked(fewer, stopped), w.asked(longer, stopped)...)
		return len(first) > 0
	})
	took := first[0].FirstByte.Sub(gone)
	t.Logf("first poll %v after the last of the others had gone, T_longest is %v", took, w.timing.LongestTTL)
	require.Less(t, took, w.timing.LongestTTL+2*time.Second)
	w.booksAgree()
	require.True(t, len(w.asked(fewer, came)) == 0 || len(w.asked(longer, came)) == 0, "one of the two alone")
	for _, r := range intruders {
		require.Zero(t, r.stop())
	}
}
