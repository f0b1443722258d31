package statement

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cabine-pix/cabine/libs/pix"
)

// The records, by their first field.
const (
	headerMark  = "0"
	recordMark  = "1"
	trailerMark = "9"
	separator   = ";"
)

const (
	instantFormat = "2006-01-02T15:04:05.000Z"
	mostType      = 32
)

// How many fields each record has, its mark included.
const (
	headerFields       = 6
	entryFields        = 8
	confirmationFields = 5
	trailerFields      = 4
)

// split cuts a line into exactly as many fields as there must be.
func split(line string, fields []string) error {
	for i := range fields[:len(fields)-1] {
		field, rest, found := strings.Cut(line, separator)
		if !found {
			return fmt.Errorf("has %d fields, want %d", i+1, len(fields))
		}
		fields[i], line = field, rest
	}
	if strings.Contains(line, separator) {
		return fmt.Errorf("has %d fields, want %d", len(fields)+strings.Count(line, separator), len(fields))
	}
	fields[len(fields)-1] = line
	return nil
}

func parseHeader(line string) (Header, error) {
	var f [headerFields]string
	if err := split(line, f[:]); err != nil {
		return Header{}, err
	}
	if f[0] != headerMark {
		return Header{}, fmt.Errorf("begins with %.8q, want %q", f[0], headerMark)
	}
	if f[2] != Version {
		return Header{}, fmt.Errorf("layout %.8q, want %q", f[2], Version)
	}
	h := Header{Kind: Kind(f[1])}
	var err error
	if h.ISPB, err = pix.ParseISPB(f[3]); err != nil {
		return Header{}, err
	}
	switch h.Kind {
	case Entries:
		if h.From, err = parseInstant(f[4]); err != nil {
			return Header{}, err
		}
		if h.To, err = parseInstant(f[5]); err != nil {
			return Header{}, err
		}
	case Settlement:
		if h.CycleDate, err = time.Parse(time.DateOnly, f[4]); err != nil {
			return Header{}, fmt.Errorf("cycle date %.16q: want YYYY-MM-DD", f[4])
		}
		h.CycleType = f[5]
	default:
		return Header{}, fmt.Errorf("kind %.16q, want %q or %q", f[1], Entries, Settlement)
	}
	return h, h.check()
}

// check holds a header to what a file can mean.
func (h Header) check() error {
	switch h.Kind {
	case Entries:
		if !h.From.Truncate(time.Millisecond).Before(h.To.Truncate(time.Millisecond)) {
			return fmt.Errorf("the period ends at %s and begins at %s", instant(h.To), instant(h.From))
		}
	case Settlement:
		if h.CycleType == "" || len(h.CycleType) > mostType || strings.Trim(h.CycleType, "abcdefghijklmnopqrstuvwxyz0123456789_-") != "" {
			return fmt.Errorf("cycle type %.40q: want 1 to %d of a to z, 0 to 9, '_', '-'", h.CycleType, mostType)
		}
	default:
		return fmt.Errorf("kind %.16q, want %q or %q", string(h.Kind), Entries, Settlement)
	}
	return nil
}

// money is what a record adds to the sums, as far as it could be read.
type money struct {
	direction pix.Direction
	amount    pix.Amount
	known     bool
}

func parseMoney(side, amount string) (money, error) {
	var m money
	switch side {
	case "D":
		m.direction = pix.Out
	case "C":
		m.direction = pix.In
	default:
		return money{}, fmt.Errorf("side %.8q, want D or C", side)
	}
	var err error
	if m.amount, err = pix.ParseAmount(amount); err != nil {
		return money{}, err
	}
	m.known = true
	if m.amount == 0 {
		return m, errors.New("the amount is zero")
	}
	return m, nil
}

