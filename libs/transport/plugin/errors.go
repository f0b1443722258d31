package plugin

import (
	"errors"
	"strings"
	"time"
	"unicode"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/transport"
	transportv1 "github.com/cabine-pix/cabine/libs/transport/plugin/pb/cabine/transport/v1"
)

// maxTextBytes bounds each text of an error, which may quote what the bank sent.
const maxTextBytes = 512

// clean makes a text fit for a log line: bounded, valid, printable.
func clean(s string) string {
	if len(s) > maxTextBytes {
		s = s[:maxTextBytes]
	}
	return strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

func kindToWire(k transport.Kind) transportv1.Kind {
	switch k {
	case transport.NotSent:
		return transportv1.Kind_KIND_NOT_SENT
	case transport.Rejected:
		return transportv1.Kind_KIND_REJECTED
	case transport.Throttled:
		return transportv1.Kind_KIND_THROTTLED
	case transport.Gone:
		return transportv1.Kind_KIND_GONE
	case transport.Unavailable:
		return transportv1.Kind_KIND_UNAVAILABLE
	case transport.Malformed:
		return transportv1.Kind_KIND_MALFORMED
	case transport.OutcomeUnknown, transport.PluginGone: // a plugin cannot know the latter
	}
	return transportv1.Kind_KIND_OUTCOME_UNKNOWN
}

func kindFromWire(k transportv1.Kind) transport.Kind {
	switch k {
	case transportv1.Kind_KIND_NOT_SENT:
		return transport.NotSent
	case transportv1.Kind_KIND_REJECTED:
		return transport.Rejected
	case transportv1.Kind_KIND_THROTTLED:
		return transport.Throttled
	case transportv1.Kind_KIND_GONE:
		return transport.Gone
	case transportv1.Kind_KIND_UNAVAILABLE:
		return transport.Unavailable
	case transportv1.Kind_KIND_MALFORMED:
		return transport.Malformed
	case transportv1.Kind_KIND_OUTCOME_UNKNOWN, transportv1.Kind_KIND_UNSPECIFIED:
	}
	return transport.OutcomeUnknown // also for a kind of a later version
}

// errorToWire turns a transport's error into a status whose detail is the whole error.
// An error of another type says nothing of the wire and crosses as an unknown outcome.
func errorToWire(err error) error {
	if err == nil {
		return nil
	}
	e := &transport.Error{Kind: transport.OutcomeUnknown, Reason: err.Error()}
	errors.As(err, &e)
	st, detailErr := status.New(codes.Aborted, "transport").WithDetails(&transportv1.Error{
		Kind:            kindToWire(e.Kind),
		Exchange:        exchangeToWire(e.Exchange),
		Status:          int32(min(max(e.Status, 0), 999)),
		ProblemType:     clean(e.ProblemType),
		Title:           clean(e.Title),
		RetryAfterNanos: int64(e.RetryAfter),
		Reason:          clean(e.Reason),
	})
	if detailErr != nil {
		return status.Error(codes.Internal, detailErr.Error())
	}
	return st.Err()
}

// errorFromWire is the way back. A failure without exactly one detail did not come
// from the transport: the process is gone, does not answer, or answers something that
// cannot be taken.
func errorFromWire(err error) *transport.Error {
	st := status.Convert(err)
	if details := st.Details(); len(details) == 1 {
		if d, ok := details[0].(*transportv1.Error); ok {
			return &transport.Error{
				Kind:        kindFromWire(d.GetKind()),
				Exchange:    exchangeFromWire(d.GetExchange()),
				Status:      int(d.GetStatus()),
				ProblemType: clean(d.GetProblemType()),
				Title:       clean(d.GetTitle()),
				RetryAfter:  max(0, time.Duration(d.GetRetryAfterNanos())),
				Reason:      clean(d.GetReason()),
			}
		}
	}
	kind := transport.OutcomeUnknown
	switch st.Code() {
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
		kind = transport.PluginGone
	}
	return &transport.Error{Kind: kind, Reason: clean(st.Code().String() + ": " + st.Message())}
}

// answered reports that a kind can only come from a complete answer of the bank.
func answered(k transport.Kind) bool {
	switch k {
	case transport.Rejected, transport.Throttled, transport.Gone, transport.Unavailable, transport.Malformed:
		return true
	case transport.NotSent, transport.OutcomeUnknown, transport.PluginGone:
	}
	return false
}

// doubt checks the exchange of an answer against what can be: a first byte between
// the start of the call and now, an answer that was read where one is reported. It
// returns nil when there is nothing to doubt, and otherwise what the answer has to be
// taken for: an unknown outcome, bounded by the start deadline.
func doubt(kind transport.Kind, x transport.Exchange, began, now clock.Instant) *transport.Error {
	unknown := func(reason string) *transport.Error {
		return &transport.Error{Kind: transport.OutcomeUnknown, Reason: "transport process: " + reason}
	}
	switch {
	case !x.FirstByte.IsZero() && (x.FirstByte < began || x.FirstByte > now):
		return unknown("the first byte lies outside the call")
	case x.FirstByte.IsZero() && x.Complete:
		return unknown("a complete answer to nothing")
	case kind == transport.NotSent && !x.FirstByte.IsZero():
		return unknown("not sent, and yet a first byte")
	case (kind == "" || answered(kind)) && !x.Complete:
		return unknown("an answer that was not read to its end")
	}
	return nil
}
