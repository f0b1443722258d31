package spitest

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/cabine-pix/cabine/libs/pix"
)

// State is where an order stands at the SPI.
type State string

// The states.
const (
	// Waiting: forwarded, the credited participant has not answered.
	Waiting State = "waiting"
	// Settled: the money moved, once.
	Settled State = "settled"
	// Rejected: no money moved and none will.
	Rejected State = "rejected"
)

// Report is the SPI's own books. Amounts are in centavos.
type Report struct {
	Seed uint64 `json:"seed"`
	// Broken names every law that does not hold, see the package's doc. Empty: the books are sound.
	Broken       []string  `json:"broken"`
	Participants []Account `json:"participants"`
	Counters     Counters  `json:"counters"`
	// Files of entries. They have no part in the books.
	Files Files `json:"files"`
	// Orders has every order in the order of arrival, when they were asked for.
	Orders []Order `json:"orders,omitempty"`
}

// Account is one participant's side of the books. Out is what it ordered, In what was forwarded to it: what the SPI
// itself refused is in nobody's In.
type Account struct {
	ISPB    pix.ISPB   `json:"ispb"`
	Virtual bool       `json:"virtual"`
	Opening pix.Amount `json:"opening"`
	Debits  pix.Amount `json:"debits"`
	Credits pix.Amount `json:"credits"`
	Balance pix.Amount `json:"balance"`

	PaymentsOut Totals `json:"payments_out"`
	PaymentsIn  Totals `json:"payments_in"`
	ReturnsOut  Totals `json:"returns_out"`
	ReturnsIn   Totals `json:"returns_in"`
}

// Totals counts orders by state. Amount is the sum of the settled ones.
type Totals struct {
	Waiting  int        `json:"waiting"`
	Settled  int        `json:"settled"`
	Rejected int        `json:"rejected"`
	Amount   pix.Amount `json:"amount"`
}

// Counters is what happened beside the books.
type Counters struct {
	// Messages counts what participants sent, Refused those answered with admi.002.
	Messages int `json:"messages"`
	Refused  int `json:"refused"`
	// Sent counts messages to participants, Operations what was in them.
	Sent       int `json:"sent"`
	Operations int `json:"operations"`
	// RepeatedOrders came again as they were, Duplicates came again as something else.
	RepeatedOrders int `json:"repeated_orders"`
	Duplicates     int `json:"duplicates"`
	// LateAnswers came after AB03, RepeatedAnswers after another end, ForeignAnswers from somebody not credited.
	LateAnswers     int `json:"late_answers"`
	RepeatedAnswers int `json:"repeated_answers"`
	ForeignAnswers  int `json:"foreign_answers"`
	// Faults counts what fault rules struck.
	Faults int `json:"faults"`
}

// Order is one payment or return.
type Order struct {
	ID       string      `json:"id"`
	Original string      `json:"original,omitempty"` // of a return: EndToEndId of the payment
	Kind     pix.Kind    `json:"kind"`
	Debited  pix.ISPB    `json:"debited"`
	Credited pix.ISPB    `json:"credited"`
	Amount   pix.Amount  `json:"amount"`
	Channel  pix.Channel `json:"channel"`
	State    State       `json:"state"`
	Reason   string      `json:"reason,omitempty"`
	// Accepted is AccptncDtTm, zero for a return.
	Accepted time.Time `json:"accepted,omitzero"`
	Received time.Time `json:"received"`
	Answered time.Time `json:"answered,omitzero"`
	Ended    time.Time `json:"ended,omitzero"`
}

// Account returns a participant's side of the books, zero if it is unknown.
func (r Report) Account(ispb pix.ISPB) Account {
	for _, a := range r.Participants {
		if a.ISPB == ispb {
			return a
		}
	}
	return Account{ISPB: ispb}
}

