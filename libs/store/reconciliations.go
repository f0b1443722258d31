package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store/db"
)

// Cause is why a reconciliation began.
type Cause string

// The causes. Those of the chain, CauseSchedule and CauseDeploy, have periods that follow each other without a gap.
const (
	CauseSchedule Cause = "schedule"
	CauseDeploy   Cause = "deploy"
	// CauseDay is a day as a whole, CauseManual a period that somebody asked for.
	CauseDay    Cause = "day"
	CauseManual Cause = "manual"
)

// Chained reports whether c belongs to the chain.
func (c Cause) Chained() bool { return c == CauseSchedule || c == CauseDeploy }

// ReconciliationState says how a reconciliation stands.
type ReconciliationState string

// The states of a reconciliation. Compared and failed are final.
const (
	// ReconciliationAsked waits for the answer, ReconciliationAnnounced has the name of its file, ReconciliationImporting waits
	// until the file is in the tables.
	ReconciliationAsked     ReconciliationState = "asked"
	ReconciliationAnnounced ReconciliationState = "announced"
	ReconciliationImporting ReconciliationState = "importing"
	ReconciliationCompared  ReconciliationState = "compared"
	ReconciliationFailed    ReconciliationState = "failed"
)

// Finding is how a line differs.
type Finding string

// The findings.
const (
	// MissingHere: the bank has an entry, and we have nothing of that name that settled.
	MissingHere Finding = "missing_here"
	// MissingThere: we have it as settled, and the bank has no entry.
	MissingThere Finding = "missing_there"
	// Differing: both have it, with another amount, side, participant or time.
	Differing Finding = "differing"
	// Doubled: the bank has several entries of that name.
	Doubled Finding = "doubled"
)

// Findings lists all of them.
func Findings() []Finding { return []Finding{MissingHere, MissingThere, Differing, Doubled} }

// Reconciliation is one comparison of our books with the bank's account. Instants that are not there yet are zero.
type Reconciliation struct {
	ID      int64
	Cause   Cause
	Version string
	// Active: the SPI is asked about each line. Otherwise lines are only listed.
	Active bool
	// From belongs to the period, To does not.
	From, To time.Time
	State    ReconciliationState
	// Reason explains a failure; before one, why it was asked again; of one that is compared, what was wrong with its file.
	Reason string
	// Asked is how often the file was asked for.
	Asked                                            int
	AskedAt, AnnouncedAt, FetchedAt, ComparedAt, Now time.Time
	// FileHash is the camt.052's, FileEntries how many it announced; FileID is the imported file's, Entries how many it has.
	FileHash                     string
	FileEntries, FileID, Entries int64
	// Found counts lines by their finding, Unresolved those that are open.
	Found      map[Finding]int64
	Unresolved int64
	// Balance is the account's at BalanceAt. Expected is what it should be by the one before and the entries since, if Judged.
	Balance   pix.Amount
	BalanceAt time.Time
	Expected  int64
	Judged    bool
	CreatedAt time.Time
}

// ReconciliationLine is one payment or return that differs.
type ReconciliationLine struct {
	PaymentID string
	Finding   Finding
	// OurState is empty if we do not know it.
	OurState pix.State
	Ours     Side
	// Entries is how many the bank's file has.
	Entries int
	Theirs  Side
	// Asked is how often the SPI was asked, Answer what it said, Resolution how the line ended; empty: it is open.
	Asked              int
	Answer, Resolution string
}

// Side is what one of both has of a payment.
type Side struct {
	Direction    pix.Direction
	Amount       pix.Amount
	Counterparty pix.ISPB
	SettledAt    time.Time
}

// Standing is what decides whether a reconciliation is due.
type Standing struct {
	Now time.Time
	// Began is where the chain begins and Head where it ends, LastDay the beginning of the last whole day; zero: there is none.
	// What failed is no part of it.
	Began, Head, LastDay time.Time
	// BalanceAt is the instant of the balance that was told to the last one of the chain; zero: none.
	BalanceAt time.Time
	// Version is that of the program that began the last one.
	Version string
	// FailedAt and FailedDayAt are when the last one began that failed, of the chain and of days.
	FailedAt, FailedDayAt time.Time
	// ChainOpen: one of the chain is neither compared nor failed.
	ChainOpen bool
}

// Reconciliations is the aggregate of comparisons. What changes them is a leader's; answers of the SPI are noted by whoever
// closes their messages.
type Reconciliations struct {
	db       *DB
	q        *db.Queries
	terms    *Terms
	outbox   *Outbox
	payments *Payments
}

