// Demo runs the whole system on one machine: two participants that pay each other through the simulated SPI
// over mutual TLS, with real Postgres, Redis and NATS. Replicas are killed and rolled
// meanwhile. It ends with a report that compares our books with the bank's own count.
package main

import "os"

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }
