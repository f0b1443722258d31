// Package republish announces obligations that are due, on one replica: those that never were, and those that nobody
// wrote since.
//
// What is due stands in a table, written with the settlement itself. The leader reads it, publishes identifiers and notes
// under its term when each is due again: after Again, then after twice as long each time, up to Most. A leader whose term
// is over notes nothing and gives up; what it published last is published once more by the next one, under the same
// Nats-Msg-Id, so the bus keeps one. With no leader nothing is announced and nothing is lost.
package republish
