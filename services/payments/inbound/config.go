package inbound

import (
	"errors"
	"fmt"
	"time"

	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
)

// Config says how messages are taken. The zero value of each field but ISPB means its default.
type Config struct {
	// ISPB of the participant: who is addressed. Required.
	ISPB pix.ISPB
	// Durable names the consumer on the bus. Default: that of the payments service.
	Durable string
	// Versions of the messages that are accepted. Default: the catalogue's.
	Versions iso20022.Versions
	// Concurrency is how many messages are in hand at once; most of the time they wait for the
	// core and hold nothing. Default 64.
	Concurrency int
	// Prefetch is how many more the bus may have handed over. Default 64.
	Prefetch int
	// MaxDeliveries is after how many failures by a fault of ours a message is a dead letter; deliveries that found the
	// database away are none. Default 5.
	MaxDeliveries int
	// TxTimeout bounds one transaction. Default 5 s.
	TxTimeout time.Duration
	// SettleWithin is the SPI's limit for payments of priority HIGH and for PAGFRD, and
	// ScheduledWithin that for PAGAGD. Defaults 40 s, 45 min (SPI manual of times 7.0).
	SettleWithin, ScheduledWithin time.Duration
	// AnswerMargin is kept for our own answer to reach the SPI. Default 2 s.
	AnswerMargin time.Duration
	// InfoMargin is how long past the limit the SPI's "not settled" is believed to be its last word. Default 20 s.
	InfoMargin time.Duration
	// NoEntryCode is with which code the SPI says that it has no entry of that name: then a payment whose time is over,
	// and of which no copy can go out, was never settled. BACEN does not publish it. Default: none, and such a payment
	// stays in the list of the open ones.
	NoEntryCode string
	// DrainTimeout is how long messages in hand may take when the service stops. Default 10 s.
	DrainTimeout time.Duration
}

// maxEntryCode is the length of a code in a camt.054 (AddtlNtryInf).
const maxEntryCode = 4

// durable is the consumer that migrate declares for this service.
const durable = "payments"

// WithDefaults returns a copy in which zero fields have their defaults.
func (c Config) WithDefaults() Config {
	duration := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	number := func(n *int, v int) {
		if *n == 0 {
			*n = v
		}
	}
	if c.Durable == "" {
		c.Durable = durable
	}
	if c.Versions == nil {
		c.Versions = iso20022.DefaultVersions()
	}
	number(&c.Concurrency, 64)
	number(&c.Prefetch, 64)
	number(&c.MaxDeliveries, 5)
	duration(&c.TxTimeout, 5*time.Second)
	duration(&c.SettleWithin, 40*time.Second)
	duration(&c.ScheduledWithin, 45*time.Minute)
	duration(&c.AnswerMargin, 2*time.Second)
	duration(&c.InfoMargin, 20*time.Second)
	duration(&c.DrainTimeout, 10*time.Second)
	return c
}

// Validate names every field that is wrong.
func (c Config) Validate() error {
	var errs []error
	if _, err := pix.ParseISPB(string(c.ISPB)); err != nil {
		errs = append(errs, err)
	}
	errs = append(errs, c.Versions.Validate())
	for _, f := range []struct {
		name string
		n    int
	}{{"Concurrency", c.Concurrency}, {"Prefetch", c.Prefetch}, {"MaxDeliveries", c.MaxDeliveries}} {
		if f.n < 1 || f.n > 10_000 {
			errs = append(errs, fmt.Errorf("%s is %d, want 1 to 10000", f.name, f.n))
		}
	}
	for _, f := range []struct {
		name string
		d    time.Duration
	}{
		{"TxTimeout", c.TxTimeout},
		{"SettleWithin", c.SettleWithin},
		{"ScheduledWithin", c.ScheduledWithin},
		{"AnswerMargin", c.AnswerMargin},
		{"InfoMargin", c.InfoMargin},
		{"DrainTimeout", c.DrainTimeout},
	} {
		if f.d < time.Millisecond {
			errs = append(errs, fmt.Errorf("%s is %v, want at least 1ms", f.name, f.d))
		}
	}
	if len(c.NoEntryCode) > maxEntryCode {
		errs = append(errs, fmt.Errorf("NoEntryCode is %.10q, want at most %d characters", c.NoEntryCode, maxEntryCode))
	}
	if c.AnswerMargin >= c.SettleWithin {
		errs = append(errs, fmt.Errorf("AnswerMargin is %v, want less than SettleWithin %v", c.AnswerMargin, c.SettleWithin))
	}
	return errors.Join(errs...)
}
