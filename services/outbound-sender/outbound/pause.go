package outbound

import (
	"math/rand/v2"
	"time"
)

// backoff counts failures in a row and says how long to wait after the latest: first, then
// twice as long each time up to most, of which a random half is taken off.
type backoff struct {
	first, most time.Duration
	failures    int
}

func (b *backoff) next() time.Duration {
	d := b.most
	if b.failures < 30 && b.first<<b.failures < b.most {
		d = b.first << b.failures
	}
	b.failures++
	return d/2 + rand.N(d/2+1) //nolint:gosec // spreads load, protects nothing
}

func (b *backoff) reset() { b.failures = 0 }
