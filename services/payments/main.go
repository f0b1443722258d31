// Command payments takes orders over HTTP and what the SPI sends, asks the participant's core
// and keeps the books. See packages api, inbound, decision, announce and watch for its rules.
package main

import "github.com/cabine-pix/cabine/services/internal/core"

// version is set by the build; empty: what the build information says.
var version string

func main() { core.Main("payments", version, Defaults(), wire) }
