// Package outbound sends what the outbox holds to the bank: the rules of the sender,
// without sockets, SQL or wiring.
//
// # From a row to the bank
//
//	delivery --> waiting --> message (built) --> ready --> POST --> recorded
//	 of an id     in hand     signed, stored                under a     sent, unknown
//	                                                        permit      or refused
//
// A delivery carries the id of one outbox row, an operation. One goroutine per channel
// takes what is waiting, groups it, signs it and stores the messages with the rows that
// they carry, in one transaction; only then is the delivery acknowledged. From there
// the message's row drives everything: its bytes never change, and every resend is of
// these very bytes. A delivery whose row is done, or is carried by a message already, is
// acknowledged at once.
//
// # The laws this package keeps
//
//   - Cap: a POST is made through a slot of class "send" only. A slot is held while there
//     is work, and given back after IdleAfter without any, when it is asked for, or after
//     a POST that did not settle.
//   - Once: before its bytes go out an attempt is counted in the store, by compare-and-set.
//     Of two senders that hold the same message one finds the count changed and drops it.
//     A row is in one message at most, whoever delivers it.
//   - Three outcomes, see below. Unknown never gets a second identifier.
//   - Nothing silent: what is not resolved stands in a gauge that an alarm watches.
//
// # Batches
//
// Nobody waits for a batch to fill. A lone operation becomes a message at once, and while
// it is signed a permit is fetched for it. When a permit becomes free whatever is ready
// goes, up to ten messages. While POSTs are in flight at most Ahead messages are prepared
// for each worker, so that no permit waits for a signature; what comes beyond that gathers, and
// is grouped: up to Groups operations of one kind in a message. So groups form under load
// and nowhere else.
//
// # Outcomes of a POST
//
// Attempts of a message counts the POSTs that may have stored it: it is counted up before
// the bytes go out and down again when it is certain that nothing was stored. The first is
// counted in the transaction that stores the message, if it is to go out at once; one that
// still waits after half of LostAfter is counted down.
//
//	201                        sent, with the bank's PI-ResourceIds
//	nothing was written        counted down; the same message again
//	429                        counted down; the whole channel waits as long as the bank says, at most ThrottleMost
//	408                        counted down; again after a back-off
//	401, 403 to 407, 411, 415, counted down; the channel halts: it is about how we ask, not about
//	421, 426, 431, and 400     what. See below.
//	about headers or charset,
//	or without a problem document
//	other 4xx                  counted down; a batch is taken apart and each message goes alone;
//	                           a message that is refused alone is refused: never repeated, its
//	                           payments are rejected, as nothing was stored
//	5xx, timeout, connection   unknown: the payments are unknown, the message goes again
//	cut, transport died        after ResendFirst, twice as long each time up to ResendMost,
//	                           at most Attempts times in all
//
// An unknown message is sent no more once pacs.002 made all its payments final; it is
// closed then. After Attempts times it is spent, and never sent again: once no copy may go
// out any more, what the SPI says of the order when it is asked is the end of it. Sending it more
// and more rarely instead would leave the customer without an end for as long, and beyond
// the 24 hours for which the SPI knows an order by its identifier (a return has no time of
// its own that would make it too late) a copy could be a second order.
//
// # Halting
//
// A certificate that expired, a proxy that adds a header or a wrong path would, one by
// one, reject every payment of the day. So answers of that kind reject nothing: the
// messages stay built and are released to other replicas at once, deliveries go back to
// the bus, readiness says why, and after a pause that grows a single message tries
// whether the bank still refuses. The same happens after RefusalsInARow messages were
// refused one after the other without one that was accepted: then it is not the messages.
// While the channel is halted no refusal is one of a message: the next try is another
// message's, and once the bank accepts one, what was really refused is refused alone again.
//
// # A sender that dies
//
//	before the message was stored     the delivery comes again after AckWait
//	stored, attempts 0                certainly not sent; another replica sends it after LostAfter
//	                                  (at once if the sender stopped in order)
//	stored, attempts > 0, no outcome  may have been sent: after LostAfter it counts as
//	                                  unknown, and the same bytes go again
//
// LostAfter is longer than a POST and its recording may take. If it is too short
// after all the same bytes go out twice, which the SPI recognises by the EndToEndId.
//
// # Goroutines
//
// Sender.Run owns all of them: a watch for the gauges, and per channel the intake from the
// bus, a guard that asks whether the transport is ready, a maker of messages, a sweeper
// for resends, and the workers, each with at most one slot; each POST's outcome is recorded
// beside the next POST. StopTaking ends the intake; what is stored is still sent. Abort
// cuts what is in flight; the rest ends with Run's context. The channels share nothing, so
// that one which waits for the bank holds the other up in nothing.
package outbound
