package stage

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/cabine-pix/cabine/libs/icom/spitest"
	"github.com/cabine-pix/cabine/libs/pix"
)

// Books are the SPI's own, with every order if asked.
func (s *Stage) Books(ctx context.Context, orders bool) (r spitest.Report, err error) {
	q := url.Values{}
	if orders {
		q.Set("orders", "1")
	}
	return r, s.Control(ctx, http.MethodGet, "/books", q, "", &r)
}

// Percentiles of times in milliseconds.
type Percentiles struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
}

// PercentilesOf sorts times and picks from them; zero of none.
func PercentilesOf(times []time.Duration) Percentiles {
	if len(times) == 0 {
		return Percentiles{}
	}
	slices.Sort(times)
	at := func(share float64) float64 {
		return float64(times[min(len(times)-1, int(share*float64(len(times))))].Microseconds()) / 1000
	}
	return Percentiles{P50: at(.50), P95: at(.95), P99: at(.99)}
}

// Latencies are BACEN's two times of the payments among the orders, by the bank's clock. The payer's is from AccptncDtTm
// to the SPI's receipt of the order, the receiver's from there, the forwarding included, to the receipt of the answer.
func Latencies(orders []spitest.Order) (payer, receiver Percentiles) {
	var p, r []time.Duration
	for _, o := range orders {
		if o.Kind != pix.Payment {
			continue
		}
		p = append(p, o.Received.Sub(o.Accepted))
		if !o.Answered.IsZero() {
			r = append(r, o.Answered.Sub(o.Received))
		}
	}
	return PercentilesOf(p), PercentilesOf(r)
}
