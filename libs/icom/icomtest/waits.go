package icomtest

import (
	"math"
	"time"
)

// promptly is how soon nearly all messages must be read in BACEN's capacity test (99 %).
const promptly = 200 * time.Millisecond

// Waits says how long messages stood in the queue before a read took them for the first time.
type Waits struct {
	// Count is how many were taken, Promptly how many of these within 200 ms.
	Count    uint64 `json:"count"`
	Promptly uint64 `json:"within_200ms"`
	// P50MS, P95MS and P99MS are percentiles in milliseconds, to within four percent.
	P50MS float64 `json:"p50_ms"`
	P95MS float64 `json:"p95_ms"`
	P99MS float64 `json:"p99_ms"`
}

// waitBuckets of four percent each reach from 10 µs to more than an hour.
const (
	waitBuckets = 512
	waitFirst   = 10 * time.Microsecond
	waitGrowth  = 1.04
)

// waits is a histogram of fixed size.
type waits struct {
	count, promptly uint64
	buckets         [waitBuckets]uint64
}

func (w *waits) add(d time.Duration) {
	w.count++
	if d <= promptly {
		w.promptly++
	}
	i := 0
	if d > waitFirst {
		i = int(math.Log(float64(d)/float64(waitFirst)) / math.Log(waitGrowth))
	}
	w.buckets[min(i, waitBuckets-1)]++
}

// percentile returns the upper edge of the bucket in which the share lies, in milliseconds.
func (w *waits) percentile(share float64) float64 {
	if w.count == 0 {
		return 0
	}
	want := uint64(math.Ceil(share * float64(w.count)))
	var seen uint64
	for i, n := range w.buckets {
		if seen += n; seen >= want {
			return float64(waitFirst) * math.Pow(waitGrowth, float64(i+1)) / float64(time.Millisecond)
		}
	}
	return 0
}

func (w *waits) report() Waits {
	return Waits{
		Count: w.count, Promptly: w.promptly,
		P50MS: w.percentile(.50), P95MS: w.percentile(.95), P99MS: w.percentile(.99),
	}
}
