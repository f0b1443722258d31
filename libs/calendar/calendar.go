package calendar

import (
	"errors"
	"fmt"
	"time"
	_ "time/tzdata" // São Paulo's rules, whatever the machine has
)

// Zone is where windows are counted.
const Zone = "America/Sao_Paulo"

// Date is a day, without a place or a time.
type Date struct {
	Year  int
	Month time.Month
	Day   int
}

// ParseDate reads "2026-12-25".
func ParseDate(text string) (Date, error) {
	t, err := time.Parse(time.DateOnly, text)
	if err != nil {
		return Date{}, fmt.Errorf("date %q: want YYYY-MM-DD", text)
	}
	return dateOf(t), nil
}

// String returns "2026-12-25".
func (d Date) String() string { return d.UTC().Format(time.DateOnly) }

// UTC returns the day's midnight in UTC, as databases take a date.
func (d Date) UTC() time.Time { return time.Date(d.Year, d.Month, d.Day, 0, 0, 0, 0, time.UTC) }

// Plus returns the day n days later, or earlier.
func (d Date) Plus(n int) Date { return dateOf(d.UTC().AddDate(0, 0, n)) }

func dateOf(t time.Time) Date {
	y, m, d := t.Date()
	return Date{y, m, d}
}

// Calendar tells banking days from others. It is safe for concurrent use.
type Calendar struct {
	zone  *time.Location
	extra map[Date]bool
}

// New returns a calendar on which banks are closed on more days than the nation's, each "2026-01-25".
func New(extra ...string) (*Calendar, error) {
	zone, err := time.LoadLocation(Zone)
	if err != nil {
		return nil, fmt.Errorf("calendar: %w", err)
	}
	c := &Calendar{zone: zone, extra: make(map[Date]bool, len(extra))}
	var errs []error
	for _, text := range extra {
		d, err := ParseDate(text)
		if err != nil {
			errs = append(errs, err)
		}
		c.extra[d] = true
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("calendar: %w", err)
	}
	return c, nil
}

// Today returns the day in São Paulo at an instant.
func (c *Calendar) Today(at time.Time) Date { return dateOf(at.In(c.zone)) }

// At returns the first instant from which on São Paulo's clock shows this time of this day, or a later one, for good. The
// time is that of the wall, since midnight, up to 24 h.
func (c *Calendar) At(d Date, wall time.Duration) time.Time {
	// The wall's reading as if it were UTC, and the two offsets that may hold there: rules change less often than daily.
	reading := d.UTC().Add(wall)
	before := c.offset(reading.Add(-24 * time.Hour))
	after := c.offset(reading.Add(24 * time.Hour))
	late := reading.Add(-after)
	if before == after {
		return late
	}
	_, change := reading.Add(-24 * time.Hour).In(c.zone).ZoneBounds()
	if late.After(change) {
		return late
	}
	// The new offset does not hold yet, or begins with this very time. With the old one the clock may show the time before the change, or jump over it.
	if early := reading.Add(-before); early.Before(change) {
		return early
	}
	return change.UTC()
}

func (c *Calendar) offset(at time.Time) time.Duration {
	_, seconds := at.In(c.zone).Zone()
	return time.Duration(seconds) * time.Second
}

// IsBanking reports whether banks settle on a day.
func (c *Calendar) IsBanking(d Date) bool {
	weekday := d.UTC().Weekday()
	return weekday != time.Saturday && weekday != time.Sunday && !c.extra[d] && !isHoliday(d)
}

// Next returns the first banking day that is not before d.
func (c *Calendar) Next(d Date) Date {
	for !c.IsBanking(d) {
		d = d.Plus(1)
	}
	return d
}

// consciousness is the first year in which 20 November was one of the nation's holidays.
const consciousness = 2024

func isHoliday(d Date) bool {
	switch [2]int{int(d.Month), d.Day} {
	case [2]int{1, 1}, [2]int{4, 21}, [2]int{5, 1}, [2]int{9, 7}, [2]int{10, 12}, [2]int{11, 2}, [2]int{11, 15}, [2]int{12, 25}:
		return true
	case [2]int{11, 20}:
		return d.Year >= consciousness
	}
	easter := Easter(d.Year)
	for _, days := range []int{-48, -47, -2, 60} {
		if easter.Plus(days) == d {
			return true
		}
	}
	return false
}

// Easter returns Easter Sunday of a Gregorian year: the anonymous algorithm, as Meeus has it.
func Easter(year int) Date {
	a, b, c := year%19, year/100, year%100
	d, e := b/4, b%4
	g := (8*b + 13) / 25
	h := (19*a + b - d - g + 15) % 30
	i, k := c/4, c%4
	l := (32 + 2*e + 2*i - h - k) % 7
	m := (a + 11*h + 19*l) / 433
	month := (h + l - 7*m + 90) / 25
	day := (h + l - 7*m + 33*month + 19) % 32
	return Date{year, time.Month(month), day}
}
