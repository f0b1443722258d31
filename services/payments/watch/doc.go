// Package watch sees to it that no payment is forgotten: what does not reach a final state is
// counted, asked about, and an alarm.
//
// # What it does, at every turn
//
//	count     payments in each state that is not final and the age of the oldest; what waits in the
//	          outbox. The alerts of infra/alerts look at these numbers.
//	ask       the SPI about payments that are sent, unknown or accepted and have not moved for
//	          EnquireAfter: a camt.060, answered by a camt.054 (package inbound). Asked again after
//	          the same time, then twice as long each time, up to EnquireMost, for ever.
//
// A payment that is merely created was not sent: asking would tell nothing. It is counted,
// and its alarm is about the sender.
//
// # Who does it
//
// Every replica, without a leader. Rows that one asks about are skipped by the others in the
// same moment; an enquiry too many changes nothing. The gauges are the same everywhere: take
// their maximum over replicas, not their sum.
package watch
