package cycle_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/calendar"
	"github.com/cabine-pix/cabine/services/settlement-scheduler/cycle"
)

func plan(t *testing.T, holidays []string, ends ...string) *cycle.Plan {
	t.Helper()
	days, err := calendar.New(holidays...)
	require.NoError(t, err)
	parsed, err := cycle.ParseEnds(ends)
	require.NoError(t, err)
	p, err := cycle.NewPlan(days, parsed)
	require.NoError(t, err)
	return p
}

func at(t *testing.T, text string) time.Time {
	t.Helper()
	v, err := time.Parse(time.RFC3339, text)
	require.NoError(t, err)
	return v
}

// What settles at an instant is in one window, and the window is of the banking day on which it ends.
func TestAnInstantIsInTheWindowThatEndsNext(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		ends                      []string
		now, date, what, from, to string
	}{
		"a usual day": {
			[]string{"dia=18:00"},
			"2026-07-01T12:00:00-03:00", "2026-07-01", "dia", "2026-06-30T18:00:00-03:00", "2026-07-01T18:00:00-03:00",
		},
		"its very end belongs to the next": {
			[]string{"dia=18:00"},
			"2026-07-01T18:00:00-03:00", "2026-07-02", "dia", "2026-07-01T18:00:00-03:00", "2026-07-02T18:00:00-03:00",
		},
		"two a day": {
			[]string{"tarde=18:00", "manha=12:00"},
			"2026-07-01T12:00:00-03:00", "2026-07-01", "tarde", "2026-07-01T12:00:00-03:00", "2026-07-01T18:00:00-03:00",
		},
		"a weekend": {
			[]string{"dia=18:00"},
			"2026-07-03T19:00:00-03:00", "2026-07-06", "dia", "2026-07-03T18:00:00-03:00", "2026-07-06T18:00:00-03:00",
		},
		"Carnival": {
			[]string{"dia=18:00"},
			"2026-02-16T10:00:00-03:00", "2026-02-18", "dia", "2026-02-13T18:00:00-03:00", "2026-02-18T18:00:00-03:00",
		},
		"a configured holiday": {
			[]string{"dia=18:00"},
			"2027-01-25T10:00:00-03:00", "2027-01-26", "dia", "2027-01-22T18:00:00-03:00", "2027-01-26T18:00:00-03:00",
		},
		"to the end of the day": {
			[]string{"dia=24:00"},
			"2026-07-02T00:00:00-03:00", "2026-07-02", "dia", "2026-07-02T00:00:00-03:00", "2026-07-03T00:00:00-03:00",
		},
		"a Friday to its end, seen on Saturday": {
			[]string{"dia=24:00"},
			"2026-07-04T00:00:00-03:00", "2026-07-06", "dia", "2026-07-04T00:00:00-03:00", "2026-07-07T00:00:00-03:00",
		},
		"the clock went on in between": {
			[]string{"dia=18:00"},
			"2018-11-04T12:00:00-02:00", "2018-11-05", "dia", "2018-11-01T18:00:00-03:00", "2018-11-05T18:00:00-02:00",
		},
		"the clock went back in between": {
			[]string{"dia=18:00"},
			"2019-02-17T12:00:00-03:00", "2019-02-18", "dia", "2019-02-15T18:00:00-02:00", "2019-02-18T18:00:00-03:00",
		},
	} {
		w := plan(t, []string{"2027-01-25"}, tc.ends...).After(at(t, tc.now))
		require.Equal(t, tc.date, w.Date.Format(time.DateOnly), name)
		require.Equal(t, tc.what, w.Type, name)
		require.True(t, w.OpensAt.Equal(at(t, tc.from)), "%s begins %v", name, w.OpensAt)
		require.True(t, w.ClosesAt.Equal(at(t, tc.to)), "%s ends %v", name, w.ClosesAt)
	}
}

