package cycle

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/cabine-pix/cabine/libs/calendar"
	"github.com/cabine-pix/cabine/libs/store"
)

// End is when a cycle ends on each banking day.
type End struct {
	// Type tells the cycles of a day apart: letters a to z, digits, '_', '-'.
	Type string
	// Wall is the time of the wall clock, since midnight, up to 24 h.
	Wall time.Duration
}

var validType = regexp.MustCompile(`^[a-z0-9_-]{1,32}$`)

// ParseEnds reads "manha=12:00", "dia=24:00".
func ParseEnds(texts []string) ([]End, error) {
	var ends []End
	var errs []error
	for _, text := range texts {
		name, at, _ := strings.Cut(text, "=")
		hour, minute, ok := strings.Cut(at, ":")
		h, herr := time.ParseDuration(hour + "h")
		m, merr := time.ParseDuration(minute + "m")
		if wall := h + m; ok && len(at) == 5 && herr == nil && merr == nil && m < time.Hour && wall <= 24*time.Hour && wall >= 0 && validType.MatchString(name) {
			ends = append(ends, End{Type: name, Wall: wall})
			continue
		}
		errs = append(errs, fmt.Errorf("%q is no type=HH:MM, up to 24:00", text))
	}
	return ends, errors.Join(errs...)
}

// Plan knows when cycles end. It is safe for concurrent use.
type Plan struct {
	calendar *calendar.Calendar
	ends     []End
	// period is that of drills, zero for ends on banking days.
	period time.Duration
}

// NewPlan fails without ends, and for two of one type or time.
func NewPlan(c *calendar.Calendar, ends []End) (*Plan, error) {
	if len(ends) == 0 {
		return nil, errors.New("no cycle ends on any day")
	}
	ends = slices.SortedFunc(slices.Values(ends), func(a, b End) int { return cmp.Compare(a.Wall, b.Wall) })
	types := map[string]bool{}
	for i, e := range ends {
		if !validType.MatchString(e.Type) || types[e.Type] {
			return nil, fmt.Errorf("cycle %q: want letters a to z, digits, '_' and '-', once", e.Type)
		}
		if e.Wall < 0 || e.Wall > 24*time.Hour || i > 0 && ends[i-1].Wall == e.Wall {
			return nil, fmt.Errorf("cycle %q ends at %v: want 0 to 24h, and each another", e.Type, e.Wall)
		}
		types[e.Type] = true
	}
	return &Plan{calendar: c, ends: ends}, nil
}

// NewDrill returns a plan whose cycles end every so often from São Paulo's midnight on, and at the next midnight, on every
// day: so short that somebody who looks on sees several. Their types are the time since midnight at which they end.
func NewDrill(c *calendar.Calendar, period time.Duration) (*Plan, error) {
	if period < time.Second || period > 24*time.Hour || period%time.Second != 0 {
		return nil, fmt.Errorf("period is %v, want whole seconds, from 1s to 24h", period)
	}
	return &Plan{calendar: c, period: period}, nil
}

// drill is After of a drill.
func (p *Plan) drill(at time.Time) store.Window {
	day := p.calendar.Today(at)
	midnight, next := p.calendar.At(day, 0), p.calendar.At(day.Plus(1), 0)
	begin := midnight.Add(at.Sub(midnight).Truncate(p.period))
	end := begin.Add(p.period)
	if end.After(next) {
		end = next
	}
	since := end.Sub(midnight)
	name := fmt.Sprintf("%02d%02d%02d", since/time.Hour, since%time.Hour/time.Minute, since%time.Minute/time.Second)
	return store.Window{Date: day.UTC(), Type: name, OpensAt: begin, ClosesAt: end}
}

// After returns the window with the first end after an instant. Its beginning is the end before, which is not after the
// instant.
func (p *Plan) After(at time.Time) store.Window {
	if p.period > 0 {
		return p.drill(at)
	}
	// The day before may end at 24:00 of its wall clock, which is today.
	day, begin := p.calendar.Today(at).Plus(-1), p.before(at)
	for {
		day = p.calendar.Next(day)
		for _, e := range p.ends {
			if end := p.calendar.At(day, e.Wall); end.After(at) {
				return store.Window{Date: day.UTC(), Type: e.Type, OpensAt: begin, ClosesAt: end}
			}
		}
		day = day.Plus(1)
	}
}

// before returns the last end that is not after an instant.
func (p *Plan) before(at time.Time) time.Time {
	for day := p.calendar.Today(at); ; day = day.Plus(-1) {
		if !p.calendar.IsBanking(day) {
			continue
		}
		for _, e := range slices.Backward(p.ends) {
			if end := p.calendar.At(day, e.Wall); !end.After(at) {
				return end
			}
		}
	}
}
