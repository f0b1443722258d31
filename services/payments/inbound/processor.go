package inbound

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cabine-pix/cabine/libs/bus"
	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/corebank"
	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/signature"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/services/payments/decision"
)

// Source delivers messages.
type Source interface {
	// ConsumeInbound hands messages to handle, several at once, until ctx ends.
	ConsumeInbound(ctx context.Context, cfg bus.ConsumeConfig, handle func(context.Context, bus.Inbound) error) error
}

// Verifier knows the SPI's signature.
type Verifier interface {
	// Verify returns the certificate that signed the message, or why there is none.
	Verify(message []byte) (*x509.Certificate, error)
}

// Decider decides about a payment within the time that is left. It fails only when ctx was cancelled.
type Decider interface {
	Decide(ctx context.Context, q corebank.Question, left time.Duration) (decision.Verdict, error)
}

// Announcer is told of outbox rows that were committed. It never waits.
type Announcer interface {
	Announce(ctx context.Context, rows []store.Operation)
}

// Books are the tables.
type Books struct {
	DB       *store.DB
	Inbox    *store.Inbox
	Payments *store.Payments
	Outbox   *store.Outbox
	Outbound *store.Outbound
	// Reconciliations are told what the SPI answers to their questions.
	Reconciliations *store.Reconciliations
}

// Deps are what a Processor needs from outside.
type Deps struct {
	Source    Source
	Verifier  Verifier
	Core      Decider
	Announcer Announcer
	Books     Books
	Clock     clock.Clock
	Log       *slog.Logger
	Metrics   prometheus.Registerer
}

// Processor takes what the SPI sends and makes it true in our books.
type Processor struct {
	cfg  Config
	deps Deps
	log  *slog.Logger
	m    *metrics
}

// New returns a processor that has started nothing.
func New(cfg Config, deps Deps) (*Processor, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("inbound config: %w", err)
	}
	m, err := newMetrics(deps.Metrics)
	if err != nil {
		return nil, fmt.Errorf("inbound metrics: %w", err)
	}
	return &Processor{cfg: cfg, deps: deps, log: deps.Log, m: m}, nil
}

// provisionEvery is how long a consumer that is not there is waited for.
const provisionEvery = 5 * time.Second

// Run takes messages until ctx ends and those in hand are done, at most DrainTimeout later.
func (p *Processor) Run(ctx context.Context) error {
	cfg := bus.ConsumeConfig{
		Durable: p.cfg.Durable, Concurrency: p.cfg.Concurrency, Prefetch: p.cfg.Prefetch,
		MaxDeliveries: p.cfg.MaxDeliveries, DrainTimeout: p.cfg.DrainTimeout, Poison: p.poison,
	}
	for ctx.Err() == nil {
		err := p.deps.Source.ConsumeInbound(ctx, cfg, p.Handle)
		if !errors.Is(err, bus.ErrNotProvisioned) {
			return err
		}
		// A bus that lost its store is provisioned again by people; what it should carry is in the inbox.
		p.log.Error("consumer does not exist, run migrate", slog.String("durable", p.cfg.Durable), slog.Any("error", err))
		_ = clock.Sleep(ctx, p.deps.Clock, provisionEvery) // the loop looks at ctx
	}
	return nil
}

// arrival is a message in hand.
type arrival struct {
	bus.Inbound
	channel pix.Channel
	// at is the database's time when it was taken.
	at time.Time
	// began is ours, for measuring.
	began clock.Reading
	head  iso20022.Header
}

// outcome is what a transaction did, believed once it was committed.
type outcome struct {
	// offer are rows of the outbox.
	offer []store.Operation
	// dead says why the message is a dead letter as well.
	dead []dead
	// moved counts payments by what they became.
	moved map[pix.State]int
	// refused counts what our own rules refused, by why.
	refused map[string]int
	// contradictions counts what the SPI said against a final state.
	contradictions int
	// unasked counts answers to questions that nobody here asked.
	unasked int
	// found counts credits that only a reconciliation knew of.
	found int
}

func newOutcome() outcome {
	return outcome{moved: map[pix.State]int{}, refused: map[string]int{}}
}

// booked counts a payment that is new in the books; why is empty for one that our rules let pass.
func (o *outcome) booked(state pix.State, why string) {
	o.moved[state]++
	if why != "" {
		o.refused[why]++
	}
}

