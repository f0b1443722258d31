// Package icomtest is the bank: a simulator of BACEN's ICOM interface and the judge of
// what its clients did, in process, in the manner of net/http/httptest. The same bank
// serves unit tests, the demo, the benchmarks and the robustness harness; the command
// bacen-sim only gives it ports and flags.
//
// # The simulator
//
// Both channels over mutual TLS 1.2, a client's certificate naming its ISPB. It speaks
// HTTP/1.1 with its own loop rather than net/http, because the judge must see the first
// byte of a request and because a strict bank must see headers as they were sent. Reads
// wait, share one queue per channel and ISPB, and are confirmed by the next request of
// their stream; what is never confirmed comes again under the same PI-ResourceId.
// [Fault] rules delay, cut, refuse or malform answers, deterministically by seed.
//
// # The judge
//
// A request is in progress from the first byte that the bank read of it until the
// bank's own end, just before it writes the last piece of the answer. What the client
// does meanwhile changes nothing: a client that gives up during the hold and comes back
// on another connection has two requests in progress. Only a request that was never
// whole ends when its connection does. Every moment above the cap is a [Violation] that
// names the requests which overlapped.
//
// # Goroutines
//
// Serve runs an accept loop, a sweeper that returns abandoned deliveries to the queue,
// and two goroutines per connection: one reads (so that a byte is seen when it arrives,
// also during a hold), one answers. All of them end when Serve's context does, and Serve
// returns after they have.
package icomtest
