package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store/db"
)

// FileKind says what the records of a file are.
type FileKind string

// The kinds.
const (
	// EntriesFile has the entries of the PI account.
	EntriesFile FileKind = "entries"
	// SettlementFile confirms the net lines of a cycle.
	SettlementFile FileKind = "settlement"
)

// FileState says what became of a file.
type FileState string

// The states of a file.
const (
	// FileImported: what it says is in the tables.
	FileImported FileState = "imported"
	// FileRefused: nothing of it is; its reason is kept.
	FileRefused FileState = "refused"
)

// Object is a file as a bucket lists it.
type Object struct {
	Name string
	// Version changes with the content: an object of the same name and version is not looked into again.
	Version string
	Size    int64
}

// File is what is known of a file as a whole.
type File struct {
	// ID, State, Term and ImportedAt are given by the tables.
	ID    int64
	State FileState
	// Kind and SHA256 may be empty of one that was refused. SHA256 is of the text, in 64 hexadecimal digits.
	Kind   FileKind
	SHA256 string
	// Object is where it was found; its Version is not kept here.
	Object
	ISPB pix.ISPB
	// From and To are the period of entries: From belongs to it, To does not.
	From, To time.Time
	// CycleID is that of a settlement.
	CycleID int64
	// Records counts all; RowsRefused those of them that were not taken.
	Records, RowsRefused int64
	Debits, Credits      pix.Amount
	Reason               string
	Term                 int64
	ImportedAt           time.Time
}

// StatementEntry is one entry of the PI account, as a file has it.
type StatementEntry struct {
	Line      int64
	PaymentID string
	// OriginalID is of a return.
	OriginalID   string
	Kind         pix.Kind
	Direction    pix.Direction
	Amount       pix.Amount
	Counterparty pix.ISPB
	SettledAt    time.Time
}

// Confirmation is a net line that a settlement says was paid.
type Confirmation struct {
	Line      int64
	Party     pix.ISPB
	Direction pix.Direction
	Amount    pix.Amount
	PaidAt    time.Time
}

// RowError is a record that is not taken. The iterator of an import yields it in the place of the record.
type RowError struct {
	Line   int64
	Reason string
}

// Error says where and why.
func (e *RowError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Reason) }

// Files is the aggregate of imported files. What changes it is a leader's: an older term is refused.
//
// An import is one transaction, and the file's own row, which makes its content known, is the last that it writes, under the
// newest term: of two leaders at once one has written, and nobody waits for the other's rows. A transaction of an older
// term that stands still, because its process does, holds up nobody but itself.
type Files struct {
	db    *DB
	q     *db.Queries
	terms *Terms
}

// NewFiles returns the files in d.
func NewFiles(d *DB) *Files { return &Files{db: d, q: db.New(), terms: NewTerms(d)} }

