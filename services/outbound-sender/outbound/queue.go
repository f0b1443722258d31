package outbound

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/transport"
)

// maxBatch is the most messages in one POST.
const maxBatch = transport.MaxMessages

// Why a delivery goes back to the bus.
var (
	errStopping  = errors.New("the sender stops")
	errElsewhere = errors.New("this replica cannot send now")
)

// op is an operation in hand: a delivery that is in no message yet.
type op struct {
	id      int64
	msgType string
	since   clock.Reading
	// done answers the delivery, nil for acknowledged. It is called once.
	done func(error)
}

// parcel is a stored message on its way to the bank.
type parcel struct {
	id      pix.MsgID
	msgType string
	payload []byte
	// attempts is the store's count as this sender knows it.
	attempts int
	// counted is when the coming attempt was counted; zero: it was not.
	counted clock.Reading
	// operations in the message, for what it costs.
	operations int
	// since is when each operation came into hand; empty for a resend.
	since []clock.Reading
	// alone: in a batch with others it was refused.
	alone bool
}

// pause keeps a channel from sending.
type pause struct {
	until  clock.Deadline
	reason string
}

// queue is what one channel has in hand, from the delivery to the POST. It moves nothing by itself.
//
// Invariants: a parcel is in ready at most once (mine); hands counts the permits that are held
// and idle, and the workers that are fetching one.
type queue struct {
	clk    clock.Clock
	groups Groups
	ahead  int // messages that may be ready
	// admit says how long a batch must wait for the bank's bucket.
	admit func(clock.Reading, []*parcel) time.Duration

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced whenever anything below changes
	waiting  []op
	building int // operations that are being made into messages
	ready    []*parcel
	mine     map[pix.MsgID]struct{}
	hands    int
	closed   bool
	pause    pause
	unfit    error // why this replica cannot send, until somebody clears it
	probing  bool  // one message at a time
	out      int   // batches that are being posted
}

func newQueue(clk clock.Clock, groups Groups, ahead int, admit func(clock.Reading, []*parcel) time.Duration) *queue {
	return &queue{
		clk: clk, groups: groups, ahead: ahead, admit: admit,
		changed: make(chan struct{}), mine: make(map[pix.MsgID]struct{}), unfit: errNotChecked,
	}
}

// errNotChecked is why nothing is sent before the first look at the transport.
var errNotChecked = errors.New("transport not checked yet")

// update changes the state and wakes whoever waits for a change.
func (q *queue) update(change func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	change()
	close(q.changed)
	q.changed = make(chan struct{})
}

// offer takes an operation in hand. Its error says that somebody else must have it.
func (q *queue) offer(o op) (err error) {
	q.update(func() {
		switch {
		case q.closed:
			err = errStopping
		case q.unfit != nil:
			err = errElsewhere
		default:
			q.waiting = append(q.waiting, o)
		}
	})
	return err
}

// next waits for operations and for room for the messages that they will be, and hands over as
// many as fit. It returns nothing when ctx ended, or when nothing more will come.
func (q *queue) next(ctx context.Context) []op {
	for {
		var got []op
		q.mu.Lock()
		over := q.closed
		if room := min(maxBatch, q.ahead-len(q.ready)); room > 0 && len(q.waiting) > 0 && !over {
			n := fill(q.waiting, room, q.groups)
			got = slices.Clone(q.waiting[:n])
			q.waiting = slices.Delete(q.waiting, 0, n)
			q.building += n
		}
		changed := q.changed
		q.mu.Unlock()
		if len(got) > 0 || over || !wait(ctx, changed) {
			return got
		}
	}
}

// fill returns how many of the operations, in their order, fit into so many messages.
func fill(waiting []op, messages int, groups Groups) int {
	open := make(map[string]int) // operations that the open message of a kind still takes
	for i, o := range waiting {
		if open[o.msgType] == 0 {
			if messages == 0 {
				return i
			}
			messages--
			open[o.msgType] = groups.size(o.msgType)
		}
		open[o.msgType]--
	}
	return len(waiting)
}

// back returns operations that became no message; the oldest again stand first.
func (q *queue) back(ops []op) {
	q.update(func() {
		q.building -= len(ops)
		q.waiting = append(slices.Clone(ops), q.waiting...)
	})
	q.turnAway()
}

