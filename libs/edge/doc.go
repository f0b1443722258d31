// Package edge is what stands between the network and an HTTP handler: who asks, how often, how much, for how long,
// under which name it is logged, and how a refusal looks (RFC 7807).
//
// A server puts the pieces around its handlers in this order, outermost first:
//
//	Correlate      every request has an identifier, which the answer, the log and every problem carry
//	Observe        one log record and one measurement per request: route, status, duration; never path, query or body
//	Recover        a panic becomes a 500
//	Limit          of the body and of the time
//	Tokens.Identify  the name behind a bearer token, when it is valid
//	Throttle       by that name, or by address for whoever has none
//	RequireClient  401 without a name
//	Once           the effect of a request and its answer are kept together, by X-Idempotency-Key
//
// Identification stands before the throttle, so that two clients behind one address do not starve each other and
// whoever guesses tokens is counted by address. What is counted is counted in this process: n replicas allow n times
// as much.
//
// The package starts no goroutine.
package edge

import "net/http"

// Middleware puts something around a handler.
type Middleware func(http.Handler) http.Handler

// Chain puts all middleware around h, the first outermost.
func Chain(h http.Handler, all ...Middleware) http.Handler {
	for i := len(all) - 1; i >= 0; i-- {
		h = all[i](h)
	}
	return h
}
