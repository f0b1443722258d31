// Package corebanktest is a participant's core banking in process, for tests and the demo: it
// checks questions as the contract of package corebank has it, decides by a seed, and can be
// slow, wrong or dead when told.
package corebanktest

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/corebank"
)

// Fault is a way in which the core fails.
type Fault string

// The faults. They last until SetFault is called again.
const (
	None Fault = ""
	// Dead closes the connection without an answer.
	Dead Fault = "dead"
	// Hang answers nothing until the caller goes away.
	Hang Fault = "hang"
	// Unavailable answers 503.
	Unavailable Fault = "unavailable"
	// Forbidden answers 403.
	Forbidden Fault = "forbidden"
	// Redirect answers 307.
	Redirect Fault = "redirect"
	// BadJSON answers what is no JSON, signed.
	BadJSON Fault = "bad-json"
	// BadSignature signs another body.
	BadSignature Fault = "bad-signature"
	// Unsigned leaves the signature out.
	Unsigned Fault = "unsigned"
	// UnknownCode rejects with a code that does not exist.
	UnknownCode Fault = "unknown-code"
	// OtherPayment answers about another EndToEndId.
	OtherPayment Fault = "other-payment"
	// HugeBody answers more than the contract allows.
	HugeBody Fault = "huge-body"
)

// Faults lists all faults but None.
func Faults() []Fault {
	return []Fault{
		Dead, Hang, Unavailable, Forbidden, Redirect, BadJSON, BadSignature, Unsigned, UnknownCode, OtherPayment, HugeBody,
	}
}

// Config says how the core decides.
type Config struct {
	// Keys are the keys of both sides. Required.
	Keys corebank.Keys
	// Clock is what timestamps are compared with. Default: the machine's.
	Clock clock.Clock
	// Seed makes decisions and faults the same in every run.
	Seed uint64
	// RejectShare of the payments, 0 to 1, are refused with AC03, and FaultShare of the calls
	// meet Fault.
	RejectShare, FaultShare float64
	// Fault is what FaultShare and SetFault are about. Default Unavailable.
	Fault Fault
	// DelayLeast and DelayMost bound the time to think.
	DelayLeast, DelayMost time.Duration
}

// WithDefaults returns a copy in which zero fields have their defaults.
func (c Config) WithDefaults() Config {
	if c.Clock == nil {
		c.Clock = clock.System()
	}
	if c.Fault == None {
		c.Fault = Unavailable
	}
	c.DelayMost = max(c.DelayMost, c.DelayLeast)
	return c
}

// Validate names every value that is wrong.
func (c Config) Validate() error {
	errs := []error{c.Keys.Validate()}
	for name, share := range map[string]float64{"RejectShare": c.RejectShare, "FaultShare": c.FaultShare} {
		if share < 0 || share > 1 {
			errs = append(errs, fmt.Errorf("%s is %v, want 0 to 1", name, share))
		}
	}
	if c.DelayLeast < 0 || c.DelayMost > time.Minute {
		errs = append(errs, fmt.Errorf("delay is %v to %v, want 0 to 1m0s", c.DelayLeast, c.DelayMost))
	}
	return errors.Join(errs...)
}

// Core answers questions. It is safe for concurrent use.
type Core struct {
	cfg Config

	mu      sync.Mutex
	always  Fault
	gate    chan struct{} // not nil while questions are held
	asked   map[string]int
	decided map[string]corebank.Answer
	refused int
}

// New returns a core; it is an http.Handler.
func New(cfg Config) (*Core, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("core config: %w", err)
	}
	return &Core{cfg: cfg, asked: map[string]int{}, decided: map[string]corebank.Answer{}}, nil
}

// SetFault makes every call meet the fault; None ends it.
func (c *Core) SetFault(f Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.always = f
}

// Hold keeps every answer back until the returned function is called.
func (c *Core) Hold() (release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	gate := make(chan struct{})
	c.gate = gate
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.gate = nil
		close(gate)
	})
}

// Decide sets the answer to one payment, in place of the seed's.
func (c *Core) Decide(answer corebank.Answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.decided[answer.EndToEndID] = answer
}

// Asked returns how often a payment was asked about with a valid signature.
func (c *Core) Asked(endToEndID string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked[endToEndID]
}

// Report is what the core has seen.
type Report struct {
	// Payments that were asked about, and Calls in all.
	Payments int `json:"payments"`
	Calls    int `json:"calls"`
	// Refused calls had no valid signature or were not understood.
	Refused int `json:"refused"`
}

