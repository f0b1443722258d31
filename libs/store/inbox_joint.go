package store

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/cabine-pix/cabine/libs/store/db"
)

// maxJointBytes bounds the messages of one joint commit; a single batch may be larger.
const maxJointBytes = 4 << 20

// joint stores the batches of one source, by one commit at a time: what comes while a commit is under way waits for
// its end, and all that waits then is the next one. A batch that comes when there is none is committed at once and
// alone. Nothing waits for a slot that does not wait itself, and measured with six busy slots a batch costs the server
// half of what six commits side by side do.
//
// Each batch stands for itself: the term of its own slot decides whether it is stored, and its caller hears of it after
// the commit. A statement that fails fails for all of its batches: one that the server refused, as it does when a
// message is here already, is followed by a commit of each batch alone; where it is not known whether there was a commit
// all are told so, and each slot goes alone (apart) until it was stored once, so that what held up one holds up no other again.
type joint struct {
	inbox *Inbox

	mu      sync.Mutex
	writing bool
	waiting []*delivery
	apart   map[int]struct{} // slots
}

// delivery is one batch on its way. Whoever closes done has set the rest.
type delivery struct {
	batch   Batch
	bytes   int
	done    chan struct{}
	receipt Receipt
	err     error
}

func (d *delivery) end(receipt Receipt, err error) {
	d.receipt, d.err = receipt, err
	close(d.done)
}

// receive is Receive for a usual batch. When ctx ends during the commit, that goes on without its caller.
func (j *joint) receive(ctx context.Context, batch Batch) (Receipt, error) {
	d := &delivery{batch: batch, done: make(chan struct{})}
	for i := range batch.Arrivals {
		d.bytes += len(batch.Arrivals[i].Payload)
	}
	j.mu.Lock()
	j.waiting = append(j.waiting, d)
	idle := !j.writing
	j.writing = true
	j.mu.Unlock()
	if idle {
		go j.write(context.WithoutCancel(ctx))
	}
	select {
	case <-d.done:
		return d.receipt, d.err
	case <-ctx.Done():
		j.withdraw(d)
		return Receipt{}, translate("receive", ctx.Err())
	}
}

func (j *joint) withdraw(d *delivery) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.waiting = slices.DeleteFunc(j.waiting, func(other *delivery) bool { return other == d })
}

// write commits until nothing waits. Each commit is bounded by the limits of the configuration.
func (j *joint) write(ctx context.Context) {
	for group := j.take(); len(group) > 0; group = j.take() {
		j.commit(ctx, group)
	}
}

// take returns what goes into the next commit, in the order of the slots. A slot has one batch in it: a second one comes
// from another owner, or from a caller who gave up and came again.
func (j *joint) take() []*delivery {
	j.mu.Lock()
	defer j.mu.Unlock()
	var group []*delivery
	var later []*delivery
	bytes := 0
	for _, d := range j.waiting {
		twice := slices.ContainsFunc(group, func(g *delivery) bool { return g.batch.Session.Slot == d.batch.Session.Slot })
		if len(group) > 0 && (twice || bytes+d.bytes > maxJointBytes) {
			later = append(later, d)
			continue
		}
		group, bytes = append(group, d), bytes+d.bytes
	}
	j.waiting = later
	j.writing = len(group) > 0
	slices.SortFunc(group, func(x, y *delivery) int { return cmp.Compare(x.batch.Session.Slot, y.batch.Session.Slot) })
	return group
}

func (j *joint) commit(ctx context.Context, group []*delivery) {
	numbers, err := j.inbox.receiveUsual(ctx, group)
	switch {
	case err == nil:
		for _, d := range group {
			d.end(d.received(numbers[d.batch.Session.Slot]))
		}
	case errors.Is(err, ErrUnavailable):
		j.part(group)
		for _, d := range group {
			d.end(Receipt{}, err)
		}
	default:
		for _, d := range group {
			go func() { d.end(j.inbox.receiveUnusual(ctx, d.batch)) }()
		}
	}
}

// receiveUsual stores the batches of a group and returns the numbers that they got, by slot.
func (b *Inbox) receiveUsual(ctx context.Context, group []*delivery) (map[int]int64, error) {
	numbers := make(map[int]int64, len(group))
	params := usual(group)
	err := b.db.call(ctx, "receive", func(ctx context.Context, conn db.DBTX) error {
		rows, err := b.q.Receive(ctx, conn, params)
		for _, row := range rows {
			numbers[int(row.Slot)] = row.Batch
		}
		return err
	})
	return numbers, err
}

func usual(group []*delivery) db.ReceiveParams {
	n := 0
	for _, d := range group {
		n += len(d.batch.Arrivals)
	}
	first := group[0].batch.Session
	p := db.ReceiveParams{
		Channel: string(first.Channel), Ispb: string(first.ISPB), Source: Source(first.Channel, first.ISPB),
		SlotOf: make([]int16, 0, n), Positions: make([]int64, 0, n),
		MessageIds: make([]string, 0, n), MsgTypes: make([]string, 0, n), Payloads: make([][]byte, 0, n),
	}
	for _, d := range group {
		slot := int16(d.batch.Session.Slot)
		p.Slots = append(p.Slots, slot)
		p.Terms = append(p.Terms, d.batch.Session.Term)
		p.Cursors = append(p.Cursors, d.batch.NextCursor)
		for i := range d.batch.Arrivals {
			a := &d.batch.Arrivals[i]
			p.SlotOf, p.Positions = append(p.SlotOf, slot), append(p.Positions, int64(i))
			p.MessageIds, p.MsgTypes, p.Payloads = append(p.MessageIds, a.MessageID), append(p.MsgTypes, a.MsgType), append(p.Payloads, a.Payload)
		}
	}
	return p
}

// received is the answer to a batch that was stored under the given number; 0 if its term was stale.
func (d *delivery) received(number int64) (Receipt, error) {
	if number == 0 {
		return Receipt{}, translate("receive", ErrStaleTerm)
	}
	fresh := make([]Stored, len(d.batch.Arrivals))
	for i := range fresh {
		fresh[i] = d.batch.stored(number, i)
	}
	return Receipt{Fresh: fresh}, nil
}

func (j *joint) part(group []*delivery) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, d := range group {
		j.apart[d.batch.Session.Slot] = struct{}{}
	}
}

func (j *joint) isApart(slot int) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	_, apart := j.apart[slot]
	return apart
}

func (j *joint) rejoin(slot int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.apart, slot)
}
