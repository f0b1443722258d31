package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/cabine-pix/cabine/libs/icom/icomtest"
	"github.com/cabine-pix/cabine/libs/pix"
)

// Report is what REPORT=<file> receives.
type Report struct {
	Replicas int                 `json:"replicas"`
	Seconds  float64             `json:"seconds"`
	Seed     uint64              `json:"seed"`
	Channels map[string]*Channel `json:"channels"`
	Inbound  Inbound             `json:"inbound"`
	Faults   []Fault             `json:"faults"`
	// TakeoverMS is the longest time a slot was without a poll, by how its owner went.
	TakeoverMS Takeover `json:"takeover_ms"`
	// LeaseMS is T, after which a killed owner's slot comes back.
	LeaseMS  int64             `json:"lease_ms"`
	Versions map[string]string `json:"versions"`
	// Broken names each law that was broken, empty when all held.
	Broken []string `json:"broken"`
}

// Channel is what the bank counted.
type Channel struct {
	Cap             int `json:"cap"`
	PeakRequests    int `json:"peak_requests"`
	PeakStreams     int `json:"peak_streams"`
	PeakConnections int `json:"peak_connections"`
	Violations      int `json:"violations"`
	// Kinds counts the violations by kind.
	Kinds map[string]int `json:"violation_kinds,omitempty"`
}

// Inbound compares the bank's books with ours.
type Inbound struct {
	SentByBank  int `json:"sent_by_bank"`
	Stored      int `json:"stored"`
	Published   int `json:"published"`
	Done        int `json:"done"`
	Lost        int `json:"lost"`
	Duplicated  int `json:"duplicated"`
	Redelivered int `json:"redelivered_by_bank"`
	DeadLetters int `json:"dead_letters"`
	Unconfirmed int `json:"unconfirmed_at_bank"`
}

// Fault is something that was done to the system.
type Fault struct {
	At      time.Time `json:"at"`
	Kind    string    `json:"kind"`
	Replica string    `json:"replica"`
	Slots   int       `json:"slots_held"`
}

// Takeover holds the longest waits in milliseconds; -1 where nothing was taken over.
type Takeover struct {
	Graceful int64 `json:"graceful"`
	Killed   int64 `json:"killed"`
}

// judge compares and names what was broken.
func (r *Report) judge(bank icomtest.Report, violations []icomtest.Violation, ispb pix.ISPB) {
	for _, name := range pix.Channels() {
		p := bank.Participant(name, ispb)
		c := &Channel{
			Cap: p.Cap, PeakRequests: p.PeakRequests, PeakStreams: p.PeakStreams,
			PeakConnections: p.PeakConnections, Violations: p.Violations, Kinds: make(map[string]int),
		}
		r.Channels[string(name)] = c
		for _, v := range violations {
			if v.Channel == name && v.ISPB == ispb {
				c.Kinds[string(v.Kind)]++
			}
		}
		r.Inbound.Redelivered += int(p.Redelivered)
		if c.PeakRequests > c.Cap {
			r.broke("Cap: %s teve %d requisições simultâneas, o teto é %d", name, c.PeakRequests, c.Cap)
		}
		if c.Violations > 0 {
			r.broke("O banco anotou %d violações em %s: %v", c.Violations, name, c.Kinds)
		}
		if p.PeakRequests == 0 {
			r.broke("O banco não recebeu nenhuma requisição em %s: nada foi provado", name)
		}
	}
	in := r.Inbound
	if in.SentByBank == 0 {
		r.broke("O banco não enviou nada: nada foi provado")
	}
	if in.Lost > 0 {
		r.broke("Durable before ack: %d mensagens perdidas", in.Lost)
	}
	if in.Duplicated > 0 {
		r.broke("Once: %d mensagens gravadas mais de uma vez", in.Duplicated)
	}
	if in.Published != in.Stored || in.Done != in.Stored {
		r.broke("Nothing silent: %d gravadas, %d publicadas, %d concluídas", in.Stored, in.Published, in.Done)
	}
	if in.DeadLetters > 0 {
		r.broke("Nothing silent: %d mensagens boas foram para dead_letters", in.DeadLetters)
	}
}

func (r *Report) broke(format string, args ...any) {
	r.Broken = append(r.Broken, fmt.Sprintf(format, args...))
}

func (r *Report) write(path string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}

func (r *Report) print(out io.Writer) {
	p := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format+"\n", args...) }
	p("\nRelatório final (%d réplicas, %.0f s, semente %d)", r.Replicas, r.Seconds, r.Seed)
	for _, name := range pix.Channels() {
		c := r.Channels[string(name)]
		p("  %s  o banco contou: pico de %d requisições (teto %d), %d streams, %d violações", name, c.PeakRequests, c.Cap, c.PeakStreams, c.Violations)
	}
	in := r.Inbound
	p("  mensagens: banco enviou %d, gravadas %d, publicadas %d, concluídas %d", in.SentByBank, in.Stored, in.Published, in.Done)
	p("  perdidas %d, duplicadas %d (o banco reentregou %d)", in.Lost, in.Duplicated, in.Redelivered)
	for _, f := range r.Faults {
		p("  %s  %-8s %s, que tinha %d slots", f.At.Format("15:04:05"), f.Kind, f.Replica, f.Slots)
	}
	p("  retomada: após parada limpa %s, após SIGKILL %s (lease de %d ms)", shown(r.TakeoverMS.Graceful), shown(r.TakeoverMS.Killed), r.LeaseMS)
	if len(r.Broken) == 0 {
		p("  todas as leis foram mantidas")
		return
	}
	slices.Sort(r.Broken)
	for _, b := range r.Broken {
		p("  QUEBRADA  %s", b)
	}
}

func shown(ms int64) string {
	if ms < 0 {
		return "nada a retomar"
	}
	return fmt.Sprintf("%d ms", ms)
}
