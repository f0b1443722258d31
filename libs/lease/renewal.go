package lease

import (
	"context"
	"embed"
	"strings"
	"time"
)

//go:embed scripts/*.lua
var sources embed.FS

// scripts are the only four ways in which this package changes who holds what.
type scripts struct{ acquire, renew, release, cooldown script }

func loadScripts() scripts {
	load := func(name string) script {
		b, err := sources.ReadFile("scripts/" + name + ".lua")
		if err != nil {
			panic(err) // embedded at build time
		}
		return newScript(genuine(name, string(b)))
	}
	return scripts{load("acquire"), load("renew"), load("release"), load("cooldown")}
}

// renewal is the answer for one set.
type renewal struct {
	quarantine time.Duration
	marks      []string // "class replica" of who waits
	values     []string // slot values, only when somebody waits
	renewed    []bool
}

// parseRenewal reads one set's part of the answer, which is not trusted to be well formed.
func parseRenewal(v any, leases int) (renewal, bool) {
	a, _ := v.([]any)
	if len(a) != 5 {
		return renewal{}, false
	}
	left, ok := a[0].(int64)
	results, ok2 := a[4].([]any)
	if !ok || !ok2 || len(results) != leases {
		return renewal{}, false
	}
	r := renewal{
		quarantine: time.Duration(left) * time.Millisecond,
		marks:      texts(a[2]),
		values:     texts(a[3]),
		renewed:    make([]bool, leases),
	}
	for i, x := range results {
		r.renewed[i] = x == int64(1)
	}
	return r, true
}

func texts(v any) []string {
	a, _ := v.([]any)
	out := make([]string, 0, len(a))
	for _, x := range a {
		s, _ := x.(string)
		out = append(out, s)
	}
	return out
}

// askToYield decides which of our leases somebody else should have: shared slots
// while another class waits, and what is above our share while another replica of the
// same class waits.
func (k *Keeper) askToYield(b batch, a renewal) {
	if len(a.marks) == 0 {
		return
	}
	shared := b.set.cfg.shared()
	for class := range b.set.cfg.Floors {
		var mine []*Lease
		for _, l := range b.leases {
			if l.class == class {
				mine = append(mine, l)
			}
		}
		rival, above := k.claims(b.set, class, len(mine), a)
		// Who was asked before and still ends its request counts: otherwise each heartbeat asks others.
		for _, l := range mine {
			if l.asked() {
				above--
			}
		}
		for _, l := range mine {
			if !l.asked() && ((rival && shared.has(l.slot)) || above > 0) {
				l.want()
				above--
			}
		}
	}
}

// claims returns whether another class waits, and how many of our slots of a class are
// above our share: more than ceil(slots / replicas), or one where a replica waits that has two fewer.
func (k *Keeper) claims(s *Set, class Class, mine int, a renewal) (rival bool, above int) {
	holds := map[string]int{k.cfg.Replica: mine}
	for _, v := range a.values {
		if token, c, r := splitValue(v); c == class && token != cooling && r != k.cfg.Replica {
			holds[r]++
		}
	}
	var peers []string
	for _, m := range a.marks {
		switch c, r, _ := strings.Cut(m, " "); {
		case Class(c) != class:
			rival = true
		case r != k.cfg.Replica:
			peers = append(peers, r)
			holds[r] += 0
		}
	}
	if len(peers) == 0 {
		return rival, 0
	}
	own, shared := s.cfg.own(class), s.cfg.shared()
	slots := own.last - own.first + 1 + shared.last - shared.first + 1
	above = mine - (slots+len(holds)-1)/len(holds)
	for _, p := range peers {
		if holds[p] < mine-1 {
			above = max(above, 1)
		}
	}
	return rival, above
}

// hints listens for freed slots and wakes waiters. A lost hint costs nothing but time:
// waiters poll.
func (k *Keeper) hints(ctx context.Context) error {
	k.mu.Lock()
	channels := make([]string, 0, len(k.sets))
	byChannel := make(map[string]*Set, len(k.sets))
	for _, s := range k.sets {
		channels = append(channels, s.keys[0])
		byChannel[s.keys[0]] = s
	}
	k.mu.Unlock()
	if len(channels) == 0 {
		<-ctx.Done()
		return ctx.Err()
	}
	sub := k.redis.rdb.Subscribe(ctx, channels...)
	defer sub.Close() //nolint:errcheck // the connection ends with us
	messages := sub.Channel()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case m, ok := <-messages:
			if !ok {
				<-ctx.Done()
				return ctx.Err()
			}
			if s := byChannel[m.Channel]; s != nil {
				s.nudge()
			}
		}
	}
}
