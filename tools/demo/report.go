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
	"github.com/cabine-pix/cabine/tools/internal/stage"
)

// Report is what REPORT=<file> receives.
type Report struct {
	Replicas int                 `json:"replicas"`
	Seconds  float64             `json:"seconds"`
	Seed     uint64              `json:"seed"`
	Channels map[string]*Channel `json:"channels"`
	Inbound  Inbound             `json:"inbound"`
	Outbound Outbound            `json:"outbound"`
	Books    Books               `json:"books"`
	Leader   Leader              `json:"leader"`
	// JetStream is what services had of it and did to it.
	JetStream JetStream `json:"jetstream"`
	Cycles    Cycles    `json:"cycles"`

	Reconciliation Reconciliation `json:"reconciliation"`
	// LatencyMS are BACEN's times, by the bank's clock.
	LatencyMS Latencies `json:"latency_ms"`
	Faults    []Fault   `json:"faults"`
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

// Outbound is what became of the orders of both participants.
type Outbound struct {
	// Orders were taken by an API; each is Settled, Rejected or still open.
	Orders   int `json:"orders"`
	Settled  int `json:"settled"`
	Rejected int `json:"rejected"`
	// UnknownOpen had no final state at the end.
	UnknownOpen int `json:"unknown_open"`
	// DoubleBooked came to an end more than once in somebody's books.
	DoubleBooked int `json:"double_booked"`
	// Returns were ordered by a receiver.
	Returns int `json:"returns"`
}

// Books sums what moved, in centavos: debits and credits of both participants.
type Books struct {
	Ours pix.Amount `json:"ours"`
	Bank pix.Amount `json:"bank"`
	// Difference sums the amounts of the lines that differ, and Lines names them.
	Difference pix.Amount `json:"difference"`
	Lines      []string   `json:"lines,omitempty"`
}

// Leader is the leadership of what settles, of both participants.
type Leader struct {
	// Changes is how often a term was followed by another, Overlaps how often one began before the one before had ended.
	Changes  int `json:"changes"`
	Overlaps int `json:"overlaps"`
	// Lines names each overlap.
	Lines []string `json:"lines,omitempty"`
}

// JetStream is counted from the services' logs, and from what the servers were asked.
type JetStream struct {
	// Timeouts is how often a service says that it got no answer, Lines what it said.
	Timeouts int      `json:"timeouts"`
	Lines    []string `json:"lines,omitempty"`
	// Creates is how many requests to create or change a consumer came after migrate had ended.
	Creates int `json:"consumer_creates_by_services"`
}

// Cycles are the settlement cycles of both participants.
type Cycles struct {
	Closed int `json:"closed"`
	// NettedTwice is how many payments too many the lines have, NotNetted how many settled ones are in no closed cycle.
	NettedTwice int64 `json:"netted_twice"`
	NotNetted   int   `json:"not_netted"`
	// Lines names each line of a cycle that is not the sum of its payments.
	Lines []string `json:"lines,omitempty"`
}

// Reconciliation is what the services found when they compared their books with the bank's account, of both participants.
type Reconciliation struct {
	// Entries is how many the bank's files had.
	Entries      int64 `json:"entries"`
	MissingHere  int64 `json:"missing_here"`
	MissingThere int64 `json:"missing_there"`
	Differing    int64 `json:"differing"`
	Doubled      int64 `json:"doubled"`
	// Lines names the first that differ, and what went wrong.
	Lines []string `json:"lines,omitempty"`
}

// Latencies are in milliseconds.
type Latencies struct {
	// Payer is from AccptncDtTm to the SPI's receipt of the order, Receiver from there, the forwarding included, to the
	// receipt of the receiver's answer. BACEN's targets: 900 and 1500 (p50, p95), 1400 and 2300.
	Payer    stage.Percentiles `json:"payer"`
	Receiver stage.Percentiles `json:"receiver"`
}

// Inbound compares the messages of the bank's books with ours.
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
	// Led: it was the leader of what settles.
	Led bool `json:"led"`
}

// had says what the replica had when it was harmed.
func (f Fault) had() string {
	if f.Led {
		return "liderava a liquidação"
	}
	return fmt.Sprintf("tinha %d slots de leitura", f.Slots)
}

// Takeover holds the longest waits in milliseconds; -1 where nothing was taken over.
type Takeover struct {
	Graceful int64 `json:"graceful"`
	Killed   int64 `json:"killed"`
}

