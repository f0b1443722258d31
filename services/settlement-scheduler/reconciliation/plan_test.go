package reconciliation

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/calendar"
	"github.com/cabine-pix/cabine/libs/store"
)

// What is due follows from where the chain ends, which version began the last one, and what failed lately.
func TestWhatIsDue(t *testing.T) {
	t.Parallel()
	days, err := calendar.New()
	require.NoError(t, err)
	cfg := Config{Version: "v2", Active: true}.WithDefaults()
	now := time.Date(2026, 12, 2, 15, 0, 0, 123_456_789, time.UTC)
	until := time.Date(2026, 12, 2, 14, 58, 0, 123_000_000, time.UTC)
	type period struct {
		cause    store.Cause
		from, to time.Time
	}
	schedule, deploy := store.CauseSchedule, store.CauseDeploy
	ago := func(d time.Duration) time.Time { return until.Add(-d) }
	for name, c := range map[string]struct {
		s    store.Standing
		want []period
	}{
		"the first ever":              {store.Standing{}, []period{{deploy, ago(time.Hour), until}}},
		"another version":             {store.Standing{Version: "v1", Head: ago(time.Minute)}, []period{{deploy, ago(time.Minute), until}}},
		"another version, at once":    {store.Standing{Version: "v1", Head: until}, nil},
		"another version, too soon":   {store.Standing{Version: "v1", Head: ago(10*time.Second - 1)}, nil}, // twice the tolerance
		"another version, just then":  {store.Standing{Version: "v1", Head: ago(10 * time.Second)}, []period{{deploy, ago(10 * time.Second), until}}},
		"before the last balance":     {store.Standing{Version: "v1", Head: ago(time.Minute), BalanceAt: until}, nil},
		"after the last balance":      {store.Standing{Version: "v1", Head: ago(time.Minute), BalanceAt: ago(1)}, []period{{deploy, ago(time.Minute), until}}},
		"a balance from the future":   {store.Standing{Version: "v1", Head: ago(time.Hour), BalanceAt: now}, []period{{schedule, ago(time.Hour), until}}},
		"another version, while open": {store.Standing{Version: "v1", Head: ago(time.Hour), ChainOpen: true}, nil},
		"not yet":                     {store.Standing{Version: "v2", Head: ago(59 * time.Minute)}, nil},
		"an hour":                     {store.Standing{Version: "v2", Head: ago(time.Hour)}, []period{{schedule, ago(time.Hour), until}}},
		"an hour, while open":         {store.Standing{Version: "v2", Head: ago(time.Hour), ChainOpen: true}, nil},
		"after a failure, not yet":    {store.Standing{Version: "v2", Head: ago(2 * time.Hour), FailedAt: now.Add(-59 * time.Minute)}, nil},
		"after a failure": {
			store.Standing{Version: "v2", Head: ago(2 * time.Hour), FailedAt: now.Add(-time.Hour)},
			[]period{{schedule, ago(2 * time.Hour), until}},
		},
		"after days": {store.Standing{Version: "v2", Head: ago(50 * time.Hour)}, []period{{schedule, ago(50 * time.Hour), ago(26 * time.Hour)}}},
		"a deploy after days": {
			store.Standing{Version: "v1", Head: ago(50 * time.Hour)},
			[]period{{deploy, ago(50 * time.Hour), ago(26 * time.Hour)}},
		},
	} {
		c.s.Now = now
		var got []period
		for _, r := range cfg.due(c.s, days) {
			require.True(t, r.Active)
			require.Equal(t, "v2", r.Version)
			got = append(got, period{r.Cause, r.From, r.To})
		}
		require.Equal(t, c.want, got, name)
	}
}

// A day of São Paulo is due once after it ended, missed ones in their order, and none that began before the chain.
func TestWholeDaysAreDueOnce(t *testing.T) {
	t.Parallel()
	days, err := calendar.New()
	require.NoError(t, err)
	cfg := Config{Version: "v"}.WithDefaults()
	midnight := func(day int) time.Time { return time.Date(2026, 12, day, 3, 0, 0, 0, time.UTC) } // UTC-3
	for name, c := range map[string]struct {
		now  time.Time
		s    store.Standing
		want int // the day; 0: none
	}{
		"no chain":                 {now: midnight(10).Add(time.Hour)},
		"a day that just ended":    {now: midnight(10).Add(2 * time.Minute), s: store.Standing{Began: midnight(1), LastDay: midnight(8)}, want: 9},
		"within the grace":         {now: midnight(10).Add(2*time.Minute - 1), s: store.Standing{Began: midnight(1), LastDay: midnight(8)}},
		"done":                     {now: midnight(10).Add(time.Hour), s: store.Standing{Began: midnight(1), LastDay: midnight(9)}},
		"the chain began that day": {now: midnight(10).Add(time.Hour), s: store.Standing{Began: midnight(9).Add(time.Second)}},
		"the first whole day":      {now: midnight(10).Add(time.Hour), s: store.Standing{Began: midnight(8).Add(time.Second)}, want: 9},
		"missed ones":              {now: midnight(10).Add(time.Hour), s: store.Standing{Began: midnight(1), LastDay: midnight(5)}, want: 6},
		"missed too many":          {now: midnight(20).Add(time.Hour), s: store.Standing{Began: midnight(1), LastDay: midnight(5)}, want: 13},
		"failed just now": {
			now: midnight(10).Add(time.Hour), s: store.Standing{Began: midnight(1), LastDay: midnight(8), FailedDayAt: midnight(10).Add(time.Minute)},
		},
	} {
		c.s.Now, c.s.Version, c.s.ChainOpen = c.now, "v", true
		got := cfg.due(c.s, days)
		if c.want == 0 {
			require.Empty(t, got, name)
			continue
		}
		require.Len(t, got, 1, name)
		require.Equal(t, store.CauseDay, got[0].Cause)
		require.True(t, got[0].From.Equal(midnight(c.want)), "%s: %v", name, got[0].From)
		require.True(t, got[0].To.Equal(midnight(c.want+1)), name)
	}
}

// The hash is the only word of its form in what the SPI says, whatever stands around it.
func TestTheHashIsReadFromTheAnswer(t *testing.T) {
	t.Parallel()
	const hash = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for info, want := range map[string]string{
		hash: hash, "HASH:" + hash: hash, "sha-256=" + hash + ".zip": hash, "0123456789ABCDEF" + hash[16:]: hash,
		"": "", "none": "", hash + "0": "", hash[1:]: "", hash + " " + hash: "", "../" + hash[1:] + "/": "",
	} {
		got, ok := hashOf(info)
		require.Equal(t, want, got, info)
		require.Equal(t, want != "", ok, info)
	}
}
