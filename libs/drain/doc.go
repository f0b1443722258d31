// Package drain stops a service in order: a list of phases, each with its own limit.
//
// A container that gives all stop hooks one shared budget skips the last ones when the
// first is slow, and the last ones are those that give permits back. So the order of
// stopping is one list, run by one goroutine, and no phase can spend another's time:
//
//	stop taking work -> let it end -> abort -> close streams -> release or cool down -> ... -> close clients
//
// A phase that is not over at its budget has its context cancelled, gets Linger to
// return, is reported and left behind; the next one goes on. That is a failure, except of a phase
// that only Waits for what a later one ends: a stop that gave up nothing has not failed. A phase that fails or
// panics does not keep the next from running either: what a phase did not do must be
// safe by expiry.
//
// Abort (a second signal) cancels the running phase and every one that waits for work
// to end. Phases marked Always keep their full budget: they release or cool down what
// the bank may still count, which is no less needed in a hurry.
//
// The watchdog ends the process with exit code 1 when WatchdogSlack is over after the sum
// of the budgets. It stays armed after the last phase, because what follows (closing
// clients, the container's own hooks) can hang as well, until Disarm says that the
// process is about to end.
//
// Goroutines: one per running phase (left behind only if it overruns) and one for the
// watchdog, from Arm or Run until Disarm.
package drain