// built takes operations out of hand: they are in messages now, or need none.
func (q *queue) built(n int, parcels ...*parcel) {
	q.update(func() {
		q.building -= n
		for _, p := range parcels {
			q.mine[p.id] = struct{}{}
		}
		q.ready = append(q.ready, parcels...)
	})
}

// again puts parcels in front that are in hand already.
func (q *queue) again(parcels []*parcel) {
	q.update(func() { q.ready = append(slices.Clone(parcels), q.ready...) })
}

// behind puts parcels last that are in hand already.
func (q *queue) behind(parcels []*parcel) {
	q.update(func() { q.ready = append(q.ready, parcels...) })
}

// adopt takes in hand what the store found and returns it, less what was in hand already. Each
// of it is to be put in front with again, or forgotten.
func (q *queue) adopt(parcels []*parcel) (fresh []*parcel) {
	q.update(func() {
		fresh = slices.DeleteFunc(parcels, func(p *parcel) bool { _, had := q.mine[p.id]; return had })
		for _, p := range fresh {
			q.mine[p.id] = struct{}{}
		}
	})
	return fresh
}

// forget says that parcels are settled, or somebody else's.
func (q *queue) forget(parcels []*parcel) {
	q.update(func() {
		for _, p := range parcels {
			delete(q.mine, p.id)
		}
	})
}

// stale takes out of ready what was counted at least so long ago, and is still not posted.
func (q *queue) stale(age time.Duration) (old []*parcel) {
	now := q.clk.Now()
	q.update(func() {
		is := func(p *parcel) bool { return !p.counted.Wall.IsZero() && now.Elapsed(p.counted) >= age }
		for _, p := range q.ready {
			if is(p) {
				old = append(old, p)
			}
		}
		q.ready = slices.DeleteFunc(q.ready, is)
	})
	return old
}

// flowing reports that what is made now goes out soon.
func (q *queue) flowing() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.heldFor(q.clk.Now()) == 0
}

// room is how many resends may be adopted now.
func (q *queue) room() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.heldFor(q.clk.Now()) > 0 {
		return 0
	}
	return max(0, q.ahead-len(q.ready))
}

// want waits until one more permit would be of use: something is on its way to be sent, and no
// permit is idle or being fetched. It counts the caller as fetching, and reports false when the
// caller is needed no more.
func (q *queue) want(ctx context.Context) bool {
	for {
		q.mu.Lock()
		held := q.heldFor(q.clk.Now())
		pending := len(q.waiting) + q.building + len(q.ready)
		need := held == 0 && pending > 0 && q.hands == 0
		if need {
			q.hands++
		}
		over := q.closed && !need && (q.waitingOver() || held > 0)
		changed := q.changed
		q.mu.Unlock()
		switch {
		case over || ctx.Err() != nil:
			return false
		case need:
			return true
		case !q.waitFor(ctx, changed, held, nil, nil):
			return false
		}
	}
}

// over waits until the intake is closed and nothing more can be sent here, and reports false if ctx ended before.
func (q *queue) over(ctx context.Context) bool {
	for {
		q.mu.Lock()
		over, changed := q.closed && (q.waitingOver() || q.heldFor(q.clk.Now()) > 0), q.changed
		q.mu.Unlock()
		if over || !wait(ctx, changed) {
			return over
		}
	}
}

// waitingOver: nothing will become ready any more, and nothing is.
func (q *queue) waitingOver() bool { return len(q.waiting)+q.building+len(q.ready) == 0 }

// hand counts a permit as idle, unhand takes the count back.
func (q *queue) hand()   { q.update(func() { q.hands++ }) }
func (q *queue) unhand() { q.update(func() { q.hands-- }) }

// landed says that the verdict on a batch is known.
func (q *queue) landed() { q.update(func() { q.out-- }) }

// grip is what take looks at of a slot.
type grip interface {
	Yield() <-chan struct{}
	Lost() <-chan struct{}
}

