package inbound

import (
	"context"
	"fmt"

	"github.com/cabine-pix/cabine/libs/store"
)

// markLater notes rows that the bus has. The table is told of many at once: a mark of ten rows costs the server as much as
// receiving them does, one of two hundred little more. Until then the rows count as not published; if this process dies
// they go out again, and the bus knows them by their identifiers.
func (p *Publisher) markLater(_ context.Context, rows []store.Stored) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.unmarked) == 0 {
		p.markSince = p.clk.Now()
	}
	for _, row := range rows {
		p.unmarked = append(p.unmarked, row.ID)
	}
	return nil
}

// markDue marks if there is enough to mark, or if it has waited long enough.
func (p *Publisher) markDue(ctx context.Context) error {
	if len(p.unmarked) >= p.cfg.BatchRows || len(p.unmarked) > 0 && p.clk.Now().Elapsed(p.markSince) >= p.cfg.MarkAfter {
		return p.mark(ctx)
	}
	return nil
}

// mark tells the table. What it could not be told is kept and told later.
func (p *Publisher) mark(ctx context.Context) error {
	if len(p.unmarked) == 0 {
		return nil
	}
	if err := p.out.Backlog.MarkPublished(ctx, p.unmarked); err != nil {
		return fmt.Errorf("noting what was published: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unmarked = nil
	p.moved()
	return nil
}
