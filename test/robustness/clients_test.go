package robustness_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cabine-pix/cabine/libs/pix"
)

const (
	// clients of each participant give an order each, all at once and every burst, as long as at most openMost of its
	// payments are open. What comes at once goes out in groups, and signatures cost what this machine has least of.
	clients  = 100
	burst    = time.Second
	openMost = 450
	// One in so many orders takes the secondary channel, is given twice at once, is given back in half.
	oneScheduled = 5
	oneTwice     = 40
	oneReturned  = 20
	// returnPatience is how long a client waits for a payment to settle before it gives up returning it.
	returnPatience = 2 * settleWithin
)

// taken is an order that a client was told 201 for.
type taken struct {
	id     string
	amount pix.Amount
}

// returned is a return that a client was told 2xx for.
type returned struct {
	id, original string
	amount       pix.Amount
}

// bench is the clients of one participant.
type bench struct {
	payer, receiver *participant
	http            http.Client
	progress        *atomic.Int64 // orders taken, of both

	mu      sync.Mutex
	random  *rand.Rand
	gate    chan struct{} // closed and replaced at every burst
	orders  []taken
	returns []returned // by the receiver
	repeats int        // requests that had to be made again
}

func newBench(payer, receiver *participant, random *rand.Rand, progress *atomic.Int64) *bench {
	return &bench{
		payer: payer, receiver: receiver, random: random, progress: progress, gate: make(chan struct{}),
		http: http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}, Timeout: 10 * time.Second},
	}
}

// work gives n orders, and returns once each was answered and every return was given or given up.
func (b *bench) work(ctx context.Context, n int) error {
	defer b.http.CloseIdleConnections()
	g, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	var returning errgroup.Group
	watching, stop := context.WithCancel(ctx)
	defer stop()
	g.Go(func() error { b.conduct(watching); return nil })
	var working sync.WaitGroup
	for range clients {
		working.Add(1)
		g.Go(func() error {
			defer working.Done()
			for {
				i := int(next.Add(1))
				if i > n {
					return nil
				}
				if err := b.turn(ctx); err != nil {
					return err
				}
				o, err := b.order(ctx, i)
				if err != nil {
					return err
				}
				if i%oneReturned == 0 && o.amount > 1 {
					returning.Go(func() error { return b.giveBack(ctx, o) })
				}
			}
		})
	}
	g.Go(func() error { working.Wait(); stop(); return returning.Wait() })
	return g.Wait()
}

// conduct opens the gate at every burst, unless too much is open, until ctx ends.
func (b *bench) conduct(ctx context.Context) {
	for pause(ctx, burst) == nil {
		counts, err := b.payer.payments.OpenCounts(ctx)
		if err != nil || counts[pix.Created].Count+counts[pix.Sent].Count+counts[pix.Unknown].Count > openMost {
			continue
		}
		b.mu.Lock()
		close(b.gate)
		b.gate = make(chan struct{})
		b.mu.Unlock()
	}
}

// turn waits until one more order may be given.
func (b *bench) turn(ctx context.Context) error {
	b.mu.Lock()
	gate := b.gate
	b.mu.Unlock()
	select {
	case <-gate:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *bench) draw(n int64) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.random.Int64N(n)
}

