package inbound

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cabine-pix/cabine/libs/bus"
	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
)

// Carrier takes rows to the consumers.
type Carrier interface {
	// PublishInbound sends messages in their order and returns one result for each, nil for what is stored at the other end.
	PublishInbound(ctx context.Context, messages []bus.Inbound) bus.Results
}

// Backlog is the table that the carrier is fed from.
type Backlog interface {
	// Unpublished returns rows that were stored longer ago than olderThan and not published, each stream's in its order.
	Unpublished(ctx context.Context, olderThan time.Duration, limit int) ([]store.Stored, error)
	MarkPublished(ctx context.Context, ids []int64) error
	// Backlog says how much is open, and for how long.
	Backlog(ctx context.Context) (store.Backlog, error)
}

// Unfinished is what was published and never done.
type Unfinished interface {
	// Stuck returns rows that were published and are not done, oldest first: the first time
	// after the time first, then after twice as long each time, up to most.
	Stuck(ctx context.Context, first, most time.Duration, limit int) ([]store.Stored, error)
	// Republished counts an attempt and starts the wait anew.
	Republished(ctx context.Context, stuck []store.Stored) error
	// Bury moves a row to the dead letters.
	Bury(ctx context.Context, id int64, reason string) error
}

// Outlet is everything behind the publisher.
type Outlet struct {
	Carrier    Carrier
	Backlog    Backlog
	Unfinished Unfinished
}

// stream names the order in which messages arrived.
type stream struct {
	channel pix.Channel
	ispb    pix.ISPB
	slot    int
}

func streamOf(s store.Session) stream { return stream{s.Channel, s.ISPB, s.Slot} }

// queue is one stream's fresh rows. While gap is set the table holds older unpublished ones.
type queue struct {
	rows []store.Stored
	gap  bool
	// gaps counts the setting of gap, so that a gap opened anew is not closed by an older reading.
	gaps int
}

// Publisher carries rows beside the polls. One goroutine, Run, publishes; offer and gap only note.
type Publisher struct {
	cfg PublisherConfig
	out Outlet
	clk clock.Clock
	log *slog.Logger
	m   *metrics

	wake chan struct{}

	mu       sync.Mutex
	queues   map[stream]*queue
	unmarked []int64       // rows that the bus has and the table does not know to be published
	progress chan struct{} // closed and replaced when rows leave the queues or are marked

	// Only Run's goroutine uses these.
	republish, sweep, counted clock.Reading // when they were last done
	markSince                 clock.Reading // since when there is something unmarked
	failing                   bool
}

func newPublisher(cfg PublisherConfig, out Outlet, clk clock.Clock, log *slog.Logger, m *metrics) *Publisher {
	return &Publisher{
		cfg: cfg, out: out, clk: clk, log: log, m: m,
		wake: make(chan struct{}, 1), queues: make(map[stream]*queue), progress: make(chan struct{}),
	}
}

// offer hands over fresh rows of a stream, in their order. It never waits: what does not fit is
// left to the table, and so is everything of that stream in memory, to keep the order.
func (p *Publisher) offer(s stream, rows []store.Stored) {
	if len(rows) == 0 {
		return
	}
	p.mu.Lock()
	q := p.queue(s)
	if len(q.rows)+len(rows) > p.cfg.QueueRows {
		q.rows, q.gap = nil, true
		q.gaps++
		p.m.gaps.Inc()
	} else {
		q.rows = append(q.rows, rows...)
	}
	p.mu.Unlock()
	p.nudge()
}

// gap says that the table may hold unpublished rows of the stream that will not be offered.
func (p *Publisher) gap(s stream) {
	p.mu.Lock()
	q := p.queue(s)
	q.gap = true
	q.gaps++
	p.mu.Unlock()
	p.nudge()
}

func (p *Publisher) queue(s stream) *queue {
	q := p.queues[s]
	if q == nil {
		q = &queue{}
		p.queues[s] = q
	}
	return q
}

