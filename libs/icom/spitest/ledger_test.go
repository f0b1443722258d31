package spitest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/pix"
)

const members = 4 // the last one is virtual

// trial is a ledger under random operations, with what its participants believe from what they were told.
type trial struct {
	*ledger
	random *rand.Rand
	now    time.Time
	placed []*order
	// believed is each participant's balance by its notices alone, told what it has seen already.
	believed map[pix.ISPB]pix.Amount
	told     map[string]string
	contrary []string
	// around, if set, is a defect put into the ledger around every operation.
	around func(o *order, operation func() []notice) []notice
}

func newTrial(seed uint64) *trial {
	t := &trial{
		ledger: newLedger(false), random: rand.New(rand.NewPCG(seed, 0)), now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		believed: make(map[pix.ISPB]pix.Amount), told: make(map[string]string),
		around: func(_ *order, operation func() []notice) []notice { return operation() },
	}
	for i := range members {
		p := Participant{ISPB: ispb(i), Balance: pix.Amount(t.random.Int64N(5000)), Virtual: i == members-1}
		t.add(p)
		t.believed[p.ISPB] = p.Balance
	}
	return t
}

func ispb(i int) pix.ISPB { return pix.ISPB(fmt.Sprintf("%08d", i)) }

// step does one random operation and hears what is told.
func (t *trial) step() {
	t.now = t.now.Add(time.Duration(t.random.Int64N(int64(3 * time.Second))))
	for _, o := range t.placed {
		if o.state == Waiting && t.now.After(o.limit) {
			t.hear(t.around(o, func() []notice { return t.expire(o, t.now) }))
		}
	}
	switch k := t.random.IntN(10); {
	case k < 4 || len(t.placed) == 0:
		t.order(t.payment())
	case k < 6:
		t.order(t.giveBack())
	case k < 7: // a repetition, sometimes with another content
		o := *t.pick()
		o.content[0] += byte(t.random.IntN(2))
		o.amount += pix.Amount(o.content[0])
		t.order(&o)
	default:
		o := t.pick()
		a := answer{by: o.credited, id: o.id, original: o.original, accepted: t.random.IntN(4) > 0, reason: "AC03"}
		if t.random.IntN(8) == 0 {
			a.by = ispb(t.random.IntN(members))
		}
		if t.mayAnswer([]answer{a}) {
			t.hear(t.around(o, func() []notice { return t.answer(a, t.now) }))
		}
	}
}

// pick returns one of the last orders, so that answers and returns find something to do.
func (t *trial) pick() *order { return t.placed[len(t.placed)-1-t.random.IntN(min(20, len(t.placed)))] }

func (t *trial) payment() *order {
	o := &order{
		id: fmt.Sprintf("E%d", len(t.placed)), kind: pix.Payment, amount: pix.Amount(t.random.Int64N(200)),
		debited: ispb(t.random.IntN(members)), credited: ispb(t.random.IntN(members)),
	}
	o.sender, o.original = o.debited, o.id
	return o
}

func (t *trial) giveBack() *order {
	p := t.pick()
	return &order{
		id: fmt.Sprintf("D%d", len(t.placed)), original: p.original, kind: pix.Return, amount: pix.Amount(t.random.Int64N(100)),
		sender: p.credited, debited: p.credited, credited: p.debited,
	}
}

func (t *trial) order(o *order) {
	o.received, o.limit = t.now, t.now.Add(40*time.Second)
	if _, known := t.orders[o.id]; !known {
		t.placed = append(t.placed, o)
	}
	t.hear(t.around(o, func() []notice {
		notices, _ := t.place(o, "", t.now)
		return notices
	}))
}

// hear is what participants do with notices: each order ends once for each of them, as it was told first.
func (t *trial) hear(notices []notice) {
	for _, n := range notices {
		if n.verdict == nil || n.verdict.reason == "DUPL" {
			continue
		}
		key := string(n.to) + n.order.id
		if first, known := t.told[key]; known {
			if first != n.verdict.status {
				t.contrary = append(t.contrary, key+" was "+first+" and is "+n.verdict.status)
			}
			continue
		}
		t.told[key] = n.verdict.status
		switch n.verdict.status {
		case statusDebited:
			t.believed[n.to] -= n.order.amount
		case statusCredited:
			t.believed[n.to] += n.order.amount
		}
	}
}

// broken is everything that does not hold: the ledger's own laws, and what the participants believe.
func (t *trial) broken() []string {
	r := t.report(false)
	broken := append(r.Broken, t.contrary...)
	for _, a := range r.Participants {
		if believes := t.believed[a.ISPB]; !a.Virtual && believes != a.Balance {
			broken = append(broken, fmt.Sprintf("%s believes %s and has %s", a.ISPB, believes, a.Balance))
		}
	}
	return broken
}

const steps = 1500