// take waits for messages for a permit that is counted as idle, at most idle long. Either it
// returns a batch, or why the permit should be given back. The permit counts as idle no more.
func (q *queue) take(ctx context.Context, g grip, idle time.Duration) ([]*parcel, ending) {
	began := q.clk.Now()
	defer q.unhand()
	for {
		if why := interrupted(ctx, g); why != "" {
			return nil, why
		}
		batch, block, changed, over := q.tryTake()
		if len(batch) > 0 {
			return batch, ""
		}
		left := idle - q.clk.Now().Elapsed(began)
		if over || left <= 0 {
			return nil, idled
		}
		if block == 0 || block > left {
			block = left
		}
		q.waitFor(ctx, changed, block, g.Yield(), g.Lost())
	}
}

// tryTake takes a batch if one may go now. Otherwise block says after which time to look again,
// zero for at the next change; over that there will be none.
func (q *queue) tryTake() (batch []*parcel, block time.Duration, changed <-chan struct{}, over bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.clk.Now()
	block, changed = q.heldFor(now), q.changed
	if block == 0 && len(q.ready) > 0 && (!q.probing || q.out == 0) {
		n := q.batch()
		if block = q.admit(now, q.ready[:n]); block == 0 {
			batch = slices.Clone(q.ready[:n])
			q.ready = slices.Delete(q.ready, 0, n)
			q.out++
			close(q.changed)
			q.changed = make(chan struct{})
			return batch, 0, nil, false
		}
	}
	return nil, block, changed, q.closed && (q.waitingOver() || q.heldFor(now) > 0)
}

// batch is how many of the ready messages go together.
func (q *queue) batch() int {
	if q.probing || q.ready[0].alone {
		return 1
	}
	n := slices.IndexFunc(q.ready, func(p *parcel) bool { return p.alone })
	if n < 0 {
		n = len(q.ready)
	}
	return min(n, maxBatch)
}

// forever is a pause that somebody must end.
const forever = time.Hour

// heldFor is how long nothing may be sent, zero if something may.
func (q *queue) heldFor(now clock.Reading) time.Duration {
	if q.unfit != nil {
		return forever
	}
	if q.pause.reason == "" {
		return 0
	}
	return max(0, q.pause.until.Remaining(now))
}

// hold keeps the channel from sending for d, or longer if it is held for longer already.
func (q *queue) hold(d time.Duration, reason string) {
	q.update(func() {
		until := q.clk.Now().Deadline(d)
		if until.Boot > q.pause.until.Boot {
			q.pause = pause{until: until, reason: reason}
		}
	})
}

// setUnfit says why this replica cannot send, nil for it can. What is in hand goes to others.
func (q *queue) setUnfit(err error) {
	q.update(func() { q.unfit = err })
	q.turnAway()
}

// probe makes the next POSTs carry one message each, until it is called off.
func (q *queue) probe(on bool) { q.update(func() { q.probing = on }) }

// close ends the intake. What is in messages already goes on.
func (q *queue) close() {
	q.update(func() { q.closed = true })
	q.turnAway()
}

// turnAway gives back the deliveries in hand if nothing will be made of them here.
func (q *queue) turnAway() {
	var gone []op
	err := errElsewhere
	q.update(func() {
		if q.closed {
			err = errStopping
		}
		if q.closed || q.unfit != nil {
			gone, q.waiting = q.waiting, nil
		}
	})
	for _, o := range gone {
		o.done(err)
	}
}

// state is why nothing can be sent from this replica, nil if something can.
func (q *queue) state() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.unfit
}

// sizes are what is waiting and what is ready.
func (q *queue) sizes() (waiting, ready int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting) + q.building, len(q.ready)
}

// rest takes out all that is ready.
func (q *queue) rest() (left []*parcel) {
	q.update(func() { left, q.ready = q.ready, nil })
	return left
}

// waitFor waits for a change, for d unless that is zero, or for an interruption.
func (q *queue) waitFor(ctx context.Context, changed <-chan struct{}, d time.Duration, interrupts ...<-chan struct{}) bool {
	var over <-chan time.Time
	if d > 0 {
		timer := q.clk.NewTimer(d)
		defer timer.Stop()
		over = timer.C()
	}
	select {
	case <-ctx.Done():
		return false
	case <-changed:
	case <-over:
	case <-interrupts[0]:
	case <-interrupts[1]:
	}
	return true
}

// wait reports whether something changed before ctx ended.
func wait(ctx context.Context, changed <-chan struct{}) bool {
	select {
	case <-ctx.Done():
		return false
	case <-changed:
		return true
	}
}
