package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cabine-pix/cabine/libs/devstack"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/tools/internal/stage"
)

// Capacity is BACEN's capacity test (icom.md 2.6: 40,000 pacs.008 in ten minutes each way), scaled to one minute.
type Capacity struct {
	// Share200MS is the share of the bank's messages that were read within 200 ms. BACEN asks for 0.99.
	Share200MS float64 `json:"share_200ms"`
	// ReceiverMS is from the SPI's receipt of an order to the receiver's answer. BACEN asks for 1400 and 2300.
	ReceiverMS stage.Percentiles `json:"receiver_ms"`
	// Sent payments were ordered, both ways together; Settled of them settled.
	Sent    int `json:"sent"`
	Settled int `json:"settled"`
	// Seconds from the first order to the last end.
	Seconds float64 `json:"seconds"`
}

const (
	capacityMinute = time.Minute
	capacityOrders = 4_000 // each way in that minute
	// other is who we pay and are paid by.
	other = pix.ISPB("87654321")
)

// capacity runs two participants, one replica of each service for each, at BACEN's rate and at ten times that.
func capacity(ctx context.Context, c config, _ *devstack.Stack, r *Report, out io.Writer) error {
	r.Capacity = make(map[string]Capacity)
	for _, times := range []int{1, 10} {
		measured, versions, err := capacityAt(ctx, c, times)
		if err != nil {
			return err
		}
		name := fmt.Sprintf("x%d", times)
		r.Capacity[name] = measured
		for k, v := range versions {
			r.Versions[k] = v
		}
		_, _ = fmt.Fprintf(out, "%-3s  %.1f %% of messages read within 200 ms; receiver p50 %.0f ms, p95 %.0f ms; sent %d, settled %d in %.0f s\n",
			name, 100*measured.Share200MS, measured.ReceiverMS.P50, measured.ReceiverMS.P95, measured.Sent, measured.Settled, measured.Seconds)
	}
	return nil
}

func capacityAt(ctx context.Context, c config, times int) (m Capacity, versions map[string]string, err error) {
	s, err := stage.SetUp(ctx, stage.Config{
		MaxSlots: 4, Payments: true, Participants: []pix.ISPB{stage.ISPB, other}, Progress: io.Discard,
		Bank: []string{"--forget-ids", "--unmetered"},
	})
	if err != nil {
		return m, nil, err
	}
	defer func() { err = errors.Join(err, s.TearDown()) }()
	stop, err := casts(ctx, s)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return m, nil, err
	}
	if err := reading(ctx, s); err != nil {
		return m, nil, err
	}
	began := time.Now()
	minute := min(capacityMinute, c.minute)
	orders := int(capacityOrders * float64(times) * minute.Seconds() / capacityMinute.Seconds())
	g, gctx := errgroup.WithContext(ctx)
	for i, p := range s.Participants {
		receiver := s.Participants[1-i].ISPB
		g.Go(func() error {
			b, err := newBooker(gctx, p, receiver)
			if err != nil {
				return err
			}
			booked, err := b.pace(gctx, orders, float64(orders)/minute.Seconds())
			return errors.Join(err, b.close(gctx), only(booked, orders))
		})
	}
	if err := g.Wait(); err != nil {
		return m, nil, err
	}
	m.Sent = 2 * orders
	if err := final(ctx, s); err != nil {
		return m, nil, err
	}
	m.Seconds = time.Since(began).Seconds()
	return m, s.Versions(), m.read(ctx, s)
}

func only(booked, orders int) error {
	if booked != orders {
		return fmt.Errorf("booked %d of %d orders", booked, orders)
	}
	return nil
}

// casts starts every service of both participants.
func casts(ctx context.Context, s *stage.Stage) (stop func() error, err error) {
	var running []*stage.Process
	stop = func() error {
		var g errgroup.Group
		for _, p := range running {
			g.Go(func() error { return p.Stop(30 * time.Second) })
		}
		return g.Wait()
	}
	quiet := func([]byte) {}
	group := map[string]any{"send": map[string]any{"group": map[string]any{"pacs008": perMessage}}}
	for i, p := range s.Participants {
		if err := p.StartCore(); err != nil {
			return stop, err
		}
		poller, err := p.Poller(fmt.Sprintf("poller-%d", i), quiet, nil)
		if err != nil {
			return stop, err
		}
		running = append(running, poller)
		payments, _, err := p.Payments(ctx, fmt.Sprintf("payments-%d", i), quiet, nil)
		if err != nil {
			return stop, err
		}
		running = append(running, payments)
		sender, err := p.Sender(fmt.Sprintf("sender-%d", i), quiet, group)
		if err != nil {
			return stop, err
		}
		running = append(running, sender)
	}
	return stop, nil
}

// reading waits until both participants read their streams.
func reading(ctx context.Context, s *stage.Stage) error {
	return eventually(ctx, time.Minute, "the first reads", func() (bool, error) {
		report, err := s.Report(ctx)
		for _, p := range s.Participants {
			if report.Participant(pix.CPM, p.ISPB).StreamsNow == 0 {
				return false, err
			}
		}
		return true, err
	})
}

// final waits until no payment is open.
func final(ctx context.Context, s *stage.Stage) error {
	return eventually(ctx, 5*time.Minute, "the end of every payment", func() (bool, error) {
		for _, p := range s.Participants {
			counts, err := store.NewPayments(p.DB).OpenCounts(ctx)
			if err != nil {
				return false, err
			}
			for _, n := range counts {
				if n.Count > 0 {
					return false, nil
				}
			}
		}
		return true, nil
	})
}

func eventually(ctx context.Context, within time.Duration, what string, ok func() (bool, error)) error {
	for deadline := time.Now().Add(within); ; {
		done, err := ok()
		if err != nil || done {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("waited %v for %s", within, what)
		}
		if err := sleep(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
}

// read fills in what the bank counted.
func (m *Capacity) read(ctx context.Context, s *stage.Stage) error {
	report, err := s.Report(ctx)
	if err != nil {
		return err
	}
	var taken, promptly uint64
	for _, p := range report.Participants {
		taken, promptly = taken+p.Waits.Count, promptly+p.Waits.Promptly
	}
	if taken == 0 {
		return errors.New("the bank sent nothing")
	}
	m.Share200MS = float64(promptly) / float64(taken)
	books, err := s.Books(ctx, true)
	if err != nil {
		return err
	}
	for _, p := range s.Participants {
		m.Settled += books.Account(p.ISPB).PaymentsOut.Settled
	}
	_, m.ReceiverMS = stage.Latencies(books.Orders)
	return nil
}