// Report returns what the core has seen so far.
func (c *Core) Report() Report {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := Report{Payments: len(c.asked), Refused: c.refused}
	for _, n := range c.asked {
		r.Calls += n
	}
	return r
}

// ServeHTTP answers one question.
func (c *Core) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, corebank.MaxBody))
	if r.Method != http.MethodPost || err != nil {
		c.refuse(w, http.StatusBadRequest)
		return
	}
	signature, err := c.cfg.Keys.CheckQuestion(r.Header, body, c.cfg.Clock.Now().Wall)
	if err != nil {
		c.refuse(w, http.StatusUnauthorized)
		return
	}
	var q corebank.Question
	if err := json.Unmarshal(body, &q); err != nil || q.EndToEndID == "" {
		c.refuse(w, http.StatusUnprocessableEntity)
		return
	}
	answer, fault, gate, n := c.take(q)
	if !c.think(r, q.EndToEndID, gate) {
		return
	}
	if fault == None && c.draw(fmt.Sprint("fault", n), q.EndToEndID) < c.cfg.FaultShare {
		fault = c.cfg.Fault
	}
	c.write(w, r, signature, answer, fault)
}

func (c *Core) refuse(w http.ResponseWriter, status int) {
	c.mu.Lock()
	c.refused++
	c.mu.Unlock()
	w.WriteHeader(status)
}

func (c *Core) take(q corebank.Question) (corebank.Answer, Fault, chan struct{}, int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked[q.EndToEndID]++
	answer, ok := c.decided[q.EndToEndID]
	if !ok {
		answer = corebank.Answer{EndToEndID: q.EndToEndID, Decision: corebank.Accepted}
		if c.draw("reject", q.EndToEndID) < c.cfg.RejectShare {
			answer.Decision, answer.Reason, answer.Detail = corebank.Rejected, "AC03", "conta não encontrada"
		}
		c.decided[q.EndToEndID] = answer
	}
	return answer, c.always, c.gate, c.asked[q.EndToEndID]
}

// think waits as long as the core takes, and reports whether somebody still waits for the answer.
func (c *Core) think(r *http.Request, id string, gate chan struct{}) bool {
	if gate != nil {
		select {
		case <-gate:
		case <-r.Context().Done():
			return false
		}
	}
	span := c.cfg.DelayMost - c.cfg.DelayLeast
	delay := c.cfg.DelayLeast + time.Duration(c.draw("delay", id)*float64(span))
	return clock.Sleep(r.Context(), c.cfg.Clock, delay) == nil
}

func (c *Core) write(w http.ResponseWriter, r *http.Request, question string, answer corebank.Answer, fault Fault) {
	switch fault {
	case Dead:
		panic(http.ErrAbortHandler) // net/http's way to close a connection
	case Hang:
		<-r.Context().Done()
		return
	case Unavailable:
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case Forbidden:
		w.WriteHeader(http.StatusForbidden)
		return
	case Redirect:
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		return
	case UnknownCode:
		answer.Decision, answer.Reason = corebank.Rejected, "XX99"
	case OtherPayment:
		answer.EndToEndID = "E" + strings.Repeat("0", 31)
	case None, BadJSON, BadSignature, Unsigned, HugeBody:
	}
	body, _ := json.Marshal(answer) // strings alone
	switch fault {
	case BadJSON:
		body = []byte(`{"endToEndId":`)
	case HugeBody:
		body = append(body, strings.Repeat(" ", corebank.MaxBody+1)...)
	case None, Dead, Hang, Unavailable, Forbidden, Redirect, BadSignature, Unsigned, UnknownCode, OtherPayment:
	}
	signed := body
	if fault == BadSignature {
		signed = []byte("another body")
	}
	if fault != Unsigned {
		c.cfg.Keys.SignAnswer(w.Header(), signed, c.cfg.Clock.Now().Wall, question)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body) // the caller may have gone away
}

// draw returns a number of [0, 1) that follows from the seed, what it is for and the payment.
func (c *Core) draw(what, id string) float64 {
	h := fnv.New64a()
	_ = binary.Write(h, binary.BigEndian, c.cfg.Seed)
	_, _ = io.WriteString(h, what+"/"+id)
	x := h.Sum64()
	x ^= x >> 31 // FNV leaves its last bytes in the low bits
	x *= 0x9e3779b97f4a7c15
	return float64(x>>11) / (1 << 53)
}
