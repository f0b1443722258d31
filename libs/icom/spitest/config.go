package spitest

import (
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/signature"
)

// VirtualISPB is the SPI's own virtual participant that accepts everything.
const VirtualISPB pix.ISPB = "99999A04"

// Config describes one SPI. Signer has no default.
type Config struct {
	// Participants hold the PI accounts. More may be added while it runs.
	Participants []Participant
	// Signer signs what the SPI sends.
	Signer *signature.Signer
	// Versions are those that are accepted and built. Default iso20022.DefaultVersions().
	Versions iso20022.Versions
	// SettleWithin is the time from AccptncDtTm to settlement, after which both sides are told AB03. Default 40 s.
	SettleWithin time.Duration
	// ScheduledWithin is the same for PAGAGD. Default 45 min.
	ScheduledWithin time.Duration
	// OrderWithin is the time from AccptncDtTm within which a PAGPRI order must arrive, else AB11. Default 34/40 of
	// SettleWithin, which is 34 s.
	OrderWithin time.Duration
	// IDTolerance is how far the minute of a new identifier may be from now, else FF08. Default 12 h.
	IDTolerance time.Duration
	// RefuseRepeats answers RJCT DUPL to the very same order again, instead of what became of it.
	RefuseRepeats bool
	// RefByMsgID puts the MsgId of the refused message into Ref of admi.002. Default: its PI-ResourceId.
	RefByMsgID bool
	// WrapSignatures breaks the base64 of the SPI's signatures at 76 columns with &#13; and a line feed, as the real one does.
	WrapSignatures bool
	// Workers is how many goroutines read, and how many write. Default 2.
	Workers int
	// Linger is how long an operation waits for others to fill its message. Default 0: what gathers while messages
	// before it are signed is enough.
	Linger time.Duration
	// LongestPeriod is the longest time that a file of entries may be asked for. Default 31 days. The real bound is not published.
	LongestPeriod time.Duration
	// MaxFiles and MaxFileBytes bound what the file host holds: the oldest files go, and a larger one is not made.
	// Default 64 and 256 MiB.
	MaxFiles     int
	MaxFileBytes int
	// Faults are rules of misbehaviour; none: it behaves.
	Faults []Fault
	// Seed feeds every random choice. Default 1.
	Seed uint64
	// Clock. Default clock.System().
	Clock clock.Clock
}

// Participant has a PI account.
type Participant struct {
	ISPB pix.ISPB
	// Balance is what the account holds at the beginning, in centavos.
	Balance pix.Amount
	// Certificates are those with which it may sign. Without any it can send nothing.
	Certificates []*x509.Certificate
	// Virtual: the SPI itself accepts every order that credits it, at once, and tells it nothing.
	Virtual bool
	// Closed: registered and not operating, DS27.
	Closed bool
}

// WithDefaults returns a copy in which zero fields have their defaults.
func (c Config) WithDefaults() Config {
	if c.Versions == nil {
		c.Versions = iso20022.DefaultVersions()
	}
	def(&c.SettleWithin, 40*time.Second)
	def(&c.ScheduledWithin, 45*time.Minute)
	def(&c.OrderWithin, c.SettleWithin*34/40)
	def(&c.IDTolerance, 12*time.Hour)
	def(&c.Workers, 2)
	def(&c.LongestPeriod, 31*24*time.Hour)
	def(&c.MaxFiles, 64)
	def(&c.MaxFileBytes, 256<<20)
	def(&c.Seed, 1)
	if c.Clock == nil {
		c.Clock = clock.System()
	}
	return c
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate names the first field that makes no sense.
func (c Config) Validate() error {
	if c.Signer == nil {
		return errors.New("spitest: a signer is needed")
	}
	if err := c.Versions.Validate(); err != nil {
		return err
	}
	if c.SettleWithin < 0 || c.ScheduledWithin < 0 || c.OrderWithin < 0 || c.IDTolerance < 0 || c.Linger < 0 || c.Workers < 1 {
		return fmt.Errorf("spitest: limits %s, %s, %s, tolerance %s, linger %s must not be negative, workers %d must be positive",
			c.SettleWithin, c.ScheduledWithin, c.OrderWithin, c.IDTolerance, c.Linger, c.Workers)
	}
	if c.LongestPeriod < 0 || c.MaxFiles < 1 || c.MaxFileBytes < 1 {
		return fmt.Errorf("spitest: longest period %s must not be negative, %d files and %d bytes of them must be positive",
			c.LongestPeriod, c.MaxFiles, c.MaxFileBytes)
	}
	for _, f := range c.Faults {
		if err := f.validate(); err != nil {
			return err
		}
	}
	return nil
}

func (p Participant) validate() error {
	if _, err := pix.ParseISPB(string(p.ISPB)); err != nil || p.ISPB == pix.SPI {
		return fmt.Errorf("spitest: participant %q: want an ISPB that is not the SPI's", p.ISPB)
	}
	if p.Balance < 0 || p.Balance > pix.MaxAmount {
		return fmt.Errorf("spitest: participant %s: balance %s is out of range", p.ISPB, p.Balance)
	}
	return nil
}
