package coreevent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"unicode"

	"github.com/cabine-pix/cabine/libs/bus"
	"github.com/cabine-pix/cabine/libs/order"
	"github.com/cabine-pix/cabine/libs/store"
)

// source names this way of ordering to the gate and in a payment's history. No name of an HTTP client has a slash.
const source = "core/stream"

// event is one delivery on its way to its verdict.
type event struct {
	store.CoreEvent
	// name is the core's; empty: it cannot be read.
	name    string
	payload []byte
}

func newEvent(payload []byte) event {
	e := event{payload: payload}
	e.Request = sha256.Sum256(payload)
	e.ID = "sha256:" + e.digest() // no core can give a name with a colon
	return e
}

func (e *event) digest() string { return hex.EncodeToString(e.Request[:]) }

// acceptance and refusal are the answers.
type (
	acceptance struct {
		ID         string `json:"id"`
		Digest     string `json:"resumo"`
		EndToEndID string `json:"endToEndId"`
	}
	refusal struct {
		ID         string            `json:"id"`
		Digest     string            `json:"resumo"`
		Kind       string            `json:"tipo"`
		Title      string            `json:"titulo"`
		Detail     string            `json:"detalhe"`
		Violations []order.Violation `json:"violacoes,omitempty"`
	}
)

// errDecided: the event has a verdict, or its name is another's.
var errDecided = errors.New("the event is decided already")

// handle returns the answer to an event, and the operations of the order that it became now. An error means that it has
// no verdict and should come again.
func (w *Worker) handle(ctx context.Context, d bus.Delivery) (bus.CoreAnswer, []store.Operation, error) {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.TxTimeout)
	defer cancel()
	e := newEvent(d.Payload)
	queued, v, err := w.decide(ctx, d, &e)
	if err != nil && !passes(err) {
		v, err = w.failed(ctx, e, err)
	}
	if err != nil {
		if passes(err) {
			w.m.events.WithLabelValues(waiting).Inc()
		}
		w.deps.Log.Warn("a core's event has no verdict, it comes again", slog.String("event_id", e.name), slog.Any("error", err))
		return bus.CoreAnswer{}, nil, err
	}
	return w.answer(e, v), queued, nil
}

// passes reports a failure that is nobody's fault: it may come as often as it likes.
func passes(err error) bool {
	return errors.Is(err, store.ErrUnavailable) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, store.ErrNotDurable) || errors.Is(err, store.ErrSchema)
}

// decide reads, judges and books an event, or refuses it, or finds the verdict that it has.
func (w *Worker) decide(ctx context.Context, d bus.Delivery, e *event) (queued []store.Operation, v store.Verdict, err error) {
	defer func() {
		if r := recover(); r != nil {
			queued, err = nil, fmt.Errorf("panic: %v", r)
		}
	}()
	asked, err := w.read(d, e)
	if err == nil {
		queued, v, err = w.book(ctx, *e, asked)
	}
	if no, ok := errors.AsType[*order.Refusal](err); ok {
		v, err = w.refuse(ctx, *e, no)
	}
	if errors.Is(err, errDecided) {
		v, err = w.known(ctx, *e)
	}
	if err != nil {
		return nil, store.Verdict{}, err
	}
	return queued, v, nil
}

// read finds an event's name and the order that it asks for.
func (w *Worker) read(d bus.Delivery, e *event) (order.Payment, error) {
	request, err := d.PaymentRequest()
	switch {
	case err != nil || request.ISPB != w.cfg.ISPB:
		return order.Payment{}, order.Refuse("outro-participante", "Outro participante", "O assunto do evento não é o deste participante.")
	case len(e.payload) > w.cfg.MaxBody:
		return order.Payment{}, order.Refuse("corpo-grande-demais", "Corpo grande demais",
			"O evento pode ter até "+strconv.Itoa(w.cfg.MaxBody)+" bytes.")
	}
	name, asked, err := w.desk.ReadEvent(e.payload)
	if name != "" {
		e.name, e.ID = name, name
	}
	return asked, err
}

// book makes an order of an event.
func (w *Worker) book(ctx context.Context, e event, asked order.Payment) (queued []store.Operation, v store.Verdict, err error) {
	v = store.Verdict{PaymentID: string(asked.EndToEndID())}
	err = w.deps.DB.InTx(ctx, func(ctx context.Context, tx *store.Tx) error {
		if err := w.fresh(ctx, tx, e, v); err != nil {
			return err
		}
		_, queued, err = w.desk.Book(ctx, tx, order.By{Client: source, Who: source}, asked)
		return err
	})
	if err != nil {
		return nil, store.Verdict{}, err
	}
	w.m.events.WithLabelValues(accepted).Inc()
	return queued, v, nil
}

// fresh writes a verdict, or fails with errDecided.
func (w *Worker) fresh(ctx context.Context, tx *store.Tx, e event, v store.Verdict) error {
	fresh, err := w.events.Decide(ctx, tx, e.CoreEvent, v)
	if err == nil && !fresh {
		err = errDecided
	}
	return err
}

