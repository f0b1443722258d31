// Package bus is Cabine's JetStream: streams, subjects and consumers as declared
// values, a publisher and a consumer loop. It is the only home of nats.go.
//
// # What the bus is for
//
// It carries; Postgres is the truth. JetStream may lose what it acknowledged (its
// default flushing, Jepsen on NATS 2.12.1), may deliver twice, and may be down. So a
// publication that fails is the caller's to repeat, a message that was acknowledged is
// not done until its consumer's own transaction says so, and consumers are idempotent.
//
//   - Streams and consumers are created by a deploy step (Provision). Services look them
//     up (Bind) and create nothing: fifty pods that start make no storm of creations, and
//     a store that was wiped is seen as ErrNotProvisioned, not papered over.
//   - Nothing is buffered while disconnected: a publish then fails at once
//     (ErrUnavailable), and what it carried is found again in the inbox or outbox.
//   - A message carries Nats-Msg-Id, unique per message and attempt: sent twice within
//     the duplicate window it is stored once, while a deliberate republication, a new
//     attempt, passes.
//   - A consumer holds only a few messages (Prefetch), says "in progress" while it works,
//     acknowledges after the effect, and hands a message over as poison after
//     MaxDeliveries. A Subscription leaves it to its reader how many deliveries to take
//     at a time and when each is answered; it bounds how many are not, and keeps them
//     alive.
//
// # Goroutines
//
// The connection has its own, ended by Close. Consume has one worker per message in
// hand, Subscription.Run one that keeps deliveries alive; all have returned when it does.
package bus
