package spitest

import (
	"sort"
	"sync"
	"time"

	"github.com/cabine-pix/cabine/libs/pix"
)

// The limits of the arrangement.
const (
	repeatWindow = 24 * time.Hour
	returnWindow = 90 * 24 * time.Hour
)

// order is one payment or return as the SPI knows it. The fields up to body never change once it is placed.
type order struct {
	id       string // EndToEndId or RtrId
	original string // EndToEndId of the payment, for a return and for a payment itself
	kind     pix.Kind
	sender   pix.ISPB // who sent the message
	debited  pix.ISPB
	credited pix.ISPB
	amount   pix.Amount
	channel  pix.Channel
	content  [32]byte // fingerprint of the operation, to tell a repetition from another order
	group    string   // what operations must share to travel in one message
	received time.Time
	limit    time.Time
	body     any // the operation, for those who write messages

	state       State
	forwarded   bool // the credited participant knows of it and may answer
	reason      string
	info        []string
	answered    time.Time // when the credited participant's answer was taken
	ended       time.Time
	settlements int
	returned    pix.Amount // of a payment: returns settled and waiting
}

// account is a participant's PI account.
type account struct {
	Participant
	balance pix.Amount
	debits  pix.Amount
	credits pix.Amount
}

// verdict is what is told about an order.
type verdict struct {
	status string // ACSC, ACCC or RJCT
	reason string
	info   []string
	at     time.Time // of the settlement
}

// notice is one operation of a message for a participant: the order itself, or a verdict about it.
type notice struct {
	to      pix.ISPB
	channel pix.Channel
	order   *order
	verdict *verdict // nil: the order is forwarded
}

// answer is what the credited participant says.
type answer struct {
	by       pix.ISPB
	id       string
	original string
	accepted bool
	reason   string
	info     []string
}

// ledger holds accounts and orders and decides. It reads no clock and sends nothing: what must be told is returned.
type ledger struct {
	refuseRepeats bool

	mu       sync.Mutex
	accounts map[pix.ISPB]*account
	orders   map[string]*order
	log      []*order // in the order of their arrival
	booked   []*order // the settled ones in the order of their settlement, ended never before the one in front
	closed   time.Time
	counters Counters
}

func newLedger(refuseRepeats bool) *ledger {
	return &ledger{
		refuseRepeats: refuseRepeats, accounts: make(map[pix.ISPB]*account), orders: make(map[string]*order),
	}
}

// add opens an account; false if there is one.
func (l *ledger) add(p Participant) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.accounts[p.ISPB]; ok {
		return false
	}
	l.accounts[p.ISPB] = &account{Participant: p, balance: p.Balance}
	return true
}

// virtual reports whether the SPI itself acts for a participant.
func (l *ledger) virtual(ispb pix.ISPB) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.accounts[ispb]
	return a != nil && a.Virtual
}

// place takes an order. reason is why its content is refused already, "" if it is not. The order waits for an answer
// only if it was forwarded.
func (l *ledger) place(o *order, reason string, now time.Time) (notices []notice, waits bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if first, ok := l.orders[o.id]; ok {
		return l.wanted(l.repeat(first, o, now)), false
	}
	l.orders[o.id] = o
	l.log = append(l.log, o)
	if reason == "" {
		reason = l.refusal(o, now)
	}
	if reason != "" {
		o.state, o.reason, o.ended = Rejected, reason, now
		return l.wanted([]notice{rejection(o, o.sender, o.channel)}), false
	}
	o.state, o.forwarded = Waiting, true
	if o.kind == pix.Return {
		l.orders[o.original].returned += o.amount
	}
	if l.accounts[o.credited].Virtual {
		return l.wanted(l.decide(o, answer{by: o.credited, accepted: true}, now)), false
	}
	return []notice{{to: o.credited, channel: o.channel, order: o}}, true
}

// repeat answers an order whose identifier is known.
func (l *ledger) repeat(first, again *order, now time.Time) []notice {
	same := first.content == again.content && first.sender == again.sender
	if !same || l.refuseRepeats || now.Sub(first.received) > repeatWindow {
		l.counters.Duplicates++
		return []notice{{
			to: again.sender, channel: again.channel, order: again, verdict: &verdict{status: statusRejected, reason: "DUPL"},
		}}
	}
	l.counters.RepeatedOrders++
	switch first.state {
	case Settled:
		return []notice{settlement(first, again.sender, again.channel, statusDebited)}
	case Rejected:
		return []notice{rejection(first, again.sender, again.channel)}
	case Waiting:
	}
	return nil
}

// refusal says why an order is not forwarded, "" if it is.
func (l *ledger) refusal(o *order, now time.Time) string {
	// The debited participant of a return is the credited one of its payment, so that the codes change places.
	noDebited, noCredited := "RC09", "RC10"
	if o.kind == pix.Return {
		noDebited, noCredited = noCredited, noDebited
	}
	debited, credited := l.accounts[o.debited], l.accounts[o.credited]
	switch {
	case debited == nil:
		return noDebited
	case credited == nil:
		return noCredited
	case debited.Closed || credited.Closed:
		return "DS27"
	case o.kind == pix.Return:
		return l.returnRefusal(o, now)
	case o.sender != o.debited:
		return "AGNT"
	case o.debited == o.credited:
		return "AG12"
	case o.amount <= 0:
		return "AM01"
	}
	return ""
}

