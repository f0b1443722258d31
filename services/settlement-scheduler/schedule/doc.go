// Package schedule does what is due by age, on one replica: it forgets what is old and gives up orders that nobody sent.
//
//	answers kept under idempotency keys     after Keys, 48 h; a client repeats an order within minutes
//	dead letters                            after DeadLetters, a year; somebody was told when they were buried
//	orders and returns that were created    after Orders, 15 min: rejected, with the reason "expired"
//	and that no message ever carried
//
// An order is given up only while nothing of it was ever on the wire: it stands as created, and no message carries it or
// carried it with an outcome that is unknown. Whoever builds a message with it at that moment holds its row and wins. The
// SPI would refuse it anyway, which counts 40 s from the acceptance that the order states; what matters is that the client
// hears an end, and that an order of this morning does not go out in the evening. What was sent, or may have been, is never
// given up here: it is asked about.
//
// Everything is written in transactions under the leader's term.
package schedule
