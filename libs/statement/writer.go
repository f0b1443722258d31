package statement

import (
	"archive/zip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"strconv"
	"strings"

	"github.com/cabine-pix/cabine/libs/pix"
)

// Writer writes one file, whose name is known when it is closed. The same records give the same text. It is not safe for
// concurrent use.
type Writer struct {
	archive *zip.Writer
	text    io.Writer
	hash    hash.Hash
	header  Header
	line    []byte
	sum     Summary
	failed  error // of the first write that failed; Close answers it too
	closed  bool
}

// NewWriter begins a file in w. The caller closes the Writer, and then w.
func NewWriter(w io.Writer, h Header) (*Writer, error) {
	if _, err := pix.ParseISPB(string(h.ISPB)); err != nil {
		return nil, fmt.Errorf("statement header: %w", err)
	}
	if err := h.check(); err != nil {
		return nil, fmt.Errorf("statement header: %w", err)
	}
	s := &Writer{archive: zip.NewWriter(w), hash: sha256.New(), header: h, line: make([]byte, 0, 2*leastLine)}
	member, err := s.archive.Create(strings.ToLower(string(h.Kind)) + ".txt")
	if err != nil {
		return nil, fmt.Errorf("begin statement: %w", err)
	}
	s.text = io.MultiWriter(member, s.hash)
	first, second := instant(h.From), instant(h.To)
	if h.Kind == Settlement {
		first, second = h.CycleDate.Format("2006-01-02"), h.CycleType
	}
	return s, s.write(headerMark, string(h.Kind), Version, string(h.ISPB), first, second)
}

// Entry writes an entry of a file of Entries; its Line does not count. It refuses what a Reader would.
func (s *Writer) Entry(e Entry) error {
	if s.header.Kind != Entries {
		return fmt.Errorf("an entry in a file of %q", s.header.Kind)
	}
	fields := []string{
		recordMark, e.ID, e.Original, string(e.Kind), side(e.Direction), e.Amount.String(), instant(e.SettledAt), string(e.Counterparty),
	}
	if _, _, err := parseEntry(strings.Join(fields, separator), s.header); err != nil {
		return fmt.Errorf("entry: %w", err)
	}
	return s.record(e.Direction, e.Amount, fields)
}

// Confirmation writes a line of a file of Settlement; its Line does not count. It refuses what a Reader would.
func (s *Writer) Confirmation(c Confirmation) error {
	if s.header.Kind != Settlement {
		return fmt.Errorf("a confirmation in a file of %q", s.header.Kind)
	}
	fields := []string{recordMark, string(c.Party), side(c.Direction), c.Amount.String(), instant(c.PaidAt)}
	if _, _, err := parseConfirmation(strings.Join(fields, separator)); err != nil {
		return fmt.Errorf("confirmation: %w", err)
	}
	return s.record(c.Direction, c.Amount, fields)
}

// Close writes the trailer and ends the archive. The file's name is Name of the Summary's Hash.
func (s *Writer) Close() (Summary, error) {
	if s.closed {
		return Summary{}, errors.New("the statement is closed")
	}
	s.closed = true
	err := s.write(trailerMark, strconv.FormatInt(s.sum.Records, 10), s.sum.Debits.String(), s.sum.Credits.String())
	if err != nil {
		return Summary{}, err
	}
	if err := s.archive.Close(); err != nil {
		return Summary{}, fmt.Errorf("end statement: %w", err)
	}
	s.sum.Hash = hex.EncodeToString(s.hash.Sum(nil))
	return s.sum, nil
}

func (s *Writer) record(d pix.Direction, amount pix.Amount, fields []string) error {
	sum := &s.sum.Credits
	if d == pix.Out {
		sum = &s.sum.Debits
	}
	if amount > pix.MaxAmount-*sum {
		return errors.New("the sum does not fit 18 digits")
	}
	if err := s.write(fields...); err != nil {
		return err
	}
	*sum += amount
	s.sum.Records++
	return nil
}

func (s *Writer) write(fields ...string) error {
	if s.failed != nil {
		return s.failed
	}
	s.line = s.line[:0]
	for i, f := range fields {
		if i > 0 {
			s.line = append(s.line, separator...)
		}
		s.line = append(s.line, f...)
	}
	s.line = append(s.line, '\n')
	n, err := s.text.Write(s.line)
	s.sum.Size += int64(n)
	if err != nil {
		s.failed = fmt.Errorf("write statement: %w", err)
	}
	return s.failed
}
