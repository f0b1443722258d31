// Bench measures what Cabine promises to be fast at, as ratios in one run against a
// peer or a limit on the same machine and the same servers.
package main

import "os"

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }
