package coreevent_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/bus"
	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/order"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/services/settlement-scheduler/coreevent"
)

func digest(body string) string {
	sum := sha256.Sum256([]byte(body))
	return hex.EncodeToString(sum[:])
}

// An event becomes a row, an event of its history, an operation that was announced, and an answer that names the payment.
func TestAnEventBecomesAnOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	reg, _ := w.work(replica{})
	own := w.id(us, time.Now())
	named, unnamed := event("with-id", set("endToEndId", own)), event("without", nil)
	w.publish(0, named, unnamed)
	answers := w.answered(2)
	require.Equal(t, own, answers[digest(named)].E2E)
	require.Equal(t, "core.payment_accepted.12345678", answers[digest(named)].subject)
	minted := answers[digest(unnamed)].E2E
	require.Equal(t, "without", answers[digest(unnamed)].ID)
	require.Equal(t, us, pix.EndToEndID(minted).ISPB())

	for _, id := range []string{own, minted} {
		row, err := w.payments.Get(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, []any{pix.Created, pix.Amount(1234), pix.CPM, them}, []any{row.State, row.Amount, row.Channel, row.Counterparty})
		var transfer iso20022.CreditTransfer
		require.NoError(t, json.Unmarshal(row.Document, &transfer))
		require.Equal(t, "fulano@example.com", transfer.Proxy)
		history, err := w.payments.Events(t.Context(), id)
		require.NoError(t, err)
		require.Len(t, history, 1)
		require.Equal(t, "core/stream", history[0].Who)
		carriers, err := store.NewOutbound(w.db).Carriers(t.Context(), id)
		require.NoError(t, err)
		require.Len(t, carriers, 1)
		require.Equal(t, "pacs.008", carriers[0].MsgType)
	}
	left, err := w.outbox.Unpublished(t.Context(), 0, 10)
	require.NoError(t, err)
	require.Empty(t, left)
	require.EqualValues(t, 2, counted(t, reg, events, "accepted"))
	require.Empty(t, w.dead())
}