// effect is what a message does. It may be called again if the transaction is, and then begins anew.
type effect func(ctx context.Context, tx *store.Tx, out *outcome) error

// errClosed: somebody else has done it.
var errClosed = errors.New("the message is done already")

// Handle processes one message and returns nil when its effect is committed, now or by an
// earlier delivery. An error means that nothing happened and the message should come again.
func (p *Processor) Handle(ctx context.Context, m bus.Inbound) error {
	a := arrival{Inbound: m, began: p.deps.Clock.Now()}
	err := p.process(ctx, &a)
	if err == nil || passes(err) {
		return err
	}
	return p.failed(ctx, a, err)
}

func (p *Processor) process(ctx context.Context, a *arrival) error {
	look, err := p.deps.Books.Inbox.Look(ctx, a.MessageID, a.Source)
	if err != nil {
		return err
	}
	if !look.Open {
		p.m.messages.WithLabelValues(typeLabel(a.MsgType), repeated).Inc()
		return nil
	}
	a.at = look.At
	if !bytes.Equal(a.Payload, look.Payload) {
		p.log.Error("the bus carries other bytes than the inbox, which are not read", slog.String("message_id", a.MessageID), slog.String("source", a.Source))
		a.Payload = look.Payload
	}
	do, err := p.plan(ctx, a)
	if d, ok := errors.AsType[dead](err); ok {
		return p.commit(ctx, *a, bury(d))
	}
	if err != nil {
		return err
	}
	return p.commit(ctx, *a, do)
}

// passes reports a failure that is nobody's fault: it may come as often as it likes.
func passes(err error) bool {
	return errors.Is(err, store.ErrUnavailable) || errors.Is(err, context.Canceled) || errors.Is(err, errNotYet)
}

// failed counts a failure of ours. The last that may be makes the message a dead letter.
func (p *Processor) failed(ctx context.Context, a arrival, cause error) error {
	n, err := p.deps.Books.Inbox.Failed(ctx, a.MessageID, a.Source)
	if err != nil {
		return errors.Join(cause, err)
	}
	if n < p.cfg.MaxDeliveries {
		return cause
	}
	kind := deadFault
	if _, ok := errors.AsType[*signature.Error](cause); ok {
		kind = deadSignature
	}
	return p.commit(ctx, a, bury(dead{kind, fmt.Sprintf("failed %d times, at last: %v", n, cause)}))
}

// bury is the effect of what is a dead letter and nothing else.
func bury(d dead) effect {
	return func(_ context.Context, _ *store.Tx, out *outcome) error {
		out.dead = append(out.dead, d)
		return nil
	}
}

// plan reads the message, asks whom must be asked, and returns what is to be done.
func (p *Processor) plan(ctx context.Context, a *arrival) (effect, error) {
	doc, err := p.read(a)
	if err != nil {
		return nil, err
	}
	switch doc := doc.(type) {
	case *iso20022.Pacs008:
		return p.payments(ctx, a, doc)
	case *iso20022.Pacs002:
		return p.statuses(ctx, a, doc)
	case *iso20022.Pacs004:
		return p.returns(ctx, a, doc)
	case *iso20022.Admi002:
		return p.refusal(ctx, a, doc)
	case *iso20022.Camt054:
		return p.entries(ctx, a, doc)
	case *iso20022.Camt052:
		return p.files(doc)
	case *iso20022.Camt053:
		return p.balances(doc)
	case *iso20022.Pibr002:
		return p.kept("echo came back", a), nil
	default:
		return nil, dead{deadType, "no rule for " + a.head.MsgType}
	}
}

// read believes a message: the SPI signed it, it is what its schema says, and it is for us.
func (p *Processor) read(a *arrival) (iso20022.Document, error) {
	if err := p.verify(a); err != nil {
		return nil, err
	}
	env, err := p.cfg.Versions.Parse(a.Payload)
	if err != nil {
		return nil, dead{deadSyntax, err.Error()}
	}
	a.head = env.Header
	if a.head.From != pix.SPI || a.head.To != p.cfg.ISPB || a.ISPB != p.cfg.ISPB {
		return nil, dead{deadAddressee, fmt.Sprintf("from %s to %s on the stream of %s, want from %s to %s",
			a.head.From, a.head.To, a.ISPB, pix.SPI, p.cfg.ISPB)}
	}
	if a.channel, err = channelOf(a.Source); err != nil {
		return nil, dead{deadAddressee, err.Error()}
	}
	return env.Document, nil
}

