package bus

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/cabine-pix/cabine/libs/pix"
)

// PaymentRequest is an event of the participant's core: it asks for a payment.
type PaymentRequest struct {
	// ISPB is the participant whose payment it is.
	ISPB pix.ISPB
	// ID is the event's, unique for its core.
	ID string
	// Attempt is zero the first time and counts deliberate repetitions: each passes the duplicate window.
	Attempt int
	// Body is the event as JSON, its ID among the members.
	Body []byte
}

// PublishPaymentRequests is Publish for events of a core.
func (b *Bus) PublishPaymentRequests(ctx context.Context, events []PaymentRequest) Results {
	all := make([]Message, len(events))
	for i, e := range events {
		id := "core/" + e.ID
		if e.Attempt > 0 {
			id += "/" + strconv.Itoa(e.Attempt)
		}
		all[i] = Message{Subject: PaymentRequestSubject(e.ISPB), ID: id, Payload: e.Body}
	}
	return b.Publish(ctx, all)
}

// PaymentRequest reads the delivery as one of CORE_EVENTS. The ID and the Attempt are not part of it: what the body says
// is not judged here.
func (d Delivery) PaymentRequest() (PaymentRequest, error) {
	ispb, ok := strings.CutPrefix(d.Subject, "core.payment_request.")
	if !ok || ispb == "" || strings.Contains(ispb, ".") {
		return PaymentRequest{}, fmt.Errorf("subject %q: want core.payment_request.<ispb>", d.Subject)
	}
	return PaymentRequest{ISPB: pix.ISPB(ispb), Body: d.Payload}, nil
}

// CoreAnswer tells a core what became of its event.
type CoreAnswer struct {
	ISPB pix.ISPB
	// Accepted: the order is booked.
	Accepted bool
	// Name is the same for the same answer: within the duplicate window it is stored once.
	Name string
	Body []byte
}

// PublishCoreAnswers is Publish for answers to a core, on CORE_ANSWERS.
func (b *Bus) PublishCoreAnswers(ctx context.Context, answers []CoreAnswer) Results {
	all := make([]Message, len(answers))
	for i, a := range answers {
		all[i] = Message{Subject: CoreAnswerSubject(a.ISPB, a.Accepted), ID: "answer/" + a.Name, Payload: a.Body}
	}
	return b.Publish(ctx, all)
}
