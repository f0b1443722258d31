package outbound

import (
	"sync"
	"time"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/icom"
	"github.com/cabine-pix/cabine/libs/pix"
)

// meter is our picture of the token buckets that the bank keeps for the participant. The
// replicas do not share it: each reckons with an equal share, which is the same as if each of its
// operations cost as many times more as there are replicas.
type meter struct {
	cfg Traffic

	mu      sync.Mutex
	traffic *icom.Traffic
}

func newMeter(name pix.Channel, cfg Traffic, now clock.Reading) *meter {
	return &meter{cfg: cfg, traffic: icom.NewTraffic(name, now.Wall)}
}

// wait is how long a batch must wait; zero if the buckets are only observed.
func (m *meter) wait(now clock.Reading, batch []*parcel) (d time.Duration) {
	if !m.cfg.Enforce {
		return 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range batch {
		d = max(d, m.traffic.Wait(now.Wall, p.msgType))
	}
	return d
}

// debit takes the cost of a batch and returns what is left of our share for payments.
func (m *meter) debit(now clock.Reading, batch []*parcel) float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range batch {
		m.traffic.Debit(now.Wall, p.msgType, icom.Cost(p.msgType, p.operations)*float64(m.cfg.Replicas))
	}
	return m.left(now)
}

// tokens is what is left of our share for payments, below zero when it was overdrawn.
func (m *meter) tokens(now clock.Reading) float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.left(now)
}

func (m *meter) left(now clock.Reading) float64 {
	// What refills is asked for before what is left.
	m.traffic.Wait(now.Wall, msgPacs008)
	return m.traffic.Tokens(now.Wall, msgPacs008) / float64(m.cfg.Replicas)
}
