package reconciliation

import (
	"time"

	"github.com/cabine-pix/cabine/libs/calendar"
	"github.com/cabine-pix/cabine/libs/store"
)

// maxDays is how many days back a whole day is still compared.
const maxDays = 7

// due returns what is to be begun now: at most one of the chain and one day.
func (c Config) due(s store.Standing, days *calendar.Calendar) []store.Reconciliation {
	until := s.Now.Add(-c.Grace).Truncate(time.Millisecond)
	var all []store.Reconciliation
	if r, is := c.chain(s, until); is {
		all = append(all, r)
	}
	if r, is := c.day(s, until, days); is {
		all = append(all, r)
	}
	for i := range all {
		all[i].Version, all[i].Active = c.Version, c.Active
	}
	return all
}

// chain is the next one of the chain. While one is open it is not known whether the period of that is done.
func (c Config) chain(s store.Standing, until time.Time) (store.Reconciliation, bool) {
	r := store.Reconciliation{Cause: store.CauseSchedule, From: s.Head, To: until}
	if s.Head.IsZero() {
		r.From = until.Add(-c.Every)
	}
	// Until then the balance before would be judged by nobody: the next file has to reach beyond its instant.
	deployed := s.Version != c.Version && r.To.After(s.BalanceAt)
	switch {
	case s.ChainOpen || r.To.Sub(r.From) < 2*c.Tolerance: // a shorter one would have no neighbour that has all of its border
		return r, false
	case deployed:
		r.Cause = store.CauseDeploy
	case r.To.Sub(r.From) < c.Every || s.Now.Sub(s.FailedAt) < c.Every:
		return r, false
	}
	if longest := r.From.Add(c.Longest); longest.Before(r.To) {
		r.To = longest
	}
	return r, true
}

// day is the next whole day, none that began before the chain did: of what was before us there is nothing to compare.
func (c Config) day(s store.Standing, until time.Time, days *calendar.Calendar) (store.Reconciliation, bool) {
	if s.Began.IsZero() || s.Now.Sub(s.FailedDayAt) < c.Every {
		return store.Reconciliation{}, false
	}
	next := days.Today(s.LastDay).Plus(1)
	if first := days.Today(until).Plus(-maxDays); s.LastDay.IsZero() || next.UTC().Before(first.UTC()) {
		next = first
	}
	for range maxDays {
		r := store.Reconciliation{Cause: store.CauseDay, From: days.At(next, 0), To: days.At(next.Plus(1), 0)}
		if until.Before(r.To) {
			break
		}
		if !r.From.Before(s.Began) {
			return r, true
		}
		next = next.Plus(1)
	}
	return store.Reconciliation{}, false
}
