package robustness_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/cabine-pix/cabine/libs/devstack/devtest"
	"github.com/cabine-pix/cabine/libs/icom/icomtest"
	"github.com/cabine-pix/cabine/libs/icom/spitest"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
)

const (
	// payments of the day, half of them each way. ordersVariable changes that, to look for something by hand.
	payments       = 20_000
	ordersVariable = "CABINE_ORDERS"
	// calmLimit bounds the time in which all must end once nothing fails any more: the SPI's 20 s, ours until "not settled"
	// is its last word, an enquiry, and the work itself. The day has what go test leaves it: a slow machine's is long.
	calmLimit = 3 * time.Minute
	// lastWords is what is kept to explain a day that did not end.
	lastWords = 15 * time.Second
)

// TestOneBadDay: 20,000 payments with random faults at every edge, books equal at the end.
func TestOneBadDay(t *testing.T) {
	t.Parallel()
	r := devtest.Rand(t)
	n := payments
	if text := os.Getenv(ordersVariable); text != "" {
		var err error
		n, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	w := newWorld(t, r.Uint64())
	ctx := t.Context()
	if deadline, ok := t.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-lastWords))
		defer cancel()
	}

	began := time.Now()
	benches := w.traffic(ctx, r, n)
	traffic := time.Since(began)
	require.NoError(t, w.calm(ctx))
	w.ends(ctx)
	t.Logf("%d orders in %v (%.0f/s), all final %v after that", n, traffic.Round(time.Second), float64(n)/traffic.Seconds(),
		(time.Since(began) - traffic).Round(time.Second))

	spi, err := w.books(ctx, true)
	require.NoError(t, err)
	w.judge(ctx, spi)
	for i, p := range w.participants {
		w.agrees(ctx, p, benches, i, n, spi)
	}
}

// traffic runs clients and trouble side by side.
func (w *world) traffic(ctx context.Context, r *rand.Rand, n int) []*bench {
	w.t.Helper()
	var progress atomic.Int64
	a, b := w.participants[0], w.participants[1]
	benches := []*bench{
		newBench(a, b, rand.New(rand.NewPCG(r.Uint64(), 0)), &progress), newBench(b, a, rand.New(rand.NewPCG(r.Uint64(), 0)), &progress),
	}
	trouble := rand.New(rand.NewPCG(r.Uint64(), 0))
	g, ctx := errgroup.WithContext(ctx)
	watching, stop := context.WithCancel(ctx)
	defer stop()
	working, ctx := errgroup.WithContext(ctx)
	for _, bench := range benches {
		working.Go(func() error { return bench.work(ctx, n/2) })
	}
	working.Go(func() error { return w.trouble(ctx, trouble, &progress, n) })
	g.Go(func() error { defer stop(); return working.Wait() })
	g.Go(func() error {
		for pause(watching, 500*time.Millisecond) == nil {
			if err := w.gone(); err != nil {
				return err
			}
		}
		return nil
	})
	require.NoError(w.t, g.Wait())
	return benches
}

// ends waits until nothing is open anywhere.
func (w *world) ends(ctx context.Context) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, calmLimit)
	defer cancel()
	for {
		left, err := w.left(ctx)
		if err == nil && left == "" {
			return
		}
		if pause(ctx, 500*time.Millisecond) != nil {
			w.t.Errorf("not everything ended within %v: %s %v", calmLimit, left, err)
			return
		}
		require.NoError(w.t, w.gone())
	}
}

// left names what is open, "" for nothing.
func (w *world) left(ctx context.Context) (string, error) {
	var all []string
	var bank icomtest.Report
	if err := w.control(ctx, http.MethodGet, "/report", nil, nil, &bank); err != nil {
		return "", err
	}
	for _, p := range bank.Participants {
		if p.Acked < p.Enqueued {
			all = append(all, fmt.Sprintf("%s %s: %d messages not confirmed", p.ISPB, p.Channel, p.Enqueued-p.Acked))
		}
	}
	spi, err := w.books(ctx, false)
	if err != nil {
		return "", err
	}
	for _, a := range spi.Participants {
		if waiting := a.PaymentsOut.Waiting + a.ReturnsOut.Waiting; waiting > 0 {
			all = append(all, fmt.Sprintf("%s: %d orders wait at the SPI", a.ISPB, waiting))
		}
	}
	for _, p := range w.participants {
		open, err := p.inbox.Backlog(ctx)
		if err != nil {
			return "", err
		}
		counts, err := p.payments.OpenCounts(ctx)
		if err != nil {
			return "", err
		}
		if open.Received+open.Published > 0 {
			all = append(all, fmt.Sprintf("%s: inbox has %+v", p.ispb, open))
		}
		for state, c := range counts {
			if c.Count > 0 {
				all = append(all, fmt.Sprintf("%s: %d %s, oldest %v", p.ispb, c.Count, state, c.Oldest.Round(time.Second)))
			}
		}
	}
	return strings.Join(all, "; "), nil
}

