package transport

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/cabine-pix/cabine/libs/clock"
)

// Kind is what a caller branches on. It is an error, so that errors.Is(err, Gone) works.
type Kind string

// The kinds of failure.
const (
	// NotSent: nothing of the request was written and nothing will be. The start
	// deadline had passed, the connection could not be made, the request was
	// malformed, or another call for the slot was under way.
	NotSent Kind = "not sent"
	// Rejected: the bank refused (4xx) and stored nothing. Repeating it unchanged is useless.
	Rejected Kind = "rejected"
	// Throttled: 429. RetryAfter says how long to wait, zero if the bank did not say.
	Throttled Kind = "throttled"
	// Gone: the stream or path does not exist any more (404, 410). Open a new stream.
	Gone Kind = "gone"
	// Unavailable: a complete 5xx answer. On a send the messages may or may not be stored.
	Unavailable Kind = "unavailable"
	// OutcomeUnknown: a first byte was written and no complete, understood answer came
	// back. With a zero Exchange nobody knows when, and the start deadline is the bound.
	OutcomeUnknown Kind = "outcome unknown"
	// Malformed: the answer was read to its end but breaks the protocol or a limit
	// (multipart without boundary, wrong charset, gzip bomb, no cursor).
	Malformed Kind = "malformed answer"
	// PluginGone: the transport's process died, was replaced, or does not answer. See Error.LastWrite.
	PluginGone Kind = "transport process gone"
)

// Error implements error.
func (k Kind) Error() string { return "transport: " + string(k) }

// Error is the only error type of this contract. It crosses the process boundary whole.
type Error struct {
	Kind     Kind
	Exchange Exchange
	// LastWrite is the last instant at which a first byte may have been written,
	// where Exchange cannot know: for PluginGone the instant at which the process
	// was reaped. Zero: not known, the start deadline of the call is the bound.
	LastWrite clock.Instant
	// Status is the HTTP status, 0 if there was none.
	Status int
	// ProblemType and Title come from the bank's problem document (RFC 7807).
	ProblemType, Title string
	// RetryAfter as the bank asked.
	RetryAfter time.Duration
	// Reason says what went wrong, without secrets or payloads.
	Reason string
}

// Error implements error.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Kind.Error())
	if e.Status != 0 {
		fmt.Fprintf(&b, ": status %d", e.Status)
	}
	if e.Title != "" {
		fmt.Fprintf(&b, " (%s)", e.Title)
	}
	if e.ProblemType != "" {
		fmt.Fprintf(&b, " [%s]", e.ProblemType)
	}
	if e.Reason != "" {
		b.WriteString(": " + e.Reason)
	}
	return b.String()
}

// Is makes errors.Is(err, transport.Gone) work.
func (e *Error) Is(target error) bool {
	k, ok := target.(Kind)
	return ok && k == e.Kind
}

// LastFirstByte returns the s+ of DESIGN 3, the last instant at which a first byte of
// the call was or may still be written, given the call's error and its start
// deadline. ok is false when the bank certainly has nothing in progress.
func LastFirstByte(err error, notAfter clock.Deadline) (at clock.Instant, ok bool) {
	if err == nil {
		return 0, false
	}
	var e *Error
	if !errors.As(err, &e) {
		return notAfter.Boot, true
	}
	if e.Kind == PluginGone {
		if e.LastWrite.IsZero() {
			return notAfter.Boot, true
		}
		return e.LastWrite, true
	}
	if e.Kind == OutcomeUnknown && e.Exchange.FirstByte.IsZero() && !e.Exchange.Complete {
		// It contradicts itself: an unknown outcome without a first byte. Not knowing when is the cautious reading.
		return notAfter.Boot, true
	}
	if e.Exchange.Settled() {
		return 0, false
	}
	return e.Exchange.FirstByte, true
}

// LogAttr puts the fields of a transport's error beside each other for a log; any other error is itself.
func LogAttr(err error) slog.Attr {
	var e *Error
	if !errors.As(err, &e) {
		return slog.Any("error", err)
	}
	return slog.Group("error",
		slog.String("kind", string(e.Kind)), slog.Int("status", e.Status),
		slog.String("title", e.Title), slog.String("type", e.ProblemType), slog.String("reason", e.Reason))
}
