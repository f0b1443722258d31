package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/tools/internal/stage"
)

// drill is how long the cycles of the demo are.
const drill = 5 * time.Second

// scheduling is what a settlement-scheduler of the demo is told: cycles that whoever looks on sees closing.
func scheduling() map[string]any {
	return map[string]any{
		"cycles":      map[string]any{"drill": drill.String(), "every": "200ms", "grace": "500ms", "patience": "30s"},
		"obligations": map[string]any{"announce_every": "500ms"},
	}
}

// line is what settles with one party in one cycle, in one direction.
type line struct {
	cycle     int64
	party     pix.ISPB
	direction pix.Direction
}

// total counts and sums.
type total struct {
	count int64
	sum   pix.Amount
}

// netting is what the demo itself makes of a participant's payments and their obligations, beside what the cycles wrote.
type netting struct {
	closed  int
	own     map[line]total
	written map[line]total
	// left counts settled payments whose obligation is in no closed cycle.
	left int
}

// net reads a participant's cycles. rows are its payments and returns.
func net(ctx context.Context, p *stage.Participant, rows ledgers) (netting, error) {
	n := netting{own: map[line]total{}, written: map[line]total{}}
	obligations, err := store.NewObligations(p.DB, nil)
	if err != nil {
		return n, err
	}
	cycles := store.NewCycles(p.DB)
	_, now, _, err := cycles.Unclosed(ctx)
	if err != nil {
		return n, err
	}
	all, err := cycles.Between(ctx, now.AddDate(0, 0, -1), now.AddDate(0, 0, 1))
	if err != nil {
		return n, err
	}
	closed := map[int64]bool{}
	for _, c := range all {
		if c.State != store.CycleClosed {
			continue
		}
		closed[c.ID] = true
		n.closed++
		lines, err := cycles.Lines(ctx, c.ID)
		if err != nil {
			return n, err
		}
		for _, l := range lines {
			add(n.written, line{c.ID, l.Party, pix.Out}, total{l.DebitCount, l.Debits})
			add(n.written, line{c.ID, l.Party, pix.In}, total{l.CreditCount, l.Credits})
		}
	}
	for _, row := range rows {
		if row.State != pix.Settled {
			continue
		}
		o, err := obligations.Get(ctx, row.ID)
		switch {
		case errors.Is(err, store.ErrNotFound) || err == nil && !closed[o.CycleID]:
			n.left++
		case err != nil:
			return n, err
		default: // the amount and the direction are the payment's, not the obligation's
			add(n.own, line{o.CycleID, row.Counterparty, row.Direction}, total{1, row.Amount})
		}
	}
	return n, nil
}

func add(to map[line]total, at line, what total) {
	t := to[at]
	t.count += what.count
	t.sum += what.sum
	to[at] = t
}

// judge compares what was written with what the demo counts itself: twice is how many payments too many the lines have, and
// lines names each that differs.
func (n netting) judge(of pix.ISPB) (twice int64, lines []string) {
	keys := map[line]bool{}
	for at := range n.own {
		keys[at] = true
	}
	for at := range n.written {
		keys[at] = true
	}
	for at := range keys {
		own, written := n.own[at], n.written[at]
		if own == written {
			continue
		}
		twice += max(0, written.count-own.count)
		lines = append(lines, fmt.Sprintf("%s: ciclo %d, contraparte %s, %s: %d = %v na compensação, %d = %v nos pagamentos",
			of, at.cycle, at.party, at.direction, written.count, written.sum, own.count, own.sum))
	}
	slices.Sort(lines)
	return twice, lines
}

// netted reports that every cycle that had begun at an instant is closed and nothing that settled is without its obligation.
func (t *troupe) netted(since time.Time) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		if t.o.withoutCap {
			return true, nil // as in drained
		}
		for _, p := range t.stage.Participants {
			obligations, err := store.NewObligations(p.DB, nil)
			if err != nil {
				return false, err
			}
			backlog, err := obligations.Backlog(ctx)
			if err != nil || backlog.Due > 0 {
				return false, err
			}
			unclosed, _, _, err := store.NewCycles(p.DB).Unclosed(ctx)
			if err != nil || slices.ContainsFunc(unclosed, func(c store.Cycle) bool { return c.OpensAt.Before(since) }) {
				return false, err
			}
		}
		return true, nil
	}
}

// clocks fails unless the database's clock is this machine's, by which reigns are judged.
func (t *troupe) clocks(ctx context.Context) error {
	for _, p := range t.stage.Participants {
		before := time.Now()
		_, now, _, err := store.NewCycles(p.DB).Unclosed(ctx)
		if err != nil {
			return err
		}
		if after := time.Now(); now.Before(before.Add(-time.Millisecond)) || now.After(after.Add(time.Millisecond)) {
			return fmt.Errorf("o relógio do Postgres marca %v, o da máquina de %v a %v: os mandatos não podem ser julgados", now, before, after)
		}
	}
	return nil
}

// settled adds one participant's cycles to the report.
func (r *Report) settled(p *stage.Participant, n netting) {
	twice, lines := n.judge(p.ISPB)
	r.Cycles.Closed += n.closed
	r.Cycles.NettedTwice += twice
	r.Cycles.NotNetted += n.left
	r.Cycles.Lines = append(r.Cycles.Lines, lines...)
}

func (r *Report) judgeSettlement() {
	if l := r.Leader; l.Overlaps > 0 {
		r.broke("Once: %d vezes houve dois líderes ao mesmo tempo", l.Overlaps)
	}
	if r.Leader.Changes == 0 {
		r.broke("A liderança não mudou de réplica: nada foi provado")
	}
	if j := r.JetStream; j.Timeouts > 0 {
		r.broke("JetStream deixou de responder %d vezes", j.Timeouts)
	}
	if j := r.JetStream; j.Creates > 0 {
		r.broke("Serviços criaram ou mudaram %d consumers, o que só migrate faz", j.Creates)
	}
	c := r.Cycles
	if c.Closed == 0 {
		r.broke("Nenhum ciclo foi fechado: nada foi provado")
	}
	if c.NettedTwice > 0 {
		r.broke("Once: %d pagamentos a mais nas linhas dos ciclos", c.NettedTwice)
	}
	if c.NotNetted > 0 {
		r.broke("Nothing silent: %d pagamentos liquidados em nenhum ciclo fechado", c.NotNetted)
	}
	if len(c.Lines) > 0 {
		r.broke("Books agree: %d linhas de ciclos não são a soma dos seus pagamentos", len(c.Lines))
	}
}
