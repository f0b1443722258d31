package order

import (
	"context"
	"strconv"
	"time"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
)

// Order is what wants to be queued.
type Order struct {
	// Client gave it: the name behind its token, or that of the stream that it came by.
	Client string
	// Payment is the row as it will be booked, a payment or a return.
	Payment store.Payment
	// Original is what a return gives back, and OriginalTransfer its order; nil for a payment.
	Original         *store.Payment
	OriginalTransfer *iso20022.CreditTransfer
	// Return is the order of a return; nil for a payment.
	Return *iso20022.PaymentReturn
}

// Gate is what every order passes before it is queued, payments and returns alike. It is asked once per order, inside
// the transaction that books it, so that what it counts there is counted with the order or not at all. It refuses with
// an error of Refuse; any other error fails the request and books nothing.
type Gate interface {
	Pass(ctx context.Context, tx *store.Tx, o Order) error
}

// Refuse returns the error of a Gate that does not let an order pass; kind is a word for programs, title and detail
// are for people.
func Refuse(kind, title, detail string, found ...Violation) error {
	return &Refusal{Class: Refused, Kind: kind, Title: title, Detail: detail, Violations: found}
}

// The rules' numbers.
const (
	// IDWindow is how far the minute in an EndToEndId may be from now, either way, before the SPI refuses it (FF08).
	IDWindow = 12 * time.Hour
	// ReturnWindow is how long after its settlement a payment may be given back.
	ReturnWindow = 90 * 24 * time.Hour
)

// Rules is the Gate of the arrangement's own rules, which hold for everybody: whose an EndToEndId is and how old, and
// what may be given back until when. It has no limits on money.
type Rules struct {
	ispb pix.ISPB
	clk  clock.Clock
}

// NewRules returns the rules of a participant.
func NewRules(ispb pix.ISPB, clk clock.Clock) *Rules { return &Rules{ispb: ispb, clk: clk} }

// Pass implements Gate.
func (r *Rules) Pass(_ context.Context, _ *store.Tx, o Order) error {
	if o.Payment.Kind == pix.Return {
		return r.passReturn(o)
	}
	var found []Violation
	id := pix.EndToEndID(o.Payment.ID)
	if id.ISPB() != r.ispb {
		found = append(found, Violation{Field: "endToEndId", Reason: "o ISPB do identificador não é o deste participante"})
	}
	if off := r.clk.Now().Wall.Sub(id.At()); off > IDWindow || off < -IDWindow {
		found = append(found, Violation{Field: "endToEndId", Reason: "o minuto do identificador (UTC) está a mais de 12 horas de agora"})
	}
	if o.Payment.Counterparty == r.ispb {
		found = append(found, Violation{Field: "recebedor.ispbParticipante", Reason: "é este participante: o SPI não liquida dentro da mesma instituição"})
	}
	if o.Payment.Counterparty == pix.SPI {
		found = append(found, Violation{Field: "recebedor.ispbParticipante", Reason: "é o SPI, que não recebe pagamentos"})
	}
	if len(found) > 0 {
		return Refuse("ordem-recusada", "Ordem recusada", "A ordem não atende às regras do arranjo.", found...)
	}
	return nil
}

func (r *Rules) passReturn(o Order) error {
	const kind, title = "devolucao-recusada", "Devolução recusada"
	original := o.Original
	switch {
	case original.Direction != pix.In:
		return Refuse(kind, title, "Só se devolve o que foi recebido: este pagamento saiu deste participante.")
	case original.State != pix.Settled:
		return Refuse(kind, title, "O pagamento ainda não foi liquidado, ou foi rejeitado (estado "+string(original.State)+").")
	case r.clk.Now().Wall.Sub(original.SettledAt) > ReturnWindow:
		return Refuse(kind, title, "O prazo de "+strconv.Itoa(int(ReturnWindow/(24*time.Hour)))+" dias após a liquidação já passou.")
	}
	cash := o.OriginalTransfer.Purpose == iso20022.PurposeWithdrawal || o.OriginalTransfer.Purpose == iso20022.PurposeChange
	if o.Return.Reason.Code == iso20022.ReturnCash && !cash {
		return Refuse(kind, title, "A natureza não se aplica a este pagamento.",
			Violation{Field: "natureza", Reason: "RETIRADA é só para Pix Saque e Pix Troco"})
	}
	return nil
}
