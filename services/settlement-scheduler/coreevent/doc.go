// Package coreevent makes orders of the payment requests that the participant's core publishes instead of calling the
// HTTP interface. It runs on every replica, which share one consumer.
//
// # An event
//
//	core.payment_request.<ispb>     {"id": "...", and the members of POST /v1/pix}
//
// JSON as package order reads it, at most Config.MaxBody bytes: strict, so that a member that is not known refuses the
// event. The id, 1 to 64 letters, digits and hyphens, is the core's, and its idempotency key: it lives in a table of its
// own (core_events), so that no key of an HTTP client is ever the same. The same id is the same bytes; a core that
// publishes again repeats what it kept. docs/architecture/core-events.md has it for whoever writes the core's side.
//
// # Who is authoritative
//
// core_events. An event has one verdict, accepted or refused, for good: what comes again, an hour later or to another
// replica at once, gets the verdict that stands and is not judged again. JetStream carries, and may lose what it
// acknowledged; the core's own outbox is who knows that something was asked, and asks again under the same id until an
// answer comes.
//
//	deliver -> read and judge -> ONE transaction {
//	    the verdict (accepted); the order.Gate; payments row, its first event, outbox row (pacs.008)
//	} -> announce the operation, at best -> answer -> acknowledge
//
//	refused by the form, the Gate or the books -> nothing of it stays
//	                                           -> ONE transaction { the verdict (refused); dead letter } -> answer -> acknowledge
//
// An EndToEndId that the event does not give is minted with the verdict, so once. One that it gives is booked once,
// whether it came by HTTP or by event; who comes second is refused.
//
// # What happens on each failure
//
//	killed before the commit              the event comes again and is judged for the first time
//	killed after the commit               it comes again and finds its verdict; the answer is published (again)
//	the outbound bus does not take it     the announcer of payments finds the row in the outbox, in seconds
//	the answer is not taken               not acknowledged: it comes again and finds its verdict
//	the database does not answer          not acknowledged: it comes again, for as long as it takes
//	a fault of our own, a panic too       it comes again; counted with the event, and refused ("erro-interno") at the
//	                                      last of Config.MaxFailures: an outage is none of these
//	the same id with other bytes          refused ("evento-reutilizado"); the verdict about the first stands
//	an id that cannot be read             refused under the hash of its bytes, which the answer names
//
// # The answer
//
//	core.payment_accepted.<ispb>    {"id", "resumo", "endToEndId"}
//	core.payment_refused.<ispb>     {"id", "resumo", "tipo", "titulo", "detalhe", "violacoes": [{"campo", "razao"}]}
//
// resumo is the SHA-256 of the event that is answered, in hexadecimal. Answers may come twice, and in another order than
// the events. They hold nothing of what was asked but names.
//
// # Goroutines
//
// One pulls, Workers take: each takes what is there, up to Batch, decides one event after the other, each in its own
// transaction, and then announces, answers and acknowledges all of them.
package coreevent
