package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cabine-pix/cabine/libs/lease"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/tools/internal/stage"
)

// table shows the system while it runs: redrawn in place on a terminal, a line every few seconds elsewhere.
type table struct {
	out   io.Writer
	live  bool
	lines int
	every time.Duration
	last  time.Time
}

func newTable(out io.Writer, plain bool) *table {
	t := &table{out: out, every: 3 * time.Second}
	if f, ok := out.(*os.File); ok && !plain {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			t.live, t.every = true, 200*time.Millisecond
		}
	}
	return t
}

// note prints something that stays.
func (t *table) note(format string, args ...any) {
	t.clear()
	_, _ = fmt.Fprintf(t.out, "%s  %s\n", time.Now().Format("15:04:05"), fmt.Sprintf(format, args...))
	t.last = time.Time{}
}

func (t *table) clear() {
	if t.lines > 0 {
		_, _ = fmt.Fprintf(t.out, "\x1b[%dA\x1b[J", t.lines)
		t.lines = 0
	}
}

// end leaves the last picture standing.
func (t *table) end() { t.lines = 0 }

func (t *table) draw(ctx context.Context, tr *troupe) error {
	if time.Since(t.last) < t.every {
		return nil
	}
	t.last = time.Now()
	bank, err := tr.stage.Report(ctx)
	if err != nil {
		return err
	}
	ours := tr.stage.Participants[0]
	open, err := store.NewInbox(ours.DB).Backlog(ctx)
	if err != nil {
		return err
	}
	books, err := store.NewPayments(ours.DB).Books(ctx)
	if err != nil {
		return err
	}
	var rows []string
	for _, name := range pix.Channels() {
		p := bank.Participant(name, stage.ISPB)
		rows = append(rows, fmt.Sprintf("%s  no banco agora %d  pico %d/%d  violações %d  enviadas %d  confirmadas %d  slots %s",
			name, p.RequestsNow, p.PeakRequests, max(p.Cap, lease.MaxSlots), p.Violations, p.Enqueued, p.Acked, tr.owners(string(name))))
	}
	rows = append(rows, fmt.Sprintf("inbox  a publicar %d  em processamento %d", open.Received, open.Published), booked(books))
	if !t.live {
		_, _ = fmt.Fprintf(t.out, "%s  %s\n", time.Now().Format("15:04:05"), strings.Join(rows, " | "))
		return nil
	}
	t.clear()
	_, _ = fmt.Fprintln(t.out, strings.Join(rows, "\n"))
	t.lines = len(rows)
	return nil
}

// booked shows what settled in our books.
func booked(books []store.Book) string {
	text := "liquidados"
	for _, b := range books {
		text += fmt.Sprintf("  %s %s %d = %v", b.Kind, b.Direction, b.Count, b.Amount)
	}
	return text
}

// owners returns who polls each slot of a channel, as the replicas say.
func (t *troupe) owners(channel string) string {
	t.history.mu.Lock()
	defer t.history.mu.Unlock()
	owner := make(map[int]string)
	for _, e := range t.history.events {
		if e.Channel != channel {
			continue
		}
		switch {
		case e.Msg == "slot granted":
			owner[e.Slot] = e.replica
		case e.Msg == "slot given" && owner[e.Slot] == e.replica:
			delete(owner, e.Slot)
		}
	}
	parts := make([]string, 0, len(owner))
	for slot := range lease.MaxSlots {
		if o, ok := owner[slot+1]; ok {
			if t.isRunning(o) {
				parts = append(parts, fmt.Sprintf("%d:%s", slot+1, o))
			} else {
				parts = append(parts, fmt.Sprintf("%d:(%s)", slot+1, o))
			}
		}
	}
	return strings.Join(slices.Clip(parts), " ")
}

func (t *troupe) isRunning(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.running[name]
	return ok
}

// quarantine is how long a new Redis grants nothing, with the demo's times.
func quarantine() time.Duration {
	return lease.Timing{TTL: stage.TTL, LongestTTL: stage.TTL, NoReplicas: true}.Quarantine()
}
