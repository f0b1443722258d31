// Package transport is the contract between Cabine and whatever carries its
// requests to the bank: BACEN's ICOM directly, or an HTTP provider. A transport is
// swappable and usually lives in a process of its own (package transport/plugin).
//
// # The laws of the contract
//
//   - One call of Pull, Send or CloseStream is at most one request at the bank. A
//     transport never repeats a request by itself, never opens a second connection
//     for a slot while another may still carry a request, and starts nothing
//     without a call.
//   - The host owns the permits. Each call carries a Permit whose NotAfter is the
//     start deadline D of the lease: the first byte of the request is written only
//     while now < D, checked in the connection's Write. Past it the call ends with
//     NotSent.
//   - Every ending says what happened on the wire (Exchange): whether and when a
//     first byte was written, and whether the response was read to its end. Only
//     "nothing was written" and "read to the end" prove that the bank is done with
//     us; after any other ending the slot must cool down.
//   - A send ends accepted, rejected or unknown. Unknown is never turned into a
//     second identifier; it is resolved by asking.
//
// # Errors
//
// Every error that a Transport returns is, or wraps, an *Error. Its Kind is what
// callers branch on; errors.Is(err, transport.Gone) works because a Kind is itself
// an error. Anything else that reaches a caller (a cancelled context of the host's
// own) counts as OutcomeUnknown with an unknown Exchange.
package transport
