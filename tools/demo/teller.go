package main

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
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/tools/internal/stage"
)

const (
	// orderPatience is how long an order is given again, under its key, while no replica takes it.
	orderPatience = 60 * time.Second
	// oneScheduled in so many orders takes the secondary channel, one in oneReturned is given back in half.
	oneScheduled = 5
	oneReturned  = 20
)

// teller is a client of one participant's API: it gives orders at a steady rate, and returns some of what
// the other participant received.
type teller struct {
	troupe   *troupe
	payer    *stage.Participant
	receiver *stage.Participant
	http     http.Client

	mu      sync.Mutex
	random  *rand.Rand
	orders  []string // EndToEndIds in the order of their answers
	returns int
}

func newTeller(t *troupe, payer, receiver *stage.Participant, seed uint64) *teller {
	return &teller{
		troupe: t, payer: payer, receiver: receiver, http: http.Client{Timeout: 10 * time.Second},
		random: rand.New(rand.NewPCG(seed, uint64(t.place(payer)))), //nolint:gosec // amounts, not secrets
	}
}

// work gives n orders at a rate per second and waits until each was taken.
func (t *teller) work(ctx context.Context, n int, rate float64) error {
	g, ctx := errgroup.WithContext(ctx)
	tick := time.NewTicker(time.Duration(float64(time.Second) / rate))
	defer tick.Stop()
	for i := range n {
		select {
		case <-ctx.Done():
			return g.Wait()
		case <-tick.C:
		}
		g.Go(func() error { return t.order(ctx, i) })
	}
	return g.Wait()
}

func (t *teller) order(ctx context.Context, i int) error {
	t.mu.Lock()
	amount := pix.Amount(1 + t.random.Int64N(100_00))
	t.mu.Unlock()
	level := "PAGPRI"
	if i%oneScheduled == oneScheduled-1 {
		level = "PAGAGD"
	}
	body := map[string]any{
		"valor": amount.String(), "formaIniciacao": "MANU", "nivelServico": level,
		"pagador":   map[string]any{"nome": "Pessoa Pagadora", "cpf": "11144477735", "agencia": "1", "conta": "1001", "tipoConta": "CORRENTE"},
		"recebedor": map[string]any{"ispbParticipante": t.receiver.ISPB, "cpf": "52998224725", "agencia": "2", "conta": "2002", "tipoConta": "CORRENTE"},
	}
	key := fmt.Sprintf("demo-%s-%d", t.payer.ISPB, i)
	var taken struct {
		EndToEndID string `json:"endToEndId"`
	}
	if err := t.insist(ctx, t.payer, http.MethodPost, "/v1/pix", key, body, &taken); err != nil {
		return fmt.Errorf("ordem %d de %s: %w", i, t.payer.ISPB, err)
	}
	t.mu.Lock()
	t.orders = append(t.orders, taken.EndToEndID)
	t.mu.Unlock()
	if i%oneReturned == oneReturned-1 && amount > 1 {
		return t.giveBack(ctx, taken.EndToEndID, amount/2)
	}
	return nil
}

// giveBack lets the receiver return a part, once the payment has settled there.
func (t *teller) giveBack(ctx context.Context, e2e string, amount pix.Amount) error {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		var seen struct {
			State pix.State `json:"estado"`
		}
		err := t.insist(ctx, t.receiver, http.MethodGet, "/v1/pix/"+e2e, "", nil, &seen)
		switch {
		case errors.Is(err, errWaited) || seen.State == pix.Rejected:
			return nil // rejected, and perhaps before it reached the receiver
		case err != nil:
			return fmt.Errorf("consulta de %s: %w", e2e, err)
		case seen.State == pix.Settled:
			err := t.insist(ctx, t.receiver, http.MethodPut, "/v1/pix/"+e2e+"/devolucao/metade", "", map[string]any{"valor": amount.String()}, nil)
			if err != nil {
				return fmt.Errorf("devolução de %s: %w", e2e, err)
			}
			t.mu.Lock()
			t.returns++
			t.mu.Unlock()
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// errRefused: the API answered that the request is wrong.
var errRefused = errors.New("recusada")

// insist makes a request at one replica after another until one answers it. What is not there yet (404) and what is
// in progress (409) are asked for again; a payment that was rejected before it reached the receiver never appears there.
func (t *teller) insist(ctx context.Context, of *stage.Participant, method, path, key string, body, into any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, orderPatience, fmt.Errorf("%w %v pela API", errWaited, orderPatience))
	defer cancel()
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	pause := time.NewTicker(100 * time.Millisecond)
	defer pause.Stop()
	var last error
	for {
		bases := t.troupe.bases(of)
		slices.Sort(bases)
		t.mu.Lock()
		t.random.Shuffle(len(bases), func(i, j int) { bases[i], bases[j] = bases[j], bases[i] })
		t.mu.Unlock()
		for _, base := range bases {
			if last = t.ask(ctx, method, base+path, key, text, into); last == nil || errors.Is(last, errRefused) {
				return last
			}
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), last)
		case <-pause.C:
		}
	}
}

func (t *teller) ask(ctx context.Context, method, url, key string, body []byte, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+stage.Token)
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("X-Idempotency-Key", key)
	}
	res, err := t.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close() //nolint:errcheck // read below
	answer, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	switch {
	case err != nil:
		return err
	case res.StatusCode/100 == 2 && into != nil:
		return json.Unmarshal(answer, into)
	case res.StatusCode/100 == 2:
		return nil
	}
	err = fmt.Errorf("%s: %s", res.Status, bytes.TrimSpace(answer))
	switch res.StatusCode {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusUnprocessableEntity:
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	return err
}