func (l *ledger) returnRefusal(o *order, now time.Time) string {
	payment := l.orders[o.original]
	switch {
	case payment == nil || payment.kind != pix.Payment || payment.state != Settled:
		return "CH16"
	case o.sender == payment.debited:
		return "AG13"
	case o.sender != payment.credited:
		return "AGNT"
	case o.debited != payment.credited || o.credited != payment.debited:
		return "CH16"
	case o.amount <= 0:
		return "AM01"
	case now.Sub(payment.ended) > returnWindow:
		return "DT05"
	case payment.returned+o.amount > payment.amount:
		return "AM09"
	}
	return ""
}

// mayAnswer reports whether every one of the answers is about an order whose credited participant it comes from.
func (l *ledger) mayAnswer(answers []answer) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range answers {
		o := l.orders[a.id]
		if o == nil || !o.forwarded || o.credited != a.by || o.original != a.original {
			l.counters.ForeignAnswers++
			return false
		}
	}
	return true
}

// limit is when an order's time ends.
func (l *ledger) limit(id string) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.orders[id].limit
}

// answer takes what the credited participant said about an order for which mayAnswer holds.
func (l *ledger) answer(a answer, now time.Time) []notice {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.orders[a.id]
	var expired []notice
	if o.state == Waiting && !now.Before(o.limit) {
		expired = l.timeout(o, now)
	}
	if o.state != Waiting {
		if o.reason == "AB03" && o.answered.IsZero() {
			l.counters.LateAnswers++
		} else {
			l.counters.RepeatedAnswers++
		}
		return l.wanted(expired)
	}
	return l.wanted(l.decide(o, a, now))
}

// decide moves a waiting order to its end.
func (l *ledger) decide(o *order, a answer, now time.Time) []notice {
	o.answered = now
	if !a.accepted {
		l.reject(o, a.reason, a.info, now)
		return []notice{rejection(o, o.debited, o.channel)}
	}
	debited, credited := l.accounts[o.debited], l.accounts[o.credited]
	if debited.balance < o.amount {
		l.reject(o, "AM04", nil, now)
		return tellBoth(o)
	}
	debited.balance -= o.amount
	debited.debits += o.amount
	credited.balance += o.amount
	credited.credits += o.amount
	o.settlements++
	o.state, o.ended = Settled, l.instant(now)
	l.booked = append(l.booked, o)
	return []notice{
		settlement(o, o.debited, o.channel, statusDebited), settlement(o, o.credited, o.channel, statusCredited),
	}
}

// instant is when a settlement that happens now counts: after every file that was made, and in the order of settlement.
func (l *ledger) instant(now time.Time) time.Time {
	if now.Before(l.closed) {
		now = l.closed
	}
	if n := len(l.booked); n > 0 && now.Before(l.booked[n-1].ended) {
		now = l.booked[n-1].ended
	}
	return now
}

// between returns what was settled from one instant on and before another, in the order of settlement. From here on nothing
// settles before that other one any more, so that a file says all that there is. What is returned must not be changed.
func (l *ledger) between(from, to time.Time) []*order {
	l.mu.Lock()
	defer l.mu.Unlock()
	if to.After(l.closed) {
		l.closed = to
	}
	at := func(t time.Time) int {
		return sort.Search(len(l.booked), func(i int) bool { return !l.booked[i].ended.Before(t) })
	}
	first, past := at(from), at(to)
	return l.booked[first:past:past]
}

// expire ends an order whose limit has passed; nil if it has ended before.
func (l *ledger) expire(o *order, now time.Time) []notice {
	l.mu.Lock()
	defer l.mu.Unlock()
	if o.state != Waiting {
		return nil
	}
	return l.wanted(l.timeout(o, now))
}

func (l *ledger) timeout(o *order, now time.Time) []notice {
	l.reject(o, "AB03", nil, now)
	return tellBoth(o)
}

func (l *ledger) reject(o *order, reason string, info []string, now time.Time) {
	o.state, o.reason, o.info, o.ended = Rejected, reason, info, now
	if o.kind == pix.Return {
		l.orders[o.original].returned -= o.amount
	}
}

func tellBoth(o *order) []notice {
	return []notice{rejection(o, o.debited, o.channel), rejection(o, o.credited, o.channel)}
}

// wanted leaves out what would be told to participants that read nothing.
func (l *ledger) wanted(notices []notice) []notice {
	kept := notices[:0]
	for _, n := range notices {
		if a := l.accounts[n.to]; a == nil || !a.Virtual {
			kept = append(kept, n)
		}
	}
	return kept
}

func rejection(o *order, to pix.ISPB, channel pix.Channel) notice {
	return notice{to: to, channel: channel, order: o, verdict: &verdict{status: statusRejected, reason: o.reason, info: o.info}}
}

func settlement(o *order, to pix.ISPB, channel pix.Channel, status string) notice {
	return notice{to: to, channel: channel, order: o, verdict: &verdict{status: status, at: o.ended}}
}