// 2 November is a holiday; in some years the clock went on between that day and the next banking day, or in the night after
// a Saturday: whatever it did, windows follow each other without a gap, each banking day has its cycles, no other has one.
func TestWindowsFollowEachOther(t *testing.T) {
	t.Parallel()
	p := plan(t, nil, "a=00:00", "b=00:30", "c=12:00", "d=23:30", "e=24:00")
	days, err := calendar.New()
	require.NoError(t, err)
	last := p.After(at(t, "2010-01-01T00:00:00Z"))
	counts := map[string]int{}
	for last.ClosesAt.Year() < 2021 {
		next := p.After(last.ClosesAt)
		require.True(t, next.OpensAt.Equal(last.ClosesAt), "%v after %v", next, last)
		require.True(t, next.ClosesAt.After(next.OpensAt))
		day := calendar.Date{Year: next.Date.Year(), Month: next.Date.Month(), Day: next.Date.Day()}
		require.True(t, days.IsBanking(day), next.Date)
		counts[next.Date.Format(time.DateOnly)]++
		last = next
	}
	delete(counts, "2009-12-31") // begun before
	delete(counts, last.Date.Format(time.DateOnly))
	for day, n := range counts {
		// Of two ends at one instant, as 24:00 and 00:00 of the next day, there is one cycle.
		require.Contains(t, []int{3, 4, 5}, n, day)
	}
	require.Equal(t, 4, counts["2015-06-10"], "00:00 is the end of the day before")
}

func TestEndsAreRead(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "dia", "dia=", "dia=25:00", "dia=24:01", "dia=12:60", "dia=-1:30", "dia=1:30", "Dia=12:00", "=12:00", "dia=12.30", "dia=1h:30"} {
		_, err := cycle.ParseEnds([]string{bad})
		require.Error(t, err, bad)
	}
	ends, err := cycle.ParseEnds([]string{"dia=24:00", "manha=09:05"})
	require.NoError(t, err)
	require.Equal(t, []cycle.End{{Type: "dia", Wall: 24 * time.Hour}, {Type: "manha", Wall: 9*time.Hour + 5*time.Minute}}, ends)
	days, err := calendar.New()
	require.NoError(t, err)
	for _, bad := range [][]cycle.End{nil, {{Type: "a"}, {Type: "a", Wall: time.Hour}}, {{Type: "a"}, {Type: "b"}}, {{Type: "A"}}, {{Type: "a", Wall: 25 * time.Hour}}} {
		_, err := cycle.NewPlan(days, bad)
		require.Error(t, err)
	}
}

// Cycles of a drill follow each other without a gap on every day, over midnight and over changed clocks, and no two of a day
// have one name.
func TestDrills(t *testing.T) {
	t.Parallel()
	days, err := calendar.New()
	require.NoError(t, err)
	for _, period := range []time.Duration{time.Minute, 7 * time.Minute, 24 * time.Hour} {
		p, err := cycle.NewDrill(days, period)
		require.NoError(t, err)
		for _, from := range []string{"2026-07-04T23:00:00-03:00", "2018-11-03T12:00:00-03:00", "2018-02-17T12:00:00-02:00"} {
			last, names := at(t, from), map[string]bool{}
			for last.Before(at(t, from).Add(50 * time.Hour)) {
				w := p.After(last)
				require.False(t, w.OpensAt.After(last))
				require.True(t, w.ClosesAt.After(last))
				require.LessOrEqual(t, w.ClosesAt.Sub(w.OpensAt), period)
				require.Equal(t, w, p.After(w.ClosesAt.Add(-time.Nanosecond)), "the same until its end")
				name := w.Date.Format(time.DateOnly) + w.Type
				require.False(t, names[name], name)
				names[name], last = true, w.ClosesAt
			}
		}
	}
	p, err := cycle.NewDrill(days, 20*time.Second)
	require.NoError(t, err)
	w := p.After(at(t, "2026-07-04T15:04:05-03:00"))
	require.Equal(t, "2026-07-04 150420", w.Date.Format(time.DateOnly)+" "+w.Type, "a Saturday")
	require.True(t, w.OpensAt.Equal(at(t, "2026-07-04T15:04:00-03:00")))
	for _, wrong := range []time.Duration{0, time.Millisecond, 1500 * time.Millisecond, 25 * time.Hour} {
		_, err = cycle.NewDrill(days, wrong)
		require.ErrorContains(t, err, "whole seconds")
	}
}
