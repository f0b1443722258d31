// Package e2e runs the built programs through bad days: replicas of the icom-poller with
// the transport-bacen beside them, on real PostgreSQL, Redis and NATS, against the
// simulated bank, which judges. It knows the programs only by their command line, their
// configuration, their log and their health.
//
// Each test names its goal and its method. The oracle is the bank's own count: a test
// fails by itself when more requests than the cap were in progress, and the mutations in
// pause_test.go show that it can. What a single replica or a single library shows is
// tested where that lives: services/icom-poller (process_test.go), transporttest, lease. An
// N of 7 and times that break an inequality are among those.
//
// Times are short and tight: B is exactly the longest time for which this bank counts, plus u.
package e2e
