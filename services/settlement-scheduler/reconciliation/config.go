package reconciliation

import (
	"errors"
	"fmt"
	"time"

	"github.com/cabine-pix/cabine/libs/pix"
)

// Config says what is compared when. The zero value of each field but Leadership, ISPB and Version means its default.
type Config struct {
	// Leadership is the name under which terms are minted, ISPB the participant whose account it is, Version that of the
	// program. Required.
	Leadership string
	ISPB       pix.ISPB
	Version    string
	// Channel carries the questions. Default the primary one.
	Channel pix.Channel
	// Active: the SPI is asked about each line that differs. Default: lines are only listed.
	Active bool
	// Every is the length of a period, and the pause after one that failed. Default 1 h, at least 1 s.
	Every time.Duration
	// Longest is the longest period that is asked for at once when there is something to catch up. Default 24 h.
	Longest time.Duration
	// Grace is how long ago a period must have ended: until then what settled in it is in our books. Default 2 min.
	Grace time.Duration
	// Look is how often there is a look whether something is to be done. Default 5 s.
	Look time.Duration
	// Asks is how often the file of a period is asked for. Default 3.
	Asks int
	// AnswerWithin is how long its answer is waited for, FetchWithin for the file host, ImportWithin for the importer.
	// Defaults 10 min, 30 min, 30 min.
	AnswerWithin, FetchWithin, ImportWithin time.Duration
	// RetryFirst and RetryMost are the pauses between two downloads that fail. Defaults 1 s, 1 min.
	RetryFirst, RetryMost time.Duration
	// Tolerance is how far apart both may have the time of a settlement. Default 5 s; less than half of Every.
	Tolerance time.Duration
	// EntryAsks is how often the SPI is asked about a line, EntryAgain the pause between, EntriesAtOnce how many lines at a
	// look: they pass through the same permits as payments. Defaults 3, 10 min, 100.
	EntryAsks     int
	EntryAgain    time.Duration
	EntriesAtOnce int
	// EntriesMost is with how many open lines none is asked about any more: so many are no orphans but a wrong file, or books
	// that were restored. Default 10000.
	EntriesMost int
	// ResolveWithin is how long after a comparison its open lines are asked about and resolved. Default 24 h.
	ResolveWithin time.Duration
	// Scratch is the directory for a download, which needs room for the largest file. Default: the machine's for temporary files.
	Scratch string
	// MaxText is the most bytes of text that a file may have. Default that of package statement.
	MaxText int64
}

// WithDefaults returns a copy in which zero fields have their defaults.
func (c Config) WithDefaults() Config {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	number := func(n *int, v int) {
		if *n == 0 {
			*n = v
		}
	}
	if c.Channel == "" {
		c.Channel = pix.CPM
	}
	def(&c.Every, time.Hour)
	def(&c.Longest, 24*time.Hour)
	def(&c.Grace, 2*time.Minute)
	def(&c.Look, 5*time.Second)
	def(&c.AnswerWithin, 10*time.Minute)
	def(&c.FetchWithin, 30*time.Minute)
	def(&c.ImportWithin, 30*time.Minute)
	def(&c.RetryFirst, time.Second)
	def(&c.RetryMost, time.Minute)
	def(&c.Tolerance, 5*time.Second)
	def(&c.EntryAgain, 10*time.Minute)
	def(&c.ResolveWithin, 24*time.Hour)
	number(&c.Asks, 3)
	number(&c.EntryAsks, 3)
	number(&c.EntriesAtOnce, 100)
	number(&c.EntriesMost, 10_000)
	return c
}

// Validate names every field that is wrong.
func (c Config) Validate() error {
	var errs []error
	if c.Leadership == "" {
		errs = append(errs, errors.New("leadership is empty"))
	}
	if c.Version == "" {
		errs = append(errs, errors.New("version is empty"))
	}
	if _, err := pix.ParseISPB(string(c.ISPB)); err != nil {
		errs = append(errs, err)
	}
	if _, err := pix.ParseChannel(string(c.Channel)); err != nil {
		errs = append(errs, err)
	}
	for _, f := range []struct {
		name     string
		d, least time.Duration
	}{
		{"Every", c.Every, time.Second},
		{"Longest", c.Longest, c.Every},
		{"Grace", c.Grace, time.Millisecond},
		{"Look", c.Look, time.Millisecond},
		{"AnswerWithin", c.AnswerWithin, time.Millisecond},
		{"FetchWithin", c.FetchWithin, time.Millisecond},
		{"ImportWithin", c.ImportWithin, time.Millisecond},
		{"RetryFirst", c.RetryFirst, time.Millisecond},
		{"RetryMost", c.RetryMost, c.RetryFirst},
		{"Tolerance", c.Tolerance, time.Millisecond},
		{"EntryAgain", c.EntryAgain, time.Millisecond},
		{"ResolveWithin", c.ResolveWithin, time.Millisecond},
	} {
		if f.d < f.least {
			errs = append(errs, fmt.Errorf("%s is %v, want at least %v", f.name, f.d, f.least))
		}
	}
	for _, f := range []struct {
		name    string
		n, most int
	}{{"Asks", c.Asks, 100}, {"EntryAsks", c.EntryAsks, 100}, {"EntriesAtOnce", c.EntriesAtOnce, 1000}, {"EntriesMost", c.EntriesMost, 1_000_000}} {
		if f.n < 1 || f.n > f.most {
			errs = append(errs, fmt.Errorf("%s is %d, want 1 to %d", f.name, f.n, f.most))
		}
	}
	if c.Tolerance >= c.Every/2 {
		errs = append(errs, fmt.Errorf("tolerance is %v, want less than half of Every %v", c.Tolerance, c.Every))
	}
	if c.MaxText < 0 {
		errs = append(errs, fmt.Errorf("MaxText is %d, want at least 0", c.MaxText))
	}
	return errors.Join(errs...)
}
