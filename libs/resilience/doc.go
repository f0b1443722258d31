// Package resilience protects the caller of something that may be slow, wrong or dead: one
// named policy per thing called, timeout > circuit breaker > retry with jitter. It is the
// only home of failsafe-go.
//
//	Do --> timeout: all attempts together
//	        --> circuit breaker: one call, whatever its attempts, is one success or failure
//	             --> retry: bounded, growing pauses with jitter
//	                  --> attempt timeout --> fn
//
// # What counts
//
//   - An error of fn is tried again, unless it is marked Permanent, until the attempts or
//     the time are used up. fn must therefore be idempotent.
//   - A call that failed in the end is one failure of the breaker, a Permanent error
//     included. When the share of failures is reached, calls are refused with ErrOpen for
//     OpenFor; then a few probes decide.
//   - A caller who gives up (context.Canceled) says nothing about what it called: neither
//     success nor failure, and no further attempt.
//
// # Time
//
// failsafe-go counts on Go's monotonic clock. A wall clock that is wrong changes nothing here.
package resilience