// NewReconciliations returns the reconciliations in d.
func NewReconciliations(d *DB) *Reconciliations {
	return &Reconciliations{db: d, q: db.New(), terms: NewTerms(d), outbox: NewOutbox(d), payments: NewPayments(d)}
}

// Standing reads what decides whether one is due.
func (r *Reconciliations) Standing(ctx context.Context) (Standing, error) {
	var s Standing
	err := r.db.call(ctx, "reconciliations", func(ctx context.Context, conn db.DBTX) error {
		row, err := r.q.ReconciliationStanding(ctx, conn)
		s = Standing{
			Now: row.Now, Began: row.Began, Head: row.Head, BalanceAt: row.BalanceAt, LastDay: row.LastDay, Version: row.Version,
			FailedAt: row.FailedAt, FailedDayAt: row.FailedDayAt, ChainOpen: row.ChainOpen,
		}
		return err
	})
	return s, err
}

// Inquiry is a question about the account, as package iso20022 reads it.
type Inquiry struct {
	// Balance: it asks for the balance; otherwise for the entries of the period.
	Balance bool
	MsgType string
	Channel pix.Channel
	Body    json.RawMessage
}

// Start begins the reconciliation of a period with its questions, in one transaction. ErrNotFound: the period, or a part of
// it, has one already. ErrStaleTerm: nothing was written.
func (r *Reconciliations) Start(ctx context.Context, by Reign, begun Reconciliation, questions []Inquiry) (int64, error) {
	var id int64
	mode := "observe"
	if begun.Active {
		mode = "active"
	}
	err := r.terms.InTx(ctx, by, func(ctx context.Context, tx *Tx) (err error) {
		id, err = r.q.StartReconciliation(ctx, tx.tx, db.StartReconciliationParams{
			Cause: string(begun.Cause), Version: begun.Version, Mode: mode, PeriodFrom: begun.From, PeriodTo: begun.To, Term: by.Term,
		})
		if err != nil {
			return translate("start reconciliation", err)
		}
		return r.ask(ctx, tx, by, Reconciliation{ID: id}, "", questions)
	})
	return id, err
}

// Ask asks anew for a reconciliation as it was read, and says why. ErrNotFound: it stands otherwise by now.
func (r *Reconciliations) Ask(ctx context.Context, by Reign, seen Reconciliation, why string, questions []Inquiry) error {
	return r.terms.InTx(ctx, by, func(ctx context.Context, tx *Tx) error { return r.ask(ctx, tx, by, seen, why, questions) })
}

func (r *Reconciliations) ask(ctx context.Context, tx *Tx, by Reign, seen Reconciliation, why string, questions []Inquiry) error {
	n, err := r.q.AskReconciliation(ctx, tx.tx, db.AskReconciliationParams{Reason: why, Term: by.Term, ID: seen.ID, Asked: int32(seen.Asked)})
	if err == nil && n == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return translate("ask", err)
	}
	operations := make([]Operation, len(questions))
	p := db.AddReconciliationQuestionsParams{ReconciliationID: seen.ID}
	for i, q := range questions {
		subject := "entries"
		if q.Balance {
			subject = "balance"
		}
		name := fmt.Sprintf("reconciliation/%d/%s/%d", seen.ID, subject, seen.Asked+1)
		operations[i] = Operation{PaymentID: name, MsgType: q.MsgType, Channel: q.Channel, Body: q.Body}
		p.Subjects, p.PaymentIds = append(p.Subjects, subject), append(p.PaymentIds, "")
	}
	return r.question(ctx, tx, operations, p)
}

// question writes operations and what they are asked for.
func (r *Reconciliations) question(ctx context.Context, tx *Tx, operations []Operation, p db.AddReconciliationQuestionsParams) error {
	added, err := r.outbox.Add(ctx, tx, operations)
	if err != nil {
		return err
	}
	for _, op := range added {
		p.OperationIds = append(p.OperationIds, op.ID)
	}
	return translate("questions", r.q.AddReconciliationQuestions(ctx, tx.tx, p))
}

// EntryQuestions says how lines are asked about.
type EntryQuestions struct {
	MsgType string
	Channel pix.Channel
	// Body makes the question about a payment.
	Body func(paymentID string) (json.RawMessage, error)
	// Again is when a line without an answer is asked about again, Most how often at all, AtOnce how many lines.
	Again        time.Duration
	Most, AtOnce int
	// Who and Reason are those of the event that each payment gets which we know.
	Who, Reason string
}

