// Package announce carries outbox rows to the bus, so that the sender hears of them at once
// and of none never.
//
// # Who is authoritative
//
// The outbox in Postgres. The bus only says "look": a message carries the row's id and
// type, the sender claims the row in the table, and a message too many is a look too many.
// A row is over when a message to the SPI carries it, which the sender's transaction says;
// that it was published says nothing.
//
// # How a row gets there
//
//	commit -> Announce -> memory -> publish -> mark      at once: the SPI's 40 s are running
//	committed, never published (crash, full memory,   found in the table after RepublishAge
//	a bus that is away)
//	published, and no message carries it              after StuckAge, then after twice as long
//	(the bus lost it, the sender is away)             each time, up to StuckMost, for ever
//
// Announce never waits and never fails: what does not fit into memory, or could not be
// published, is in the table. All replicas read the table; a row published by two of them
// in the same moment has one Nats-Msg-Id and is stored once. A deliberate repetition has
// its attempt in the id and passes the bus's window of duplicates.
//
// # Stopping
//
// Run ends with its context, after what is in memory was published or two seconds. Stop
// first who offers.
package announce
