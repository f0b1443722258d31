package clock

import (
	"math/rand/v2"
	"time"
)

// Backoff counts failures in a row and says how long to wait after the latest: First, then
// twice as long each time up to Most, of which a random half is taken off. It is not safe
// for concurrent use.
type Backoff struct {
	First, Most time.Duration

	failures int
}

// Next counts one more failure.
func (b *Backoff) Next() time.Duration {
	d := b.Most
	if b.failures < 30 && b.First<<b.failures < b.Most {
		d = b.First << b.failures
	}
	b.failures++
	return d/2 + rand.N(d/2+1) //nolint:gosec // spreads load, protects nothing
}

// Fresh says whether nothing failed since the last Reset.
func (b *Backoff) Fresh() bool { return b.failures == 0 }

// Reset says that there was no failure.
func (b *Backoff) Reset() { b.failures = 0 }
