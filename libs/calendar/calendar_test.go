package calendar_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/calendar"
	"github.com/cabine-pix/cabine/libs/devstack/devtest"
)

func TestMain(m *testing.M) { os.Exit(devtest.Main(m)) }

func date(t *testing.T, text string) calendar.Date {
	t.Helper()
	d, err := calendar.ParseDate(text)
	require.NoError(t, err)
	return d
}

func setup(t *testing.T, extra ...string) *calendar.Calendar {
	t.Helper()
	c, err := calendar.New(extra...)
	require.NoError(t, err)
	return c
}

func TestEaster(t *testing.T) {
	t.Parallel()
	for year, day := range map[int]string{
		1961: "1961-04-02", 1981: "1981-04-19", 2000: "2000-04-23", 2008: "2008-03-23", 2011: "2011-04-24", 2019: "2019-04-21",
		2024: "2024-03-31", 2025: "2025-04-20", 2026: "2026-04-05", 2027: "2027-03-28", 2038: "2038-04-25", 2076: "2076-04-19",
	} {
		require.Equal(t, day, calendar.Easter(year).String())
	}
}

// The weekdays on which banks were or will be closed, as the banks' federation lists them.
func TestHolidays(t *testing.T) {
	t.Parallel()
	c := setup(t)
	for year, closed := range map[int][]string{
		2023: {
			"02-20", "02-21", "04-07", "04-21", "05-01", "06-08", "09-07", "10-12", "11-02", "11-15", "12-25",
		},
		2024: {
			"01-01", "02-12", "02-13", "03-29", "05-01", "05-30", "11-15", "11-20", "12-25",
		},
		2026: {
			"01-01", "02-16", "02-17", "04-03", "04-21", "05-01", "06-04", "09-07", "10-12", "11-02", "11-20", "12-25",
		},
	} {
		var found []string
		for d := (calendar.Date{Year: year, Month: 1, Day: 1}); d.Year == year; d = d.Plus(1) {
			day := d.UTC().Weekday()
			if !c.IsBanking(d) && day != time.Saturday && day != time.Sunday {
				found = append(found, d.String()[5:])
			}
		}
		require.Equal(t, closed, found, year)
	}
}

func TestMoreDaysAreConfiguration(t *testing.T) {
	t.Parallel()
	c := setup(t, "2027-01-25")
	require.False(t, c.IsBanking(date(t, "2027-01-25")))
	require.True(t, setup(t).IsBanking(date(t, "2027-01-25")))
	require.Equal(t, "2027-01-26", c.Next(date(t, "2027-01-23")).String(), "a weekend and the day after it")
	require.Equal(t, "2026-12-28", c.Next(date(t, "2026-12-25")).String())
	_, err := calendar.New("25/12/2026", "2026-02-30")
	require.ErrorContains(t, err, "25/12/2026")
	require.ErrorContains(t, err, "2026-02-30")
}

func TestWallClocks(t *testing.T) {
	t.Parallel()
	c := setup(t)
	for name, tc := range map[string]struct {
		day  string
		wall time.Duration
		want string
	}{
		"winter":                             {"2026-07-01", 18 * time.Hour, "2026-07-01T21:00:00Z"},
		"midnight at the end of a day":       {"2026-07-01", 24 * time.Hour, "2026-07-02T03:00:00Z"},
		"summer time":                        {"2019-01-15", 18 * time.Hour, "2019-01-15T20:00:00Z"},
		"before the clock goes on":           {"2018-11-03", 23 * time.Hour, "2018-11-04T02:00:00Z"},
		"a midnight that there is not":       {"2018-11-04", 0, "2018-11-04T03:00:00Z"},
		"the same, as the end of a day":      {"2018-11-03", 24 * time.Hour, "2018-11-04T03:00:00Z"},
		"in the hour that there is not":      {"2018-11-04", 30 * time.Minute, "2018-11-04T03:00:00Z"},
		"after the clock went on":            {"2018-11-04", time.Hour, "2018-11-04T03:00:00Z"},
		"before the hour that comes twice":   {"2019-02-16", 22 * time.Hour, "2019-02-17T00:00:00Z"},
		"an hour that comes twice, for good": {"2019-02-16", 23*time.Hour + 30*time.Minute, "2019-02-17T02:30:00Z"},
		"midnight after it":                  {"2019-02-17", 0, "2019-02-17T03:00:00Z"},
		"before there were zones, almost":    {"1931-10-03", 11*time.Hour + 30*time.Minute, "1931-10-03T14:00:00Z"},
	} {
		require.Equal(t, tc.want, c.At(date(t, tc.day), tc.wall).Format(time.RFC3339), name)
	}
	require.Equal(t, "2018-11-03", c.Today(time.Date(2018, 11, 4, 2, 59, 0, 0, time.UTC)).String())
	require.Equal(t, "2018-11-04", c.Today(time.Date(2018, 11, 4, 3, 0, 0, 0, time.UTC)).String())
}

// Over a century of changes: a later wall time is never an earlier instant, the instant shows the time or, where there is
// none, the first after it, and no instant after it shows an earlier one on that day.
func TestWallClocksNeverGoBack(t *testing.T) {
	t.Parallel()
	c := setup(t)
	zone, err := time.LoadLocation(calendar.Zone)
	require.NoError(t, err)
	last := time.Time{}
	offset := func(d calendar.Date) int {
		_, seconds := d.UTC().In(zone).Zone()
		return seconds
	}
	for d := date(t, "1914-01-02"); d.Year < 2030; d = d.Plus(1) {
		if offset(d.Plus(-1)) == offset(d.Plus(2)) && (d.Day != 1 || d.Month != 1) {
			continue // like the first of its year
		}
		for wall := time.Duration(0); wall < 24*time.Hour; wall += 30 * time.Minute {
			at := c.At(d, wall)
			require.False(t, at.Before(last), "%s %s", d, wall)
			last = at
			shown := func(at time.Time) time.Time {
				l := at.In(zone)
				return time.Date(l.Year(), l.Month(), l.Day(), l.Hour(), l.Minute(), l.Second(), l.Nanosecond(), time.UTC)
			}
			wanted := d.UTC().Add(wall)
			require.False(t, shown(at).Before(wanted), "%s %s", d, wall)
			require.True(t, shown(at.Add(-time.Nanosecond)).Before(wanted), "%s %s is the first such instant", d, wall)
			for ahead := time.Minute; ahead < 3*time.Hour; ahead += 29 * time.Minute {
				require.False(t, shown(at.Add(ahead)).Before(wanted), "%s %s, for good", d, wall)
			}
		}
	}
}
