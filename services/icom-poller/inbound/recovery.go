package inbound

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/cabine-pix/cabine/libs/store"
)

// recover publishes again what was published and not done, and buries what was tried too often.
func (p *Publisher) recover(ctx context.Context) error {
	for {
		rows, err := p.out.Unfinished.Stuck(ctx, p.cfg.StuckAge, p.cfg.StuckMost, p.cfg.BatchRows)
		if err != nil {
			return fmt.Errorf("reading what is not done: %w", err)
		}
		var repeat []store.Stored
		for _, row := range rows {
			if row.Attempts < p.cfg.MaxAttempts {
				repeat = append(repeat, row)
				continue
			}
			reason := fmt.Sprintf("published %d times and never done", row.Attempts+1)
			if err := p.bury(ctx, row, "never_done", reason); err != nil {
				return err
			}
		}
		if len(repeat) > 0 {
			p.log.Warn("publishing again what nobody finished", slog.Int("rows", len(repeat)))
		}
		if err := p.carry(ctx, again, repeat, p.out.Unfinished.Republished); err != nil {
			return err
		}
		if len(rows) < p.cfg.BatchRows {
			return nil
		}
	}
}

// refuse counts the refusals of a row, for which the bus will not change its mind, and
// buries it in the end: it would hold up its stream for ever.
func (p *Publisher) refuse(ctx context.Context, row store.Stored, cause error) error {
	p.refused[row.ID]++
	if p.refused[row.ID] < p.cfg.MaxAttempts {
		return nil
	}
	reason := fmt.Sprintf("refused %d times by the bus: %v", p.refused[row.ID], cause)
	if err := p.bury(ctx, row, "refused", reason); err != nil {
		return err
	}
	delete(p.refused, row.ID)
	p.forget(row)
	return nil
}

func (p *Publisher) bury(ctx context.Context, row store.Stored, label, reason string) error {
	err := p.out.Unfinished.Bury(ctx, row.ID, reason)
	if errors.Is(err, store.ErrNotFound) {
		return nil // done meanwhile
	}
	if err != nil {
		return fmt.Errorf("burying a message: %w", err)
	}
	p.m.deadLetters.WithLabelValues(string(row.Channel), label).Inc()
	p.log.Error("message goes to the dead letters", slog.String("message_id", row.MessageID), slog.String("reason", reason))
	return nil
}
