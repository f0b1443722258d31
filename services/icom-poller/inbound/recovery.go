package inbound

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/cabine-pix/cabine/libs/store"
)

// recover publishes again what was published and not done, for as long as it takes: that nobody
// finished a row says nothing about the row. It is buried only by its consumer's own verdict
// (bus.ConsumeConfig.Poison), or by the bus that can never take it.
func (p *Publisher) recover(ctx context.Context) error {
	for {
		rows, err := p.out.Unfinished.Stuck(ctx, p.cfg.StuckAge, p.cfg.StuckMost, p.cfg.BatchRows)
		if err != nil {
			return fmt.Errorf("reading what is not done: %w", err)
		}
		p.tell(ctx, rows)
		if err := p.carry(ctx, again, rows, p.out.Unfinished.Republished); err != nil {
			return err
		}
		if len(rows) < p.cfg.BatchRows {
			return nil
		}
	}
}

// tell says what goes out again, as an error once a row did so too often.
func (p *Publisher) tell(ctx context.Context, rows []store.Stored) {
	if len(rows) == 0 {
		return
	}
	worst := slices.MaxFunc(rows, func(a, b store.Stored) int { return cmp.Compare(a.Attempts, b.Attempts) })
	level := slog.LevelWarn
	if worst.Attempts >= p.cfg.AlarmAttempts {
		level = slog.LevelError
	}
	p.log.LogAttrs(ctx, level, "publishing again what nobody finished", slog.Int("rows", len(rows)),
		slog.Int("attempts", worst.Attempts), slog.String("message_id", worst.MessageID), slog.Time("received", worst.ReceivedAt))
}

// refuse buries a row that the bus can never take: it would hold up its stream for ever.
func (p *Publisher) refuse(ctx context.Context, row store.Stored, cause error) error {
	reason := fmt.Sprintf("refused by the bus: %v", cause)
	err := p.out.Unfinished.Bury(ctx, row.ID, reason)
	if err != nil && !errors.Is(err, store.ErrNotFound) { // not found: done meanwhile
		return fmt.Errorf("burying a message: %w", err)
	}
	p.forget(row)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	p.m.deadLetters.WithLabelValues(string(row.Channel), refused).Inc()
	p.log.Error("message goes to the dead letters", slog.String("message_id", row.MessageID), slog.String("reason", reason))
	return nil
}
