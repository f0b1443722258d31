package fileimport

import (
	"errors"
	"fmt"
	"time"

	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/statement"
)

// Config says how files are imported. The zero value of each field but Leadership and ISPB means its default.
type Config struct {
	// Leadership is the name under which terms are minted. Required.
	Leadership string
	// ISPB is the participant whose files they are: others are refused. Required.
	ISPB pix.ISPB
	// Every is how often the bucket is looked into. Default 30 s.
	Every time.Duration
	// MaxSize is the most bytes of an archive, and so of the room that a copy takes on this machine. Default 1 GiB.
	MaxSize int64
	// MaxText is the most bytes of what is in it. Default 2 GiB, a day of ten million entries with room to spare.
	MaxText int64
	// Expected is the longest time from the end of the period of one file of entries until the next is imported; after it
	// they are overdue. Default 26 h: a file a day, and two hours.
	Expected time.Duration
}

const (
	defaultMaxSize = 1 << 30
	// page is how many objects are compared with the tables at once.
	page = 500
	// patience is how often a file that takes long is told of.
	patience = 2 * time.Second
)

// WithDefaults returns a copy in which zero fields have their defaults.
func (c Config) WithDefaults() Config {
	if c.Every == 0 {
		c.Every = 30 * time.Second
	}
	if c.MaxSize == 0 {
		c.MaxSize = defaultMaxSize
	}
	if c.MaxText == 0 {
		c.MaxText = statement.DefaultMaxText
	}
	if c.Expected == 0 {
		c.Expected = 26 * time.Hour
	}
	return c
}

// Validate names every field that is wrong.
func (c Config) Validate() error {
	var errs []error
	if c.Leadership == "" {
		errs = append(errs, errors.New("leadership is empty"))
	}
	if _, err := pix.ParseISPB(string(c.ISPB)); err != nil {
		errs = append(errs, err)
	}
	for _, f := range []struct {
		name string
		d    time.Duration
	}{{"Every", c.Every}, {"Expected", c.Expected}} {
		if f.d < time.Millisecond {
			errs = append(errs, fmt.Errorf("%s is %v, want at least 1ms", f.name, f.d))
		}
	}
	for _, f := range []struct {
		name string
		n    int64
	}{{"MaxSize", c.MaxSize}, {"MaxText", c.MaxText}} {
		if f.n < 1 {
			errs = append(errs, fmt.Errorf("%s is %d, want at least 1", f.name, f.n))
		}
	}
	return errors.Join(errs...)
}
