package robustness_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/icom/spitest"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
)

// ledger is what one participant's books hold.
type ledger struct {
	ispb pix.ISPB
	rows map[string]store.Payment
}

// difference is one line in which books differ.
type difference struct {
	id, what string
}

func (d difference) String() string { return d.id + ": " + d.what }

func (p *participant) ledger(ctx context.Context) (ledger, error) {
	l := ledger{p.ispb, map[string]store.Payment{}}
	for after := ""; ; {
		page, next, err := p.payments.List(ctx, store.Filter{After: after, Limit: 1000})
		if err != nil {
			return l, err
		}
		for _, row := range page {
			l.rows[row.ID] = row
		}
		if after = next; after == "" {
			return l, nil
		}
	}
}

// compare holds a participant's books to the SPI's and names each line that differs.
func compare(ours ledger, spi spitest.Report) []difference {
	var found []difference
	differs := func(id, format string, args ...any) {
		found = append(found, difference{id, fmt.Sprintf(format, args...)})
	}
	var debits, credits pix.Amount
	returned := map[string]pix.Amount{}
	at := map[string]spitest.Order{}
	for _, o := range spi.Orders {
		if o.Debited == ours.ispb || o.Credited == ours.ispb {
			at[o.ID] = o
		}
	}
	for id, row := range ours.rows {
		o, ok := at[id]
		switch {
		case !row.State.Final():
			differs(id, "%s is not final", row.State)
		case !ok && row.State == pix.Settled:
			differs(id, "settled here, and the SPI never had it")
		case ok:
			if what := differing(ours.ispb, row, o); what != "" {
				differs(id, "%s", what)
			}
		}
		if row.State != pix.Settled {
			continue
		}
		if row.Direction == pix.Out {
			debits += row.Amount
		} else {
			credits += row.Amount
		}
		if row.Kind == pix.Return {
			returned[row.OriginalID] += row.Amount
		}
	}
	for id, o := range at {
		// What the SPI rejected before it reached us, and told only its sender, is in nobody else's books.
		if _, ok := ours.rows[id]; !ok && (o.State != spitest.Rejected || o.Debited == ours.ispb) {
			differs(id, "%s of %v at the SPI, not here", o.State, o.Amount)
		}
	}
	for id, row := range ours.rows {
		if row.Returned != returned[id] {
			differs(id, "%v counts as returned, %v settled", row.Returned, returned[id])
		}
	}
	if a := spi.Account(ours.ispb); a.Debits != debits || a.Credits != credits {
		differs(string(ours.ispb), "%v debited and %v credited, the SPI has %v and %v", debits, credits, a.Debits, a.Credits)
	}
	slices.SortFunc(found, func(x, y difference) int { return cmp.Compare(x.id, y.id) })
	return found
}

// differing says in what our line differs from the SPI's, "" for nothing.
func differing(ispb pix.ISPB, row store.Payment, o spitest.Order) string {
	want := struct {
		direction    pix.Direction
		counterparty pix.ISPB
	}{pix.In, o.Debited}
	if o.Debited == ispb {
		want.direction, want.counterparty = pix.Out, o.Credited
	}
	switch {
	case string(row.State) != string(o.State):
		return fmt.Sprintf("%s here (%s), %s at the SPI (%s)", row.State, row.Reason, o.State, o.Reason)
	case row.Amount != o.Amount || row.Direction != want.direction || row.Kind != o.Kind ||
		row.Counterparty != want.counterparty || row.OriginalID != o.Original:
		return fmt.Sprintf("%s %s of %v with %s here, %s of %v at the SPI", row.Direction, row.Kind, row.Amount, row.Counterparty, o.Kind, o.Amount)
	case row.State == pix.Settled && row.SettledAt.Sub(o.Ended).Abs() > time.Millisecond:
		return fmt.Sprintf("settled at %v here, at %v at the SPI", row.SettledAt, o.Ended)
	}
	return ""
}

// explain tells all that is known of a line in which books differ.
func (p *participant) explain(ctx context.Context, d difference, spi spitest.Report) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s\n", p.ispb, d)
	if i := slices.IndexFunc(spi.Orders, func(o spitest.Order) bool { return o.ID == d.id }); i >= 0 {
		fmt.Fprintf(&b, "  SPI: %+v\n", spi.Orders[i])
	}
	if row, err := p.payments.Get(ctx, d.id); err == nil {
		row.Document = nil
		fmt.Fprintf(&b, "  row: %+v\n", row)
	}
	events, err := p.payments.Events(ctx, d.id)
	for _, e := range events {
		fmt.Fprintf(&b, "  %s %s>%s by %s: %s %s\n", e.At.Format("15:04:05.000"), e.Was, e.Became, e.Who, e.Reason, e.Detail)
	}
	carriers, errCarriers := p.outbound.Carriers(ctx, d.id)
	for _, c := range carriers {
		fmt.Fprintf(&b, "  %+v\n", c)
	}
	if err != nil || errCarriers != nil {
		fmt.Fprintf(&b, "  (%v, %v)\n", err, errCarriers)
	}
	return b.String()
}

// mutation changes one line of otherwise equal books. It reports false if there is no line to change.
type mutation struct {
	name   string
	mutate func(ours *ledger, spi *spitest.Report) bool
}

