// Package robustness runs the whole system through one bad day: two participants, every service as several processes,
// real PostgreSQL, Redis and NATS, the simulated bank with the SPI behind it; 20,000 payments and some returns, while
// everything that can fail fails by a printed seed. Then the faults stop, and the books must be right: those of both
// participants equal the SPI's line by line, and what is not equal is explained line by line.
//
// Like package e2e it knows the programs only by their command line, their configuration, their log and their API, and
// it reads the tables through package store. What a single fault does is tested where that lives; here is what nobody
// thought of: faults that meet.
//
// # Edges and what happens there
//
//	client -> API           a client repeats an order under its key until it is answered; some orders are given twice at once
//	replicas                SIGKILL, SIGTERM, SIGSTOP for a while, of pollers, payments and senders; their plugins killed
//	PostgreSQL              restarted, crashed
//	Redis                   emptied, restarted, crashed and empty, silent for a while
//	NATS                    restarted, restarted without its store
//	bank -> plugin          delays, answers after our timeout, 429, 5xx, cuts before, in and after the answer, slow and
//	                        malformed answers, all connections reset
//	SPI                     notifications lost, repeated, late; orders refused with admi.002; answers lost and after AB03
//	core                    slow, silent, wrong in every way that corebanktest knows, dead
//
// # Times
//
// All times are short in proportion to those of production: a lease of 7 s, 20 s for the SPI to settle, enquiries
// after 21 s. Orders come as fast as the system takes them, with a bound on what is open, so that a slow machine has a
// longer day with the same faults and not a worse one: faults come by the count of orders, not by the clock.
package robustness
