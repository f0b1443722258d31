// Package leader runs a set of singletons on exactly one replica.
//
// # What is always true
//
//   - Children of two replicas never run at the same time: whoever loses the lease has
//     stopped its children before the key can be granted again, or ends its process and says so.
//   - A child knows its term, a number that Postgres minted for this election and for no
//     other. What a child writes carries the term, and the database refuses an older one.
//   - Leadership is not remembered. After a loss a replica is a follower like any other; what
//     the next leader needs to know stands in Postgres.
//
// # Identity and authority
//
// Two things make a leader, and they guard against different faults. The lease, a set of one
// in Redis (lease.Lead), keeps a second leader from starting; it depends on clocks. The term
// decides whose write counts; it depends on nothing but Postgres. Redis decides who may ask
// for a term, Postgres decides which term is the newest, and where they disagree, as after a
// Redis that lost its state, Postgres is right: a write of an old term fails.
//
// # States
//
//	            granted                 minted, still held
//	follower ------------> candidate ----------------------> leader
//	   ^  ^                    |                                |
//	   |  |   not minted       |                                | lease lost, deadline near,
//	   |  +--- release, pause -+                                | a child failed, told to stop
//	   |                                                        v
//	   +------- children returned: release (if still held) -- stopping
//	                                                            |
//	                                    a child does not return | in time
//	                                                            v
//	                                            ErrStuck: not released, the process ends
//
// # Times
//
// With the lease's own D = sent + T - eps - B and abort limit A = sent + T - eps, sent being
// the last confirmed renewal: children are cancelled when D has passed without a new
// confirmation, when trust ends, or when the lease is lost, whichever is first. They must have
// returned by A. B, the bank's hold, is thus also what children get to stop; the key itself
// lives until after A. Where the lease is still held (a child failed, the service stops)
// renewals go on and children get StopBudget.
//
// # Failures
//
//   - Redis unreachable: no renewal is confirmed, D passes, children are stopped, everybody
//     is a follower. Logged as an error. Nobody leads until Redis answers.
//   - Redis lost state: the leader keeps its lease by the grace rule of package lease; if it
//     cannot, it is lost, and nobody else gets it before the quarantine is over.
//   - Postgres unreachable: no term, so no leader. The lease is given back after each try, so that a
//     replica that does reach Postgres may lead.
//   - The leader is killed: its key ends after T, another replica is granted it.
//   - The leader is paused for longer than the lease: on waking it finds D passed and stops
//     its children, which get a second. Another leads already, so for that moment the first rule
//     holds by the term alone: whatever one of them writes is refused.
//   - A child fails or returns: all children are stopped, the lease is released, and this
//     replica pauses before it competes again, so that another may try.
//   - A child does not return: the lease is not released, Run returns ErrStuck, and the
//     process must end. The key ends by itself.
//
// # Goroutines
//
// Run's own, one per child, and one that waits for them. While has one that hears of the end.
package leader