func (p *Publisher) nudge() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Run publishes until ctx ends.
func (p *Publisher) Run(ctx context.Context) {
	retry := clock.Backoff{First: p.cfg.BackoffFirst, Most: p.cfg.BackoffMost}
	p.sweep = p.clk.Now()
	for {
		began := p.clk.Now()
		err := p.work(ctx)
		if ctx.Err() != nil {
			return
		}
		wake, wait := p.wake, p.untilDue()
		if err != nil {
			wake, wait = nil, retry.Next()
		} else {
			retry.Reset()
		}
		p.report(err)
		p.rest(ctx, wake, wait)
		if clock.Sleep(ctx, p.clk, p.cfg.Gather-p.clk.Now().Elapsed(began)) != nil {
			return
		}
	}
}

// rest waits until there is something to do, for wait at most.
func (p *Publisher) rest(ctx context.Context, wake <-chan struct{}, wait time.Duration) {
	timer := p.clk.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-wake:
	case <-timer.C():
	}
}

func (p *Publisher) report(err error) {
	if failing := err != nil; failing != p.failing {
		p.failing = failing
		if failing {
			p.log.Error("publishing fails, rows wait in the table", slog.Any("error", err))
		} else {
			p.log.Info("publishing again")
		}
	}
}

func (p *Publisher) untilDue() time.Duration {
	now := p.clk.Now()
	due := min(p.cfg.RepublishEvery-now.Elapsed(p.republish), p.cfg.RepublishEvery-now.Elapsed(p.counted),
		p.cfg.SweepEvery-now.Elapsed(p.sweep))
	if len(p.unmarked) > 0 {
		due = min(due, p.cfg.MarkAfter-now.Elapsed(p.markSince))
	}
	return max(0, due)
}

// work counts what is open, whatever becomes of the rest, and publishes.
func (p *Publisher) work(ctx context.Context) error {
	return errors.Join(p.count(ctx), p.carryDue(ctx))
}

func (p *Publisher) count(ctx context.Context) error {
	now := p.clk.Now()
	if now.Elapsed(p.counted) < p.cfg.RepublishEvery {
		return nil
	}
	open, err := p.out.Backlog.Backlog(ctx)
	if err != nil {
		return fmt.Errorf("counting the inbox: %w", err)
	}
	p.counted = now
	p.m.open.WithLabelValues("received").Set(float64(open.Received))
	p.m.open.WithLabelValues("published").Set(float64(open.Published))
	p.m.oldest.Set(open.Lag.Seconds())
	p.m.attempts.Set(float64(open.Attempts))
	return nil
}

// carryDue publishes everything that is due and ends at the first failure.
func (p *Publisher) carryDue(ctx context.Context) error {
	for {
		if p.anyGap() {
			if err := p.carryBacklog(ctx, 0); err != nil {
				return err
			}
		}
		more, err := p.carryFresh(ctx)
		if err = errors.Join(err, p.markDue(ctx)); err != nil {
			return err
		}
		if !more && !p.anyGap() {
			break
		}
	}
	if now := p.clk.Now(); now.Elapsed(p.republish) >= p.cfg.RepublishEvery {
		if err := p.carryBacklog(ctx, p.cfg.RepublishAge); err != nil {
			return err
		}
		p.republish = now
	}
	if now := p.clk.Now(); now.Elapsed(p.sweep) >= p.cfg.SweepEvery {
		if err := p.recover(ctx); err != nil {
			return err
		}
		p.sweep = now
	}
	return nil
}

func (p *Publisher) anyGap() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, q := range p.queues {
		if q.gap {
			return true
		}
	}
	return false
}

// carryFresh publishes one batch from memory, of streams whose order allows it, and reports whether it left anything.
func (p *Publisher) carryFresh(ctx context.Context) (more bool, err error) {
	rows, more := p.take()
	return more, p.carry(ctx, "fresh", rows, p.markLater)
}

// take returns the oldest rows of each stream without removing them, and whether there are more.
func (p *Publisher) take() (rows []store.Stored, more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	share := max(1, p.cfg.BatchRows/max(1, len(p.queues)))
	for _, q := range p.queues {
		if !q.gap {
			rows = append(rows, q.rows[:min(share, len(q.rows))]...)
			more = more || len(q.rows) > share
		}
	}
	return rows, more
}