// judge compares and names what was broken. The channels of the report are our participant's; a violation of the
// other's cap is one as well.
func (r *Report) judge(bank icomtest.Report, violations []icomtest.Violation) {
	for _, name := range pix.Channels() {
		p := bank.Participant(name, stage.ISPB)
		c := &Channel{
			Cap: p.Cap, PeakRequests: p.PeakRequests, PeakStreams: p.PeakStreams,
			PeakConnections: p.PeakConnections, Violations: p.Violations, Kinds: make(map[string]int),
		}
		r.Channels[string(name)] = c
		for _, v := range violations {
			if v.Channel == name && v.ISPB == stage.ISPB {
				c.Kinds[string(v.Kind)]++
			}
		}
		if p.PeakRequests == 0 {
			r.broke("O banco não recebeu nenhuma requisição em %s: nada foi provado", name)
		}
	}
	for _, p := range bank.Participants {
		if p.PeakRequests > p.Cap {
			r.broke("Cap: %s de %s teve %d requisições simultâneas, o teto é %d", p.Channel, p.ISPB, p.PeakRequests, p.Cap)
		}
		if p.Violations > 0 {
			r.broke("O banco anotou %d violações em %s de %s", p.Violations, p.Channel, p.ISPB)
		}
	}
	r.judgeMessages()
	r.judgePayments()
	r.judgeSettlement()
	r.judgeReconciliation()
}

func (r *Report) judgeMessages() {
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

func (r *Report) judgePayments() {
	out := r.Outbound
	if out.Orders == 0 || out.Settled == 0 {
		r.broke("De %d ordens %d liquidaram: nada foi provado", out.Orders, out.Settled)
	}
	if out.UnknownOpen > 0 {
		r.broke("Nothing silent: %d ordens sem estado final", out.UnknownOpen)
	}
	if sum := out.Settled + out.Rejected + out.UnknownOpen; sum != out.Orders {
		r.broke("Once: %d ordens aceitas, %d pagamentos nos livros", out.Orders, sum)
	}
	if out.DoubleBooked > 0 {
		r.broke("Once: %d pagamentos terminaram mais de uma vez", out.DoubleBooked)
	}
	if b := r.Books; b.Difference != 0 || b.Ours != b.Bank || len(b.Lines) > 0 {
		r.broke("Books agree: nossos livros somam %v, os do banco %v, e %d linhas diferem", b.Ours, b.Bank, len(b.Lines))
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
	o, l := r.Outbound, r.LatencyMS
	p("  ordens: %d aceitas, %d liquidadas, %d rejeitadas, %d em aberto, %d devoluções", o.Orders, o.Settled, o.Rejected, o.UnknownOpen, o.Returns)
	p("  livros: nossos %v, do banco %v, diferença %v", r.Books.Ours, r.Books.Bank, r.Books.Difference)
	for _, line := range r.Books.Lines[:min(len(r.Books.Lines), 20)] {
		p("    %s", line)
	}
	r.printSettlement(p)
	p("  pagador: da ordem ao SPI p50 %.0f ms, p95 %.0f ms, p99 %.0f ms; recebedor: do SPI à resposta p50 %.0f ms, p95 %.0f ms, p99 %.0f ms",
		l.Payer.P50, l.Payer.P95, l.Payer.P99, l.Receiver.P50, l.Receiver.P95, l.Receiver.P99)
	for _, f := range r.Faults {
		p("  %s  %-8s %s, que %s", f.At.Format("15:04:05"), f.Kind, f.Replica, f.had())
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

func (r *Report) printSettlement(p func(string, ...any)) {
	p("  liderança da liquidação: %d trocas, %d sobreposições", r.Leader.Changes, r.Leader.Overlaps)
	p("  JetStream: %d vezes sem resposta, %d consumers criados por serviços", r.JetStream.Timeouts, r.JetStream.Creates)
	p("  ciclos: %d fechados, %d pagamentos compensados duas vezes, %d em nenhum", r.Cycles.Closed, r.Cycles.NettedTwice, r.Cycles.NotNetted)
	c := r.Reconciliation
	p("  conciliação: %d lançamentos, %d ausentes aqui, %d ausentes no banco, %d diferentes", c.Entries, c.MissingHere, c.MissingThere, c.Differing)
	for _, lines := range [][]string{r.Leader.Lines, r.JetStream.Lines, r.Cycles.Lines, c.Lines} {
		for _, line := range lines[:min(len(lines), 10)] {
			p("    %s", line)
		}
	}
}

func shown(ms int64) string {
	if ms < 0 {
		return "nada a retomar"
	}
	return fmt.Sprintf("%d ms", ms)
}
