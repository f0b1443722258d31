// Demo runs the whole receiving system on one machine: three replicas, the simulated bank
// over mutual TLS, real Postgres, Redis and NATS. One replica is killed and one is rolled
// meanwhile. It ends with a report that compares our books with the bank's own count.
package main

import "os"

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }
