// Package inbound processes what the SPI sends: every message is verified, read strictly,
// and its effect is one transaction with the mark that it is done.
//
// # Who is who
//
// The SPI is authoritative for money: what it says settled is settled, what it says was
// rejected was not. The participant's core decides whether its client is credited (package
// decision). Postgres holds what both said, and is the only thing believed after a crash:
// the bus may deliver a message late, twice, at once to two replicas, or again after days.
//
// # A message
//
//	deliver -> look: is it open? what time has the database?      not open: acknowledge
//	           what is in the inbox? the bus only says which
//	        -> verify the signature, by the SPI's certificates
//	        -> parse; From is the SPI, To is us                    any of these no: dead letter
//	        -> ask whom must be asked, holding no connection
//	        -> ONE transaction { close the inbox row; effect; events; outbox rows } -> acknowledge
//	        -> offer the outbox rows to the announcer
//
// The row is closed first and by compare-and-set: of two deliveries at once the second
// waits there, finds it closed and rolls back. Until the commit nothing has happened; after
// it nothing can happen again. A crash between the core's answer and the commit asks the core
// again, whose answers are idempotent by EndToEndId.
//
// # What each message does
//
//	pacs.008   local rules, else the core; payment (in) accepted or rejected, answered by pacs.002
//	pacs.002   ACSC, ACCC: settled. RJCT: rejected, with the first reason
//	pacs.004   decided from our own books; return (in) accepted or rejected, answered by pacs.002
//	admi.002   a message of ours refused: orders in it rejected if it was sent once and alone; a
//	           group is taken apart and goes out singly
//	camt.054   the answer to an enquiry: BOOK settles, INFO rejects what is past its time, else it is noted
//	camt.053   balances, and camt.052, the name of a file of entries: noted with the reconciliation that asked
//	pibr.002   the echo came back
//	others     dead letters
//
// # Rules before the core is asked
//
// A payment is not asked about when the books have it already (its answer stands in the
// outbox: nothing is answered twice), when another participant is to be credited or the
// amount is zero (the SPI cannot have forwarded that: dead letter, no answer), and when its
// time is over: 40 s after AccptncDtTm for HIGH, 40 s after the SPI's sending for PAGFRD, 45
// min after AccptncDtTm for PAGAGD. Then the SPI has given up, or is about to, and the payment is
// refused with AB09. Not with AB03, which is the SPI's own word: should the SPI say AB03 as
// well, that agrees with the books. Time is the database's: one replica with a wrong clock
// refuses nobody.
//
// # States
//
//	out: created -> sent -> settled | rejected       in: accepted -> settled | rejected
//	            \-> unknown -/                           (rejected at once when refused here)
//
// A pacs.002 may come before our own 201 was recorded: created -> settled. Twice: the
// second finds what it says and changes nothing. Against a final state: the state stays, it
// is noted, the message is a dead letter and an alarm, and people compare. For an identifier
// that we do not know: dead letter, which may be a debit that we never sent.
//
// RJCT DUPL for an order whose message may have gone out more than once only says that an
// earlier copy arrived: no evidence of failure. It is noted and the SPI is asked (camt.060).
// The same holds for admi.002 to such a message. To one that went out once it is a contradiction if
// the payment is settled.
//
// RJCT with any other code ends an order however often it went out. The SPI knows orders by their
// identifier, whichever copy brings it: it would contradict itself if it rejected one that it
// settled, and DUPL alone speaks of the copy instead. That holds if the SPI looks for the identifier
// before it judges what changes with time: the age of the order (AB11) or of the identifier (FF08),
// the balance (AM04), who takes part (DS27). The simulated SPI does; what the real one does is not
// published and is to be tried in homologation, with the same pacs.008 again after its 40 s. If it
// judges the time first, these codes are to be read as DUPL is.
//
// A return that comes before the SPI told us that the original settled waits, by coming
// again, until it is known or the time is over.
//
// # Reconciliations
//
// The settlement-scheduler asks the SPI for files, balances and single entries, through the outbox. What answers is known by
// the MsgId of the question, and is noted with its reconciliation in the transaction that closes the message. A file or a
// balance that nobody asked for is counted and no dead letter.
//
// BOOK of a credit that we do not know, for which a reconciliation asked, books it: settled, incoming, with an event that says
// why, and its obligation due, once, also if its pacs.008 comes at the same time or later (which is then known, and not
// answered). The core was not asked about it, so a metric and an alarm say that somebody must see to the client. A return
// is booked against its original, or not at all. A debit that we do not know is never booked: it is a dead letter.
//
// # When something fails
//
//	signature, syntax, addressee, unknown type or id    dead letter with its reason, metric, alarm
//	signed by a certificate that we do not know, or     alarm; comes again, maybe to a replica that has it;
//	that is out of its time by our clock                after MaxDeliveries a dead letter
//	Postgres away, commit unknown                       not acknowledged: it comes again, however often
//	the core silent                                     decision.WhenSilent
//	a fault of ours, again and again                    counted with the message, after MaxDeliveries a dead letter
//	the bus away after the commit                       the announcer finds the rows in the table
package inbound