// AskLines asks the SPI about lines of a reconciliation that are open, and returns about how many. ErrStaleTerm: nothing
// was written.
func (r *Reconciliations) AskLines(ctx context.Context, by Reign, id int64, how EntryQuestions) (int, error) {
	var asked int
	err := r.terms.InTx(ctx, by, func(ctx context.Context, tx *Tx) error {
		ids, err := r.q.LinesToAsk(ctx, tx.tx, db.LinesToAskParams{
			ReconciliationID: id, Most: int32(how.Most), Again: how.Again, AtMost: int32(how.AtOnce),
		})
		asked = len(ids)
		if err != nil || asked == 0 {
			return translate("lines to ask", err)
		}
		p := db.AddReconciliationQuestionsParams{ReconciliationID: id, PaymentIds: ids}
		operations := make([]Operation, len(ids))
		for i, payment := range ids {
			body, err := how.Body(payment)
			if err != nil {
				return fmt.Errorf("question: %w", err)
			}
			operations[i] = Operation{PaymentID: payment, MsgType: how.MsgType, Channel: how.Channel, Body: body}
			p.Subjects = append(p.Subjects, "entry")
			why := fmt.Sprintf("reconciliation %d differs", id)
			if err := r.payments.Note(ctx, tx, payment, how.Who, how.Reason, why); err != nil && !errors.Is(err, ErrNotFound) {
				return err
			}
		}
		if err := r.question(ctx, tx, operations, p); err != nil {
			return err
		}
		_, err = r.q.LinesAsked(ctx, tx.tx, db.LinesAskedParams{ReconciliationID: id, PaymentIds: ids})
		return translate("lines asked", err)
	})
	if err != nil {
		return 0, err
	}
	return asked, nil
}

// Fetched records that the announced file is where the importer finds it. ErrNotFound: it stands otherwise by now.
func (r *Reconciliations) Fetched(ctx context.Context, by Reign, seen Reconciliation) error {
	return r.terms.InTx(ctx, by, func(ctx context.Context, tx *Tx) error {
		n, err := r.q.ReconciliationFetched(ctx, tx.tx, db.ReconciliationFetchedParams{Term: by.Term, ID: seen.ID, FileHash: seen.FileHash})
		if err == nil && n == 0 {
			err = ErrNotFound
		}
		return translate("fetched", err)
	})
}

// Fail ends a reconciliation that cannot be done, and says why. ErrNotFound: it has ended.
func (r *Reconciliations) Fail(ctx context.Context, by Reign, id int64, why string) error {
	return r.terms.InTx(ctx, by, func(ctx context.Context, tx *Tx) error {
		n, err := r.q.FailReconciliation(ctx, tx.tx, db.FailReconciliationParams{Reason: why, Term: by.Term, ID: id})
		if err == nil && n == 0 {
			err = ErrNotFound
		}
		return translate("fail reconciliation", err)
	})
}

// AnswerFile notes what a camt.052 says to the question of a MsgId, and answers whether that was a reconciliation's.
func (r *Reconciliations) AnswerFile(ctx context.Context, tx *Tx, msgID pix.MsgID, info string, entries int64) (bool, error) {
	asked, err := r.q.AnswerReconciliationFile(ctx, tx.tx, db.AnswerReconciliationFileParams{MsgID: string(msgID), Hash: info, Entries: entries})
	return asked, translate("answer", err)
}

// AnswerBalance notes what a camt.053 says, as AnswerFile does.
func (r *Reconciliations) AnswerBalance(ctx context.Context, tx *Tx, msgID pix.MsgID, balance pix.Amount, at time.Time) (bool, error) {
	asked, err := r.q.AnswerReconciliationBalance(ctx, tx.tx, db.AnswerReconciliationBalanceParams{
		MsgID: string(msgID), Balance: int64(balance), BalanceAt: at,
	})
	return asked, translate("answer", err)
}

// AnswerBooked is what AnswerEntry is told of an entry that is booked. Every other answer is none that resolves.
const AnswerBooked = "BOOK"

// AnswerEntry notes what a camt.054 says of a payment, as AnswerFile does. Only the side's Direction and Amount are read.
func (r *Reconciliations) AnswerEntry(ctx context.Context, tx *Tx, msgID pix.MsgID, paymentID, answer string, side Side) (bool, error) {
	asked, err := r.q.AnswerReconciliationEntry(ctx, tx.tx, db.AnswerReconciliationEntryParams{
		MsgID: string(msgID), PaymentID: paymentID, Answer: answer, Direction: string(side.Direction), Amount: int64(side.Amount),
	})
	return asked, translate("answer", err)
}