// carryBacklog publishes what the table holds, page by page. Once it has read everything,
// younger rows of a stream with a gap may follow from memory.
func (p *Publisher) carryBacklog(ctx context.Context, age time.Duration) error {
	for {
		if err := p.mark(ctx); err != nil {
			return err
		}
		seen := p.gapsSeen()
		rows, err := p.out.Backlog.Unpublished(ctx, age, p.cfg.BatchRows)
		if err != nil {
			return fmt.Errorf("reading the backlog: %w", err)
		}
		if err := p.carry(ctx, "table", rows, p.markLater); err != nil {
			return err
		}
		if len(rows) == p.cfg.BatchRows {
			continue
		}
		if age == 0 {
			p.closeGaps(seen)
		}
		return nil
	}
}

func (p *Publisher) gapsSeen() map[stream]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen := make(map[stream]int)
	for s, q := range p.queues {
		if q.gap {
			seen[s] = q.gaps
		}
	}
	return seen
}

// closeGaps closes those that were not opened anew since seen was taken.
func (p *Publisher) closeGaps(seen map[stream]int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for s, n := range seen {
		if q := p.queues[s]; q.gaps == n {
			q.gap = false
		}
	}
	p.moved()
}

// carry publishes rows, notes what arrived and takes it out of memory. The table is told
// last: if that never happens a row is published once more later, which consumers can bear.
func (p *Publisher) carry(ctx context.Context, from string, rows []store.Stored, note func(context.Context, []store.Stored) error) error {
	if len(rows) == 0 {
		return nil
	}
	results := p.publish(ctx, rows, from == again)
	var failed error
	arrived := make([]store.Stored, 0, len(rows))
	for i, row := range rows {
		err := errors.New("no result for a row")
		if i < len(results) {
			err = results[i]
		}
		if err == nil {
			arrived = append(arrived, row)
			continue
		}
		p.m.publishErr.Inc()
		if errors.Is(err, bus.ErrRefused) {
			err = p.refuse(ctx, row, err)
		}
		if failed == nil && err != nil {
			failed = fmt.Errorf("publishing: %w", err)
		}
	}
	if len(arrived) == 0 {
		return failed
	}
	p.m.published.WithLabelValues(from).Add(float64(len(arrived)))
	err := note(ctx, arrived)
	p.forget(arrived...)
	if err != nil {
		err = fmt.Errorf("noting what was published: %w", err)
	}
	return errors.Join(failed, err)
}

// again marks rows that were published before: they must pass the bus's window of duplicates.
const again = "unfinished"

func (p *Publisher) publish(ctx context.Context, rows []store.Stored, repeat bool) bus.Results {
	messages := make([]bus.Inbound, len(rows))
	for i, row := range rows {
		messages[i] = bus.Inbound{
			ISPB: row.ISPB, MsgType: row.MsgType, MessageID: row.MessageID, Source: row.Source(),
			Attempt: row.Attempts, Payload: row.Payload,
		}
		if repeat {
			messages[i].Attempt++
		}
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.PublishTimeout)
	defer cancel()
	return p.out.Carrier.PublishInbound(ctx, messages)
}

// forget removes published rows from memory.
func (p *Publisher) forget(rows ...store.Stored) {
	gone := make(map[int64]struct{}, len(rows))
	for _, row := range rows {
		gone[row.ID] = struct{}{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	left := 0
	for _, q := range p.queues {
		kept := q.rows[:0]
		for _, row := range q.rows {
			if _, ok := gone[row.ID]; !ok {
				kept = append(kept, row)
			}
		}
		clear(q.rows[len(kept):])
		q.rows = kept
		left += len(kept)
	}
	p.m.queued.Set(float64(left))
	p.moved()
}

func (p *Publisher) moved() {
	close(p.progress)
	p.progress = make(chan struct{})
}

// flush waits until memory holds nothing to publish and nothing to mark.
func (p *Publisher) flush(ctx context.Context) error {
	for {
		p.mu.Lock()
		rows, gaps, unmarked, progress := 0, 0, len(p.unmarked), p.progress
		for _, q := range p.queues {
			rows += len(q.rows)
			if q.gap {
				gaps++
			}
		}
		p.mu.Unlock()
		if rows == 0 && gaps == 0 && unmarked == 0 {
			return nil
		}
		select {
		case <-progress:
		case <-ctx.Done():
			return fmt.Errorf("%d rows and %d streams are left to the table, %d rows unmarked: %w", rows, gaps, unmarked, ctx.Err())
		}
	}
}