// verify believes that the SPI signed the message. A certificate that is none of ours, or out of its time by our clock, may
// be our own fault: the message comes again, maybe to a replica that knows better. Every other fault is the message's.
func (p *Processor) verify(a *arrival) error {
	_, err := p.deps.Verifier.Verify(a.Payload)
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*signature.Error](err); ok && (e.Reason == signature.UnknownCertificate || e.Reason == signature.NotInForce) {
		p.m.unverified.WithLabelValues(string(e.Reason)).Inc()
		return e
	}
	return dead{deadSignature, err.Error()}
}

// channelOf reads the channel of a source, "icom:cpm:12345678".
func channelOf(source string) (pix.Channel, error) {
	parts := strings.Split(source, ":")
	if len(parts) != 3 || parts[0] != "icom" {
		return "", fmt.Errorf("source %.40q is none of the ICOM", source)
	}
	return pix.ParseChannel(parts[1])
}

// commit closes the message with its effect.
func (p *Processor) commit(ctx context.Context, a arrival, do effect) error {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.TxTimeout)
	defer cancel()
	var out outcome
	err := p.deps.Books.DB.InTx(ctx, func(ctx context.Context, tx *store.Tx) error {
		out = newOutcome()
		closed, err := p.deps.Books.Inbox.MarkDoneTx(ctx, tx, []string{a.MessageID}, a.Source)
		if err == nil && closed == 0 {
			err = errClosed
		}
		if err != nil {
			return err
		}
		if err := do(ctx, tx, &out); err != nil || len(out.dead) == 0 {
			return err
		}
		return p.deps.Books.Inbox.DeadLetterTx(ctx, tx, a.MessageID, a.Source, reasonOf(out.dead))
	})
	if errors.Is(err, errClosed) {
		p.m.messages.WithLabelValues(typeLabel(a.MsgType), repeated).Inc()
		return nil
	}
	if err != nil {
		return err
	}
	p.deps.Announcer.Announce(ctx, out.offer)
	p.believe(a, out)
	return nil
}

// believe counts and tells what was committed.
func (p *Processor) believe(a arrival, out outcome) {
	result := done
	if len(out.dead) > 0 {
		result = buried
	}
	p.m.messages.WithLabelValues(typeLabel(a.MsgType), result).Inc()
	p.m.seconds.WithLabelValues(typeLabel(a.MsgType)).Observe(p.deps.Clock.Now().Elapsed(a.began).Seconds())
	p.m.contradictions.Add(float64(out.contradictions))
	p.m.unasked.WithLabelValues(typeLabel(a.MsgType)).Add(float64(out.unasked))
	p.m.found.Add(float64(out.found))
	if out.unasked > 0 {
		p.log.Info("the SPI answers what nobody asked", slog.String("message_id", a.MessageID), slog.String("msg_type", a.MsgType), slog.Int("answers", out.unasked))
	}
	if out.found > 0 {
		p.log.Error("credits are booked that the core was not asked about", slog.String("message_id", a.MessageID), slog.Int("credits", out.found))
	}
	for state, n := range out.moved {
		p.m.moves.WithLabelValues(string(state)).Add(float64(n))
	}
	for why, n := range out.refused {
		p.m.refusals.WithLabelValues(why).Add(float64(n))
	}
	for _, d := range out.dead {
		p.m.deadLetters.WithLabelValues(string(d.kind)).Inc()
		p.log.Error("message goes to the dead letters", slog.String("message_id", a.MessageID), slog.String("msg_type", a.MsgType),
			slog.String("kind", string(d.kind)), slog.String("reason", d.reason))
	}
}

// poison takes a delivery off the bus that is no message of the inbox. Of those that are the table counts what they failed by.
func (p *Processor) poison(_ context.Context, d bus.Delivery, cause error) error {
	if _, err := d.Inbound(); err == nil {
		return cause
	}
	p.m.deadLetters.WithLabelValues(string(deadFault)).Inc()
	p.log.Error("a delivery is none of the inbox", slog.String("subject", d.Subject), slog.Any("error", cause))
	return nil // nothing in the tables says that it exists
}

// kept is the effect of what stays in the inbox for others to read.
func (p *Processor) kept(what string, a *arrival) effect {
	return func(context.Context, *store.Tx, *outcome) error {
		p.log.Debug("message is kept", slog.String("what", what), slog.String("msg_id", string(a.head.MsgID)))
		return nil
	}
}
