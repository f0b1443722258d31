package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/cabine-pix/cabine/libs/bus"
)

// spoils is the hidden flag -break: what is broken on purpose, so that a test sees that the law it breaks can fail the demo.
//
//	jetstream   the bus goes away under the services for a moment
//	consumers   somebody creates a consumer while services run
//	netting     a line of a closed cycle has one payment more
//	entries     the bank's account loses entries, changes amounts and invents entries
type spoils []string

func (s *spoils) String() string { return strings.Join(*s, ",") }

// Set reads a list.
func (s *spoils) Set(text string) error {
	for _, what := range strings.Split(text, ",") {
		if !slices.Contains([]string{"jetstream", "consumers", "netting", "entries"}, what) {
			return fmt.Errorf("%q não existe", what)
		}
		*s = append(*s, what)
	}
	return nil
}

// spoil does those of the named that were asked for.
func (t *troupe) spoil(ctx context.Context, names ...string) error {
	ours := t.stage.Participants[0]
	for _, what := range names {
		if !slices.Contains(t.o.spoils, what) {
			continue
		}
		var err error
		switch what {
		case "jetstream":
			err = ours.NATS.Restart(ctx)
		case "consumers":
			err = t.create(ctx, ours.NATS.URL())
		case "netting":
			err = ours.Exec(ctx, "UPDATE nettings SET credit_count = credit_count + 1 WHERE cycle_id = (SELECT min(cycle_id) FROM nettings)")
		case "entries":
			err = t.stage.Control(ctx, http.MethodPost, "/spi/faults", nil,
				`[{"at":"entry","do":"drop","rate":0.1},{"at":"entry","do":"alter","rate":0.1},{"at":"entry","do":"invent","rate":0.1}]`, nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// create makes a consumer that nobody declared.
func (t *troupe) create(ctx context.Context, url string) error {
	b, err := bus.Connect(ctx, bus.Config{URL: url}, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	topology := bus.Declared(1)
	topology.Consumers = append(topology.Consumers, bus.Consumer{
		Stream: bus.StreamSettlement, Name: "undeclared", AckWait: time.Minute, MaxAckPending: 1,
	})
	if _, err := b.Provision(ctx, topology, false); err != nil {
		return err
	}
	return b.Close(ctx)
}