// parseEntry reads an entry and, whatever else is wrong with it, what it is worth.
func parseEntry(line string, h Header) (Entry, money, error) {
	var f [entryFields]string
	if err := split(line, f[:]); err != nil {
		return Entry{}, money{}, err
	}
	m, err := parseMoney(f[4], f[5])
	if err != nil {
		return Entry{}, m, err
	}
	e := Entry{ID: f[1], Original: f[2], Kind: pix.Kind(f[3]), Direction: m.direction, Amount: m.amount}
	if f[0] != recordMark {
		return Entry{}, m, fmt.Errorf("begins with %.8q, want %q", f[0], recordMark)
	}
	if err := e.checkIDs(); err != nil {
		return Entry{}, m, err
	}
	if e.SettledAt, err = parseInstant(f[6]); err != nil {
		return Entry{}, m, err
	}
	if e.SettledAt.Before(h.From) || !e.SettledAt.Before(h.To) {
		return Entry{}, m, fmt.Errorf("settled at %s, outside the period of the file", instant(e.SettledAt))
	}
	if e.Counterparty, err = pix.ParseISPB(f[7]); err != nil {
		return Entry{}, m, err
	}
	return e, m, nil
}

func (e Entry) checkIDs() error {
	switch e.Kind {
	case pix.Payment:
		if _, err := pix.ParseEndToEndID(e.ID); err != nil {
			return fmt.Errorf("EndToEndId: %w", err)
		}
		if e.Original != "" {
			return errors.New("a payment gives nothing back, and names an original")
		}
	case pix.Return:
		if _, err := pix.ParseReturnID(e.ID); err != nil {
			return fmt.Errorf("RtrId: %w", err)
		}
		if _, err := pix.ParseEndToEndID(e.Original); err != nil {
			return fmt.Errorf("EndToEndId of the original: %w", err)
		}
	default:
		return fmt.Errorf("kind %.16q, want %q or %q", string(e.Kind), pix.Payment, pix.Return)
	}
	return nil
}

func parseConfirmation(line string) (Confirmation, money, error) {
	var f [confirmationFields]string
	if err := split(line, f[:]); err != nil {
		return Confirmation{}, money{}, err
	}
	m, err := parseMoney(f[2], f[3])
	if err != nil {
		return Confirmation{}, m, err
	}
	c := Confirmation{Direction: m.direction, Amount: m.amount}
	if f[0] != recordMark {
		return Confirmation{}, m, fmt.Errorf("begins with %.8q, want %q", f[0], recordMark)
	}
	if c.Party, err = pix.ParseISPB(f[1]); err != nil {
		return Confirmation{}, m, err
	}
	if c.PaidAt, err = parseInstant(f[4]); err != nil {
		return Confirmation{}, m, err
	}
	return c, m, nil
}

// trailer is what the last line says of the others.
type trailer struct {
	records         int64
	debits, credits pix.Amount
}

func parseTrailer(line string) (trailer, error) {
	var f [trailerFields]string
	if err := split(line, f[:]); err != nil {
		return trailer{}, err
	}
	var t trailer
	var err error
	if t.records, err = parseCount(f[1]); err != nil {
		return trailer{}, err
	}
	if t.debits, err = pix.ParseAmount(f[2]); err != nil {
		return trailer{}, fmt.Errorf("sum of debits: %w", err)
	}
	if t.credits, err = pix.ParseAmount(f[3]); err != nil {
		return trailer{}, fmt.Errorf("sum of credits: %w", err)
	}
	return t, nil
}

// parseCount reads a number as it is written here: no sign, no zeros before it.
func parseCount(s string) (int64, error) {
	const mostDigits = 15 // Count15 of the SPI's messages
	if s == "" || len(s) > mostDigits || s[0] == '0' && s != "0" {
		return 0, fmt.Errorf("count %.20q: want 1 to %d digits", s, mostDigits)
	}
	var n int64
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return 0, fmt.Errorf("count %.20q: want digits", s)
		}
		n = n*10 + int64(c-'0')
	}
	return n, nil
}

// parseInstant reads exactly what instant writes: RFC 3339 is the fast way, and its form is held to one length.
func parseInstant(s string) (time.Time, error) {
	if len(s) == len(instantFormat) && s[len(s)-1] == 'Z' && s[len(s)-5] == '.' {
		if t, err := time.Parse(time.RFC3339, s); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("instant %.32q: want %s in UTC", s, "YYYY-MM-DDThh:mm:ss.mmmZ")
}

func instant(t time.Time) string { return t.UTC().Format(instantFormat) }

func side(d pix.Direction) string {
	if d == pix.Out {
		return "D"
	}
	return "C"
}