// refuse writes why an event is none, and keeps it where operators look.
func (w *Worker) refuse(ctx context.Context, e event, no *order.Refusal) (store.Verdict, error) {
	v, err := e.refused(no)
	if err != nil {
		return store.Verdict{}, err
	}
	err = w.deps.DB.InTx(ctx, func(ctx context.Context, tx *store.Tx) error {
		if err := w.fresh(ctx, tx, e, v); err != nil {
			return err
		}
		return w.events.Bury(ctx, tx, w.cfg.ISPB, e.CoreEvent, reasonOf(no), e.payload)
	})
	if err != nil {
		return store.Verdict{}, err
	}
	w.buried(e, no)
	return v, nil
}

// known returns the verdict that stands, or refuses an event whose name is another's.
func (w *Worker) known(ctx context.Context, e event) (store.Verdict, error) {
	v, same, err := w.events.Verdict(ctx, e.CoreEvent)
	if err != nil {
		return store.Verdict{}, err
	}
	if same {
		w.m.events.WithLabelValues(repeated).Inc()
		return v, nil
	}
	no := reused()
	if v, err = e.refused(no); err != nil {
		return store.Verdict{}, err
	}
	err = w.deps.DB.InTx(ctx, func(ctx context.Context, tx *store.Tx) error {
		return w.events.Bury(ctx, tx, w.cfg.ISPB, e.CoreEvent, reasonOf(no), e.payload)
	})
	if err != nil {
		return store.Verdict{}, err
	}
	w.buried(e, no)
	return v, nil
}

func reused() *order.Refusal {
	return &order.Refusal{
		Class: order.Taken, Kind: "evento-reutilizado", Title: "Evento reutilizado",
		Detail:     "Este id já foi de outro evento, cujo resultado não muda. Use um id novo para uma ordem nova.",
		Violations: []order.Violation{{Field: "id", Reason: "já usado com outro conteúdo"}},
	}
}

// failed counts a fault of ours. The last that may be refuses the event.
func (w *Worker) failed(ctx context.Context, e event, cause error) (store.Verdict, error) {
	w.m.events.WithLabelValues(failing).Inc()
	w.deps.Log.Error("a core's event fails by a fault of ours", slog.String("event_id", e.name), slog.Any("error", cause))
	n, err := w.events.Failed(ctx, e.CoreEvent)
	if err != nil {
		return store.Verdict{}, errors.Join(cause, err)
	}
	if n < w.cfg.MaxFailures {
		return store.Verdict{}, cause
	}
	v, err := w.refuse(ctx, e, &order.Refusal{
		Class: order.Refused, Kind: "erro-interno", Title: "Erro interno",
		Detail: "A ordem não foi registrada, por falha nossa. Depois de corrigida, peça de novo com outro id.",
	})
	if errors.Is(err, errDecided) {
		return w.known(ctx, e)
	}
	return v, err
}

// buried tells of an event that was refused, by its kind alone: what it says is its client's.
func (w *Worker) buried(e event, no *order.Refusal) {
	w.m.events.WithLabelValues(refused).Inc()
	w.deps.Log.Error("a core's event is refused and a dead letter", slog.String("event_id", e.name), slog.String("digest", e.digest()),
		slog.String("kind", no.Kind))
}

// refused returns the verdict of a refusal.
func (e *event) refused(no *order.Refusal) (store.Verdict, error) {
	body, err := json.Marshal(refusal{
		ID: e.name, Digest: e.digest(), Kind: no.Kind, Title: no.Title, Detail: no.Detail, Violations: no.Violations,
	})
	if err != nil {
		return store.Verdict{}, fmt.Errorf("refusal to JSON: %w", err)
	}
	return store.Verdict{Refusal: body}, nil
}

// answer is what the core is told.
func (w *Worker) answer(e event, v store.Verdict) bus.CoreAnswer {
	a := bus.CoreAnswer{ISPB: w.cfg.ISPB, Accepted: v.PaymentID != "", Name: e.ID + "/" + e.digest(), Body: v.Refusal}
	if a.Accepted {
		a.Body, _ = json.Marshal(acceptance{ID: e.name, Digest: e.digest(), EndToEndID: v.PaymentID}) // three texts
	}
	return a
}

// reasonOf is what the dead letter says: the kind, and the fields at fault. A name of a field may be the core's invention.
func reasonOf(no *order.Refusal) string {
	fields := make([]string, len(no.Violations))
	for i, v := range no.Violations {
		fields[i] = strings.Map(func(r rune) rune {
			if unicode.IsPrint(r) {
				return r
			}
			return '?'
		}, v.Field)
	}
	if len(fields) == 0 {
		return no.Kind
	}
	return no.Kind + ": " + strings.Join(fields, ", ")
}
