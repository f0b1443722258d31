// Package store is Cabine's truth: the tables, and the statements that keep the laws
// which a database can keep. It is the only home of pgx, goose and sqlc.
//
// # The inbox
//
//	            Receive            MarkPublished            MarkDone
//	(the bank) ---------> received ------------> published ----------> done
//	     |                    |                   |     ^
//	     | poison             | Bury         Bury |     | Republished
//	     v                    v                   v     |
//	dead_letters <----------- dead <--------------+-----+
//
// A message is written once (inbox) and not touched again; a narrow row (inbox_open) says
// that it is not closed yet, and whether it was published. Measured with ten messages of
// 4 KB: marks on the message itself cost the server twice the work of these.
//
//   - Durable before ack. Receive stores a batch and moves the cursor of its slot in
//     one statement and one commit. Only after it returned may the next read go out,
//     which is what tells the bank to forget.
//   - Once. (message_id, source) is unique: what the bank delivers again, on whatever
//     slot, is not stored again and not returned again. Other content under an
//     identifier that is taken is not the same message: it is a dead letter.
//   - Who may move a cursor. A slot's row carries a term; OpenSession takes the slot
//     over by counting it up. Whoever holds an older term moves nothing and stores
//     nothing (ErrStaleTerm): a replica that was paused past its lease does no harm.
//   - Nothing silent. A message is closed in two ways only: done, said by its
//     consumer's own transaction, or dead, with a reason in dead_letters. Everything
//     else is open, is found by Unpublished or Stuck, and goes out again.
//
// # Payments
//
//	outgoing:   created ----> sent ----+---> settled
//	             |  |          ^       |
//	             |  +-> unknown +      +---> rejected
//	             |         |           |
//	             +---------+-----------+      (the SPI's answer may overtake everything)
//
//	incoming:   accepted ---> settled | rejected           rejected (from the beginning)
//
// A payment or return is one row, under the identifier of the SPI. Move is the only way
// from one state to another: a compare-and-set by pix.State.Next, of many at once, which
// writes one event for each.
//
//   - Booked once. The identifier is the key. Whoever comes second is told that it is not fresh.
//   - Final states are never left, and unknown never becomes created again.
//   - A return never exceeds its original. InsertReturn holds the original while it looks
//     at what is left of it; a return that is rejected gives its amount back.
//   - Explained. There is no move without an event, and the events of a payment form a chain.
//
// # The outbox, and messages to the SPI
//
//	  operation                         message
//
//	 Add          Build           Unknown             Sent
//	-----> waiting -------> built --------> unknown -------> sent
//	        |   ^             |                |               |
//	        |   |             +------+---------+---------------+
//	Discard |   |                    |                   |
//	        v   |    Split           v Refused, Split    v Tidy
//	    closed  +---------------- refused              closed (never what is sent)
//
// An operation (a row of outbox) is written with the effect that wants it said. It waits
// until a message carries it, and from then on stands as its message does (a row of
// outbound_messages), which is kept as signed: a resend is of these very bytes. The
// message of an order that is unknown and was sent as often as may be becomes spent (Tidy):
// it goes out no more. A late answer of the bank may still make it sent or refused.
//
//   - Carried by one message at most that lives. Build gives a message all of its
//     operations or none. Only Split takes them out again, and ends the message.
//   - Counted before it is sent. An attempt is counted before its bytes go out, so that
//     the count may be one too high and is never too low. What a later refusal or
//     duplicate proves depends on it (Refused, Sends).
//   - Nothing silent. What waits and was not published is found by Unpublished, what was
//     published and waits by Stuck, a message that is built or unknown by Due, and one that
//     is spent is counted (Doubts) until its orders have ended.
//
// # Obligations and cycles
//
//	Move to settled        Book                    Seal            Close
//	---------------> due ---------> in an open cycle ----> sealed --------> closed, with its lines
//
// What settles has an obligation due, by the statement that settles it. Book writes the
// obligation, once, into the first open cycle that ends after it settled, with the cycle it
// missed if it is late. Whoever books holds all cycles together with the others who do; who
// seals one holds them alone, for an instant, so that nothing is written into a cycle that is
// being netted.
//
//   - Netted once. A date and type have one cycle, windows do not overlap, and the lines of a
//     cycle are written with its end, in one transaction. To close it again is to compare.
//   - Who may change a cycle. Each change is a leader's, under a term (Reign): an older one is
//     refused at the latest when it would commit.
//
// # Events of the core
//
// A payment request that the core publishes has one row (core_events) with one verdict, written by the transaction that
// books its order, or by the one that makes it a dead letter. Decide writes it if there is none; the second of two
// transactions with one event waits for the first and finds it. An ID belongs to the bytes that it came with first.
//
// # The order of locks
//
// Messages, then operations, then payments, and each of these in the order of their keys.
// Every call takes its locks in one statement or in that order, so that none wait for
// each other in a circle. A transaction of several calls keeps to it by moving all its
// payments in one Move, and last.
//
// # When a call fails
//
// ErrUnavailable means that the database may or may not have done it. Every call may
// be repeated: Receive stores what is missing and moves the cursor again; messages that
// an earlier attempt had stored are not returned a second time and come back through
// Unpublished; Build answers what it would have answered; Insert says that it is not
// fresh; an attempt that was counted and not answered counts as sent. ErrStaleTerm is
// final for the session: open a new one, if the slot is still yours.
//
// # Time
//
// Only the database's clock is written and compared. Callers pass ages, never instants.
package store
