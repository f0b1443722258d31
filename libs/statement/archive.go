package statement

import (
	"archive/zip"
	"compress/flate"
	"errors"
	"fmt"
	"io"
)

// directoryBudget is how many bytes may be read to find the one member: the end record is looked for in the last 64 KiB,
// and a directory with one member is far smaller than the rest. It keeps archive/zip from building a list of millions.
const directoryBudget = 256 << 10

const encrypted = 1 // general purpose bit 0

var (
	errDirectory = errors.New("the directory of the archive is too large")
	errOffset    = errors.New("the archive points out of itself")
)

// openMember returns the text of an archive that has one member. *FileError: it has not, or is no archive.
func openMember(r io.ReaderAt, size, maxText int64) (io.ReadCloser, error) {
	budget := &budgeted{from: r, size: size, left: directoryBudget, limited: true}
	archive, err := zip.NewReader(budget, size)
	budget.limited = false
	if err != nil {
		if fault := archiveFault(err); fault != "" {
			return nil, &FileError{Reason: fault}
		}
		return nil, fmt.Errorf("open statement: %w", err)
	}
	if n := len(archive.File); n != 1 {
		return nil, &FileError{Reason: fmt.Sprintf("the archive has %d members, want 1", n)}
	}
	f := archive.File[0]
	switch {
	case !f.Mode().IsRegular():
		return nil, &FileError{Reason: "the member of the archive is no file"}
	case f.Flags&encrypted != 0:
		return nil, &FileError{Reason: "the archive is encrypted"}
	case f.UncompressedSize64 > uint64(maxText): // archive/zip lets no more out than the directory says
		return nil, &FileError{Reason: fmt.Sprintf("the text has %d bytes, allowed are %d", f.UncompressedSize64, maxText)}
	}
	member, err := f.Open()
	if err != nil {
		if fault := archiveFault(err); fault != "" {
			return nil, &FileError{Reason: fault}
		}
		return nil, fmt.Errorf("open statement: %w", err)
	}
	return member, nil
}

// archiveFault says what is wrong with the archive itself; "": err is of something else.
func archiveFault(err error) string {
	if _, ok := errors.AsType[flate.CorruptInputError](err); ok {
		return "the archive is damaged"
	}
	switch {
	case errors.Is(err, errDirectory), errors.Is(err, errOffset):
		return err.Error()
	case errors.Is(err, zip.ErrAlgorithm):
		return "the archive is packed by a method other than deflate"
	case errors.Is(err, zip.ErrChecksum):
		return "the checksum of the archive is wrong"
	case errors.Is(err, zip.ErrInsecurePath):
		return "the member of the archive is no file"
	case errors.Is(err, zip.ErrFormat), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return "it is no ZIP archive, or is cut"
	}
	return ""
}

// budgeted reads no more than left while it is limited, and nothing outside of the archive: archive/zip trusts offsets.
type budgeted struct {
	from    io.ReaderAt
	size    int64
	left    int64
	limited bool
}

// ReadAt implements io.ReaderAt.
func (b *budgeted) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off > b.size {
		return 0, errOffset
	}
	if b.limited {
		if b.left -= int64(len(p)); b.left < 0 {
			return 0, errDirectory
		}
	}
	return b.from.ReadAt(p, off)
}