// order gives one order until it is answered.
func (b *bench) order(ctx context.Context, i int) (taken, error) {
	amount := pix.Amount(1 + b.draw(100_00))
	level := "PAGPRI"
	if i%oneScheduled == 0 {
		level = "PAGAGD"
	}
	body := map[string]any{
		"valor": amount.String(), "formaIniciacao": "MANU", "nivelServico": level,
		"pagador":   map[string]any{"nome": "Pessoa Pagadora", "cpf": "11144477735", "agencia": "1", "conta": "1001", "tipoConta": "CORRENTE"},
		"recebedor": map[string]any{"ispbParticipante": b.receiver.ispb, "cpf": "52998224725", "agencia": "2", "conta": "2002", "tipoConta": "CORRENTE"},
	}
	key := fmt.Sprintf("a-bad-day-%s-%d", b.payer.ispb, i)
	times := 1
	if i%oneTwice == 0 {
		times = 2
	}
	var g errgroup.Group
	answers := make([]struct {
		EndToEndID string `json:"endToEndId"`
	}, times)
	for j := range answers {
		g.Go(func() error { return b.insist(ctx, b.payer, http.MethodPost, "/v1/pix", key, body, &answers[j]) })
	}
	if err := g.Wait(); err != nil {
		return taken{}, fmt.Errorf("order %d of %s: %w", i, b.payer.ispb, err)
	}
	if answers[0] != answers[times-1] {
		return taken{}, fmt.Errorf("order %d of %s, given twice at once, is %s and %s", i, b.payer.ispb, answers[0].EndToEndID, answers[1].EndToEndID)
	}
	o := taken{answers[0].EndToEndID, amount}
	b.mu.Lock()
	b.orders = append(b.orders, o)
	b.mu.Unlock()
	b.progress.Add(1)
	return o, nil
}

// giveBack lets the receiver return half, if the payment settles there in time.
func (b *bench) giveBack(ctx context.Context, o taken) error {
	ctx, cancel := context.WithTimeout(ctx, returnPatience)
	defer cancel()
	half := o.amount / 2
	for pause(ctx, time.Second) == nil {
		var seen struct {
			State pix.State `json:"estado"`
		}
		if err := b.once(ctx, b.receiver, http.MethodGet, "/v1/pix/"+o.id, "", nil, &seen); err != nil {
			continue // not there yet, or nobody answers
		}
		if seen.State == pix.Rejected {
			return nil
		}
		if seen.State != pix.Settled {
			continue
		}
		var answer struct {
			ID string `json:"rtrId"`
		}
		// From here on its patience is the day's: a return may have been booked whatever the answer.
		err := b.insist(context.WithoutCancel(ctx), b.receiver, http.MethodPut, "/v1/pix/"+o.id+"/devolucao/metade", "", map[string]any{"valor": half.String()}, &answer)
		if err != nil {
			return fmt.Errorf("return of %s: %w", o.id, err)
		}
		b.mu.Lock()
		b.returns = append(b.returns, returned{answer.ID, o.id, half})
		b.mu.Unlock()
		return nil
	}
	return nil
}

// errRefused: the API answered that the request is wrong.
var errRefused = errors.New("refused")

// orderPatience bounds the repetitions of one request, far above every outage of this day.
const orderPatience = 3 * time.Minute

// insist repeats a request at one replica after another until one answers it.
func (b *bench) insist(ctx context.Context, of *participant, method, path, key string, body, into any) error {
	ctx, cancel := context.WithTimeout(ctx, orderPatience)
	defer cancel()
	for {
		last := b.once(ctx, of, method, path, key, body, into)
		if last == nil || errors.Is(last, errRefused) {
			return last
		}
		b.mu.Lock()
		b.repeats++
		b.mu.Unlock()
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return errors.Join(err, last)
		}
	}
}

// once makes a request at some replica.
func (b *bench) once(ctx context.Context, of *participant, method, path, key string, body, into any) error {
	all := slices.DeleteFunc(of.some(paying), func(p *process) bool { return p.api() == "" })
	if len(all) == 0 {
		return errors.New("no replica is there")
	}
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+all[b.draw(int64(len(all)))].api()+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+apiToken)
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("X-Idempotency-Key", key)
	}
	res, err := b.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close() //nolint:errcheck // read below
	answer, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		return err
	}
	if res.StatusCode/100 == 2 {
		return json.Unmarshal(answer, into)
	}
	err = fmt.Errorf("%s: %s", res.Status, bytes.TrimSpace(answer))
	switch res.StatusCode {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusUnprocessableEntity:
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	return err
}
