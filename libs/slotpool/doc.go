// Package slotpool is the one door to the bank: every request passes a Slot, and a
// Slot is one granted lease plus one connection of the transport.
//
// # What it keeps
//
//   - Cap: a request is made only under a lease that Redis granted, and its first
//     byte is written only before the lease's start deadline D. The slot refuses a
//     call after D by itself and hands D to the transport, which checks it again in
//     the connection's Write.
//   - One request at a time per slot. A second call is refused, never queued.
//   - A slot is given back in one of three ways, and the slot decides which:
//     released (the bank has certainly nothing in progress), cooled (something may be
//     in progress) or lost (the lease was over; Redis is not asked with a dead token).
//
// # Life of a slot
//
//	           Acquire                     call, settled
//	(nothing) ---------> clean <--------------------------. (any number)
//	                       |  \___________________________/
//	                       | call, not settled
//	                       v
//	                    tainted (no further call)
//
//	clean   -- Give --> Disconnect, Release              "released"
//	tainted -- Give --> Disconnect, CoolDown(s+)         "cooled"
//	any     -- Give --> Disconnect, when the lease died  "lost"
//
// # A call
//
//  1. D is read from the lease. If it has passed, nothing is done: NotSent.
//
//  2. The transport is called with Permit{Slot, Grant, NotAfter: D}. A renewal that is
//     confirmed meanwhile moves the lease's D, never the D of a call under way.
//
//  3. The call's context ends at D + Timeout + Margin: the first byte may be written as
//     late as D, and the transport needs the whole Timeout after it. Config.Validate
//     demands Timeout + Margin <= B, so the call also ends before D + B, the abort limit
//     T - eps after the last confirmed renewal was sent. A lease lost in mid-call
//     therefore needs no action: the request was started in time, the key outlives it,
//     and the limit is already set.
//
//  4. The ending is judged by transport.LastFirstByte. "Read to the end" and "nothing was
//     written and nothing will be" leave the slot clean. Everything else taints it with
//     s+, the last instant at which the first byte was or may still be written: the
//     instant that the transport reported, the instant at which its process was reaped,
//     or D when nobody can say. The cool-down ends at s+ + B + eps, which the lease
//     computes (permit-model.md F1, F2).
//
//  5. Unless nothing was sent, the lease is told that it has served, after which it may be
//     asked to yield (permit-model.md F10).
//
// What is contradictory is read the safe way: an unknown outcome without a first byte, or
// a success that was not read to the end, counts as written at D.
//
// # Giving back
//
// Give works on a context of its own, detached from the caller's: a slot must be given back
// when the caller has been cancelled above all. It closes the connection first, because
// the bank counts open connections too. A failing Disconnect does not keep the slot: a
// transport writes nothing without a permit. Before a release it lets Linger pass since the
// last answer, for the bank counts a request down a moment after its last byte. If Redis
// cannot be reached the lease is not renewed any more and ends by itself.
//
// Goroutines: one per call, which ends with the call. Nothing runs between calls.
package slotpool