// What the HTTP interface refuses is refused here, by the same fields: told, kept with its reason, and not retried.
func TestWhatIsRefusedOverHTTPIsRefusedHere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now := time.Now()
	var bodies []string
	wants := map[string][]string{} // by digest: the fields at fault; none: the kind
	add := func(body string, want ...string) {
		bodies = append(bodies, body)
		wants[digest(body)] = want
	}
	for i, c := range []struct {
		path  string
		value any
		want  string // the field named; empty: path
	}{
		{"valor", nil, ""},
		{"valor", "", ""},
		{"valor", 12.34, ""},
		{"valor", "0.00", ""},
		{"valor", "-1.00", ""},
		{"valor", "1.000", ""},
		{"valor", "1,00", ""},
		{"valor", "1e2.00", ""},
		{"valor", "12345678901234567.00", ""},
		{"endToEndId", "E1", ""},
		{"endToEndId", w.id(them, now), ""},
		{"endToEndId", w.id(us, now.Add(-13*time.Hour)), ""},
		{"endToEndId", w.id(us, now.Add(13*time.Hour)), ""},
		{"txid", "a-b", ""},
		{"chave", nil, ""},
		{"chave", "a\x00b", ""},
		{"formaIniciacao", "MANU", "chave"},
		{"nivelServico", "PAGFRD", ""},
		{"nivelServico", "PAGAGD", ""}, // the channel is off
		{"infoPagador", "a\nb", ""},
		{"infoPagador", "100\u202e00", ""},
		{"infoPagador", strings.Repeat("é", 141), ""},
		{"pagador", nil, ""},
		{"pagador.cpf", "52998224724", ""},
		{"pagador.conta", "12-3", ""},
		{"recebedor.ispbParticipante", string(us), ""},
		{"recebedor.ispbParticipante", string(pix.SPI), ""},
		{"recebedor.cnpj", "12ABC34501DE36", ""},
		{"Valor", "1.00", ""},
		{"x\u0000\u202e", "1", ""},
		{"id", nil, ""},
		{"id", "", ""},
		{"id", "a_b", ""},
		{"id", strings.Repeat("a", 65), ""},
		{"id", 1, ""},
	} {
		if c.want == "" {
			c.want = c.path
		}
		add(event(fmt.Sprintf("e%d", i), set(c.path, c.value)), c.want)
	}
	valid := event("json", nil)
	add("not JSON")
	add(valid[:len(valid)-1])
	add("[" + valid + "]")
	add(strings.Replace(valid, "Fulano", "\xff", 1))
	add(strings.Repeat("[", 9000) + strings.Repeat("]", 7000))
	add(`{"x":` + strings.Repeat("[", 7000) + strings.Repeat("]", 7000) + `}`)
	add(event("large", set("infoPagador", strings.Repeat("a", 20_000))))
	add(strings.Replace(valid, `"id":"json"`, `"id":"json","id":"other"`, 1), "id")
	w.publish(0, bodies...)
	require.NoError(t, w.bus.Publish(t.Context(), []bus.Message{{Subject: "core.payment_request.87654321", Payload: []byte(valid)}}).Err())
	wants[digest(valid)] = nil // as that of another participant
	reg, _ := w.work(replica{})

	answers := w.answered(len(wants))
	for _, a := range answers {
		require.Equal(t, "core.payment_refused.12345678", a.subject)
		require.NotEmpty(t, a.Kind)
		if want := wants[a.Digest]; want != nil {
			require.Equal(t, want[0], a.At[0].Field, a.raw)
		}
	}
	require.Empty(t, w.booked())
	letters := w.dead()
	require.Len(t, letters, len(wants))
	for _, l := range letters {
		require.Equal(t, "core:12345678", l.Source)
		require.Equal(t, "payment_request", l.MsgType)
		require.NotContains(t, l.Reason, "\u202e")
	}
	w.publish(0, event("last", nil))
	w.of(w.answered(len(wants)+1), "last", "")
	require.EqualValues(t, len(wants), counted(t, reg, events, "refused"), "each was refused once")
	require.Zero(t, counted(t, reg, events, "repeated"))
}

// The same events, published three times and taken by two replicas at once: one order each, and one answer.
func TestTheSameEventsAtOnceOnTwoReplicas(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var bodies []string
	for i := range 40 {
		bodies = append(bodies, event(fmt.Sprintf("e%d", i), nil))
	}
	for attempt := range 3 {
		w.publish(attempt, bodies...)
	}
	one := func(c *coreevent.Config) { c.Batch = 4 }
	a, _ := w.work(replica{cfg: one})
	b, _ := w.work(replica{cfg: one})
	answers := w.answered(len(bodies))
	w.eventually("each delivery to be counted", func() bool {
		return counted(t, a, events, "accepted")+counted(t, b, events, "accepted") == 40 &&
			counted(t, a, events, "repeated")+counted(t, b, events, "repeated") == 80
	})
	rows := w.booked()
	require.Len(t, rows, len(bodies))
	ids := map[string]bool{}
	for _, row := range rows {
		ids[row.ID] = true
	}
	for _, a := range answers {
		require.True(t, ids[a.E2E])
	}
}

// An id has one verdict: other bytes under it are refused and told, whatever the verdict was, and it stands.
func TestTheSameIDWithAnotherBody(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.work(replica{})
	first, other := event("a", nil), event("a", set("valor", "99.00"))
	bad, corrected := event("b", set("valor", "0.00")), event("b", nil)
	w.publish(0, first, bad)
	answers := w.answered(2)
	own := w.of(answers, "a", "").E2E
	w.publish(1, other, corrected)
	answers = w.answered(4)
	require.Equal(t, digest(other), w.of(answers, "a", "evento-reutilizado").Digest)
	require.Equal(t, digest(corrected), w.of(answers, "b", "evento-reutilizado").Digest)
	require.Len(t, w.dead(), 3)
	w.publish(2, first, bad)
	w.publish(0, event("c", nil))
	answers = w.answered(5)
	require.Equal(t, own, w.of(answers, "a", "").E2E)
	require.Len(t, w.booked(), 2)
	require.Len(t, w.dead(), 3)
}

