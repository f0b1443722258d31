// Package decision asks the participant's core whether an incoming payment may be credited,
// and decides itself when the core is silent. The wire is package corebank's.
//
// # Who is authoritative
//
// The core, for its clients and their accounts: what it answers is passed on as it is. This
// package, for silence: after Timeout, behind an open breaker, or when an answer is not what
// the contract says, WhenSilent decides, reject with AB09 by default. It never leaves a
// question open: a Verdict says who decided, what and why, and is stored with the payment.
//
// # How a question ends
//
//	answer, valid                  the core's verdict                     outcome accepted, rejected
//	connection refused or cut,     asked again, within the time           then silence
//	5xx, 429, no answer in time
//	signature, JSON, payment,      wrong: not asked again, since the      silence
//	code or size not valid,        same answer would come
//	any other status
//	breaker open                   not asked                              silence
//	caller's context cancelled     no verdict at all: the caller stops,   an error
//	                               and the message comes again
//
// Every failed call counts for the breaker, a wrong answer included: a core that answers
// nonsense is not better than a dead one.
//
// # Time
//
// The question carries the instant by which an answer is of use, and the call ends then: the
// least of Timeout and what is left of the SPI's 40 s, which the caller works out.
//
// # Identity
//
// Both directions are signed (package corebank). TLS hides what they say; plain HTTP is
// refused unless it is allowed by name or stays on this machine. Redirects are not followed
// and no proxy is taken from the environment.
package decision