// report counts everything anew out of the orders and holds the running accounts to it.
func (l *ledger) report(withOrders bool) Report {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := Report{Broken: []string{}, Participants: []Account{}, Counters: l.counters}
	accounts := make(map[pix.ISPB]*Account)
	for ispb, a := range l.accounts {
		accounts[ispb] = &Account{
			ISPB: ispb, Virtual: a.Virtual, Opening: a.Balance, Debits: a.debits, Credits: a.credits, Balance: a.balance,
		}
	}
	returned := make(map[string]pix.Amount)
	for _, o := range l.log {
		if broken := o.check(); broken != "" {
			r.Broken = append(r.Broken, broken)
		}
		if a := accounts[o.sender]; a != nil {
			a.total(o, true).count(o)
		}
		if a := accounts[o.credited]; a != nil && o.forwarded {
			a.total(o, false).count(o)
		}
		if o.kind == pix.Return && o.state == Settled {
			returned[o.original] += o.amount
		}
		if withOrders {
			r.Orders = append(r.Orders, o.public())
		}
	}
	for id, sum := range returned {
		if o := l.orders[id]; o == nil || sum > o.amount {
			r.Broken = append(r.Broken, fmt.Sprintf("%s: %s was returned", id, sum))
		}
	}
	var opening, balance pix.Amount
	for _, a := range accounts {
		r.Broken = append(r.Broken, a.check()...)
		r.Participants = append(r.Participants, *a)
		opening, balance = opening+a.Opening, balance+a.Balance
	}
	if opening != balance {
		r.Broken = append(r.Broken, fmt.Sprintf("all accounts: %s at the beginning, %s now", opening, balance))
	}
	slices.SortFunc(r.Participants, func(x, y Account) int { return cmp.Compare(x.ISPB, y.ISPB) })
	slices.Sort(r.Broken)
	return r
}

// check names what is wrong with an order, "" for nothing.
func (o *order) check() string {
	once := 0
	if o.state == Settled {
		once = 1
	}
	switch {
	case o.settlements != once:
		return fmt.Sprintf("%s is %s and was settled %d times", o.id, o.state, o.settlements)
	case (o.state == Waiting) != o.ended.IsZero():
		return fmt.Sprintf("%s is %s and ended at %s", o.id, o.state, o.ended)
	case (o.state == Rejected) != (o.reason != ""):
		return fmt.Sprintf("%s is %s for the reason %q", o.id, o.state, o.reason)
	}
	return ""
}

func (o *order) public() Order {
	p := Order{
		ID: o.id, Kind: o.kind, Debited: o.debited, Credited: o.credited, Amount: o.amount, Channel: o.channel,
		State: o.state, Reason: o.reason, Received: o.received, Answered: o.answered, Ended: o.ended,
	}
	if o.kind == pix.Return {
		p.Original = o.original
	}
	if t, ok := o.body.(payment); ok {
		p.Accepted = t.AcceptedAt
	}
	return p
}

func (a *Account) total(o *order, out bool) *Totals {
	switch {
	case o.kind == pix.Payment && out:
		return &a.PaymentsOut
	case o.kind == pix.Payment:
		return &a.PaymentsIn
	case out:
		return &a.ReturnsOut
	}
	return &a.ReturnsIn
}

func (t *Totals) count(o *order) {
	switch o.state {
	case Waiting:
		t.Waiting++
	case Settled:
		t.Settled++
		t.Amount += o.amount
	case Rejected:
		t.Rejected++
	}
}

// check holds the running account to the sums of its orders.
func (a *Account) check() (broken []string) {
	say := func(what string, has, want pix.Amount) {
		if has != want {
			broken = append(broken, fmt.Sprintf("%s: %s is %s and must be %s", a.ISPB, what, has, want))
		}
	}
	say("debits", a.Debits, a.PaymentsOut.Amount+a.ReturnsOut.Amount)
	say("credits", a.Credits, a.PaymentsIn.Amount+a.ReturnsIn.Amount)
	say("balance", a.Balance, a.Opening+a.Credits-a.Debits)
	if a.Balance < 0 {
		broken = append(broken, fmt.Sprintf("%s: the balance is %s", a.ISPB, a.Balance))
	}
	return broken
}
