package spitest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cabine-pix/cabine/libs/icom/icomtest"
	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/statement"
)

// question is a camt.060 that a file of entries answers.
type question struct {
	asked    icomtest.Received
	id       pix.MsgID
	owner    pix.ISPB
	from, to time.Time
}

const dayAndTime = "2006-01-02T15:04:05.000Z"

// askEntries takes a question for the entries of a period, or says what is wrong with it. The answer comes when the file
// is made. What the real SPI says to a period that it does not take is not published: here it is admi.002, as for every
// other fault of a message.
func (s *SPI) askEntries(r icomtest.Received, id pix.MsgID, q *iso20022.Camt060) *refusal {
	from, to, err := period(q.Period)
	now := s.now()
	switch {
	case err != nil:
		return s.refuseFile(err.Error())
	case !from.Before(to):
		return s.refuseFile("the period does not end after it begins")
	case to.After(now):
		return s.refuseFile("the period ends in the future")
	case to.Sub(from) > s.cfg.LongestPeriod:
		return s.refuseFile(fmt.Sprintf("the period is longer than %s", s.cfg.LongestPeriod))
	}
	asked := question{asked: r, id: id, owner: q.Owner, from: from, to: to}
	s.jobs.push(func(ctx context.Context) error { return s.answerEntries(ctx, asked) })
	return nil
}

func (s *SPI) refuseFile(detail string) *refusal {
	s.shelf.tally(func(f *Files) { f.Refused++ })
	return &refusal{"Período inválido", detail}
}

// period reads both ends. The first instant belongs to the period and the last one does not, as in the file.
func period(p *iso20022.Period) (from, to time.Time, err error) {
	lastDay := p.ToDate
	if lastDay == "" {
		lastDay = p.FromDate
	}
	from, errFrom := time.Parse(dayAndTime, p.FromDate+"T"+p.Times.From)
	to, errTo := time.Parse(dayAndTime, lastDay+"T"+p.Times.To)
	return from, to, errors.Join(errFrom, errTo)
}

// work does the jobs that take long, one after the other, until ctx ends.
func (s *SPI) work(ctx context.Context) error {
	for {
		job, ok := s.jobs.pop(ctx)
		if !ok {
			return nil
		}
		if err := job(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// answerEntries makes the file, puts it where it can be fetched and says so.
func (s *SPI) answerEntries(ctx context.Context, q question) error {
	f, err := s.makeFile(ctx, q)
	if err != nil {
		if errors.Is(err, errTooLarge) {
			why := s.refuseFile(err.Error())
			return s.send(q.owner, q.asked.Channel, s.refuse(q.asked, q.id, *why))
		}
		return fmt.Errorf("spitest: file of entries: %w", err)
	}
	fault, hit := s.strike(AtStatement, string(q.id), "")
	if hit && fault.Do == Falsify {
		f.Falsified, f.Hash = true, another(f.Hash)
	}
	s.shelf.put(f)
	tell := func(context.Context) error {
		return s.send(q.owner, q.asked.Channel, &iso20022.Camt052{Reports: []iso20022.FileReport{{
			ID: q.id, Owner: q.owner, Entries: f.Entries, Info: f.Hash,
		}}})
	}
	switch {
	case hit && fault.Do == Drop:
		return nil
	case hit && fault.Do == Delay:
		s.agenda.add(s.now().Add(fault.Delay), func(time.Time) { s.jobs.push(tell) })
		return nil
	}
	return tell(ctx)
}

// errTooLarge says that a file is larger than all that may be held.
var errTooLarge = errors.New("the file is too large")

// makeFile writes the entries of a period, as far as the fault rules let it.
func (s *SPI) makeFile(ctx context.Context, q question) (*File, error) {
	f := &File{Question: q.id, ISPB: q.owner, From: q.from, To: q.to}
	packed := &bounded{most: s.cfg.MaxFileBytes}
	w, err := statement.NewWriter(packed, statement.Header{Kind: statement.Entries, ISPB: q.owner, From: q.from, To: q.to})
	if err != nil {
		return nil, err
	}
	for _, o := range s.ledger.between(q.from, q.to) {
		if o.debited != q.owner && o.credited != q.owner {
			continue
		}
		if f.Settled++; f.Settled%1024 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err := s.enter(w, f, entryOf(o, q.owner)); err != nil {
			return nil, err
		}
	}
	sum, err := w.Close()
	if err != nil {
		return nil, err
	}
	f.Hash, f.Entries, f.content = sum.Hash, int(sum.Records), packed.Bytes()
	return f, nil
}

// entryOf is how an order stands in the account of one of its sides.
func entryOf(o *order, owner pix.ISPB) statement.Entry {
	e := statement.Entry{
		ID: o.id, Kind: o.kind, Amount: o.amount, SettledAt: o.ended, Direction: pix.Out, Counterparty: o.credited,
	}
	if o.kind == pix.Return {
		e.Original = o.original
	}
	if owner == o.credited {
		e.Direction, e.Counterparty = pix.In, o.debited
	}
	return e
}

// enter puts an entry into a file once, unless a fault rule strikes it.
func (s *SPI) enter(w *statement.Writer, f *File, e statement.Entry) error {
	entries := []statement.Entry{e}
	if fault, hit := s.strike(AtEntry, e.ID, string(f.ISPB)); hit {
		touched := e.ID
		switch fault.Do {
		case Drop:
			f.Lost++
			entries = nil
		case Repeat:
			f.Doubled++
			entries = append(entries, e)
		case Alter:
			f.Altered++
			entries[0].Amount = beside(e.Amount)
		case Invent:
			f.Invented++
			extra := invented(e, f.ISPB)
			touched, entries = extra.ID, append(entries, extra)
		case Delay, Late, Refuse, Falsify, Cut:
		}
		f.touch(touched, fault.Do)
	}
	for _, e := range entries {
		if err := w.Entry(e); err != nil {
			return err
		}
	}
	return nil
}

// beside is another amount, a centavo away.
func beside(a pix.Amount) pix.Amount {
	if a == pix.MaxAmount {
		return a - 1
	}
	return a + 1
}

// invented is an entry like another one, of a payment that there never was: the same one each time.
func invented(like statement.Entry, owner pix.ISPB) statement.Entry {
	payer := like.Counterparty
	if like.Direction == pix.Out {
		payer = owner
	}
	sum := sha256.Sum256([]byte(like.ID))
	like.ID = "E" + string(payer) + like.SettledAt.UTC().Format("200601021504") + "0" + hex.EncodeToString(sum[:5])
	like.Kind, like.Original = pix.Payment, ""
	return like
}

// another is a hash that is not the given one.
func another(hash string) string {
	first := "0"
	if strings.HasPrefix(hash, first) {
		first = "f"
	}
	return first + hash[1:]
}

// bounded is a buffer that takes no more than it may.
type bounded struct {
	bytes.Buffer
	most int
}

// Write implements io.Writer.
func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > b.most {
		return 0, fmt.Errorf("%w: more than %d bytes", errTooLarge, b.most)
	}
	return b.Buffer.Write(p)
}
