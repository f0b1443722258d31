// Command settlement-scheduler turns what settled into obligations and what the core publishes into orders, on every replica;
// on the one that leads it keeps cycles, imports the bank's files, compares our books with them, and ends what is old. See
// packages obligation, coreevent, cycle, republish, fileimport, reconciliation and schedule for its rules.
package main

import "github.com/cabine-pix/cabine/services/internal/core"

// version is set by the build; empty: what the build information says.
var version string

func main() { core.Main("settlement-scheduler", version, Defaults(), wire) }