// mutations are what compare must see.
func mutations() []mutation {
	row := func(l *ledger, fits func(store.Payment) bool, change func(*store.Payment)) bool {
		for id, p := range l.rows {
			if fits(p) {
				change(&p)
				l.rows[id] = p
				return true
			}
		}
		return false
	}
	settled := func(p store.Payment) bool { return p.State == pix.Settled }
	order := func(r *spitest.Report, change func(*spitest.Order)) bool {
		for i := range r.Orders {
			if r.Orders[i].State == spitest.Settled {
				change(&r.Orders[i])
				return true
			}
		}
		return false
	}
	return []mutation{
		{"a row is missing", func(l *ledger, _ *spitest.Report) bool {
			return row(l, settled, func(p *store.Payment) { p.ID = "" }) && dropUnnamed(l)
		}},
		{"a row is too much", func(l *ledger, _ *spitest.Report) bool {
			l.rows["E"] = store.Payment{ID: "E", Kind: pix.Payment, Direction: pix.In, State: pix.Settled, Amount: 1}
			return true
		}},
		{"a row is not final", func(l *ledger, _ *spitest.Report) bool {
			return row(l, settled, func(p *store.Payment) { p.State = pix.Unknown })
		}},
		{"a row ended otherwise", func(l *ledger, _ *spitest.Report) bool {
			return row(l, settled, func(p *store.Payment) { p.State = pix.Rejected })
		}},
		{"a centavo more", func(l *ledger, _ *spitest.Report) bool {
			return row(l, settled, func(p *store.Payment) { p.Amount++ })
		}},
		{"the other direction", func(l *ledger, _ *spitest.Report) bool {
			return row(l, settled, func(p *store.Payment) {
				p.Direction = map[pix.Direction]pix.Direction{pix.In: pix.Out, pix.Out: pix.In}[p.Direction]
			})
		}},
		{"somebody else", func(l *ledger, _ *spitest.Report) bool {
			return row(l, settled, func(p *store.Payment) { p.Counterparty = "00000000" })
		}},
		{"a second later", func(l *ledger, _ *spitest.Report) bool {
			return row(l, settled, func(p *store.Payment) { p.SettledAt = p.SettledAt.Add(time.Second) })
		}},
		{"a centavo returned too much", func(l *ledger, _ *spitest.Report) bool {
			return row(l, settled, func(p *store.Payment) { p.Returned++ })
		}},
		{"the SPI forgot a settlement", func(_ *ledger, r *spitest.Report) bool {
			return order(r, func(o *spitest.Order) { o.State = spitest.Rejected })
		}},
		{"the SPI settled more", func(_ *ledger, r *spitest.Report) bool {
			return order(r, func(o *spitest.Order) { o.Amount++ })
		}},
		{"the SPI debited more", func(l *ledger, r *spitest.Report) bool {
			i := slices.IndexFunc(r.Participants, func(a spitest.Account) bool { return a.ISPB == l.ispb })
			r.Participants[i].Debits++
			return true
		}},
	}
}

func dropUnnamed(l *ledger) bool {
	for id, p := range l.rows {
		if p.ID == "" {
			delete(l.rows, id)
		}
	}
	return true
}

// TestCompareSeesEveryDifference tries compare on the smallest books that have every kind of line.
func TestCompareSeesEveryDifference(t *testing.T) {
	t.Parallel()
	const us, them = pix.ISPB("12345678"), pix.ISPB("87654321")
	at := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	row := func(id string, kind pix.Kind, d pix.Direction, s pix.State, amount, returned pix.Amount, original string) store.Payment {
		p := store.Payment{
			ID: id, Kind: kind, Direction: d, State: s, Amount: amount, Returned: returned, Counterparty: them, OriginalID: original,
		}
		if s == pix.Settled {
			p.SettledAt = at
		}
		return p
	}
	ours := ledger{us, map[string]store.Payment{
		"E1": row("E1", pix.Payment, pix.Out, pix.Settled, 100, 40, ""),
		"E2": row("E2", pix.Payment, pix.In, pix.Settled, 70, 0, ""),
		"E3": row("E3", pix.Payment, pix.Out, pix.Rejected, 50, 0, ""), // and the SPI refused its message
		"D1": row("D1", pix.Return, pix.In, pix.Settled, 40, 0, "E1"),
	}}
	spi := spitest.Report{
		Orders: []spitest.Order{
			{ID: "E1", Kind: pix.Payment, Debited: us, Credited: them, Amount: 100, State: spitest.Settled, Ended: at},
			{ID: "E2", Kind: pix.Payment, Debited: them, Credited: us, Amount: 70, State: spitest.Settled, Ended: at},
			{ID: "D1", Original: "E1", Kind: pix.Return, Debited: them, Credited: us, Amount: 40, State: spitest.Settled, Ended: at},
			{ID: "E4", Kind: pix.Payment, Debited: them, Credited: us, Amount: 9, State: spitest.Rejected, Ended: at}, // it never reached us
		},
		Participants: []spitest.Account{{ISPB: us, Debits: 100, Credits: 110}},
	}
	require.Empty(t, compare(ours, spi))
	provesItself(t, ours, spi)
}

// provesItself shows that compare, which finds nothing in these books, finds each mutation of them.
func provesItself(t *testing.T, ours ledger, spi spitest.Report) {
	t.Helper()
	for _, m := range mutations() {
		l := ledger{ours.ispb, map[string]store.Payment{}}
		for id, row := range ours.rows {
			l.rows[id] = row
		}
		r := spi
		r.Orders, r.Participants = slices.Clone(spi.Orders), slices.Clone(spi.Participants)
		require.True(t, m.mutate(&l, &r), "%s: nothing to change", m.name)
		require.NotEmpty(t, compare(l, r), "compare does not see that %s", m.name)
	}
}
