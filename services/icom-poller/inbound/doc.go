// Package inbound receives messages from the bank and hands them on: the rules of the
// poller, without sockets, SQL or wiring.
//
// # Who is who
//
// A stream at the bank belongs to a numbered slot of a channel and ISPB. Who holds the
// slot's lease reads the stream. The stream's cursor and a term stand in Postgres: the
// cursor says where the reading goes on, the term who may move it. Each new owner takes a
// higher term, so that an owner who does not know yet that he lost the slot cannot move
// the cursor. The lease guards the bank, the term guards the cursor, and neither trusts
// the other.
//
// # The laws this package keeps
//
//   - Durable before ack: asking with a cursor acknowledges what was delivered before it.
//     The next Pull, and a DELETE, are made only after the transaction that stored the
//     last batch and moved the cursor was committed.
//   - Once: a message is stored under its resource id; a repeated delivery adds nothing.
//   - Nothing silent: a message that cannot be taken, for a fault of its own or because its
//     identifier was taken by other content, goes to the dead letters with its reason in the
//     same transaction that moves the cursor past it.
//
// # A stint
//
// A worker's time with one slot is a stint:
//
//	wait until transport and store are ready
//	  -> Acquire -> OpenSession (term, cursor)
//	  -> { Pull -> examine -> Receive -> hand fresh rows to the publisher }
//	  -> stop or yield: DELETE the stream if the last read is stored, CloseSession
//	  -> Give: released, cooled or lost
//
// What ends or delays the loop:
//
//	204                  next poll at once, at the earliest 200 ms after the last began
//	404, 410             cursor reset, new stream
//	429                  wait as long as the bank says; the slot is kept: the stream is ours
//	answer not readable  the same cursor again, with back-off; after some attempts alarm and a new stream
//	other errors         back-off, exponential with jitter up to 30 s; after three the slot goes to somebody else
//	outcome unknown      the slot is given back (it cools down), another one is taken
//	store away           no Pull, hence no ack; the slot is kept a few seconds, then given back,
//	                     and nothing is taken before the store answers again
//	term is stale        somebody else reads the stream: leave at once, touch nothing
//
// # The publisher
//
// Publishing stands beside the loop and never holds it up. Each stream has a short queue of
// fresh rows in memory. When it overflows its rows are dropped, they are in the table
// anyway, and the stream has a gap: before anything younger, what the table holds is
// published, in order. The table is told of many publications at once, and always before it
// is read for what is not published. The same reading of the table every 30 s republishes what a dead
// replica left, and a sweep every minute sends again what was published and is not done, less
// and less often and for ever. Only a fault of a message itself buries it: its consumer's
// verdict, or the bus that can never take it.
//
// # Goroutines
//
// Poller.Run owns all of them: per channel a gate, a watch and N workers, and one publisher.
// Workers stop taking at StopTaking and are cut at Abort; the rest ends with Run's context.
package inbound