// Unseen returns those objects that were not imported, refused or found to be known in this version, in their order. Names
// are at most a few thousand.
func (f *Files) Unseen(ctx context.Context, objects []Object) ([]Object, error) {
	names := make([]string, len(objects))
	for i, o := range objects {
		names[i] = o.Name
	}
	var unseen []Object
	err := f.db.call(ctx, "unseen objects", func(ctx context.Context, conn db.DBTX) error {
		rows, err := f.q.SeenObjects(ctx, conn, names)
		seen := make(map[string]string, len(rows))
		for _, r := range rows {
			seen[r.Name] = r.Version
		}
		for _, o := range objects {
			if version, ok := seen[o.Name]; !ok || version != o.Version {
				unseen = append(unseen, o)
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return unseen, nil
}

// Get returns the file that was imported with a content. ErrNotFound: none was.
func (f *Files) Get(ctx context.Context, kind FileKind, sha256 string) (File, error) {
	var file File
	err := f.db.call(ctx, "get file", func(ctx context.Context, conn db.DBTX) error {
		row, err := f.q.ImportedFile(ctx, conn, db.ImportedFileParams{Kind: string(kind), Sha256: sha256})
		file = fileOf(row)
		return err
	})
	return file, err
}

// Latest returns up to most files, imported and refused, the newest first.
func (f *Files) Latest(ctx context.Context, most int) ([]File, error) {
	var files []File
	err := f.db.call(ctx, "latest files", func(ctx context.Context, conn db.DBTX) error {
		rows, err := f.q.LatestFiles(ctx, conn, int32(most))
		for _, r := range rows {
			files = append(files, fileOf(db.ImportedFileRow(r)))
		}
		return err
	})
	return files, err
}

// RefusedRows returns the first of the rows of a file that were not taken; File.RowsRefused counts all.
func (f *Files) RefusedRows(ctx context.Context, id int64) ([]RowError, error) {
	var refused []RowError
	err := f.db.call(ctx, "refused rows", func(ctx context.Context, conn db.DBTX) error {
		rows, err := f.q.RefusedRows(ctx, conn, id)
		for _, r := range rows {
			refused = append(refused, RowError{Line: r.Line, Reason: r.Reason})
		}
		return err
	})
	return refused, err
}

// FileAges says how far the imported entries reach.
type FileAges struct {
	// Now is the database's.
	Now time.Time
	// ImportedAt and To are those of the file of entries whose period ends last; zero: there is none.
	ImportedAt, To time.Time
}

// Ages says how far the imported entries reach.
func (f *Files) Ages(ctx context.Context) (FileAges, error) {
	var ages FileAges
	err := f.db.call(ctx, "ages of files", func(ctx context.Context, conn db.DBTX) error {
		row, err := f.q.FileAges(ctx, conn)
		ages = FileAges{Now: row.Now, ImportedAt: row.ImportedAt, To: row.PeriodTo}
		return err
	})
	return ages, err
}

// OpenLines returns the lines of a cycle that come to something and that no settlement has confirmed.
func (f *Files) OpenLines(ctx context.Context, cycleID int64) ([]Line, error) {
	var lines []Line
	err := f.db.call(ctx, "open lines", func(ctx context.Context, conn db.DBTX) error {
		rows, err := f.q.OpenLines(ctx, conn, cycleID)
		for _, r := range rows {
			lines = append(lines, lineOf(db.NettingsRow(r)))
		}
		return err
	})
	return lines, err
}

// ClosedCycle returns the number of a cycle that has its lines. ErrNotFound: there is none, or it has none yet.
func (f *Files) ClosedCycle(ctx context.Context, date time.Time, cycleType string) (int64, error) {
	var id int64
	err := f.db.call(ctx, "closed cycle", func(ctx context.Context, conn db.DBTX) error {
		row, err := f.q.NamedCycle(ctx, conn, db.NamedCycleParams{CycleDate: date, CycleType: cycleType})
		if err == nil && row.State != string(CycleClosed) {
			return fmt.Errorf("cycle %d is %s: %w", row.ID, row.State, ErrNotFound)
		}
		id = row.ID
		return err
	})
	return id, err
}

// Refuse notes that an object is no file that can be imported, with the reason, which must not be empty; what is known of
// it beside its Object may be missing. In this version it is seen. ErrStaleTerm: nothing was written.
func (f *Files) Refuse(ctx context.Context, by Reign, file File) error {
	return f.terms.InTx(ctx, by, func(ctx context.Context, tx *Tx) error {
		id, err := f.q.NextFile(ctx, tx.tx)
		if err != nil {
			return translate("refuse file", err)
		}
		file.ID, file.State, file.CycleID = id, FileRefused, 0
		if _, err := f.q.AddFile(ctx, tx.tx, file.params(by)); err != nil {
			return translate("refuse file", err)
		}
		return translate("refuse file", f.see(ctx, tx, file.Object, id))
	})
}

// See notes that an object is a file that was imported before, by its number. ErrStaleTerm: nothing was written.
func (f *Files) See(ctx context.Context, by Reign, object Object, id int64) error {
	return f.terms.InTx(ctx, by, func(ctx context.Context, tx *Tx) error {
		return translate("see object", f.see(ctx, tx, object, id))
	})
}

func (f *Files) see(ctx context.Context, tx *Tx, o Object, id int64) error {
	return f.q.SeeObject(ctx, tx.tx, db.SeeObjectParams{Name: o.Name, Version: o.Version, FileID: id})
}

// add ends an import: the term, then the file. errKnown: another import of the same content is done.
func (f *Files) add(ctx context.Context, tx *Tx, by Reign, file *File, refused *refusals) error {
	if err := f.terms.GuardTx(ctx, tx, by.Name, by.Term); err != nil {
		return err
	}
	file.State, file.RowsRefused, file.Term = FileImported, refused.count, by.Term
	var err error
	file.ImportedAt, err = f.q.AddFile(ctx, tx.tx, file.params(by))
	if err = translate("import file", err); errors.Is(err, ErrNotFound) {
		return errKnown
	}
	if err != nil {
		return err
	}
	if len(refused.lines) > 0 {
		err = f.q.AddRefusedRows(ctx, tx.tx, db.AddRefusedRowsParams{FileID: file.ID, Lines: refused.lines, Reasons: refused.reasons})
		if err != nil {
			return translate("refused rows", err)
		}
	}
	return translate("import file", f.see(ctx, tx, file.Object, file.ID))
}

func (f File) params(by Reign) db.AddFileParams {
	return db.AddFileParams{
		ID: f.ID, State: string(f.State), Kind: string(f.Kind), Sha256: f.SHA256, Name: f.Name, Size: f.Size, Ispb: string(f.ISPB),
		PeriodFrom: f.From, PeriodTo: f.To, CycleID: f.CycleID, Records: f.Records, Debits: int64(f.Debits), Credits: int64(f.Credits),
		RowsRefused: f.RowsRefused, Reason: f.Reason, Term: by.Term,
	}
}

func fileOf(r db.ImportedFileRow) File {
	return File{
		ID: r.ID, State: FileState(r.State), Kind: FileKind(r.Kind), SHA256: r.Sha256, Object: Object{Name: r.Name, Size: r.Size},
		ISPB: pix.ISPB(r.Ispb), From: r.PeriodFrom, To: r.PeriodTo, CycleID: r.CycleID, Records: r.Records, RowsRefused: r.RowsRefused,
		Debits: pix.Amount(r.Debits), Credits: pix.Amount(r.Credits), Reason: r.Reason, Term: r.Term, ImportedAt: r.ImportedAt,
	}
}