// The same EndToEndId by HTTP and by event at once: one booking, and who comes second is told. The ids of events and the
// keys of HTTP clients do not meet.
func TestTheSameEndToEndIDByHTTPAndByEvent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	desk := order.NewDesk(order.Config{ISPB: us, Channels: pix.Channels()}, order.Deps{DB: w.db, Clock: clock.System()})
	keys := store.NewIdempotency(w.db)
	// byHTTP does what services/payments/api does with a POST, under the name that the event has.
	byHTTP := func(key, body string) error {
		asked, err := desk.Read([]byte(body))
		if err != nil {
			return err
		}
		if found, err := keys.Begin(t.Context(), "core/"+key, sha256.Sum256([]byte(body))); err != nil || found.State != store.KeyFresh {
			return fmt.Errorf("key: %w %v", err, found)
		}
		return w.db.InTx(t.Context(), func(ctx context.Context, tx *store.Tx) error {
			if _, _, err := desk.Book(ctx, tx, order.By{Client: "core", Who: "api/core"}, asked); err != nil {
				return err
			}
			return keys.Finish(ctx, tx, "core/"+key, 201, []byte("{}"))
		})
	}
	w.work(replica{})
	const n = 12
	var all sync.WaitGroup
	said := make([]error, n)
	ids := make([]string, n)
	bodies := make([]string, n)
	for i := range n {
		ids[i] = w.id(us, time.Now())
		key := fmt.Sprintf("k%d", i)
		bodies[i] = event(key, set("endToEndId", ids[i]))
		posted := event(key, func(o map[string]any) { o["endToEndId"] = ids[i]; delete(o, "id") })
		all.Go(func() { said[i] = byHTTP(key, posted) })
	}
	w.publish(0, bodies...)
	all.Wait()
	answers := w.answered(n)
	for i := range n {
		a := answers[digest(bodies[i])]
		if said[i] == nil {
			require.Equal(t, "pagamento-existe", a.Kind)
			require.Equal(t, "endToEndId", a.At[0].Field)
			continue
		}
		no, ok := errors.AsType[*order.Refusal](said[i])
		require.True(t, ok, said[i])
		require.Equal(t, order.Taken, no.Class)
		require.Equal(t, ids[i], a.E2E)
	}
	require.Len(t, w.booked(), n)
}

// A verdict is given once: a gate that would say something else the next time is not asked again.
func TestAVerdictIsNotJudgedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var asked int
	reg, _ := w.work(replica{cfg: func(c *coreevent.Config) { c.Workers = 1 }, gate: gate(func(o order.Order) error {
		require.Equal(t, "core/stream", o.Client)
		if asked++; asked == 1 {
			return order.Refuse("acima-do-limite", "Acima do limite", "", order.Violation{Field: "valor", Reason: "acima do limite"})
		}
		return nil
	})})
	body := event("a", nil)
	w.publish(0, body)
	require.Equal(t, "acima-do-limite", w.of(w.answered(1), "a", "acima-do-limite").Kind)
	w.publish(1, body)
	w.eventually("it to be known", func() bool { return counted(t, reg, events, "repeated") == 1 })
	require.Empty(t, w.booked())
	require.Equal(t, "acima-do-limite: valor", w.dead()[0].Reason)
	require.Equal(t, "a", w.dead()[0].MessageID)
	require.Equal(t, 1, asked)
}

type gate func(order.Order) error

func (g gate) Pass(_ context.Context, _ *store.Tx, o order.Order) error { return g(o) }

func TestConfigIsJudged(t *testing.T) {
	t.Parallel()
	_, err := coreevent.New(coreevent.Config{Workers: -1, Batch: 5000, MaxBody: 1, TxTimeout: 1}, coreevent.Deps{Metrics: prometheus.NewRegistry()})
	for _, says := range []string{"Workers is -1", "Batch is 5000", "MaxBody is 1", "TxTimeout is 1ns", "no channel", "ISPB"} {
		require.ErrorContains(t, err, says)
	}
}
