package statement

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"unicode/utf8"

	"github.com/cabine-pix/cabine/libs/pix"
)

// Reader reads one file. It is not safe for concurrent use, and its memory does not grow with the file.
type Reader struct {
	limits Limits
	text   io.ReadCloser
	in     *bufio.Reader
	hash   hash.Hash
	header Header
	line   int64

	records, refused int64
	debits, credits  pix.Amount
	unknown          bool // some record's money could not be read
	size             int64
	trailer          trailer
	ended            error // what every further call answers
}

// Open begins to read the archive in r and reads its header. A *FileError: it is none that can be read; any other error is
// of r. The caller closes the Reader, and then r.
func Open(r io.ReaderAt, size int64, limits Limits) (*Reader, error) {
	limits = limits.WithDefaults()
	if err := limits.Validate(); err != nil {
		return nil, fmt.Errorf("statement limits: %w", err)
	}
	member, err := openMember(r, size, limits.MaxText)
	if err != nil {
		return nil, err
	}
	s := &Reader{limits: limits, text: member, hash: sha256.New()}
	s.in = bufio.NewReaderSize(io.TeeReader(member, s.hash), mostLine)
	if err := s.readHeader(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Close ends reading. It does not close what Open was given.
func (s *Reader) Close() error {
	if err := s.text.Close(); err != nil {
		return fmt.Errorf("close statement: %w", err)
	}
	return nil
}

// Header is what the file says of itself.
func (s *Reader) Header() Header { return s.header }

// Read is how many bytes of text were read.
func (s *Reader) Read() int64 { return s.size }

// Records is how many records were read, those that could not be included.
func (s *Reader) Records() int64 { return s.records }

// Summary is what the file comes to. It means something after io.EOF, and nothing before.
func (s *Reader) Summary() Summary {
	return Summary{
		Hash: hex.EncodeToString(s.hash.Sum(nil)), Records: s.records, Refused: s.refused,
		Debits: s.trailer.debits, Credits: s.trailer.credits, Size: s.size,
	}
}

// Next returns the next entry of a file of Entries. A *RowError: this one cannot be read, call again. io.EOF: there are no
// more, and the file is whole. Every other error, a *FileError among them, is the end, and what was read is void.
func (s *Reader) Next() (Entry, error) {
	line, err := s.next(Entries)
	if err != nil {
		return Entry{}, err
	}
	e, m, err := parseEntry(line, s.header)
	if err := s.count(m, err); err != nil {
		return Entry{}, err
	}
	e.Line = s.line
	return e, nil
}

// NextConfirmation is Next of a file of Settlement.
func (s *Reader) NextConfirmation() (Confirmation, error) {
	line, err := s.next(Settlement)
	if err != nil {
		return Confirmation{}, err
	}
	c, m, err := parseConfirmation(line)
	if err := s.count(m, err); err != nil {
		return Confirmation{}, err
	}
	c.Line = s.line
	return c, nil
}

// Skip reads the next record of whatever kind and answers as Next does, for who wants to know whether a file is whole.
func (s *Reader) Skip() error {
	var err error
	if s.header.Kind == Settlement {
		_, err = s.NextConfirmation()
	} else {
		_, err = s.Next()
	}
	return err
}

func (s *Reader) readHeader() error {
	line, err := s.readLine()
	if errors.Is(err, io.EOF) {
		return &FileError{Reason: "the text is empty"}
	}
	if err != nil {
		return err
	}
	if bytes.HasPrefix([]byte(line), []byte("\ufeff")) {
		return &FileError{Line: 1, Reason: "it begins with a byte order mark"}
	}
	if s.header, err = parseHeader(line); err != nil {
		return &FileError{Line: 1, Reason: "header: " + err.Error()}
	}
	return nil
}

// next returns the next line that is a record.
func (s *Reader) next(kind Kind) (string, error) {
	if s.ended != nil {
		return "", s.ended
	}
	if s.header.Kind != kind {
		return "", fmt.Errorf("the file is %q, asked for %q", s.header.Kind, kind)
	}
	line, err := s.readLine()
	switch {
	case errors.Is(err, io.EOF):
		s.ended = &FileError{Line: s.line, Reason: "it ends without a trailer: it is cut"}
	case err != nil:
		s.ended = err
	case isTrailer(line):
		s.ended = s.finish(line)
	default:
		return line, nil
	}
	return "", s.ended
}

func isTrailer(line string) bool {
	return len(line) > 1 && line[:2] == trailerMark+separator || line == trailerMark
}

// count adds a record to the sums and turns what is wrong with it into its error.
func (s *Reader) count(m money, wrong error) error {
	s.records++
	s.unknown = s.unknown || !m.known
	sum := &s.credits
	if m.direction == pix.Out {
		sum = &s.debits
	}
	if m.amount > pix.MaxAmount-*sum {
		s.ended = &FileError{Line: s.line, Reason: "the sum does not fit 18 digits"}
		return s.ended
	}
	*sum += m.amount
	if wrong != nil {
		s.refused++
		return &RowError{Line: s.line, Reason: wrong.Error()}
	}
	return nil
}

// finish compares the trailer and reads to the end of the archive: io.EOF if all agrees.
func (s *Reader) finish(line string) error {
	t, err := parseTrailer(line)
	if err != nil {
		return &FileError{Line: s.line, Reason: "trailer: " + err.Error()}
	}
	s.trailer = t
	if t.records != s.records {
		return &FileError{Line: s.line, Reason: fmt.Sprintf("the trailer counts %d records, there are %d", t.records, s.records)}
	}
	if !s.unknown && (t.debits != s.debits || t.credits != s.credits) {
		return &FileError{Line: s.line, Reason: fmt.Sprintf("the trailer has debits of %s and credits of %s, the records come to %s and %s",
			t.debits, t.credits, s.debits, s.credits)}
	}
	if _, err := s.readLine(); err != nil {
		return err // io.EOF, after the archive's checksum was compared
	}
	return &FileError{Line: s.line, Reason: "there is more after the trailer"}
}

// readLine returns a line without its end.
func (s *Reader) readLine() (string, error) {
	raw, err := s.in.ReadSlice('\n')
	if len(raw) > 0 {
		s.line++
	}
	s.size += int64(len(raw))
	switch {
	case len(raw) > s.limits.MaxLine || errors.Is(err, bufio.ErrBufferFull):
		return "", &FileError{Line: s.line, Reason: fmt.Sprintf("the line is longer than %d bytes", s.limits.MaxLine)}
	case errors.Is(err, io.EOF) && len(raw) == 0:
		return "", io.EOF
	case err != nil && !errors.Is(err, io.EOF):
		return "", s.broken(err)
	}
	if !utf8.Valid(raw) {
		return "", &FileError{Line: s.line, Reason: fmt.Sprintf("it is not UTF-8: byte 0x%02X, as in Latin-1", foreign(raw))}
	}
	raw = bytes.TrimSuffix(raw, []byte("\n"))
	return string(bytes.TrimSuffix(raw, []byte("\r"))), nil
}

// foreign returns the first byte that is not UTF-8.
func foreign(raw []byte) byte {
	for len(raw) > 0 {
		r, n := utf8.DecodeRune(raw)
		if r == utf8.RuneError && n == 1 {
			return raw[0]
		}
		raw = raw[n:]
	}
	return 0
}

// broken tells what is wrong with the archive from what is wrong with reading it.
func (s *Reader) broken(err error) error {
	if fault := archiveFault(err); fault != "" {
		return &FileError{Line: s.line, Reason: fault}
	}
	return fmt.Errorf("read statement: %w", err)
}
