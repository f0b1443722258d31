// Package obligation writes what settled as obligations, on every replica at once.
//
// # Who is authoritative
//
// Postgres. The statement that settles a payment writes that its obligation is due; the transaction that writes the
// obligation, once per EndToEndId or RtrId, ends that. The bus carries identifiers, and the durable consumer that all
// replicas share gives each to one of them. One that is lost is announced again, one that comes twice finds what was
// written, one that says what the books do not is dropped and said.
//
// # Answers
//
//	written, now or before              acknowledged
//	no cycle is open for its time       later, a few times; then it is left to the next announcement
//	the database does not answer        later
//	not settled, not in the books,      dropped, logged as an error, counted
//	or not readable
//
// # Goroutines
//
// One pulls, Workers take: each takes what is there, up to Batch, and writes it in one transaction.
package obligation
