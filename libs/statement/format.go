package statement

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/cabine-pix/cabine/libs/pix"
)

// Kind says what a file's records are, in the word of its header.
type Kind string

// The kinds.
const (
	// Entries are the entries of the PI account.
	Entries Kind = "EXTRATO"
	// Settlement is what was paid of the net lines of a cycle.
	Settlement Kind = "LIQUIDACAO"
)

// Version is the layout that this package reads and writes.
const Version = "1"

// Header is what a file says of itself.
type Header struct {
	Kind Kind
	// ISPB is the participant whose account it is.
	ISPB pix.ISPB
	// From and To are the period of Entries: From belongs to it, To does not.
	From, To time.Time
	// CycleDate, midnight UTC, and CycleType name the cycle of a Settlement.
	CycleDate time.Time
	CycleType string
}

// Entry is one entry of the PI account.
type Entry struct {
	// Line is where it stands in the file; the header is line 1.
	Line int64
	// ID is an EndToEndId or a RtrId, and Original what a return gives back.
	ID       string
	Original string
	Kind     pix.Kind
	// Direction is pix.Out for a debit of our account and pix.In for a credit.
	Direction pix.Direction
	Amount    pix.Amount
	// SettledAt has milliseconds.
	SettledAt    time.Time
	Counterparty pix.ISPB
}

// Confirmation is one net line that was paid.
type Confirmation struct {
	Line  int64
	Party pix.ISPB
	// Direction is pix.Out for what left our account and pix.In for what came.
	Direction pix.Direction
	Amount    pix.Amount
	PaidAt    time.Time
}

// Summary is what a whole file comes to.
type Summary struct {
	// Hash is the SHA-256 of the text, 64 hexadecimal digits.
	Hash string
	// Records counts all, Refused those that could not be read.
	Records, Refused int64
	// Debits and Credits are the trailer's.
	Debits, Credits pix.Amount
	// Size is that of the text, in bytes.
	Size int64
}

// Limits bounds what a file may take. The zero value of each field means its default.
type Limits struct {
	// MaxText is the most bytes of text. A line of entries has about 140: the default, 2 GiB, holds a day of ten million with
	// room for half as many more.
	MaxText int64
	// MaxLine is the most bytes of a line with its end, 128 to 64 KiB. Default 512; the longest line that is right has less
	// than 160.
	MaxLine int
}

// The defaults and the bounds of Limits.
const (
	DefaultMaxText = 2 << 30
	DefaultMaxLine = 512
	leastLine      = 128
	mostLine       = 64 << 10
)

// WithDefaults returns a copy in which zero fields have their defaults.
func (l Limits) WithDefaults() Limits {
	if l.MaxText == 0 {
		l.MaxText = DefaultMaxText
	}
	if l.MaxLine == 0 {
		l.MaxLine = DefaultMaxLine
	}
	return l
}

// Validate names every field that is wrong.
func (l Limits) Validate() error {
	var errs []error
	if l.MaxText < 1 {
		errs = append(errs, fmt.Errorf("MaxText is %d, want at least 1", l.MaxText))
	}
	if l.MaxLine < leastLine || l.MaxLine > mostLine {
		errs = append(errs, fmt.Errorf("MaxLine is %d, want %d to %d", l.MaxLine, leastLine, mostLine))
	}
	return errors.Join(errs...)
}

// RowError is a record that could not be read. Reading goes on.
type RowError struct {
	Line   int64
	Reason string
}

// Error says where and why, and nothing of the line but what is wrong with it.
func (e *RowError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Reason) }

// FileError is a file that means nothing. Reading is over.
type FileError struct {
	// Line is where it was seen; zero: of the file as a whole.
	Line   int64
	Reason string
}

// Error says where and why.
func (e *FileError) Error() string {
	if e.Line == 0 {
		return "file refused: " + e.Reason
	}
	return fmt.Sprintf("file refused at line %d: %s", e.Line, e.Reason)
}

const (
	extension  = ".zip"
	hashLength = 64
)

// Name returns the name of the file with a hash.
func Name(hash string) string { return hash + extension }

// Hash returns the hash that a file's name says, and whether it says one: 64 hexadecimal digits and ".zip". Directories
// before the name do not count.
func Hash(name string) (string, bool) {
	hash, ok := strings.CutSuffix(path.Base(name), extension)
	if !ok || len(hash) != hashLength {
		return "", false
	}
	hash = strings.ToLower(hash)
	return hash, strings.Trim(hash, "0123456789abcdef") == ""
}