// TestBooksLaw: whatever happens, the accounts follow from the orders, and participants who believe what they were told
// have the SPI's balances.
func TestBooksLaw(t *testing.T) {
	t.Parallel()
	seen, counters := make(map[string]int), Counters{}
	for range 10 {
		seed := rand.Uint64()
		trial := newTrial(seed)
		for range steps {
			trial.step()
			if trial.random.IntN(50) == 0 {
				require.Empty(t, trial.broken(), "seed %d", seed)
			}
		}
		require.Empty(t, trial.broken(), "seed %d", seed)
		for _, o := range trial.placed {
			seen[string(o.kind)+" "+string(o.state)+" "+o.reason]++
		}
		counters.LateAnswers += trial.counters.LateAnswers
		counters.RepeatedAnswers += trial.counters.RepeatedAnswers
		counters.ForeignAnswers += trial.counters.ForeignAnswers
		counters.RepeatedOrders += trial.counters.RepeatedOrders
		counters.Duplicates += trial.counters.Duplicates
	}
	for _, want := range []string{
		"payment settled ", "payment rejected AB03", "payment rejected AC03", "payment rejected AM04", "payment rejected AG12",
		"payment rejected AM01", "return settled ", "return rejected AM09", "return rejected AB03", "return rejected AG13",
	} {
		require.NotZero(t, seen[want], "%s: %v", want, seen)
	}
	require.NotContains(t, []int{
		counters.LateAnswers, counters.RepeatedAnswers, counters.ForeignAnswers, counters.RepeatedOrders, counters.Duplicates,
	}, 0, "%+v", counters)
}

// TestBooksLawFindsDefects: the same trial, on ledgers with one defect each.
func TestBooksLawFindsDefects(t *testing.T) {
	t.Parallel()
	for name, defect := range map[string]func(*ledger, *order, func() []notice) []notice{
		"settles again when it is answered again": func(_ *ledger, o *order, operation func() []notice) []notice {
			if o.state == Settled {
				o.state = Waiting
			}
			return operation()
		},
		"forgets a credit": func(l *ledger, o *order, operation func() []notice) []notice {
			before := o.state
			notices := operation()
			if before == Waiting && o.state == Settled {
				l.accounts[o.credited].balance -= o.amount
			}
			return notices
		},
		"pays what is not there": func(l *ledger, o *order, operation func() []notice) []notice {
			a := l.accounts[o.debited]
			a.balance += 10_000
			defer func() { a.balance -= 10_000 }()
			return operation()
		},
		"returns more than was paid": func(l *ledger, o *order, operation func() []notice) []notice {
			if p := l.orders[o.original]; p != nil && o.kind == pix.Return {
				p.returned = 0
			}
			return operation()
		},
		"tells a settled order as late": func(_ *ledger, o *order, operation func() []notice) []notice {
			notices := operation()
			if o.state == Settled {
				notices = append(notices, notice{to: o.debited, order: o, verdict: &verdict{status: statusRejected, reason: "AB03"}})
			}
			return notices
		},
		"tells the payer nothing": func(_ *ledger, _ *order, operation func() []notice) []notice {
			return slices.DeleteFunc(operation(), func(n notice) bool { return n.verdict != nil && n.verdict.status == statusDebited })
		},
	} {
		// A trial may run dry before the defect shows, two of three do; some of fifty do not.
		var found []string
		for tries := 0; len(found) == 0 && tries < 50; tries++ {
			trial := newTrial(rand.Uint64())
			trial.around = func(o *order, operation func() []notice) []notice { return defect(trial.ledger, o, operation) }
			for range steps {
				trial.step()
			}
			found = trial.broken()
		}
		require.NotEmpty(t, found, "an SPI that %s passes", name)
		t.Logf("%s: %s", name, found[0])
	}
}

func TestPastTheWindowARepetitionIsADuplicate(t *testing.T) {
	t.Parallel()
	tr := newTrial(1)
	o := &order{id: "E1", original: "E1", kind: pix.Payment, sender: ispb(0), debited: ispb(0), credited: ispb(0), received: tr.now}
	notices, _ := tr.place(o, "", tr.now)
	require.Equal(t, "AG12", notices[0].verdict.reason)
	again := *o
	notices, _ = tr.place(&again, "", tr.now.Add(repeatWindow))
	require.Equal(t, "AG12", notices[0].verdict.reason)
	notices, _ = tr.place(&again, "", tr.now.Add(repeatWindow+1))
	require.Equal(t, "DUPL", notices[0].verdict.reason)
	require.Len(t, tr.log, 1)
}

func TestReturnWindow(t *testing.T) {
	t.Parallel()
	tr := newTrial(1)
	virtual := ispb(members - 1)
	tr.accounts[ispb(0)].balance = 100
	p := &order{id: "E1", original: "E1", kind: pix.Payment, sender: ispb(0), debited: ispb(0), credited: virtual, amount: 10, received: tr.now}
	tr.place(p, "", tr.now)
	require.Equal(t, Settled, p.state, "a virtual participant accepts at once")
	late := &order{
		id: "D1", original: "E1", kind: pix.Return, sender: virtual, debited: virtual, credited: ispb(0), amount: 10, received: tr.now,
	}
	tr.place(late, "", tr.now.Add(returnWindow+1))
	require.Equal(t, "DT05", late.reason)
}
