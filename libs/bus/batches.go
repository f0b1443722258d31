package bus

import (
	"context"
	"sync"
)

// RunBatches is Run with as many workers: each takes what is there, at most so many deliveries, and hands them to take
// together, whose part it is to answer every one of them. The context of take does not end with ctx: what is in hand at the
// end is finished, within DrainTimeout. RunBatches returns when all workers have, with the error of Run.
func (s *Subscription) RunBatches(ctx context.Context, workers, most int, take func(ctx context.Context, batch []*Held)) error {
	working := context.WithoutCancel(ctx)
	var hands sync.WaitGroup
	for range workers {
		hands.Go(func() {
			for first := range s.deliveries {
				take(working, s.more(first, most))
			}
		})
	}
	err := s.Run(ctx)
	hands.Wait()
	return err
}

// more takes what is there beside the first.
func (s *Subscription) more(first *Held, most int) []*Held {
	batch := []*Held{first}
	for len(batch) < most {
		select {
		case h, open := <-s.deliveries:
			if !open {
				return batch
			}
			batch = append(batch, h)
		default:
			return batch
		}
	}
	return batch
}
