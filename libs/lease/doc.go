// Package lease holds the permits of Cabine: numbered, fenced leases in Redis. A
// connection semaphore is a set of N slots, a leader a set of one.
//
// # What is always true
//
//   - Cap: of one set, at most N slots have an owner or cool down at any instant, and
//     a slot's key outlives every request that was started under it, at the bank,
//     whatever happens to its owner (killed, paused, cut off).
//   - Redis decides each grant. If it cannot decide, or anything about its answer is
//     unexpected, there is no grant.
//   - Nobody acts on a grant by his own clock for longer than Redis keeps the key.
//
// # Identity and authority
//
// A grant is a fresh random token. It stands in the slot's key (with the class, the
// replica and a readable owner) and every script compares the whole value before it
// changes anything. A token is sent in exactly one acquire; once it was released, undone
// or lost it is never sent again. Redis' clock alone ends a key; no client's time enters
// a script. The replica's clock only says when to stop trusting, earlier.
//
// All keys of a set share one hash tag:
//
//	sem:icom:{cpm:12345678}:1 .. :N   token class replica owner, with PX
//	sem:icom:{cpm:12345678}:state     hash, see below
//	sem:icom:{cpm:12345678}:waiting   who waits: "class replica", scored with an end, PX
//
// The state hash holds the incarnation of the server (master_replid, which a master makes
// anew at every start and every promotion; replicas decide nothing), quarantine_until, the config record (schema, N, T, B, T_longest) with config_until, and
// per slot until (server time up to which it was granted) and class (who had it last). A
// slot is free only if its key is absent and its until is past: one lost key is harmless.
//
// # States of a slot
//
//	         acquire                         release
//	 free ------------> held (token, T) ------------------> free
//	  ^                  |  |  ^                             ^
//	  |    T passes      |  |  | renew                       |
//	  +------------------+  |  +--- by its owner             |
//	  |                     | cool down                      |
//	  |                     v                                |
//	  +-------------- cooling (s+ + B + eps passes) ---------+
//
//	any --(incarnation absent or changed)--> quarantine Q: no grants; a holder may renew,
//	and put back, its own slot (grace)
//
// # Times
//
// T is the lease, B the bank hold, h the heartbeat, eps = 2 % T + 50 ms the slack for
// two clocks, L the lag for which a primary that was cut off may go on taking writes.
// sent is the reading taken just before the last confirmed acquire or renewal was sent.
//
//	D = sent + T - eps - B    start deadline: the first byte of a request is written only before it
//	sent + T - eps - L        trust: a renewal's answer counts only before it; afterwards the lease is dead
//	sent + T - eps            abort: whatever was started is over
//	s+ + B + eps              cool-down, s+ the last instant at which a first byte was or may be written
//	Q = T_longest + eps + L   quarantine after state was lost
//
// A request started before D is over at the bank by D + B = sent + T - eps, and the key
// lives until sent + T by a clock that may run faster than ours by eps. That is the Cap.
//
// # Failures
//
//   - Redis unreachable, read-only, loading, out of memory, too few replicas: no grant,
//     no renewal. Holders work on until D, then stop; their keys end after T.
//   - Redis lost state (flushed, restarted, promoted, promoted back): its incarnation
//     changed or is gone. The first script to notice opens the quarantine. Holders keep
//     their slots by renewing; nobody else is granted anything until every lease that
//     the lost state may have held is over.
//   - A reply is lost: an acquire is undone by its token, on a context of its own; if
//     the undo is lost too, the key ends after T. A renewal that was executed but not
//     answered only lengthens the key. A lost cool-down: the key ends after T.
//   - A release is not waited for, see "Giving back". Redis does not hear of it: the key ends
//     after T; it is counted and logged.
//   - The owner is killed or paused: its key lives until T, longer than its last request.
//     On waking it finds D passed, wherever it looks.
//   - Another version with other numbers starts: refused with both records named, until
//     T_longest after the last renewal of the old one.
//   - Redis' clock steps back: what it stored is cut to T_longest (Q) from now. Forward:
//     see the limits.
//
// # Giving back
//
// Release ends the lease in this process and returns: nothing that Redis could answer would
// change what anybody may do. The news goes out
//
//   - with the next acquire of this process for the set, in the same script and before
//     anything is asked for, tried first with the slot that was given back;
//   - at once, alone, if the lease was asked to yield: somebody waits;
//   - otherwise alone, 5 ms later;
//   - at the latest when Keeper.Run ends, which waits for Redis to answer.
//
// What holds: an acquire never overtakes a release of its own process, for both stand in one
// line per set until Redis has answered for what was given back. If it does not answer, the undo of
// the acquire says it again. The script compares the whole value, so news that come late,
// or twice, free nothing that somebody else holds. A cool-down is waited for: it has a
// length, which begins to count at its caller's.
//
// # Classes, floors, shares
//
// A class (poll, send) has a floor of slots of its own; the rest is shared. Waiting is a
// mark in Redis that lives two seconds. While another class waits, the class that had a
// shared slot last does not take it again, and a holder of one gives it back after it
// served a request. While another replica of its own class waits, a replica takes no more than
// ceil(slots of the class / replicas of the class) and gives back what is above.
//
// # Limits
//
// No protocol on our side closes the pause between the last look at the clock and
// the system call that writes; only headroom (N below the bank's limit) or the bank
// does. A Redis whose clock jumps forward ends keys early: slew its clock. A split brain
// needs min-replicas-to-write so large that only one side can have it. A machine whose
// clocks all stop (live migration) wakes with a lease that looks fresh. Deleting the
// hash and a slot key together is not seen.
//
// # Goroutines
//
// Keeper.Run starts three and ends them when its context ends: the heartbeat, the watch
// that ends trust, and the listener for hints. Undos and releases that no acquire takes along run
// beside them; Run waits for these.
package lease
