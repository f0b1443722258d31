package outbound

import (
	"errors"
	"net/http"
	"path"
	"strings"
	"unicode"

	"github.com/cabine-pix/cabine/libs/icom"
	"github.com/cabine-pix/cabine/libs/transport"
)

// verdict is what the ending of a POST means for its messages.
type verdict string

const (
	// stored: the bank has them.
	stored verdict = "sent"
	// unwritten: nothing reached the bank.
	unwritten verdict = "not_sent"
	// throttled: the bank stored nothing and asks for a pause.
	throttled verdict = "throttled"
	// slow: the bank stored nothing because the request took too long to arrive.
	slow verdict = "slow"
	// barred: the bank stored nothing, because of how it was asked.
	barred verdict = "barred"
	// declined: the bank stored nothing, because of what it was given.
	declined verdict = "refused"
	// unknown: the bank may or may not have stored them.
	unknown verdict = "unknown"
)

// verdicts lists all.
func verdicts() []verdict {
	return []verdict{stored, unwritten, throttled, slow, barred, declined, unknown}
}

// judge decides. Only a complete answer that says so, or the certainty that nothing was written, is not unknown.
func judge(err error) verdict {
	var e *transport.Error
	switch {
	case err == nil:
		return stored
	case !errors.As(err, &e):
		return unknown
	}
	switch e.Kind {
	case transport.NotSent:
		return unwritten
	case transport.Throttled:
		return throttled
	case transport.Rejected, transport.Gone:
		return judgeRefusal(e)
	case transport.Malformed:
		if e.Status == http.StatusCreated {
			return stored // it says so; only the identifiers are missing
		}
	case transport.Unavailable, transport.OutcomeUnknown, transport.PluginGone:
	}
	return unknown
}

// judgeRefusal tells a fault of the messages from one of the asking. The ICOM looks at neither
// syntax nor signature of what is posted, so most of its refusals are about the asking. It says why in a problem document;
// a 400 without one is of something on the way, which does not accept our certificate or our headers.
func judgeRefusal(e *transport.Error) verdict {
	switch e.Status {
	case http.StatusRequestTimeout:
		return slow
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed,
		http.StatusNotAcceptable, http.StatusGone, http.StatusLengthRequired, http.StatusUnsupportedMediaType,
		http.StatusProxyAuthRequired, http.StatusMisdirectedRequest, http.StatusUpgradeRequired,
		http.StatusRequestHeaderFieldsTooLarge: // of something on the way
		return barred
	}
	switch path.Base(e.ProblemType) {
	case icom.ProblemInvalidHeader, icom.ProblemCharset, icom.ProblemForbidden:
		return barred
	}
	if e.Status == http.StatusBadRequest && (e.ProblemType == "" || e.ProblemType == noType) {
		return barred
	}
	return declined
}

// noType is the type of a problem document that says no more than the status (RFC 7807).
const noType = "about:blank"

// maxReason bounds what is noted about an ending, in bytes.
const maxReason = 300

// reason is what is noted about an ending: never the bank's own words beyond its title, and nothing that the store
// would refuse the outcome for.
func reason(err error) string {
	var e *transport.Error
	if !errors.As(err, &e) {
		return string(transport.OutcomeUnknown)
	}
	text := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, e.Error())
	return strings.ToValidUTF8(text[:min(len(text), maxReason)], "")
}