// judge holds the bank's and the SPI's own laws.
func (w *world) judge(ctx context.Context, spi spitest.Report) {
	w.t.Helper()
	for _, broken := range spi.Broken {
		w.t.Errorf("the SPI's own books: %s", broken)
	}
	var violations []icomtest.Violation
	require.NoError(w.t, w.control(ctx, http.MethodGet, "/violations", nil, nil, &violations))
	for _, v := range violations {
		w.t.Errorf("the cap: %s", v)
	}
	settled, reasons := 0, map[string]int{}
	for _, o := range spi.Orders {
		if o.State == spitest.Settled {
			settled++
		} else {
			reasons[o.Reason]++
		}
	}
	w.t.Logf("SPI: %d orders, %d settled, rejected for %v; %+v", len(spi.Orders), settled, reasons, spi.Counters)
	if settled < len(spi.Orders)/10 {
		w.t.Errorf("%d of %d orders settled: a bad day is still a day on which people pay", settled, len(spi.Orders))
	}
}

// agrees holds one participant's books to the SPI's, to what its clients were told, and to itself.
func (w *world) agrees(ctx context.Context, p *participant, benches []*bench, i, n int, spi spitest.Report) {
	t := w.t
	t.Helper()
	ours, err := p.ledger(ctx)
	require.NoError(t, err)
	differences := compare(ours, spi)
	for j, d := range differences {
		if j == 10 {
			t.Errorf("and %d lines more", len(differences)-j)
			break
		}
		t.Errorf("books differ: %s", p.explain(ctx, d, spi))
	}
	if len(differences) == 0 {
		provesItself(t, ours, spi)
	}

	mine, others := benches[i], benches[1-i]
	out := 0
	for _, row := range ours.rows {
		if row.Direction == pix.Out && row.Kind == pix.Payment {
			out++
		}
	}
	require.Len(t, mine.orders, n/2)
	require.Equal(t, n/2, out, "each order that was answered was booked once, and nothing else was")
	for _, o := range mine.orders {
		row, ok := ours.rows[o.id]
		require.True(t, ok, "%s was answered 201 and is not in the books of %s", o.id, p.ispb)
		require.Equal(t, o.amount, row.Amount, o.id)
	}
	for _, back := range others.returns {
		row, ok := ours.rows[back.id]
		require.True(t, ok && row.OriginalID == back.original && row.Amount == back.amount, "return %+v is %+v in the books of %s", back, row, p.ispb)
	}
	twice, err := p.payments.EndedTwice(ctx)
	require.NoError(t, err)
	require.Empty(t, twice, "payments that ended twice")
	w.deadLetters(ctx, p, spi)
	t.Logf("%s: %d rows, %d returns ordered, %d requests of clients repeated", p.ispb, len(ours.rows), len(others.returns), mine.repeats)
}

// deadLetters checks that each has a reason that a fault of this day accounts for.
func (w *world) deadLetters(ctx context.Context, p *participant, spi spitest.Report) {
	t := w.t
	t.Helper()
	at := map[string]spitest.Order{}
	for _, o := range spi.Orders {
		at[o.ID] = o
	}
	kinds := map[string]int{}
	for after := int64(0); ; {
		letters, err := p.inbox.DeadLetters(ctx, after, 1000)
		require.NoError(t, err)
		for _, l := range letters {
			why := accounted(l, p.ispb, at)
			if kinds[why]++; why == "" {
				t.Errorf("dead letter that nothing accounts for: %+v", l)
			}
			after = l.ID
		}
		if len(letters) < 1000 {
			t.Logf("%s: dead letters %v", p.ispb, kinds)
			return
		}
	}
}

// unknownRejected is what the books say of a rejection of something they do not have.
var unknownRejected = regexp.MustCompile(`^unknown_id: ([ED]\w{31}) is said to be rejected and is not in the books$`)

// accounted names the fault that accounts for a dead letter, "" for none.
func accounted(l store.DeadLetter, ispb pix.ISPB, at map[string]spitest.Order) string {
	spoilt := map[string]string{
		"no PI-ResourceId": "no resource id", "charset": "wrong charset", "malformed XML": "broken xml", "bytes": "oversize",
	}
	for text, fault := range spoilt {
		if strings.Contains(l.Reason, text) {
			return fault
		}
	}
	// The SPI gave up on what never reached us, and told us so.
	for _, one := range strings.Split(l.Reason, "; ") {
		m := unknownRejected.FindStringSubmatch(one)
		if m == nil {
			return ""
		}
		if o := at[m[1]]; o.Credited != ispb || o.State != spitest.Rejected {
			return ""
		}
	}
	return "AB03 of what was lost"
}
