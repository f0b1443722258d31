package spitest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cabine-pix/cabine/libs/icom/icomtest"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/signature"
)

// Enqueuer is the bank's queue of messages for a participant; *icomtest.Bank is one.
type Enqueuer interface {
	Enqueue(channel pix.Channel, ispb pix.ISPB, bodies ...[]byte) []string
}

// SPI settles orders between participants. It is safe for concurrent use.
type SPI struct {
	cfg    Config
	ledger *ledger
	inbox  *backlog[icomtest.Received]
	outbox *outbox
	agenda *agenda
	mint   *mint
	rules  atomic.Pointer[rules]
	shelf  *shelf
	jobs   *backlog[func(context.Context) error]
	bank   Enqueuer // set by Run before anything is sent

	filesAddr atomic.Pointer[string]

	messages, refused, sent, operations, struck atomic.Int64

	mu        sync.RWMutex
	verifiers map[pix.ISPB]*signature.Verifier
}

// New makes an SPI that takes messages and does nothing with them yet: see Run.
func New(cfg Config) (*SPI, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &SPI{
		cfg: cfg, ledger: newLedger(cfg.RefuseRepeats),
		inbox: newBacklog[icomtest.Received](), outbox: newOutbox(), agenda: newAgenda(cfg.Clock),
		mint: newMint(cfg.Seed), verifiers: make(map[pix.ISPB]*signature.Verifier),
		shelf: &shelf{maxFiles: cfg.MaxFiles, maxBytes: cfg.MaxFileBytes}, jobs: newBacklog[func(context.Context) error](),
	}
	s.rules.Store(&rules{cfg.Seed, cfg.Faults})
	if cfg.Linger > 0 {
		s.outbox.linger = func(due func()) { s.agenda.add(s.now().Add(cfg.Linger), func(time.Time) { due() }) }
	}
	for _, p := range cfg.Participants {
		if err := s.AddParticipant(p); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// AddParticipant opens a PI account. An ISPB that has one is an error.
func (s *SPI) AddParticipant(p Participant) error {
	if err := p.validate(); err != nil {
		return err
	}
	var verifier *signature.Verifier
	if len(p.Certificates) > 0 {
		var err error
		if verifier, err = signature.NewVerifier(s.cfg.Clock, p.Certificates...); err != nil {
			return fmt.Errorf("spitest: participant %s: %w", p.ISPB, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ledger.add(p) {
		return fmt.Errorf("spitest: participant %s has an account", p.ISPB)
	}
	if verifier != nil {
		s.verifiers[p.ISPB] = verifier
	}
	return nil
}

// SetFaults replaces the rules of misbehaviour.
func (s *SPI) SetFaults(faults ...Fault) error {
	for _, f := range faults {
		if err := f.validate(); err != nil {
			return err
		}
	}
	s.rules.Store(&rules{s.cfg.Seed, faults})
	return nil
}

// Receive takes a message that the bank has stored, for icomtest.Config.OnReceive. It does not read it and never blocks.
func (s *SPI) Receive(r icomtest.Received) {
	s.messages.Add(1)
	s.inbox.push(r)
}

// Run reads, decides and sends through bank until ctx ends, and returns nil once its goroutines are gone. It ends early
// with an error only if a message of its own cannot be written, which is a defect of this package. It is called once.
func (s *SPI) Run(ctx context.Context, bank Enqueuer) error {
	s.bank = bank
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	var failed atomic.Pointer[error]
	worker := func(work func(context.Context) error) {
		wg.Go(func() {
			if err := work(ctx); err != nil {
				failed.CompareAndSwap(nil, &err)
				cancel(err)
			}
		})
	}
	for range s.cfg.Workers {
		worker(s.read)
		worker(s.write)
	}
	worker(s.work)
	wg.Go(func() { s.agenda.run(ctx) })
	wg.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// Books recomputes the books and checks them; withOrders lists every order.
func (s *SPI) Books(withOrders bool) Report {
	r := s.ledger.report(withOrders)
	r.Seed, r.Files = s.cfg.Seed, s.shelf.report()
	c := &r.Counters
	c.Messages, c.Refused = int(s.messages.Load()), int(s.refused.Load())
	c.Sent, c.Operations, c.Faults = int(s.sent.Load()), int(s.operations.Load()), int(s.struck.Load())
	return r
}

func (s *SPI) now() time.Time { return s.cfg.Clock.Now().Wall }

func (s *SPI) verifier(ispb pix.ISPB) *signature.Verifier {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.verifiers[ispb]
}

const alnum = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"

// mint makes the SPI's own identifiers.
type mint struct {
	mu     sync.Mutex
	random *rand.PCG
}

func newMint(seed uint64) *mint { return &mint{random: rand.NewPCG(seed, uint64(time.Second))} }

// msgID is M, the SPI's ISPB, the milliseconds in nine digits of base 36 and fourteen random characters.
func (m *mint) msgID(now time.Time) pix.MsgID {
	var id [32]byte
	rest := id[copy(id[:], "M"+string(pix.SPI)):]
	ms := now.UnixMilli()
	for i := 8; i >= 0; i-- {
		rest[i] = alnum[ms%36]
		ms /= 36
	}
	m.letters(rest[9:])
	return pix.MsgID(id[:])
}

func (m *mint) letters(dst []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range dst {
		// The bias of the last characters is of no interest here.
		dst[i] = alnum[m.random.Uint64()%36]
	}
}
