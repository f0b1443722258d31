// Package cycle opens settlement cycles on the calendar and closes them, on one replica.
//
// # Cycles
//
// A cycle ends on a banking day at a time of São Paulo's wall clock, which configuration gives: one or several a day, each
// with its type. It begins where the one before it ends, so that every instant is in one cycle: what settles at night, on a
// weekend or on a holiday is in the first cycle that ends afterwards. If the clock jumps over two ends at once, the first
// of them has the cycle and the other none. For drills cycles may follow each other every few seconds instead, on all days.
//
// # States
//
//	         calendar                end + grace, nothing due from before it        netted, in one transaction
//	(none) ------------> open ----------------------------------------------> sealed ------------------------> closed
//	                                 or patience is over
//
//	open    takes the obligations of what settled in it
//	sealed  takes none any more: one that comes later falls into the next cycle and says so
//	closed  has its lines, which are never rewritten; to net it again is to compare
//
// The current cycle and the next are always open, so that what is late has somewhere to go. Each step is one transaction
// under the leader's term. A leader that dies between two steps, or in the middle of one, leaves what its successor goes on
// with: nothing is remembered outside Postgres, whose clock also says what time it is.
//
// # Failures
//
//   - The term is over: nothing was written, and the leadership ends (store.ErrStaleTerm).
//   - Postgres does not answer: logged, tried again.
//   - No leader for days: the next one opens what is missing in its order, and closes it as obligations allow.
//   - A closed cycle does not come to its lines any more, which is looked at when a leader begins and after each closing:
//     an error in the log with the cycle and the number of lines, and a metric with an alarm. Nothing is changed.
//   - Configuration changed: ends that are open stay as they are; the next cycle begins where the last one ends.
package cycle
