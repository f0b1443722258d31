// Command settlement-scheduler turns what settled into obligations, on every replica, and keeps their cycles, on one. See
// packages obligation, cycle, republish and schedule for its rules.
package main

import "github.com/cabine-pix/cabine/services/internal/core"

// version is set by the build; empty: what the build information says.
var version string

func main() { core.Main("settlement-scheduler", version, Defaults(), wire) }
